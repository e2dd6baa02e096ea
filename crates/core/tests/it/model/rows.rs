//! How the model's rows become jobs and back, so that the real transition decides.

use std::time::Duration;

use evenkeel_core::action::Action;
use evenkeel_core::attempt::{Attempt, Charge, Death, End, ExposureCause, FailReason};
use evenkeel_core::budget::{Budget, SOLO_MIN};
use evenkeel_core::ids::Token;
use evenkeel_core::instance::{Settlement, Status, settle};
use evenkeel_core::job::{Job, QuarantineReason, State, StopReason};
use evenkeel_core::policy::{Chance, Policy};
use evenkeel_core::recovery::{ENDINGS, Hands, cannot_be_ended, is_to_end_unread};
use evenkeel_core::time::Timestamp;
use evenkeel_core::transition::{Effect, Event, transition};

use super::world::{
    Counted, Driver, Flaw, Model, RowState, Run, Thing, World, Write, Wrong, small,
};
use crate::fixtures::{DEADLINE, NOON, attempt_id, boot_id, job, run_root};

/// Free ends of one job's doing until its deadline has come: backoff makes them rare.
const FREE_ENDS: u8 = 3;

impl Thing {
    pub(super) fn ran(&self) -> Duration {
        if self.aged { SOLO_MIN } else { Duration::ZERO }
    }

    pub(super) fn is_past_its_deadline(&self) -> bool {
        self.free >= FREE_ENDS
    }

    fn now(&self) -> Timestamp {
        if self.is_past_its_deadline() {
            DEADLINE
        } else {
            NOON
        }
    }

    /// Whether its run is ended without anybody looking at what it left.
    pub(super) fn ends_unread(&self, model: &Model) -> bool {
        let now = self.time_for_recovery(model);
        is_to_end_unread(&self.job(), self.hands(model), now, &model.policy)
    }

    /// Whether its end is left to its row alone.
    pub(super) fn cannot_be_ended(&self, model: &Model) -> bool {
        let now = self.time_for_recovery(model);
        let cannot = cannot_be_ended(&self.job(), self.hands(model), now, &model.policy);
        cannot && !model.has(Flaw::EndForEver)
    }

    fn time_for_recovery(&self, model: &Model) -> Timestamp {
        if model.has(Flaw::ReadForEver) {
            NOON
        } else {
            self.now()
        }
    }

    fn hands(&self, model: &Model) -> Hands {
        Hands {
            passed: if model.has(Flaw::PassersUncounted) {
                0
            } else {
                self.hands.passed
            },
            ..self.hands
        }
    }

    /// A suspect that was near the loss of its host and has not outlived its window: nothing is
    /// claimed beside it.
    pub(super) fn shuns_company(&self, model: &Model) -> bool {
        self.is_running()
            && self.is_suspect()
            && !self.aged
            && self.lost_its_host
            && !model.has(Flaw::CompanyForWhoeverLostItsHost)
    }

    pub(super) fn attempt(&self, solo: bool) -> Attempt {
        let death = |counted: &Counted| Death {
            boot: boot_id(counted.boot.into()),
            cause: counted.cause,
            exclusive: false,
            charge: counted.charge,
        };
        Attempt {
            id: attempt_id(1),
            ordinal: 1,
            boot: boot_id(self.owner.into()),
            run_root: run_root(),
            claimed_at: NOON,
            solo: solo.then_some(SOLO_MIN),
            deaths: self.deaths.iter().map(death).collect(),
        }
    }

    fn job(&self) -> Job {
        let quarantined = |reason| State::Quarantined { reason };
        let state = match self.state {
            RowState::Waiting => State::Queued,
            RowState::Running { solo, stop } => State::Running {
                attempt: self.attempt(solo),
                stop: stop.then_some(StopReason::Operator),
            },
            RowState::Succeeded => State::Succeeded,
            RowState::QuarantinedForCrashes
            | RowState::QuarantinedForLosses
            | RowState::SetAside
            | RowState::QuarantinedUnstarted => quarantined(QuarantineReason::BudgetSpent),
            RowState::Cancelled => State::Cancelled {
                by: StopReason::Operator,
            },
            RowState::Late | RowState::Strange => State::Failed {
                reason: FailReason::Deadline,
                message: None,
            },
        };
        // A token for each claim, one for each other change of owner.
        let attempts = 1;
        Job {
            attempts,
            token: Token(u64::from(attempts) + u64::from(self.taken_over)),
            budget: self.budget.clone(),
            state,
            ..job()
        }
    }
}

