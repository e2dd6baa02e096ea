//! Jobs of one kind, which nothing but their places tells apart.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::world::{Model, World};

impl World {
    /// Orders them by how they stand, so that worlds that differ in their places only are one.
    pub(super) fn arrange_twins(&mut self, model: &Model) {
        let places = 0..self.things.len();
        let twins = |m: usize, n: usize| m < n && model.jobs[m] == model.jobs[n];
        if !(places.clone()).any(|m| places.clone().any(|n| twins(m, n))) {
            return;
        }
        let keys: Vec<u64> = places.clone().map(|n| self.key(n)).collect();
        let mut order: Vec<usize> = places.clone().collect();
        for m in places.clone() {
            for n in places.clone().filter(|n| twins(m, *n)) {
                if keys[order[n]] < keys[order[m]] {
                    order.swap(m, n);
                }
            }
        }
        if !order.is_sorted() {
            self.put_in(&order);
        }
    }

    /// All that is known of a job.
    fn key(&self, n: usize) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.things[n].hash(&mut hasher);
        for boot in &self.boots {
            (boot.named & (1 << n) != 0, boot.alone == Some(n)).hash(&mut hasher);
        }
        (self.panicked & (1 << n) != 0).hash(&mut hasher);
        hasher.finish()
    }

    /// The job at `order[n]` comes to place `n`.
    fn put_in(&mut self, order: &[usize]) {
        let places = || order.iter().enumerate();
        let moved =
            |bits: u8| places().fold(0, |all, (to, from)| all | (((bits >> from) & 1) << to));
        for boot in &mut self.boots {
            boot.named = moved(boot.named);
            boot.alone = boot
                .alone
                .and_then(|n| order.iter().position(|from| *from == n));
        }
        self.panicked = moved(self.panicked);
        self.things = order
            .iter()
            .map(|from| self.things[*from].clone())
            .collect();
    }
}
