//! Chance from a seed: the same seed asks for the same things in the same order. (When kills hit
//! and which request wins a race is up to the machine.)

use std::time::Duration;

/// SplitMix64: small, and good enough to choose by.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Dice of their own, for what goes on at the same time.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// 0 to `bound`, without `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Whether something happens that happens so often in a hundred times.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let nth = self.below(from.len() as u64);
        &from[usize::try_from(nth).unwrap()]
    }

    /// A time from 1 ms to this many.
    pub(crate) fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(1 + self.below(most))
    }

    /// A name as platforms give them.
    pub(crate) fn guid(&mut self) -> String {
        let bits = u128::from(self.next()) << 64 | u128::from(self.next());
        uuid::Builder::from_random_bytes(bits.to_le_bytes())
            .into_uuid()
            .to_string()
    }
}
