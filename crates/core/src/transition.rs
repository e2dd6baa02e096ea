//! The one transition function of a job: used live, in recovery and by the model checker.
//!
//! `transition` is total: every event in every state has an answer, and an event that does not
//! belong there is an [`IllegalTransition`] that changes nothing. Counting, charging and
//! conviction happen here and nowhere else (DESIGN §4).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::attempt::{
    Attempt, Charge, Death, DisruptionCause, End, ExposureCause, FailReason, MAX_DEATHS,
};
use crate::ids::{AttemptId, BootId, RunRootId};
use crate::job::{Job, QuarantineReason, State, StopReason};
use crate::policy::{Chance, Policy};
use crate::time::Timestamp;

/// Something that happens to a job.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Event {
    /// A boot takes the job for an attempt.
    Claim {
        /// The attempt's name, chosen beforehand.
        attempt: AttemptId,
        /// Who takes it.
        boot: BootId,
        /// Where the run will live.
        run_root: RunRootId,
    },
    /// Another boot takes over a run that goes on or has left its record.
    Adopt {
        /// The attempt that it takes over.
        attempt: AttemptId,
        /// Who takes it.
        boot: BootId,
    },
    /// A broker died near the attempt: counted once for each boot, whoever owns the attempt.
    Expose {
        /// The attempt under way.
        attempt: AttemptId,
        /// Who died.
        boot: BootId,
        /// How it was near.
        cause: ExposureCause,
        /// The black box named it in an exclusive step, and no other run vanished.
        exclusive: bool,
        /// How long the run is known to have lived.
        ran: Duration,
    },
    /// The attempt under way has ended.
    End {
        /// Which attempt.
        attempt: AttemptId,
        /// How.
        end: End,
        /// How long its run is known to have lived.
        ran: Duration,
        /// Spreads the backoff.
        chance: Chance,
    },
    /// Somebody wants the job to stop, or its deadline has passed.
    Stop {
        /// Why.
        reason: StopReason,
    },
    /// An operator lifts suspicion.
    Clear,
}

/// What follows from a transition, for whoever keeps and drives jobs.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Effect {
    /// The attempt's record gets its end and its charge.
    CloseAttempt {
        /// Which attempt.
        attempt: AttemptId,
        /// What it cost.
        charge: Charge,
    },
    /// The run has to be asked to stop. Where the job's budget is spent its record is not read
    /// either (reading it may be what kills): once it is proven ended the attempt ends as
    /// [`End::Stopped`], and finds the budget spent.
    StopRun {
        /// Whose run.
        attempt: AttemptId,
    },
    /// What the run made is to be kept: applied if the job succeeded, else held for the delete
    /// that follows.
    KeepOutputs,
    /// The job is final: instance, binding and waiting jobs follow.
    Settle,
}

/// An event that does not belong to the job's state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IllegalTransition {
    /// The job is final.
    #[error("the job is {0} and stays so")]
    Final(&'static str),
    /// The event belongs to another state.
    #[error("{event} does not apply to a job that is {state}")]
    WrongState {
        /// The event's name.
        event: &'static str,
        /// The state's name.
        state: &'static str,
    },
    /// The event names an attempt that is not the one under way.
    #[error("attempt {0} is not the one under way")]
    WrongAttempt(AttemptId),
    /// The job is not due yet.
    #[error("the job is due at {0}")]
    NotDue(Timestamp),
}

/// Applies `event` at instant `now`.
///
/// # Errors
/// The event does not belong to the job's state; nothing changes.
pub fn transition(
    mut job: Job,
    event: Event,
    now: Timestamp,
    policy: &Policy,
) -> Result<(Job, Vec<Effect>), IllegalTransition> {
    if job.state.is_final() {
        return Err(IllegalTransition::Final(job.state.as_str()));
    }
    let effects = match event {
        Event::Claim {
            attempt,
            boot,
            run_root,
        } => claim(&mut job, attempt, boot, run_root, now, policy)?,
        Event::Adopt { attempt, boot } => adopt(&mut job, attempt, boot, policy)?,
        Event::Expose {
            attempt,
            boot,
            cause,
            exclusive,
            ran,
        } => expose(&mut job, attempt, (boot, cause, exclusive), ran, policy)?,
        Event::End {
            attempt,
            end,
            ran,
            chance,
        } => finish(&mut job, attempt, end, ran, now, chance, policy)?,
        Event::Stop { reason } => stop(&mut job, reason),
        Event::Clear => {
            clear(&mut job);
            Vec::new()
        }
    };
    Ok((job, effects))
}

/// Whether a job in `Backoff { next_at }` is due: also when the clock has stepped back so far
/// that the wait could not have been chosen by it.
pub fn is_due(next_at: Timestamp, now: Timestamp, policy: &Policy) -> bool {
    next_at <= now || next_at > now.plus(policy.backoff_max)
}

