//! What is wanted of an engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::ids::{BootId, RunRootId};
use evenkeel_executor::Executor;
use evenkeel_store::seam::Store;
use uuid::Uuid;

use crate::world::World;

/// What becomes of runs under way when the broker is asked to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnShutdown {
    /// They go on; the next boot picks them up.
    Detach,
    /// They are waited for up to `drain_limit`, then stopped at no charge.
    Drain,
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
    /// How long a hold lasts after the last reason for it.
    pub hold_quiet: Duration,
    /// What becomes of runs when the broker ends.
    pub on_shutdown: OnShutdown,
    /// How long a drain waits.
    pub drain_limit: Duration,
}