impl World {
    /// Puts a row through the real transition; `None` if it was refused.
    pub(super) fn apply(&mut self, model: &Model, n: usize, event: Event) -> Option<Vec<Effect>> {
        let thing = &mut self.things[n];
        let now = thing.now();
        let before = thing.job();
        let token = before.token;
        let claims = matches!(event, Event::Claim { .. });
        let policy = Policy {
            crash_limit: model.policy.crash_limit + u32::from(model.has(Flaw::OneCrashTooMany)),
            ..model.policy
        };
        let (after, effects) = transition(before, event, now, &policy).ok()?;
        self.watch_over_the_quarantined(model, &after.state, &effects);
        let thing = &mut self.things[n];
        if after.token != token {
            thing.each_write(|write| write.token_holds = false);
            thing.hands = Hands {
                passed: 0,
                late: now == DEADLINE,
            };
        }
        let taken_over = after.token.0.saturating_sub(u64::from(after.attempts));
        let most = model.most_rounds(n);
        thing.taken_over = u8::try_from(taken_over).map_or(most, |times| times.min(most));
        thing.state = row_state(&after.state);
        thing.budget = projected(after.budget, model);
        if claims && model.has(Flaw::CountEveryStart) {
            thing.budget.crashes += 1;
        }
        match after.state {
            State::Running { attempt, .. } => {
                let index = |boot| {
                    let known = (0..=u8::MAX).find(|n| boot_id((*n).into()) == boot);
                    known.expect("the model's boots are few")
                };
                thing.owner = index(attempt.boot);
                let counted = |death: &Death| Counted {
                    boot: index(death.boot),
                    cause: death.cause,
                    charge: death.charge,
                };
                thing.deaths = attempt.deaths.iter().map(counted).collect();
                let host = |death: &Death| death.cause == ExposureCause::HostLost;
                thing.lost_its_host |= attempt.deaths.iter().any(host);
            }
            State::Queued
            | State::Backoff { .. }
            | State::Succeeded
            | State::Failed { .. }
            | State::Cancelled { .. }
            | State::Quarantined { .. } => {
                thing.each_write(|write| write.attempt_holds = false);
                self.forget_attempt(n);
            }
        }
        Some(effects)
    }

    pub(super) fn end(&mut self, model: &Model, n: usize, end: End) -> bool {
        let event = Event::End {
            attempt: attempt_id(1),
            end,
            ran: self.things[n].ran(),
            chance: Chance(0),
        };
        self.apply(model, n, event).is_some()
    }

    /// Its end could not be written: its row says so.
    pub(super) fn set_aside(&mut self, model: &Model, n: usize) -> bool {
        self.things[n].state = RowState::SetAside;
        let effects = [Effect::Settle];
        self.watch_over_the_quarantined(model, &self.things[n].job().state, &effects);
        true
    }

    /// Of a quarantined job the attempt is closed, and its target gets another status. Nothing that
    /// the target has goes or changes, whatever the job was to do with it.
    fn watch_over_the_quarantined(&mut self, model: &Model, state: &State, effects: &[Effect]) {
        if !matches!(state, State::Quarantined { .. }) {
            return;
        }
        let closes =
            |effect: &Effect| matches!(effect, Effect::CloseAttempt { .. } | Effect::Settle);
        let state = if model.has(Flaw::SettleTheCondemnedAsDone) {
            &State::Succeeded
        } else {
            state
        };
        let made_outputs = effects.contains(&Effect::KeepOutputs);
        let mut settlements =
            (Action::ALL.into_iter()).filter_map(|action| settle(action, state, made_outputs));
        let touches = |to: Settlement| {
            let deleted = to.status == Some(Status::Deleted);
            deleted || to.bindings_gone || to.apply_desired || to.keep_outputs
        };
        if !effects.iter().all(closes) || settlements.any(touches) {
            self.wrong = Some(Wrong::QuarantineTouched);
        }
    }

