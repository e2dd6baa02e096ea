//! What the admin API says, for the server that writes it and the commands that read it.
//!
//! Times are RFC 3339 in UTC, ids as everywhere, absent values left out. Nothing here can hold
//! parameters, credentials or a context: an operator's answers carry no secrets.
//!
//! | route | answer |
//! |---|---|
//! | `GET /admin/v1/jobs?state=&instance=&service=&suspect=&limit=&before=` | [`JobList`]; `state` may be repeated or a list with commas, `suspect=true` leaves suspects that are not final, `limit` is 1 to 500 (100) |
//! | `GET /admin/v1/jobs/{id}` | [`JobDetail`] |
//! | `GET /admin/v1/jobs/{id}/explanation` | [`Explanation`] |
//! | `GET /admin/v1/jobs/{id}/log?attempt=&bytes=` | [`JobLog`]; `attempt` is an ordinal (the last), `bytes` of each stream at most 1 MiB (64 KiB) |
//! | `POST /admin/v1/jobs/{id}/retry`, `/discard`, `/cancel`, `/clear` | [`Acted`] with 200, 201 (a new job) or 202 (asked to stop); 404, or 409 where it does not apply |
//! | `GET /admin/v1/status` | [`Status`] |
//! | `POST /admin/v1/hold` | takes [`HoldRequest`] or nothing; [`Holding`]: no new run starts until the release, over restarts |
//! | `POST /admin/v1/release` | [`Holding`]: every hold ends, also one by the broker itself |
//! | `GET /admin/v1/boots?limit=` | [`BootList`]; `limit` is 1 to 500 (50) |
//! | `GET /admin/v1/catalog`, `POST /admin/v1/reload` | [`CatalogReport`] |
//! | `GET /livez`, `/readyz` (no token) | [`Live`], [`Ready`] with 200 or 503 |
//! | anything that goes wrong | [`ErrorAnswer`] |

mod boots;

pub use boots::{Boot, BootList, Death};

use std::fmt;
use std::str::FromStr;

use evenkeel_core::action::Action;
use evenkeel_core::attempt::{self, Charge, Containment};
use evenkeel_core::ids::{
    AttemptId, BindingId, BootId, BundleDigest, InstanceId, JobId, PlanId, Platform, ServiceId,
};
use evenkeel_core::job::State;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

mod explanation;
mod hold;
mod isolation;

pub use explanation::{Advice, Beside, BrokerDeath, Explanation, Forensics, StoryEvent};
pub use hold::{Hold, HoldRequest, Holding};
pub use isolation::Isolation;

/// Where a job stands, as the wire says it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits for a free slot.
    Queued,
    /// An attempt is under way.
    Running,
    /// Waits before the next attempt.
    Backoff,
    /// Done.
    Succeeded,
    /// Ended without success.
    Failed,
    /// Ended because somebody asked for it.
    Cancelled,
    /// Set aside for an operator.
    Quarantined,
}

impl JobState {
    /// All of them, in the order of a life.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Running,
        Self::Backoff,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::Quarantined,
    ];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Backoff => "backoff",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Quarantined => "quarantined",
        }
    }

    /// Whether nothing more will happen to the job.
    pub fn is_final(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::Backoff => false,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::Quarantined => true,
        }
    }
}

impl From<&State> for JobState {
    fn from(state: &State) -> Self {
        match state {
            State::Queued => Self::Queued,
            State::Running { .. } => Self::Running,
            State::Backoff { .. } => Self::Backoff,
            State::Succeeded => Self::Succeeded,
            State::Failed { .. } => Self::Failed,
            State::Cancelled { .. } => Self::Cancelled,
            State::Quarantined { .. } => Self::Quarantined,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A word that is no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a job state; states are queued, running, backoff, succeeded, failed, cancelled, quarantined"
)]
pub struct UnknownJobState(pub String);

impl FromStr for JobState {
    type Err = UnknownJobState;

    fn from_str(text: &str) -> Result<Self, UnknownJobState> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| UnknownJobState(text.chars().take(64).collect()))
    }
}

/// One page of jobs, newest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobList {
    /// The page.
    pub jobs: Vec<JobSummary>,
    /// What to give as `before` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<JobId>,
}

