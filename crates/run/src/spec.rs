//! What a run is to do and how much it may use. Nothing secret is in here.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How a run's process tree is held together, strongest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Containment {
    /// A PID namespace whose init dies with the shim.
    Pidns,
    /// A cgroup2 of its own, ended by `cgroup.kill`.
    Cgroup,
    /// A lock inherited by the tree, and a sweep by attempt id in the environment.
    Sweep,
}

/// Which containment is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContainmentWish {
    /// The strongest that the host allows.
    #[default]
    Auto,
    /// This one, or the run does not start.
    Pidns,
    /// This one, or the run does not start.
    Cgroup,
    /// This one.
    Sweep,
}

/// What a run may use. `None` is no limit beyond those of the host.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Memory of the whole tree, in bytes; also `RLIMIT_DATA` of each process.
    pub memory_bytes: Option<u64>,
    /// Processor time of one process, in whole seconds.
    pub cpu_secs: Option<u64>,
    /// Open files of one process.
    pub open_files: Option<u64>,
    /// Processes of the whole tree.
    pub processes: Option<u64>,
    /// Room used in work, temporary and output folder, and growth of the state folder, in bytes.
    pub disk_bytes: Option<u64>,
}

/// The folder that an instance keeps between its actions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StateDir {
    /// An existing folder.
    pub path: PathBuf,
    /// Mounted read-only where the host lets the shim have a mount namespace.
    pub read_only: bool,
}

/// The user that the action runs as. Its work, output and state folder are given to it; every
/// folder above the run root, the bundle and the state folder must let it pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunAs {
    /// User id.
    pub uid: u32,
    /// Group id; supplementary groups are dropped.
    pub gid: u32,
}

/// What a run is to do. Written to `spec.json`; readers ignore fields that they do not know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunSpec {
    /// The program and its arguments. A program with a `/` is found in the bundle's folder, one
    /// without by the `PATH` of `env`.
    pub command: Vec<String>,
    /// The whole environment; `EVENKEEL_ATTEMPT_ID` is added by the shim.
    pub env: BTreeMap<String, String>,
    /// The bundle's folder, read-only for the action where the host allows.
    pub bundle_dir: PathBuf,
    /// The instance's own folder.
    #[serde(default)]
    pub state: Option<StateDir>,
    /// What it may use.
    #[serde(default)]
    pub limits: Limits,
    /// How long it may take, in milliseconds.
    pub timeout_ms: u64,
    /// When it must be over, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub deadline_at_ms: Option<i64>,
    /// How long a tree that was asked to end may take for it, in milliseconds.
    #[serde(default = "default_grace_ms")]
    pub grace_ms: u64,
    /// How the tree is to be held.
    #[serde(default)]
    pub containment: ContainmentWish,
    /// Another user for the action; needs a shim that runs as root.
    #[serde(default)]
    pub run_as: Option<RunAs>,
    /// The largest output document that is accepted, in bytes.
    #[serde(default = "default_output_max_bytes")]
    pub output_max_bytes: u64,
    /// How much of each of standard output and error is kept, in bytes.
    #[serde(default = "default_log_max_bytes")]
    pub log_max_bytes: u64,
}

impl RunSpec {
    /// What fault points are told of the run, by the variables of the action contract.
    pub fn about(&self) -> String {
        let say = |name: &str| self.env.get(name).map_or("", String::as_str);
        format!(
            "{} {} attempt={}",
            say("EVENKEEL_ACTION"),
            say("EVENKEEL_JOB_ID"),
            say("EVENKEEL_ATTEMPT")
        )
    }
}

/// How long a tree that was asked to end may take for it, if nobody says: 10 seconds.
pub const DEFAULT_GRACE_MS: u64 = 10_000;
/// The largest output document, if nobody says: 1 MiB.
pub const DEFAULT_OUTPUT_MAX_BYTES: u64 = 1 << 20;
/// How much of each log stream is kept, if nobody says: 4 MiB.
pub const DEFAULT_LOG_MAX_BYTES: u64 = 4 << 20;

fn default_grace_ms() -> u64 {
    DEFAULT_GRACE_MS
}

fn default_output_max_bytes() -> u64 {
    DEFAULT_OUTPUT_MAX_BYTES
}

fn default_log_max_bytes() -> u64 {
    DEFAULT_LOG_MAX_BYTES
}