fn claim(
    job: &mut Job,
    attempt: AttemptId,
    boot: BootId,
    run_root: RunRootId,
    now: Timestamp,
    policy: &Policy,
) -> Result<Vec<Effect>, IllegalTransition> {
    match &job.state {
        State::Queued => {}
        State::Backoff { next_at } if is_due(*next_at, now, policy) => {}
        State::Backoff { next_at } => return Err(IllegalTransition::NotDue(*next_at)),
        State::Running { .. }
        | State::Succeeded
        | State::Failed { .. }
        | State::Cancelled { .. }
        | State::Quarantined { .. } => {
            return Err(IllegalTransition::WrongState {
                event: "claim",
                state: job.state.as_str(),
            });
        }
    }
    if let Some(state) = condemned(job, policy) {
        job.state = state;
        return Ok(vec![Effect::Settle]);
    }
    if now >= job.deadline_at {
        job.state = failed(FailReason::Deadline);
        return Ok(vec![Effect::Settle]);
    }
    job.attempts = job.attempts.saturating_add(1);
    job.token = job.token.next();
    job.state = State::Running {
        attempt: Attempt {
            id: attempt,
            ordinal: job.attempts,
            boot,
            run_root,
            claimed_at: now,
            solo: job.budget.solo_window(),
            deaths: Vec::new(),
        },
        stop: None,
    };
    Ok(Vec::new())
}

fn adopt(
    job: &mut Job,
    named: AttemptId,
    new_boot: BootId,
    policy: &Policy,
) -> Result<Vec<Effect>, IllegalTransition> {
    let (attempt, stop) = running(&mut job.state, "adopt", named)?;
    attempt.boot = new_boot;
    let stopping = stop.is_some();
    job.token = job.token.next();
    Ok(stop_run(job, named, stopping, policy))
}

fn expose(
    job: &mut Job,
    named: AttemptId,
    (boot, cause, exclusive): (BootId, ExposureCause, bool),
    ran: Duration,
    policy: &Policy,
) -> Result<Vec<Effect>, IllegalTransition> {
    let (attempt, stop) = running(&mut job.state, "expose", named)?;
    let stopping = stop.is_some();
    if attempt.death_of(boot).is_none() && attempt.deaths.len() < MAX_DEATHS {
        // Only its owner's death can be one in its solo run.
        let solo = attempt.boot == boot && attempt.is_solo_after(ran);
        let charge = job.budget.expose(exclusive || solo, ran, policy);
        attempt.deaths.push(Death {
            boot,
            cause,
            exclusive,
            charge,
        });
    }
    Ok(stop_run(job, named, stopping, policy))
}

/// A condemned job's run is ended; its end then finds the budget spent.
fn stop_run(job: &Job, attempt: AttemptId, stopping: bool, policy: &Policy) -> Vec<Effect> {
    if stopping || job.budget.is_spent(policy) {
        vec![Effect::StopRun { attempt }]
    } else {
        Vec::new()
    }
}

/// The attempt under way, if it is the one that an event names.
fn running<'a>(
    state: &'a mut State,
    event: &'static str,
    named: AttemptId,
) -> Result<(&'a mut Attempt, &'a Option<StopReason>), IllegalTransition> {
    let word = state.as_str();
    match state {
        State::Running { attempt, stop } if attempt.id == named => Ok((attempt, stop)),
        State::Running { .. } => Err(IllegalTransition::WrongAttempt(named)),
        State::Queued
        | State::Backoff { .. }
        | State::Succeeded
        | State::Failed { .. }
        | State::Cancelled { .. }
        | State::Quarantined { .. } => Err(IllegalTransition::WrongState { event, state: word }),
    }
}

fn stop(job: &mut Job, reason: StopReason) -> Vec<Effect> {
    let superseded_by = match &reason {
        StopReason::Superseded { job } => Some(*job),
        StopReason::Operator | StopReason::SyncLimit | StopReason::Deadline => None,
    };
    if let State::Running { attempt, stop } = &mut job.state {
        if stop.as_ref().is_none_or(|first| outranks(&reason, first)) {
            *stop = Some(reason);
            job.superseded_by = superseded_by;
        }
        return vec![Effect::StopRun {
            attempt: attempt.id,
        }];
    }
    job.superseded_by = superseded_by;
    job.state = stopped(reason);
    vec![Effect::Settle]
}

/// Whether a later reason to stop takes the place of an earlier one; among equals the first
/// stands. A cancel outranks the deadline, because a run that succeeds in spite of it must not
/// be handed out; a delete outranks every cancel, because it is what the platform is told of.
fn outranks(later: &StopReason, first: &StopReason) -> bool {
    fn rank(reason: &StopReason) -> u8 {
        match reason {
            StopReason::Deadline => 0,
            StopReason::Operator | StopReason::SyncLimit => 1,
            StopReason::Superseded { .. } => 2,
        }
    }
    rank(later) > rank(first)
}

