//! The records of a run: who holds it, how it is held, how it ended.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::spec::Containment;

/// Who holds a run's lock. Written by the shim before anything else.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockRecord {
    /// The shim.
    pub pid: i32,
    /// When the shim started, in clock ticks since boot: tells it from a later process of the
    /// same id.
    pub start_time: u64,
    /// The host's boot, `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
}

/// That the action may have started, and how its tree is held. Durable before the action's first
/// instruction: without it, no user code ever ran.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StartedRecord {
    /// The host's boot.
    pub boot_id: String,
    /// How the tree is held.
    pub containment: Containment,
    /// The namespace's init (`pidns`), or the action's main process.
    pub leader_pid: i32,
    /// When that process started, in clock ticks since boot.
    pub leader_start_time: u64,
    /// The cgroups that were made for the run; the cgroup2 that holds the tree is among them.
    #[serde(default)]
    pub cgroups: Vec<String>,
    /// Milliseconds since the Unix epoch.
    pub started_at_ms: i64,
    /// How often the host had ended a process for want of memory by then, since its boot; `None`
    /// if it does not count that.
    #[serde(default)]
    pub host_oom_kills: Option<u64>,
}

/// Who sent a signal, as the kernel said and `/proc` showed at that moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sender {
    /// Its process id; 0 for one of a PID namespace that the shim cannot see into.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its command's name, at most 64 bytes without control characters; `None` if it was gone
    /// already.
    #[serde(default)]
    pub command: Option<String>,
    /// It was a process of the run itself.
    #[serde(default)]
    pub of_run: bool,
}

/// A limit that a run went over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Memory of the tree.
    Memory,
    /// Processor time of the main process.
    CpuTime,
    /// Disk room.
    Disk,
    /// Number of processes.
    Processes,
    /// A limit that a newer release knows.
    #[serde(other)]
    Unknown,
}

/// Why a run is over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RunEnd {
    /// The main process returned this code.
    Exited {
        /// 0 to 255.
        code: i32,
    },
    /// The main process was ended by this signal, which the shim did not send.
    Signalled {
        /// As in signal(7).
        signal: i32,
    },
    /// It took longer than its timeout and was ended.
    TimedOut,
    /// It was not over at its deadline and was ended.
    DeadlinePassed,
    /// The shim was asked to stop it.
    Stopped,
    /// It went over a limit of its own and was ended.
    Limit {
        /// Which one.
        limit: Limit,
    },
    /// The kernel ended its main process for the memory of its own cgroup.
    OomKilled,
    /// The command could not be started.
    SpawnFailed {
        /// What was tried, and what the kernel said.
        message: String,
    },
    /// An end that a newer release knows.
    #[serde(other)]
    Unknown,
}

/// What the action wrote: a JSON object, checked and bounded. Holds credentials, so its `Debug`
/// form shows nothing.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Output(pub Value);

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Output(…)")
    }
}

/// Why what the action wrote cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OutputError {
    /// A link, folder, pipe, socket or device instead of a file.
    #[error("the output is {found}, not a plain file")]
    NotAFile {
        /// What it is.
        found: String,
    },
    /// Larger than is accepted, be it data or holes.
    #[error("the output takes {bytes} bytes and the limit is {max_bytes}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
    /// Not JSON, or nested too deeply.
    #[error("the output is not JSON: {message}")]
    NotJson {
        /// What the parser said, with line and column.
        message: String,
    },
    /// JSON, but no object.
    #[error("the output is {found}, not a JSON object")]
    NotAnObject {
        /// What it is.
        found: String,
    },
    /// The operating system refused to read it.
    #[error("the output cannot be read: {message}")]
    Unreadable {
        /// The reason.
        message: String,
    },
    /// A fault that a newer release knows.
    #[serde(other)]
    #[error("the output cannot be used")]
    Unknown,
}

/// How a run ended: the last thing that a shim writes. Readers ignore fields that they do not
/// know, and take what is missing as unknown.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExitRecord {
    /// The run.
    pub attempt_id: String,
    /// Why it is over.
    pub end: RunEnd,
    /// What the main process returned, if it came to that, whatever `end` says.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// The signal that ended the main process, whoever sent it.
    #[serde(default)]
    pub signal: Option<i32>,
    /// The kernel wrote a core for the main process.
    #[serde(default)]
    pub core_dumped: bool,
    /// The init of the run's PID namespace was ended from outside, and everything with it: what
    /// became of the main process was never told.
    #[serde(default)]
    pub namespace_killed: bool,
    /// Who sent the SIGTERM that stopped the run, where one did.
    #[serde(default)]
    pub stopped_by: Option<Sender>,
    /// A broker had left its wish to stop before that SIGTERM came.
    #[serde(default)]
    pub stop_wished: bool,
    /// When the action could run its first instruction, in milliseconds since the Unix epoch;
    /// `None` if it never came to that.
    #[serde(default)]
    pub started_at_ms: Option<i64>,
    /// When the last of its processes was gone.
    pub ended_at_ms: i64,
    /// The host's boot.
    pub boot_id: String,
    /// How the tree was held; `None` if it never came to that.
    #[serde(default)]
    pub containment: Option<Containment>,
    /// The most memory that the tree is known to have used, in bytes.
    #[serde(default)]
    pub peak_memory_bytes: Option<u64>,
    /// The most memory of its own that was seen, in bytes: of the tree what no file is behind, at one
    /// look, or what one process had resident, whichever is more. Without the page cache, which
    /// `peak_memory_bytes` may be full of.
    #[serde(default)]
    pub peak_own_bytes: Option<u64>,
    /// What it was allowed, in bytes; `None` for no limit.
    #[serde(default)]
    pub memory_limit_bytes: Option<u64>,
    /// Processor time of the tree, in milliseconds.
    #[serde(default)]
    pub cpu_ms: Option<u64>,
    /// The run's own cgroup ran out of memory and something in it was ended for that.
    #[serde(default)]
    pub own_oom: bool,
    /// How many of its processes were ended for that.
    #[serde(default)]
    pub own_oom_kills: u64,
    /// The host ran out of memory meanwhile, on whoever's account.
    #[serde(default)]
    pub host_oom: bool,
    /// What the action wrote, if it wrote anything that can be used.
    #[serde(default)]
    pub output: Option<Output>,
    /// What is wrong with what the action wrote.
    #[serde(default)]
    pub output_error: Option<OutputError>,
    /// The last line of progress.
    #[serde(default)]
    pub last_progress: Option<String>,
    /// Bytes that came on standard output.
    #[serde(default)]
    pub stdout_bytes: u64,
    /// Bytes that came on standard error.
    #[serde(default)]
    pub stderr_bytes: u64,
    /// Bytes of both that could not be stored for want of space.
    #[serde(default)]
    pub log_lost_bytes: u64,
    /// False if processes of the tree would not die: they linger, and the end is not proven.
    #[serde(default)]
    pub tree_ended: bool,
}

/// How large an exit record can get beside the output that it carries, in bytes.
pub(crate) const EXIT_OVERHEAD_BYTES: u64 = 32 << 10;
