//! I9: recovery that is cut at any write, and done again, in whatever order.

use evenkeel_core::budget::Budget;

use super::steps::UNANNOUNCED;
use super::world::{Model, RowState, Run, World};

/// What disposal leaves of a job: who owns it does not matter.
type Outcome = [(RowState, Budget, Run); 2];

/// More writes than a disposal of two jobs can take.
const MOST_WRITES: usize = 12;

/// For a world whose broker is dead: whole, in the other order, and cut after each write by a
/// death that nobody announced, with what was under way then lost or landed.
pub(super) fn a_cut_changes_nothing(model: &Model, world: &World) -> bool {
    if world.broker_up {
        return true;
    }
    let (whole, writes) = dispose(model, world, [0, 1], None);
    let backwards = dispose(model, world, [1, 0], None).0;
    let cuts = (1..=writes).flat_map(|at| [(at, false), (at, true)]);
    let mut cut = cuts.map(|cut| dispose(model, world, [0, 1], Some(cut)).0);
    whole == backwards && cut.all(|outcome| outcome == whole)
}

/// Recovers and concludes all that can be without anything happening outside.
fn dispose(
    model: &Model,
    world: &World,
    order: [usize; 2],
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
        for n in order {
            if !step(model, &mut world, n) {
                continue;
            }
            moved = true;
            writes += 1;
            assert!(writes <= MOST_WRITES, "no end of it: {world:#?}");
            if let Some((at, lands)) = cut
                && at == writes
            {
                die(model, &mut world, lands);
            }
        }
        if !moved {
            let left = world
                .things
                .map(|thing| (thing.row.state, thing.row.budget, thing.run));
            return (left, writes);
        }
    }
}

fn step(model: &Model, world: &mut World, n: usize) -> bool {
    world.recover(model, n)
        || (world.may_conclude(model, n) && world.watch(model, n))
        || world.deliver(model, n)
}

fn die(model: &Model, world: &mut World, lands: bool) {
    world.broker_dies(|_| UNANNOUNCED);
    for n in [0, 1] {
        if let Some(write) = world.things[n].ghost.take()
            && lands
        {
            world.store(model, n, &write);
        }
    }
    world.restart();
}
