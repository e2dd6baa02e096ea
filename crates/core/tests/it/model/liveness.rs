//! Whether all ends well once nobody kills any more, from wherever that is.
//!
//! Not by stateright's `eventually`, which misses cycles: a state is safe if all is well in it, or
//! if it has successors without a kill and all of them are safe. What is never found to be safe
//! can go on for ever, or is stuck. No fairness is assumed: whatever the schedule.

use std::collections::HashMap;

use super::world::{Model, RowState, Thing, World};

#[derive(PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    EndsWell,
    NeverEnds(Box<World>),
}

/// The poisons are set aside and the innocents are done (that none was condemned wrongly is a
/// claim about every state).
fn is_well(model: &Model, world: &World) -> bool {
    let well = |(n, thing): (usize, &Thing)| match thing.state {
        RowState::Waiting | RowState::Running { .. } | RowState::Strange => false,
        RowState::Succeeded => model.poison(n).is_none_or(|poison| poison.may_succeed()),
        RowState::Late => model.poison(n).is_some(),
        RowState::Cancelled
        | RowState::QuarantinedForCrashes
        | RowState::QuarantinedForLosses
        | RowState::SetAside
        | RowState::QuarantinedUnstarted => true,
    };
    world.things.iter().enumerate().all(well)
}

pub(super) fn check(model: &Model, states: &[World]) -> Verdict {
    let numbers: HashMap<&World, usize> = states.iter().zip(0..).collect();
    let mut came_from: Vec<Vec<u32>> = vec![Vec::new(); states.len()];
    let mut unsafe_successors = vec![0u32; states.len()];
    let mut safe: Vec<usize> = Vec::new();
    for (here, world) in states.iter().enumerate() {
        if is_well(model, world) {
            safe.push(here);
            continue;
        }
        for step in world.steps(model) {
            if step.is_kill() {
                continue;
            }
            if let Some(next) = world.after(model, step) {
                let next = numbers[&next];
                came_from[next].push(u32::try_from(here).expect("states are few enough"));
                unsafe_successors[here] += 1;
            }
        }
    }
    let mut is_safe = vec![false; states.len()];
    while let Some(here) = safe.pop() {
        is_safe[here] = true;
        for &before in &came_from[here] {
            let before = before as usize;
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
