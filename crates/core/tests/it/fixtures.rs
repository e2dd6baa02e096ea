//! Ready-made values for tests of the domain.

use std::time::Duration;

use evenkeel_core::action::Action;
use evenkeel_core::attempt::{Attempt, Charge, End, ExposureCause};
use evenkeel_core::budget::Budget;
use evenkeel_core::ids::{
    AttemptId, BootId, BundleDigest, InstanceUid, JobId, Platform, RunRootId, ServiceId, Token,
};
use evenkeel_core::job::{Job, State, Target};
use evenkeel_core::policy::{Chance, Policy};
use evenkeel_core::time::Timestamp;
use evenkeel_core::transition::{Effect, Event, transition};
use uuid::Uuid;

pub(crate) const NOON: Timestamp = Timestamp(1_750_000_000_000);
pub(crate) const DEADLINE: Timestamp = Timestamp(NOON.0 + 24 * 3_600_000);

/// The id whose digits end in `n`.
fn uuid(n: u64) -> Uuid {
    Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0000 | u128::from(n))
}

pub(crate) fn job_id(n: u64) -> JobId {
    JobId(uuid(n))
}

pub(crate) fn attempt_id(n: u64) -> AttemptId {
    AttemptId(uuid(n))
}

pub(crate) fn boot_id(n: u64) -> BootId {
    BootId(uuid(n))
}

pub(crate) fn instance_uid(n: u64) -> InstanceUid {
    InstanceUid(uuid(n))
}

pub(crate) fn run_root() -> RunRootId {
    RunRootId(uuid(0xf00))
}

pub(crate) fn job() -> Job {
    Job {
        id: job_id(1),
        target: Target {
            instance: instance_uid(1),
            binding: None,
        },
        action: Action::Provision,
        service: ServiceId::new("service").expect("an id"),
        bundle: BundleDigest([7; 32]),
        platform: Platform::new("platform").expect("a name"),
        created_at: NOON,
        deadline_at: DEADLINE,
        token: Token(0),
        attempts: 0,
        tempfails: 0,
        retries: 0,
        superseded_by: None,
        retry_of: None,
        budget: Budget::default(),
        state: State::Queued,
    }
}

/// A job with attempt 1 under way; `solo` is its window of isolation.
pub(crate) fn running(solo: Option<Duration>) -> Job {
    Job {
        attempts: 1,
        token: Token(1),
        state: State::Running {
            attempt: Attempt {
                id: attempt_id(1),
                ordinal: 1,
                boot: boot_id(1),
                run_root: run_root(),
                claimed_at: NOON,
                solo,
                deaths: Vec::new(),
            },
            stop: None,
        },
        ..job()
    }
}

pub(crate) fn policy(crash_limit: u32, loss_limit: u32) -> Policy {
    Policy {
        crash_limit,
        loss_limit,
        ..Policy::default()
    }
}

/// When the job may be claimed, or now.
pub(crate) fn due(job: &Job, now: Timestamp) -> Timestamp {
    if let State::Backoff { next_at } = job.state {
        next_at.max(now)
    } else {
        now
    }
}

/// Claims the job as soon as it is due; the attempt's name is its ordinal.
pub(crate) fn claim(job: Job, policy: &Policy) -> Job {
    let now = due(&job, NOON);
    let event = Event::Claim {
        attempt: attempt_id(u64::from(job.attempts) + 1),
        boot: boot_id(1),
        run_root: run_root(),
    };
    transition(job, event, now, policy)
        .expect("it waits and is due")
        .0
}

/// Ends the attempt under way; says what it was charged.
pub(crate) fn end(job: Job, end: End, ran: Duration, policy: &Policy) -> (Job, Charge) {
    let event = Event::End {
        attempt: job.attempt().expect("an attempt is under way").id,
        end,
        ran,
        chance: Chance(0),
    };
    let (job, effects) = transition(job, event, NOON, policy).expect("it belongs there");
    let charge = charge_in(&effects).expect("an end closes its attempt");
    (job, charge)
}

/// The death of `boot` as an event about the attempt under way.
pub(crate) fn death_of(
    job: &Job,
    boot: u64,
    cause: ExposureCause,
    exclusive: bool,
    ran: Duration,
) -> Event {
    Event::Expose {
        attempt: job.attempt().expect("an attempt is under way").id,
        boot: boot_id(boot),
        cause,
        exclusive,
        ran,
    }
}

/// What the attempt that these effects close was charged.
pub(crate) fn charge_in(effects: &[Effect]) -> Option<Charge> {
    effects.iter().find_map(|effect| {
        if let Effect::CloseAttempt { charge, .. } = effect {
            Some(*charge)
        } else {
            None
        }
    })
}
