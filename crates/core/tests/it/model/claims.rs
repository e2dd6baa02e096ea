//! What has to be true of every state.

use stateright::Property;

use super::dispose::a_cut_changes_nothing;
use super::steps::Step;
use super::world::{Driver, Kill, Model, RowState, Run, Thing, World, Wrong};

pub(super) mod names {
    pub(crate) const COMMITTED_FIRST: &str = "I2: user code runs for an attempt on record";
    pub(crate) const ON_RECORD: &str = "I18: what is alive belongs to an attempt on record";
    pub(crate) const ONE_RUN: &str = "I3: at most one run of a job is alive";
    pub(crate) const STALE_OWNER: &str = "I4: a stale owner changes nothing";
    pub(crate) const NO_INNOCENT: &str = "I5: no innocent is charged for what others did";
    pub(crate) const NONE_CONDEMNED: &str =
        "I5: no innocent is quarantined, short of limits of kills that met it";
    pub(crate) const FEW_CRASHES: &str = "I6: at most crash_limit crashes are charged";
    pub(crate) const FEW_DEATHS: &str =
        "I7: at most 2 + loss_limit brokers die, and those beside which a run was lost";
    pub(crate) const FREE_DRAIN: &str =
        "I8: who is only drained is charged nothing, unless it hung then";
    pub(crate) const CUT_DISPOSAL: &str = "I9: disposal cut at any write gives the same result";
    pub(crate) const KEPT: &str = "I13: quarantine touches nothing";
    pub(crate) const OUR_BUG: &str = "nobody pays for a panic that three jobs share";
    pub(crate) const EXPECTED_ENDS: &str = "jobs end as they must";
    pub(crate) const RECORDED: &str = "recorded";
}

impl stateright::Model for Model {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::first(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Step>) {
        actions.extend(world.steps(self));
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        last.after(self, step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(names::COMMITTED_FIRST, |_, world: &World| {
                let code_runs = |thing: &Thing| matches!(thing.run, Run::Alive | Run::Lingering);
                let on_record = |thing: &Thing| !code_runs(thing) || thing.is_running();
                world.things.iter().all(on_record)
            }),
            Property::always(names::ON_RECORD, |_, world: &World| {
                let on_record = |thing: &Thing| !thing.run.is_alive() || thing.is_running();
                world.things.iter().all(on_record)
            }),
            Property::always(names::ONE_RUN, |_, world: &World| {
                let one = |thing: &Thing| !(thing.old_run_alive && thing.run.is_alive());
                world.things.iter().all(one)
            }),
            Property::always(names::STALE_OWNER, |_, world: &World| {
                world.wrong != Some(Wrong::StaleWrite)
            }),
            Property::always(names::NO_INNOCENT, no_innocent_is_charged),
            Property::always(names::NONE_CONDEMNED, no_innocent_is_condemned),
            Property::always(names::FEW_CRASHES, |model: &Model, world: &World| {
                let limit = model.policy.crash_limit;
                let few = |thing: &Thing| thing.budget.crashes <= limit;
                world.things.iter().all(few)
            }),
            Property::always(names::FEW_DEATHS, |model: &Model, world: &World| {
                let few = |thing: &Thing| thing.strikes <= model.most_deaths() + thing.spoilt;
                world.things.iter().all(few)
            }),
            Property::always(names::FREE_DRAIN, a_drain_is_free),
            Property::always(names::CUT_DISPOSAL, a_cut_changes_nothing),
            Property::always(names::KEPT, |_, world: &World| {
                world.wrong != Some(Wrong::QuarantineTouched)
            }),
            Property::always(names::OUR_BUG, |_, world: &World| {
                world.wrong != Some(Wrong::PaidForOurBug)
            }),
            Property::always(names::EXPECTED_ENDS, ends_are_as_expected),
            // Not a claim: each state is asked once, which makes a list of them.
            Property::always(names::RECORDED, |model: &Model, world: &World| {
                let mut seen = model.seen.lock().expect("nobody panics with it");
                seen.push(world.clone());
                true
            }),
        ]
    }
}

/// What condemns is charged to an innocent only for kills from outside: a loss for one that met
/// it in isolation, a crash for any; and the crash that condemns only if one met it in isolation.
fn no_innocent_is_charged(model: &Model, world: &World) -> bool {
    let innocent = |(n, _): &(usize, &Thing)| model.poison(*n).is_none();
    let mut innocents = world.things.iter().enumerate().filter(innocent);
    innocents.all(|(_, thing)| {
        let isolated = u32::from(thing.isolated_hits);
        let crashes = thing.budget.crashes;
        thing.budget.losses <= isolated
            && crashes <= u32::from(thing.hits)
            && (crashes < model.policy.crash_limit || isolated >= 1)
    })
}

