//! I9: recovery that is cut at any write, and done again, in whatever order.

use evenkeel_core::budget::Budget;

use super::steps::NOBODY;
use super::world::{Driver, Model, RowState, Run, World};

/// What disposal leaves of a job: who owns it does not matter. Past its deadline how often it is cut
/// decides whether its record is read: there only the charges have to be the same.
type Outcome = Vec<(Budget, Option<(RowState, Run)>)>;

/// More writes than a disposal of a few jobs can take.
const MOST_WRITES: usize = 40;

/// For a world whose broker is dead: whole, in the other order, and cut after each write by a
/// death that nobody announced, with what was under way then lost or landed.
pub(super) fn a_cut_changes_nothing(model: &Model, world: &World) -> bool {
    if world.up || !model.checks_cuts() {
        return true;
    }
    let forward: Vec<usize> = (0..world.things.len()).collect();
    let backward: Vec<usize> = forward.iter().rev().copied().collect();
    let (whole, writes) = dispose(model, world, &forward, None);
    let backwards = dispose(model, world, &backward, None).0;
    let cuts = (1..=writes).flat_map(|at| [(at, false), (at, true)]);
    let mut cut = cuts.map(|cut| dispose(model, world, &forward, Some(cut)).0);
    whole == backwards && cut.all(|outcome| outcome == whole)
}

/// Recovers and concludes all that can be without anything happening outside.
fn dispose(
    model: &Model,
    world: &World,
    order: &[usize],
    cut: Option<(usize, bool)>,
) -> (Outcome, usize) {
    let mut world = world.clone();
    for thing in &mut world.things {
        thing.ghost = None;
    }
    world.restart();
    let mut writes = 0;
    loop {
        let mut moved = false;
        while world.judge(model) {
            moved = true;
            count(model, &mut world, &mut writes, cut);
        }
        for &n in order {
            if step(model, &mut world, n) {
                moved = true;
                count(model, &mut world, &mut writes, cut);
            }
        }
        if !moved {
            let things = world.things.into_iter();
            let left = things.map(|thing| {
                let (late, left) = (thing.is_past_its_deadline(), (thing.state, thing.run));
                let mut budget = thing.budget;
                if late {
                    budget.disruptions = 0;
                    budget.suspect = false;
                }
                (budget, (!late).then_some(left))
            });
            return (left.collect(), writes);
        }
    }
}

fn count(model: &Model, world: &mut World, writes: &mut usize, cut: Option<(usize, bool)>) {
    *writes += 1;
    assert!(*writes <= MOST_WRITES, "no end of it: {world:#?}");
    if let Some((at, lands)) = cut
        && at == *writes
    {
        die(model, world, lands);
    }
}

fn step(model: &Model, world: &mut World, n: usize) -> bool {
    let driven = matches!(world.things[n].driver, Driver::Watching | Driver::Stopping);
    world.recover(model, n)
        || (driven && world.may_watch(model, n) && world.watch(model, n))
        || world.deliver(model, n)
}

fn die(model: &Model, world: &mut World, lands: bool) {
    world.broker_dies(model, NOBODY, false);
    for n in 0..world.things.len() {
        if let Some(write) = world.things[n].ghost.take()
            && lands
        {
            world.store(model, n, &write);
        }
    }
    world.restart();
}