/// A job in a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobSummary {
    /// Its name; the `operation` that the platform has.
    pub id: JobId,
    /// What it does.
    pub action: Action,
    /// Where it stands.
    pub state: JobState,
    /// The instance, by the platform's name.
    pub instance: InstanceId,
    /// The binding, by the platform's name, for bind and unbind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<BindingId>,
    /// The service offering.
    pub service: ServiceId,
    /// Its name, if the catalog still has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// Who ordered it.
    pub platform: Platform,
    /// Attempts so far.
    pub attempts: u32,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When the last change was.
    pub updated_at: Timestamp,
    /// When it is final at the latest.
    pub deadline_at: Timestamp,
    /// When the next attempt is due, in backoff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Why it stands where it stands, in words; absent where the state says it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The last line of progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Whether its next run is isolated.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspect: bool,
    /// Whether an operator discarded it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub discarded: bool,
}

/// A job with its history.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobDetail {
    /// As in a list.
    #[serde(flatten)]
    pub summary: JobSummary,
    /// The content of the bundle that carries it out.
    pub bundle: BundleDigest,
    /// How often the action asked to be tried later.
    pub tempfails: u32,
    /// How often it may.
    pub retries: u32,
    /// When it became final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// When an operator discarded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discarded_at: Option<Timestamp>,
    /// The job that an operator retried by this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<JobId>,
    /// The job that takes this one's place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<JobId>,
    /// Jobs that have to be final before it may start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<JobId>,
    /// What its target has been charged so far.
    pub budget: Budget,
    /// Its attempts, oldest first.
    pub history: Vec<Attempt>,
    /// What was done to it by whom, oldest first.
    pub audit: Vec<AuditLine>,
}

/// What a target has been charged, over all jobs that tried the same thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Budget {
    /// Runs that ended without an outcome while the broker lived.
    pub crashes: u32,
    /// Deaths in isolation.
    pub losses: u32,
    /// Deaths of a broker with or beside it.
    pub exposures: u32,
    /// Disruptions since the last attempt that finished.
    pub disruptions: u32,
}

/// One try of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// Its name, and its run's.
    pub id: AttemptId,
    /// 1 for the first.
    pub ordinal: u32,
    /// The broker process that owns or owned it.
    pub boot: BootId,
    /// Whether it ran alone at first.
    #[serde(default, skip_serializing_if = "is_false")]
    pub solo: bool,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// When its run was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// How its run is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containment: Option<Containment>,
    /// How it ended, in one word: `succeeded`, `failed`, `try_later`, `stopped`, `crashed`,
    /// `exposed`, `disrupted`, `our_bug`, `unreadable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// How it ended, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What that cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge: Option<Charge>,
    /// Why, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge_reason: Option<String>,
    /// The most memory that its tree is known to have used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Processor time of its tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u64>,
    /// Deaths of brokers that were counted against the job before its run was looked at, oldest
    /// first; at most 64. `cause` is `named_by_black_box`, `host_lost` or `vanished_with_broker`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deaths: Vec<attempt::Death>,
    /// What else is known of a bad end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forensics: Option<Forensics>,
}

/// A line of the audit table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditLine {
    /// When.
    pub at: Timestamp,
    /// Who: `platform:NAME`, `operator`, `broker`.
    pub actor: String,
    /// What: `submit`, `retry`, `discard`, `cancel`, `clear`, `quarantine`, …
    pub what: String,
    /// In words.
    pub detail: String,
}

/// The end of an attempt's log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobLog {
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub attempt: AttemptId,
    /// Which one, from 1.
    pub ordinal: u32,
    /// Standard output.
    pub stdout: LogStream,
    /// Standard error.
    pub stderr: LogStream,
}

/// The end of one stream.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LogStream {
    /// The text; bytes that are not UTF-8 are replaced by U+FFFD.
    pub text: String,
    /// Whether there is, or was, more before it.
    pub cut: bool,
}

/// What an operator's request did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Acted {
    /// The job it is about now: the new one after a retry.
    pub job: JobId,
    /// What became of it.
    pub outcome: Outcome,
    /// In words.
    pub description: String,
}

/// What became of an operator's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is on record.
    Done,
    /// It was so before.
    Already,
    /// The run was asked to stop; the job ends when it has.
    Asked,
    /// A new job is queued.
    Queued,
}

