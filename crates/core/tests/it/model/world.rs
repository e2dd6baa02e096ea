//! The state of the modelled world, and how its rows become jobs and back.

use std::sync::Mutex;
use std::time::Duration;

use evenkeel_core::attempt::{Attempt, End};
use evenkeel_core::budget::{Budget, SOLO_MIN};
use evenkeel_core::job::{Job, QuarantineReason, State};
use evenkeel_core::policy::Policy;
use evenkeel_core::recovery::{DeathFact, RunFact};
use evenkeel_core::transition::{Effect, Event, transition};

use crate::fixtures::{NOON, attempt_id, boot_id, job, policy, run_root};

/// What the bad job kills, each time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Poison {
    /// Kills its shim; its tree lives on.
    OwnRun,
    /// The broker dies in the step that starts it.
    BrokerAtStart,
    /// The broker dies while it runs, and it with the broker.
    BrokerWhileRunning,
    /// The broker dies in the step that reads its record.
    BrokerAtConclusion,
}

impl Poison {
    pub(super) const ALL: [Self; 4] = [
        Self::OwnRun,
        Self::BrokerAtStart,
        Self::BrokerWhileRunning,
        Self::BrokerAtConclusion,
    ];
}

/// A mistake in the rules or in the order of steps, to see that it would be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flaw {
    StartBeforeCommit,
    ProbeWithoutFence,
    ChargeLingering,
    IgnoreToken,
    ConvictInCompany,
    AdoptBeforeCharge,
    ReadCondemnedRecord,
    CountNothing,
}

/// The model: what does not change.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) poison: Poison,
    pub(super) flaw: Option<Flaw>,
    pub(super) kills: u8,
    pub(super) policy: Policy,
    /// Every state that was visited, each once.
    pub(super) seen: Mutex<Vec<World>>,
}

impl Model {
    pub(super) fn new(poison: Poison, kills: u8) -> Self {
        Self {
            poison,
            flaw: None,
            kills,
            policy: Policy {
                suspect_disruptions: 2,
                ..policy(3, 3)
            },
            seen: Mutex::default(),
        }
    }

    pub(super) fn with_limits(mut self, crash_limit: u32, loss_limit: u32) -> Self {
        self.policy.crash_limit = crash_limit;
        self.policy.loss_limit = loss_limit;
        self
    }

    pub(super) fn with_flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    pub(super) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    pub(super) fn limits(&self) -> (u32, u32, u8) {
        (self.policy.crash_limit, self.policy.loss_limit, self.kills)
    }

    pub(super) fn states(&self) -> Vec<World> {
        self.seen.lock().expect("nobody panics with it").clone()
    }
}

/// The one that is bad.
pub(super) const POISON: usize = 0;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    pub(super) broker_up: bool,
    pub(super) things: [Thing; 2],
    /// Kills from outside that may still come.
    pub(super) kills_left: u8,
    /// Brokers that the poison has killed.
    pub(super) strikes: u8,
    /// Somebody who was no longer the owner changed a row.
    pub(super) stale_write_applied: bool,
}

/// A job with all that belongs to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Thing {
    pub(super) row: Row,
    /// Who owns the attempt under way.
    pub(super) owner: Owner,
    /// The run of the latest attempt.
    pub(super) run: Run,
    /// Whether that run has outlived its isolation.
    pub(super) aged: bool,
    /// A run of an earlier attempt is still alive.
    pub(super) old_run_alive: bool,
    pub(super) driver: Driver,
    /// A finish that the living broker has sent.
    pub(super) sent: Option<Write>,
    /// A finish whose sender has died; it may yet arrive.
    pub(super) ghost: Option<Write>,
    /// Kills from outside that met its run, or the broker in a step of it.
    pub(super) hits: u8,
    /// Those of them that met it in isolation.
    pub(super) isolated_hits: u8,
}

/// The row in the store.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Row {
    pub(super) state: RowState,
    pub(super) budget: Budget,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum RowState {
    /// Queued, or in a backoff that is over.
    Waiting,
    Running {
        solo: bool,
    },
    Succeeded,
    QuarantinedForCrashes,
    QuarantinedForLosses,
    /// Any other end; none is expected.
    Strange,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Owner {
    /// Nobody: no attempt is under way.
    None,
    Living,
    Dead(DeathFact),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Run {
    NotStarted,
    /// The shim holds the lock; the action's first instruction is still to come.
    Spawning,
    Alive,
    /// The shim is gone, the tree is not.
    Lingering,
    /// It has left a record, of success or of a stop.
    Exited {
        stopped: bool,
    },
    Vanished,
}

impl Run {
    pub(super) fn is_alive(self) -> bool {
        matches!(self, Self::Spawning | Self::Alive | Self::Lingering)
    }

    pub(super) fn probed(self) -> RunFact {
        match self {
            Self::NotStarted => RunFact::NeverStarted,
            Self::Spawning | Self::Alive => RunFact::Alive,
            Self::Lingering => RunFact::Lingering,
            Self::Exited { .. } => RunFact::Exited,
            Self::Vanished => RunFact::Vanished,
        }
    }
}

/// What the living broker is at with a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Driver {
    None,
    /// The claim is committed, the run not started.
    Claimed,
    /// The run is started, which is not yet written down.
    Spawned,
    Watching,
    /// The run is to end without its record being read.
    Stopping,
    /// Waits for the answer to what it has sent.
    Finishing,
}

/// A finish on its way to the store.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Write {
    pub(super) end: End,
    /// The row's token is still the one that the write is conditional on.
    pub(super) token_holds: bool,
    /// The attempt under way is still the one that it is about.
    pub(super) attempt_holds: bool,
    /// The sender is still the owner: what the token is there to tell.
    pub(super) sender_owns: bool,
}

