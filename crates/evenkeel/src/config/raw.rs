//! `evenkeel.toml` as it is written: every key with its default, unknown keys refused.
//!
//! This is the one list of keys. What they mean together is judged in `resolve`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::units::{Count, Time, TimeOrNone};

const fn count(number: u32) -> Count {
    match NonZeroU32::new(number) {
        Some(number) => Count::new(number),
        None => panic!("a count is at least 1"),
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawConfig {
    pub(crate) data_dir: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bundles: Option<Vec<PathBuf>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<Uuid>,
    pub(crate) osb: RawOsb,
    pub(crate) admin: RawAdmin,
    pub(crate) store: RawStore,
    pub(crate) jobs: RawJobs,
    pub(crate) process: RawProcess,
    pub(crate) recovery: RawRecovery,
    pub(crate) serve: RawServe,
    pub(crate) shutdown: RawShutdown,
}

impl Default for RawConfig {
    fn default() -> Self {
        Self {
            data_dir: "evenkeel-data".into(),
            bundles: None,
            namespace: None,
            osb: RawOsb::default(),
            admin: RawAdmin::default(),
            store: RawStore::default(),
            jobs: RawJobs::default(),
            process: RawProcess::default(),
            recovery: RawRecovery::default(),
            serve: RawServe::default(),
            shutdown: RawShutdown::default(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawOsb {
    pub(crate) listen: String,
    pub(crate) sync_limit: Time,
    pub(crate) deleted_as: DeletedAs,
    pub(crate) isolate_platforms: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) users: Vec<RawUser>,
}

impl Default for RawOsb {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8080".to_owned(),
            sync_limit: Time::from_secs(50),
            deleted_as: DeletedAs::Succeeded,
            isolate_platforms: false,
            users: Vec::new(),
        }
    }
}

/// What the poll after a finished asynchronous delete is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DeletedAs {
    /// 200 with `succeeded`.
    Succeeded,
    /// 410.
    Gone,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawUser {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) password_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) password_hash: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawAdmin {
    pub(crate) listen: String,
}

impl Default for RawAdmin {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8081".to_owned(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawStore {
    pub(crate) url: String,
}

impl Default for RawStore {
    fn default() -> Self {
        Self {
            url: "sqlite:evenkeel.db".to_owned(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawJobs {
    pub(crate) concurrency: Count,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) per_service: Option<Count>,
    pub(crate) timeout: Time,
    pub(crate) deadline: Time,
    pub(crate) retention: Time,
}

impl Default for RawJobs {
    fn default() -> Self {
        Self {
            concurrency: count(32),
            per_service: None,
            timeout: Time::from_secs(3600),
            deadline: Time::from_secs(24 * 3600),
            retention: Time::from_secs(30 * 86_400),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawProcess {
    pub(crate) containment: Containment,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_as: Option<String>,
    pub(crate) grace: Time,
    pub(crate) silent_after: Time,
}

impl Default for RawProcess {
    fn default() -> Self {
        Self {
            containment: Containment::Auto,
            run_as: None,
            grace: Time::from_secs(10),
            silent_after: Time::from_secs(30),
        }
    }
}

/// How runs are held together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Containment {
    /// The strongest that the host allows.
    Auto,
    /// A PID namespace, or no run starts.
    Pidns,
    /// A cgroup2 of its own, or no run starts.
    Cgroup,
    /// A lock and a sweep by attempt id.
    Sweep,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawRecovery {
    pub(crate) crash_limit: Count,
    pub(crate) loss_limit: Count,
    pub(crate) backoff_min: Time,
    pub(crate) backoff_max: Time,
    pub(crate) hold_after: Count,
    pub(crate) hold_quiet: Time,
}

impl Default for RawRecovery {
    fn default() -> Self {
        Self {
            crash_limit: count(3),
            loss_limit: count(3),
            backoff_min: Time::from_secs(5),
            backoff_max: Time::from_secs(600),
            hold_after: count(3),
            hold_quiet: Time::from_secs(600),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawServe {
    pub(crate) watchdog: TimeOrNone,
    pub(crate) restart_pause: Time,
}

impl Default for RawServe {
    fn default() -> Self {
        Self {
            watchdog: TimeOrNone::from_secs(60),
            restart_pause: Time::from_secs(5),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawShutdown {
    pub(crate) on_shutdown: OnShutdown,
    pub(crate) drain_limit: Time,
}

impl Default for RawShutdown {
    fn default() -> Self {
        Self {
            on_shutdown: OnShutdown::Auto,
            drain_limit: Time::from_secs(600),
        }
    }
}

/// What becomes of runs under way when the broker ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnShutdown {
    /// `Detach` where runs can outlive the broker, `Drain` as pid 1 or in a container.
    Auto,
    /// They go on.
    Detach,
    /// They are waited for, then stopped.
    Drain,
}