/// How the broker stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The release.
    pub version: String,
    /// This process's life.
    pub boot: BootId,
    /// When it began.
    pub started_at: Timestamp,
    /// As `/readyz` says it.
    #[serde(flatten)]
    pub ready: Ready,
    /// Attempts that this process drives.
    pub driving: u32,
    /// Most runs at once.
    pub concurrency: u32,
    /// Rows by state; absent where the store does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// Why no new run starts; empty where new runs start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<Hold>,
    /// Whose turn to run alone it is, if it is a suspect's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Service offerings in the catalog.
    pub services: u32,
    /// The last end of an earlier broker process that nobody had asked for, in words, with the jobs
    /// in whose steps it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_death: Option<String>,
}

/// How many there are of what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Waiting for a slot.
    pub queued: u64,
    /// Under way.
    pub running: u64,
    /// Waiting before the next attempt.
    pub backoff: u64,
    /// Done.
    pub succeeded: u64,
    /// Ended without success.
    pub failed: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// Set aside, and neither retried nor discarded.
    pub quarantined: u64,
    /// Of those that are not final, the suspects: their runs are isolated.
    #[serde(default)]
    pub suspects: u64,
    /// Instances that are not gone.
    pub instances: u64,
    /// Bindings that are not gone.
    pub bindings: u64,
    /// What may have leaked and nobody has looked at.
    pub leaks: u64,
}

/// Whether the process lives: that it answers says it all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Live {
    /// `true`.
    pub live: bool,
}

/// Whether requests are served, and what an operator ought to know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Whether requests are served: no reason is blocking.
    pub ready: bool,
    /// The same in words.
    pub description: String,
    /// What is not as it ought to be.
    pub reasons: Vec<Reason>,
    /// What the configuration means here (as what becomes of runs at shutdown).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Something that is not as it ought to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reason {
    /// What it concerns.
    pub about: About,
    /// Whether the broker is not ready for it.
    pub blocking: bool,
    /// What it is and how to mend it.
    pub message: String,
}

/// What a [`Reason`] concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// The store does not work. Blocking.
    Store,
    /// The first pass of recovery is not over. Blocking.
    Recovery,
    /// The broker is ending. Blocking.
    Draining,
    /// No new run starts; everything else is served.
    Held,
    /// A suspect runs alone, or is about to: other runs start after it.
    Isolation,
    /// A bundle is not offered, or not as its author may think.
    Catalog,
}

impl About {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Recovery => "recovery",
            Self::Draining => "draining",
            Self::Held => "held",
            Self::Isolation => "isolation",
            Self::Catalog => "catalog",
        }
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What is offered, and what is not and why.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CatalogReport {
    /// When the bundle folders were read.
    pub loaded_at: Timestamp,
    /// What is offered.
    pub services: Vec<Service>,
    /// What is not, and why; and warnings.
    pub problems: Vec<Problem>,
}

/// A service offering.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Service {
    /// Its id.
    pub id: ServiceId,
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: String,
    /// The content of its bundle.
    pub bundle: BundleDigest,
    /// Its plans.
    pub plans: Vec<Plan>,
    /// The actions that its bundle has.
    pub actions: Vec<Action>,
}

/// A plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Its id.
    pub id: PlanId,
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Whether it costs nothing.
    pub free: bool,
}

/// Something that is wrong with a bundle.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Problem {
    /// Its folder, as configured.
    pub bundle: String,
    /// Whether it is left out for it.
    pub fatal: bool,
    /// File, line, field, what and how to mend it.
    pub message: String,
}

/// The body of every answer that is not what was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ErrorAnswer {
    /// For programs.
    pub error: ErrorKind,
    /// For people: what, where and how to mend it.
    pub description: String,
}

/// What went wrong, for programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// 400: a parameter cannot be read.
    BadRequest,
    /// 401: the token is missing or wrong.
    Unauthorized,
    /// 404: no such route, job, attempt or log.
    NotFound,
    /// 405: see `Allow`.
    MethodNotAllowed,
    /// 408: the request did not arrive in time.
    RequestTimeout,
    /// 409: what was asked does not apply to a job that stands as this one does.
    NotApplicable,
    /// 409: another job for the same target is under way.
    Busy,
    /// 409: the target is gone, or has begun a new life.
    TargetGone,
    /// 413: the body is too large.
    PayloadTooLarge,
    /// 500: the broker failed.
    Internal,
    /// 503: the store does not answer, or the answer took too long; try again.
    Unavailable,
    /// A word that a newer broker says.
    #[serde(other)]
    Unknown,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}