impl Write {
    pub(super) fn by_owner(end: End) -> Self {
        Self {
            end,
            token_holds: true,
            attempt_holds: true,
            sender_owns: true,
        }
    }
}

impl World {
    pub(super) fn first(model: &Model) -> Self {
        let thing = Thing {
            row: Row {
                state: RowState::Waiting,
                budget: Budget::default(),
            },
            owner: Owner::None,
            run: Run::NotStarted,
            aged: false,
            old_run_alive: false,
            driver: Driver::None,
            sent: None,
            ghost: None,
            hits: 0,
            isolated_hits: 0,
        };
        Self {
            broker_up: true,
            things: [thing.clone(), thing],
            kills_left: model.kills,
            strikes: 0,
            stale_write_applied: false,
        }
    }
}

impl Thing {
    pub(super) fn is_running(&self) -> bool {
        matches!(self.row.state, RowState::Running { .. })
    }

    pub(super) fn is_final(&self) -> bool {
        !self.is_running() && self.row.state != RowState::Waiting
    }

    /// Whether its run has the replica for itself at this moment.
    pub(super) fn is_alone(&self) -> bool {
        self.row.state == (RowState::Running { solo: true }) && !self.aged
    }

    pub(super) fn ran(&self) -> Duration {
        if self.aged { SOLO_MIN } else { Duration::ZERO }
    }

    fn job(&self) -> Job {
        let solo = |solo: bool| solo.then_some(SOLO_MIN);
        let state = match self.row.state {
            RowState::Waiting => State::Queued,
            RowState::Running { solo: alone } => State::Running {
                attempt: Attempt {
                    id: attempt_id(1),
                    ordinal: 1,
                    boot: boot_id(1),
                    run_root: run_root(),
                    claimed_at: NOON,
                    solo: solo(alone),
                },
                stop: None,
            },
            RowState::Succeeded => State::Succeeded,
            RowState::QuarantinedForCrashes | RowState::QuarantinedForLosses => {
                State::Quarantined {
                    reason: QuarantineReason::BudgetSpent,
                }
            }
            RowState::Strange => State::Failed {
                reason: evenkeel_core::attempt::FailReason::Timeout,
                message: None,
            },
        };
        Job {
            budget: self.row.budget.clone(),
            state,
            ..job()
        }
    }

    /// Puts the row through the real transition; `None` if it was refused.
    pub(super) fn apply(&mut self, event: Event, policy: &Policy) -> Option<Vec<Effect>> {
        let before = self.job();
        let token = before.token;
        let (after, effects) = transition(before, event, NOON, policy).ok()?;
        if after.token != token {
            self.each_write(|write| write.token_holds = false);
        }
        if !matches!(after.state, State::Running { .. }) {
            self.each_write(|write| write.attempt_holds = false);
            self.owner = Owner::None;
        }
        self.row = Row {
            state: match after.state {
                State::Queued | State::Backoff { .. } => RowState::Waiting,
                State::Running { attempt, .. } => RowState::Running {
                    solo: attempt.solo.is_some(),
                },
                State::Succeeded => RowState::Succeeded,
                State::Quarantined {
                    reason: QuarantineReason::Crashes { .. },
                } => RowState::QuarantinedForCrashes,
                State::Quarantined {
                    reason: QuarantineReason::Losses { .. },
                } => RowState::QuarantinedForLosses,
                State::Quarantined { .. } | State::Failed { .. } | State::Cancelled { .. } => {
                    RowState::Strange
                }
            },
            // Counters stop where no decision looks further.
            budget: Budget {
                exposures: after.budget.exposures.min(policy.suspect_exposures),
                disruptions: after.budget.disruptions.min(policy.suspect_disruptions),
                losses: after.budget.losses.min(policy.loss_limit + 1),
                longest_lost: Duration::ZERO,
                ..after.budget
            },
        };
        Some(effects)
    }

    pub(super) fn each_write(&mut self, mut change: impl FnMut(&mut Write)) {
        self.sent
            .iter_mut()
            .chain(&mut self.ghost)
            .for_each(&mut change);
    }
}
