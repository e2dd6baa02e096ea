//! The story of one job, and what is known of its bad ends.

use evenkeel_core::action::Action;
use evenkeel_core::attempt::Charge;
use evenkeel_core::forensics::{self, LogBytes, MemoryCause, Panic, Sender, Victim};
use evenkeel_core::ids::{BootId, InstanceId, JobId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{JobDetail, JobLog, is_false};

/// What is known of an attempt's bad end. What is not known is left out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Forensics {
    /// What the main process returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended the main process, whoever sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The kernel wrote a core for the main process.
    #[serde(default, skip_serializing_if = "is_false")]
    pub core_dumped: bool,
    /// What of the run was hit, where that is not its main process: `child`, `namespace`, `shim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim: Option<Victim>,
    /// Who sent the signal that stopped the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<Sender>,
    /// Whose memory ran out, if it is or may be the cause: `own_limit`, `own_cgroup`,
    /// `near_limit`, `host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryCause>,
    /// What its tree was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// When the run last showed a sign of life, where it left no record of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sign_at: Option<Timestamp>,
    /// How long its shim had been silent when the broker that drove it ended the shim for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// The last line of progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// How much it wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<LogBytes>,
    /// The panic of a step of the broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panic: Option<Panic>,
}

impl Forensics {
    /// The same as those have it who tell of it ([`evenkeel_core::explain::clues_of`]).
    pub fn known(&self) -> forensics::Forensics {
        let last_sign = self.last_sign_at.map(Timestamp::as_millisecond);
        forensics::Forensics {
            exit_code: self.exit_code,
            signal: self.signal,
            core_dumped: self.core_dumped,
            victim: self.victim,
            sender: self.sender.clone(),
            memory: self.memory,
            memory_limit: self.memory_limit_bytes,
            last_sign: last_sign.map(evenkeel_core::time::Timestamp),
            silent_ms: self.silent_ms,
            progress: self.progress.clone(),
            log: self.log_bytes,
            panic: self.panic.clone(),
        }
    }
}

/// The story of a job: what happened, what it proves and cost, and what can be done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// When this was told.
    pub told_at: Timestamp,
    /// What it is and how it stands, in one sentence.
    pub headline: String,
    /// What happened, oldest first.
    pub events: Vec<StoryEvent>,
    /// How it stands now and why.
    pub standing: Vec<String>,
    /// What can be done about it.
    pub advice: Vec<Advice>,
    /// Jobs that came to a bad end in the same moments, or with the same broker; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// Deaths of brokers that it was tied to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broker_deaths: Vec<BrokerDeath>,
    /// The end of the log of its last bad run, while that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<JobLog>,
    /// The job with its history, as data.
    pub job: JobDetail,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoryEvent {
    /// When it began.
    pub at: Timestamp,
    /// The attempt that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// What it was.
    pub text: String,
    /// What else is to be known of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

/// Something that an operator can do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Advice {
    /// What it does.
    pub text: String,
    /// The command.
    pub command: String,
}

/// Another job that came to a bad end beside this one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Beside {
    /// The attempt of this job, by its ordinal.
    pub attempt: u32,
    /// The other job.
    pub job: JobId,
    /// What it did.
    pub action: Action,
    /// Its instance, by the platform's name.
    pub instance: InstanceId,
    /// When its attempt ended.
    pub at: Timestamp,
    /// What that cost it.
    pub charge: Charge,
    /// Both were lost with one broker.
    #[serde(default, skip_serializing_if = "is_false")]
    pub same_broker: bool,
}

/// The death of a broker that the job was tied to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BrokerDeath {
    /// The broker process that ended.
    pub boot: BootId,
    /// When it was last known to be alive.
    pub at: Timestamp,
    /// How it ended, in words.
    pub how: String,
    /// Whether the black box named this job.
    pub named: bool,
    /// Whether that was in a step that no other shared.
    pub exclusive: bool,
    /// What it cost the job, if it was counted before its run was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge: Option<Charge>,
}