/// As the invariant has it, whatever became of its account before.
fn no_innocent_is_condemned(model: &Model, world: &World) -> bool {
    let condemned =
        |(n, thing): &(usize, &Thing)| model.poison(*n).is_none() && thing.is_quarantined();
    let mut condemned = world.things.iter().enumerate().filter(condemned);
    condemned.all(|(_, thing)| {
        let (hits, isolated) = (u32::from(thing.hits), u32::from(thing.isolated_hits));
        isolated >= model.policy.loss_limit || (isolated >= 1 && hits >= model.policy.crash_limit)
    })
}

/// In a world where no boot dies without warning and no run is killed.
fn a_drain_is_free(model: &Model, world: &World) -> bool {
    let gentle = |kill: &Kill| matches!(kill, Kill::Drain | Kill::Cancel | Kill::Driver);
    let orderly = (model.jobs.iter().flatten()).all(|poison| poison.is_orderly());
    if !(orderly && model.kinds.iter().all(gentle)) {
        return true;
    }
    let free = |thing: &Thing| {
        let budget = &thing.budget;
        let charged = budget.exposures + budget.losses + budget.crashes;
        charged == 0 || (thing.hits > 0 && budget.losses <= u32::from(thing.isolated_hits))
    };
    world.things.iter().all(free)
}

fn ends_are_as_expected(model: &Model, world: &World) -> bool {
    let expected = |(n, thing): (usize, &Thing)| match thing.state {
        RowState::Waiting | RowState::Running { .. } | RowState::Cancelled => true,
        RowState::Succeeded => model.poison(n).is_none_or(|poison| poison.may_succeed()),
        RowState::Late => thing.is_past_its_deadline(),
        // That an innocent is not set aside wrongly is a claim of its own.
        RowState::QuarantinedForCrashes
        | RowState::QuarantinedForLosses
        | RowState::QuarantinedUnstarted => thing.budget.is_spent(&model.policy),
        RowState::SetAside => thing.budget.is_spent(&model.policy) || thing.is_past_its_deadline(),
        RowState::Strange => false,
    };
    world.things.iter().enumerate().all(expected)
}

/// Something that has to be met somewhere, for the claims to say anything.
pub(super) type Sight = (&'static str, fn(&World) -> bool);

fn any(world: &World, is: fn(&Thing) -> bool) -> bool {
    world.things.iter().any(is)
}

pub(super) const STALE_WRITE: Sight = ("a stale write about an attempt that goes on", |world| {
    any(world, |thing| {
        let ghost = thing.ghost.as_ref();
        ghost.is_some_and(|write| write.attempt_holds && !write.token_holds)
    })
});
pub(super) const LINGERING: Sight = ("a lingering run of a dead owner", |world| {
    let of_dead = |thing: &Thing| thing.run == Run::Lingering && world.is_dead(thing.owner);
    world.things.iter().any(of_dead)
});
pub(super) const UNDRIVEN: Sight = ("a living run without a driver", |world| {
    let undriven = |thing: &Thing| thing.run == Run::Alive && thing.driver == Driver::None;
    world.up && any(world, undriven)
});
pub(super) const COMPANY: Sight = ("all running", |world| {
    world.things.iter().all(Thing::is_running)
});
pub(super) const ALONE: Sight = ("a solo run", |world| any(world, Thing::is_alone));
pub(super) const CONDEMNED: Sight = ("a job condemned for losses", |world| {
    any(world, |thing| thing.state == RowState::QuarantinedForLosses)
});
pub(super) const SET_ASIDE: Sight = ("a job set aside by its row alone", |world| {
    any(world, |thing| thing.state == RowState::SetAside)
});
pub(super) const UNREAD: Sight = ("a record that is not read", |world| {
    any(world, |thing| thing.driver == Driver::Stopping)
});
pub(super) const SPOILT: Sight = ("a box that is spoilt", |world| {
    any(world, |thing| thing.spoilt > 0)
});
pub(super) const SEVERAL_BOOTS: Sight = ("deaths of several boots at once", |world| {
    world.boots.len() > 2
});
pub(super) const UNSTARTED: Sight = ("a job set aside without a run", |world| {
    any(world, |thing| thing.state == RowState::QuarantinedUnstarted)
});
pub(super) const TWO_IN_A_STEP: Sight = ("a death that names two", |world| {
    world.boots.iter().any(|boot| boot.named.count_ones() >= 2)
});
pub(super) const DEADLINE: Sight = ("a job ended by its deadline", |world| {
    any(world, |thing| thing.state == RowState::Late)
});
pub(super) const HELD: Sight = ("a hold", |world| world.held);

/// The most that any job did to brokers, over these states.
pub(super) fn most_strikes(states: &[World]) -> u8 {
    let things = states.iter().flat_map(|world| &world.things);
    things.map(|thing| thing.strikes).max().unwrap_or(0)
}
