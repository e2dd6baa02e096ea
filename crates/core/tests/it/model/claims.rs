//! What has to be true of every state.

use stateright::Property;

use super::dispose::a_cut_changes_nothing;
use super::steps::{Step, most_deaths};
use super::world::{Driver, Model, Owner, POISON, Poison, RowState, Run, Thing, World};

pub(super) mod names {
    pub(crate) const COMMITTED_FIRST: &str = "I2, I18: what runs belongs to an attempt on record";
    pub(crate) const ONE_RUN: &str = "I3: at most one run of a job is alive";
    pub(crate) const STALE_OWNER: &str = "I4: a stale owner changes nothing";
    pub(crate) const NO_INNOCENT: &str = "I5: no innocent is condemned for what others did";
    pub(crate) const FEW_CRASHES: &str = "I6: at most crash_limit crashes are charged";
    pub(crate) const FEW_DEATHS: &str = "I7: at most 2 + loss_limit brokers die";
    pub(crate) const CUT_DISPOSAL: &str = "I9: disposal cut at any write gives the same result";
    pub(crate) const NOTHING_STRANGE: &str = "jobs succeed or are quarantined, nothing else";
    pub(crate) const RECORDED: &str = "recorded";
}

impl stateright::Model for Model {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::first(self)]
    }

    fn actions(&self, _: &World, actions: &mut Vec<Step>) {
        actions.extend(Step::all());
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        last.after(self, step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(names::COMMITTED_FIRST, |_, world: &World| {
                let on_record = |thing: &Thing| !thing.run.is_alive() || thing.is_running();
                world.things.iter().all(on_record)
            }),
            Property::always(names::ONE_RUN, |_, world: &World| {
                let one = |thing: &Thing| !(thing.old_run_alive && thing.run.is_alive());
                world.things.iter().all(one)
            }),
            Property::always(names::STALE_OWNER, |_, world: &World| {
                !world.stale_write_applied
            }),
            Property::always(names::NO_INNOCENT, no_innocent_is_condemned),
            Property::always(names::FEW_CRASHES, |model: &Model, world: &World| {
                let limit = model.policy.crash_limit;
                world
                    .things
                    .iter()
                    .all(|thing| thing.row.budget.crashes <= limit)
            }),
            Property::always(names::FEW_DEATHS, |model: &Model, world: &World| {
                world.strikes <= most_deaths(model)
            }),
            Property::always(names::CUT_DISPOSAL, a_cut_changes_nothing),
            Property::always(names::NOTHING_STRANGE, |_, world: &World| {
                world.things[POISON].row.state != RowState::Succeeded
                    && (world.things.iter()).all(|thing| thing.row.state != RowState::Strange)
            }),
            // Not a claim: each state is asked once, which makes a list of them.
            Property::always(names::RECORDED, |model: &Model, world: &World| {
                model
                    .seen
                    .lock()
                    .expect("nobody panics with it")
                    .push(world.clone());
                true
            }),
        ]
    }
}

/// The innocent is condemned for losses only after as many deaths in isolation, and for crashes
/// only after as many deaths of its own run, one of them in isolation.
fn no_innocent_is_condemned(model: &Model, world: &World) -> bool {
    let innocent = &world.things[1 - POISON];
    let (hits, isolated) = (u32::from(innocent.hits), u32::from(innocent.isolated_hits));
    match innocent.row.state {
        RowState::QuarantinedForCrashes => hits >= model.policy.crash_limit && isolated >= 1,
        RowState::QuarantinedForLosses => isolated >= model.policy.loss_limit,
        RowState::Waiting | RowState::Running { .. } | RowState::Succeeded | RowState::Strange => {
            true
        }
    }
}

type Sight = (&'static str, fn(&World) -> bool);

/// What has to be met somewhere, for the claims to say anything.
pub(super) fn sights(poison: Poison) -> Vec<Sight> {
    fn any(world: &World, is: fn(&Thing) -> bool) -> bool {
        world.things.iter().any(is)
    }
    let mut all: Vec<Sight> = vec![
        ("a stale write about an attempt that goes on", |world| {
            let stale = |thing: &Thing| {
                thing
                    .ghost
                    .as_ref()
                    .is_some_and(|write| write.attempt_holds && !write.token_holds)
            };
            any(world, stale)
        }),
        ("a lingering run of a dead owner", |world| {
            any(world, |thing| {
                thing.run == Run::Lingering && matches!(thing.owner, Owner::Dead(_))
            })
        }),
        ("a living run without a driver", |world| {
            world.broker_up
                && any(world, |thing| {
                    thing.run == Run::Alive && thing.driver == Driver::None
                })
        }),
        ("an innocent that was hit", |world| {
            world.things[1 - POISON].hits > 0
        }),
        ("both running", |world| {
            world.things.iter().all(Thing::is_running)
        }),
    ];
    let own: Sight = match poison {
        Poison::OwnRun => ("the poison alone", |world| world.things[POISON].is_alone()),
        Poison::BrokerAtStart | Poison::BrokerWhileRunning => {
            ("the poison condemned for losses", |world| {
                world.things[POISON].row.state == RowState::QuarantinedForLosses
            })
        }
        Poison::BrokerAtConclusion => ("a record that is not read", |world| {
            world.things[POISON].driver == Driver::Stopping
        }),
    };
    all.push(own);
    all
}