    /// A finish is written, now or when it arrives.
    pub(super) fn send(&mut self, model: &Model, n: usize, end: End) -> bool {
        let write = Write {
            end,
            token_holds: true,
            attempt_holds: true,
            sender_owns: true,
        };
        self.things[n].sent = Some(write);
        self.things[n].driver = Driver::Finishing;
        model.slow_writes || self.deliver(model, n)
    }

    pub(super) fn deliver(&mut self, model: &Model, n: usize) -> bool {
        let Some(write) = self.things[n].sent.take() else {
            return false;
        };
        self.store(model, n, &write);
        self.things[n].driver = Driver::None;
        true
    }

    /// A finish arrives at the store, which asks the fence. Always takes place.
    pub(super) fn store(&mut self, model: &Model, n: usize, write: &Write) -> bool {
        let fence = write.attempt_holds && (write.token_holds || model.has(Flaw::IgnoreToken));
        if fence && self.things[n].is_running() {
            let ended = self.end(model, n, write.end.clone());
            if ended && !write.sender_owns {
                self.wrong = Some(Wrong::StaleWrite);
            }
        }
        true
    }

    /// What was known about an attempt that has ended goes with it.
    fn forget_attempt(&mut self, n: usize) {
        for boot in &mut self.boots {
            boot.named &= !(1 << n);
            if boot.alone == Some(n) {
                boot.alone = None;
            }
        }
        let thing = &mut self.things[n];
        thing.deaths.clear();
        thing.lost_its_host = false;
        thing.lost_under = None;
        thing.outlived = false;
        thing.owner = 0;
        thing.hands = Hands::default();
        thing.aged = false;
        if !thing.run.is_alive() {
            thing.run = Run::NotStarted;
        }
    }
}

fn row_state(state: &State) -> RowState {
    match state {
        State::Queued | State::Backoff { .. } => RowState::Waiting,
        State::Running { attempt, stop } => RowState::Running {
            solo: attempt.solo.is_some(),
            stop: stop.is_some(),
        },
        State::Succeeded => RowState::Succeeded,
        State::Quarantined { reason } => match reason {
            QuarantineReason::Crashes { .. } => RowState::QuarantinedForCrashes,
            QuarantineReason::Losses { .. } => RowState::QuarantinedForLosses,
            QuarantineReason::BudgetSpent => RowState::QuarantinedUnstarted,
            QuarantineReason::Unreadable { .. } => RowState::Strange,
        },
        State::Cancelled { .. } => RowState::Cancelled,
        State::Failed {
            reason: FailReason::Deadline,
            ..
        } => RowState::Late,
        State::Failed { .. } => RowState::Strange,
    }
}

/// Counters stop where no decision looks further.
fn projected(budget: Budget, model: &Model) -> Budget {
    let policy = &model.policy;
    Budget {
        exposures: budget.exposures.min(policy.suspect_exposures),
        disruptions: budget.disruptions.min(policy.suspect_disruptions),
        losses: budget.losses.min(policy.loss_limit + ENDINGS),
        longest_lost: Duration::ZERO,
        ..budget
    }
}

/// A death as it stands on the list of an attempt that its boot does not own: what it cost is
/// asked no more.
pub(super) fn plainly(counted: Counted) -> Counted {
    Counted {
        cause: ExposureCause::NamedByBlackBox,
        charge: Charge::None,
        ..counted
    }
}

/// Ends that cost nothing stop where the deadline has come.
pub(super) fn one_more_free(count: u8) -> u8 {
    (count + 1).min(FREE_ENDS)
}

/// Strikes stop one beyond what is allowed.
pub(super) fn one_more(count: u8, model: &Model) -> u8 {
    (count + 1).min(model.most_deaths() + small(model.policy.loss_limit) + 3)
}
