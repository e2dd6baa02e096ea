//! A job: one durable execution of an action.

use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::attempt::{Attempt, FailReason};
use crate::budget::Budget;
use crate::ids::{
    BindingId, BindingUid, BundleDigest, InstanceUid, JobId, Platform, ServiceId, Token,
};
use crate::policy::Policy;
use crate::time::Timestamp;

/// What a job is about. Its budget is kept under this and the action.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Target {
    /// The instance's present life.
    pub instance: InstanceUid,
    /// The binding, for bind and unbind. Budgets go by `id`: a platform that orders the same
    /// binding anew inherits what the last life of it was charged.
    pub binding: Option<BindingTarget>,
}

/// A binding as a job names it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct BindingTarget {
    /// Its present life.
    pub uid: BindingUid,
    /// The platform's name for it.
    pub id: BindingId,
}

/// Why a running job is to stop.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum StopReason {
    /// A later job takes its place (a delete during create).
    Superseded {
        /// The later job.
        job: JobId,
    },
    /// An operator cancelled it.
    Operator,
    /// A synchronous request could not be answered in time.
    SyncLimit,
    /// Its deadline has passed.
    Deadline,
}

/// Why a job was set aside.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum QuarantineReason {
    /// It crashed as often as it may.
    Crashes {
        /// How often.
        count: u32,
    },
    /// It took the broker with it, in isolation, as often as it may.
    Losses {
        /// How often.
        count: u32,
    },
    /// Earlier jobs for the same target used up the budget.
    BudgetSpent,
    /// Its stored body authenticates but cannot be understood; the bytes are kept.
    Unreadable {
        /// What the decoder said.
        message: String,
    },
}

/// Where a job stands. Each state carries only its own data.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// Waits for a free slot.
    Queued,
    /// An attempt is under way.
    Running {
        /// Which one.
        attempt: Attempt,
        /// Whether it is to stop, and why.
        stop: Option<StopReason>,
    },
    /// Waits before the next attempt.
    Backoff {
        /// When it is due.
        next_at: Timestamp,
    },
    /// Done.
    Succeeded,
    /// Ended without success, in an orderly way.
    Failed {
        /// Why.
        reason: FailReason,
        /// What the action has to say to the platform.
        message: Option<String>,
    },
    /// Ended because somebody asked for it.
    Cancelled {
        /// Why.
        by: StopReason,
    },
    /// Set aside for an operator.
    Quarantined {
        /// Why.
        reason: QuarantineReason,
    },
}

impl State {
    /// The word used on the wire and in the database.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running { .. } => "running",
            Self::Backoff { .. } => "backoff",
            Self::Succeeded => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Cancelled { .. } => "cancelled",
            Self::Quarantined { .. } => "quarantined",
        }
    }

    /// Whether nothing more will happen to the job.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Queued | Self::Running { .. } | Self::Backoff { .. } => false,
            Self::Succeeded
            | Self::Failed { .. }
            | Self::Cancelled { .. }
            | Self::Quarantined { .. } => true,
        }
    }
}

/// The typed header of a job: all that recovery needs, and no secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Its name; the `operation` of the API.
    pub id: JobId,
    /// What it is about.
    pub target: Target,
    /// What it does.
    pub action: Action,
    /// Whose bundle does it (for fairness between services).
    pub service: ServiceId,
    /// The content of that bundle, pinned when the job was accepted.
    pub bundle: BundleDigest,
    /// Who asked for it.
    pub platform: Platform,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it is final at the latest.
    pub deadline_at: Timestamp,
    /// Grows with every change of owner.
    pub token: Token,
    /// Attempts so far.
    pub attempts: u32,
    /// How often the action asked to be tried later.
    pub tempfails: u32,
    /// How often it may.
    pub retries: u32,
    /// The job that takes this one's place.
    pub superseded_by: Option<JobId>,
    /// The job that an operator retried by this one.
    pub retry_of: Option<JobId>,
    /// The account that it is charged to.
    pub budget: Budget,
    /// Where it stands.
    pub state: State,
}

impl Job {
    /// Sets the state that a job of this target and budget begins in: with a spent budget it is
    /// accepted and set aside without a run.
    pub fn first_state(budget: &Budget, policy: &Policy) -> State {
        if budget.is_spent(policy) {
            State::Quarantined {
                reason: QuarantineReason::BudgetSpent,
            }
        } else {
            State::Queued
        }
    }

    /// The attempt under way, if there is one.
    pub fn attempt(&self) -> Option<&Attempt> {
        if let State::Running { attempt, .. } = &self.state {
            Some(attempt)
        } else {
            None
        }
    }

    /// Why the job under way is to stop, if it is.
    pub fn stop(&self) -> Option<&StopReason> {
        if let State::Running { stop, .. } = &self.state {
            stop.as_ref()
        } else {
            None
        }
    }
}
