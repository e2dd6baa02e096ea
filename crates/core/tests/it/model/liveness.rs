//! Whether all ends well once nobody kills any more, from wherever that is.
//!
//! Not by stateright's `eventually`, which misses cycles: a state is safe if all is well in it, or
//! if it has successors without a kill and all of them are safe. What is never found to be safe
//! can go on for ever, or is stuck. No fairness is assumed: whatever the schedule.

use std::collections::HashMap;

use super::steps::Step;
use super::world::{Model, POISON, RowState, World};

#[derive(PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    EndsWell,
    NeverEnds(Box<World>),
}

/// The poison is set aside and the innocent is done (that it was not condemned wrongly is a claim
/// about every state).
fn is_well(world: &World) -> bool {
    let condemned = matches!(
        world.things[POISON].row.state,
        RowState::QuarantinedForCrashes | RowState::QuarantinedForLosses
    );
    condemned && world.things[1 - POISON].is_final()
}

pub(super) fn check(model: &Model, states: &[World]) -> Verdict {
    let numbers: HashMap<&World, usize> = states.iter().zip(0..).collect();
    let mut came_from: Vec<Vec<usize>> = vec![Vec::new(); states.len()];
    let mut unsafe_successors = vec![0usize; states.len()];
    let mut safe: Vec<usize> = Vec::new();
    for (here, world) in states.iter().enumerate() {
        if is_well(world) {
            safe.push(here);
            continue;
        }
        for step in Step::all().into_iter().filter(|step| !step.is_kill()) {
            if let Some(next) = world.after(model, step) {
                let next = numbers[&next];
                came_from[next].push(here);
                unsafe_successors[here] += 1;
            }
        }
    }
    let mut is_safe = vec![false; states.len()];
    while let Some(here) = safe.pop() {
        is_safe[here] = true;
        for &before in &came_from[here] {
            unsafe_successors[before] -= 1;
            if unsafe_successors[before] == 0 {
                safe.push(before);
            }
        }
    }
    match is_safe.iter().position(|is_safe| !is_safe) {
        None => Verdict::EndsWell,
        Some(lost) => Verdict::NeverEnds(Box::new(states[lost].clone())),
    }
}
