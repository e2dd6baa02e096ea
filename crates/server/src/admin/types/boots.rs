//! Lives of broker processes, on the wire.

use evenkeel_core::ids::{BootId, JobId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::is_false;

/// Lives of broker processes, newest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BootList {
    /// The newest.
    pub boots: Vec<Boot>,
}

/// One life of a broker process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Boot {
    /// Its name.
    pub id: BootId,
    /// Whether it is the one that answers.
    #[serde(default, skip_serializing_if = "is_false")]
    pub present: bool,
    /// When it began.
    pub started_at: Timestamp,
    /// When it was last known to be alive.
    pub seen_at: Timestamp,
    /// When it ended, if a warden saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// When it left its drain mark, or was asked to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained_at: Option<Timestamp>,
    /// Which part of it had panicked, where it handed over for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broke: Option<String>,
    /// Its process id.
    pub pid: u32,
    /// The release.
    pub version: String,
    /// How it ended, if a warden saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub death: Option<Death>,
    /// The verdict of a later boot, once given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Jobs in whose step it died, as its black box names them; at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<JobId>,
}

/// How a broker process ended, as its warden saw it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Death {
    /// For people: "was killed by SIGSEGV (core dumped)".
    pub text: String,
    /// Its exit code, if it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The number of the signal that ended it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether the kernel left a core file.
    pub core_dumped: bool,
    /// Whether the warden had been asked for it.
    pub asked_to_end: bool,
    /// Whether the watchdog ended it.
    pub killed_by_watchdog: bool,
    /// The most resident memory that it had, in bytes.
    pub peak_memory: u64,
    /// Processor time, in milliseconds.
    pub cpu_millis: u64,
    /// Killed while its own control group was out of memory.
    pub own_oom: bool,
    /// Killed while the host was out of memory.
    pub host_oom: bool,
}
