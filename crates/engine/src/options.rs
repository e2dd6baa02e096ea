//! What is wanted of an engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::boot::DeathRecord;
use evenkeel_core::ids::{BootId, RunRootId};
use evenkeel_executor::Executor;
use evenkeel_store::seam::Store;
use uuid::Uuid;

use crate::steps::BlackBoxes;
use crate::world::World;

/// What becomes of runs under way when the broker is asked to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnShutdown {
    /// They go on; the next boot picks them up.
    Detach,
    /// They are waited for up to `drain_limit`, then stopped at no charge.
    Drain,
}

/// Where it is written how earlier boots ended: by their wardens.
pub trait Deaths: Send + Sync + std::fmt::Debug {
    /// How a boot ended, if somebody saw it. May block on a small file.
    fn of(&self, boot: BootId) -> Option<DeathRecord>;
}

/// Nobody saw any boot end.
#[derive(Clone, Copy, Debug)]
pub struct NoDeaths;

impl Deaths for NoDeaths {
    fn of(&self, _boot: BootId) -> Option<DeathRecord> {
        None
    }
}

/// All that an engine needs.
#[derive(Clone, Debug)]
pub struct Options {
    /// This process's boot.
    pub boot: BootId,
    /// The run root that the executor works in.
    pub run_root: RunRootId,
    /// `boot_id` of the host.
    pub host_boot: String,
    /// This release.
    pub version: String,
    /// Where state folders, bundle copies and logs go.
    pub data_dir: PathBuf,
    /// Folders whose subfolders are bundles (or that are bundles themselves).
    pub bundles: Vec<PathBuf>,
    /// Namespace of ids that bundles do not give.
    pub namespace: Uuid,
    /// Keeps jobs.
    pub store: Arc<dyn Store>,
    /// Starts runs.
    pub executor: Arc<dyn Executor>,
    /// Names what is being worked on. Without it a job that kills the broker goes unnoticed.
    pub black_boxes: Option<BlackBoxes>,
    /// Time, names, chance.
    pub world: Arc<dyn World>,
    /// Most runs at once.
    pub concurrency: u32,
    /// Most runs of one service at once.
    pub per_service: u32,
    /// For actions that name no timeout.
    pub timeout: Duration,
    /// Whether a platform (a user of the API) may not know of what another one ordered.
    pub isolate_platforms: bool,
    /// From submit to a final state at the latest.
    pub deadline: Duration,
    /// How long final jobs and tombstones are kept.
    pub retention: Duration,
    /// How long a synchronous request may take.
    pub sync_limit: Duration,
    /// Between SIGTERM and SIGKILL of a run that is stopped.
    pub grace: Duration,
    /// Between two looks at jobs without a driver, deadlines and retention.
    pub reconcile_every: Duration,
    /// Unexplained deaths of brokers in a row after which the next one starts no run; at least 1.
    pub hold_after: u32,
    /// How long a hold lasts after the last reason for it.
    pub hold_quiet: Duration,
    /// What becomes of runs when the broker ends.
    pub on_shutdown: OnShutdown,
    /// How long a drain waits.
    pub drain_limit: Duration,
    /// How earlier boots ended.
    pub deaths: Arc<dyn Deaths>,
}