fn clear(job: &mut Job) {
    job.budget.lift_suspicion();
    // A run that is alone no longer because somebody said so must not be charged as if it were.
    if let State::Running { attempt, .. } = &mut job.state {
        attempt.solo = None;
    }
}

fn finish(
    job: &mut Job,
    named: AttemptId,
    end: End,
    ran: Duration,
    now: Timestamp,
    chance: Chance,
    policy: &Policy,
) -> Result<Vec<Effect>, IllegalTransition> {
    let (attempt, stop) = running(&mut job.state, "end", named)?;
    let solo = attempt.is_solo_after(ran);
    // Counted before its run was looked at.
    let counted = attempt.death_of(attempt.boot).map(|death| death.charge);
    let stop = stop.clone();
    let charge = match (&end, counted) {
        (End::Exposed { .. }, Some(charge)) => charge,
        _ => book(job, &end, solo, ran, policy),
    };
    let mut effects = vec![Effect::CloseAttempt {
        attempt: named,
        charge,
    }];
    if end == End::Succeeded {
        effects.push(Effect::KeepOutputs);
    }
    job.state = next_state(job, end, charge, stop, now, chance, policy);
    if job.state.is_final() {
        effects.push(Effect::Settle);
    }
    Ok(effects)
}

/// Books an attempt's end on the job's account.
fn book(job: &mut Job, end: &End, solo: bool, ran: Duration, policy: &Policy) -> Charge {
    match end {
        End::Succeeded => {
            job.budget.clear();
            Charge::None
        }
        End::Failed { .. } => {
            job.budget.finished();
            Charge::None
        }
        End::TryLater => {
            job.budget.finished();
            job.tempfails = job.tempfails.saturating_add(1);
            Charge::None
        }
        End::Stopped | End::OurBug { .. } | End::Unreadable { .. } => Charge::None,
        End::Crashed { evidence } => job.budget.crash(evidence.is_some(), solo, ran, policy),
        End::Exposed { .. } => job.budget.expose(solo, ran, policy),
        End::Disrupted { .. } => job.budget.disrupt(policy),
    }
}

/// Where a job goes after an attempt that was booked as `charge`.
fn next_state(
    job: &Job,
    end: End,
    charge: Charge,
    stop: Option<StopReason>,
    now: Timestamp,
    chance: Chance,
    policy: &Policy,
) -> State {
    let unreadable = match end {
        End::Succeeded if stop.as_ref().is_none_or(|by| *by == StopReason::Deadline) => {
            return State::Succeeded;
        }
        End::Failed { reason, message } if stop.is_none() => {
            return State::Failed { reason, message };
        }
        End::TryLater if stop.is_none() && job.tempfails > job.retries => {
            return failed(FailReason::RetriesSpent);
        }
        End::Unreadable { message } => Some(QuarantineReason::Unreadable { message }),
        End::Succeeded
        | End::Failed { .. }
        | End::TryLater
        | End::Stopped
        | End::Crashed { .. }
        | End::Exposed { .. }
        | End::Disrupted { .. }
        | End::OurBug { .. } => None,
    };
    if let Some(by) = stop {
        return stopped(by);
    }
    if let Some(reason) = unreadable {
        return State::Quarantined { reason };
    }
    if let Some(state) = condemned(job, policy) {
        return state;
    }
    if now >= job.deadline_at {
        return failed(FailReason::Deadline);
    }
    // Disruptions are no fault of the job's and cost it no time, until there are so many that
    // going on at once would be a loop.
    let disrupted = job
        .budget
        .disruptions
        .saturating_add(1)
        .saturating_sub(policy.suspect_disruptions);
    if charge == Charge::Disruption && disrupted == 0 {
        return State::Queued;
    }
    let nth = job
        .budget
        .setbacks()
        .max(job.tempfails)
        .max(disrupted)
        .max(1);
    State::Backoff {
        next_at: now.plus(policy.backoff(nth, chance)),
    }
}

fn condemned(job: &Job, policy: &Policy) -> Option<State> {
    let reason = if job.budget.crashes >= policy.crash_limit {
        QuarantineReason::Crashes {
            count: job.budget.crashes,
        }
    } else if job.budget.losses >= policy.loss_limit {
        QuarantineReason::Losses {
            count: job.budget.losses,
        }
    } else {
        return None;
    };
    Some(State::Quarantined { reason })
}

fn stopped(reason: StopReason) -> State {
    match reason {
        StopReason::Deadline => failed(FailReason::Deadline),
        by @ (StopReason::Superseded { .. } | StopReason::Operator | StopReason::SyncLimit) => {
            State::Cancelled { by }
        }
    }
}

fn failed(reason: FailReason) -> State {
    State::Failed {
        reason,
        message: None,
    }
}

/// The end that a boot writes for an attempt whose run never started while it looked on.
pub fn never_started() -> End {
    End::Disrupted {
        cause: DisruptionCause::NeverStarted,
    }
}
