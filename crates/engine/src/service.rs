//! Starts an engine and ends it.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_core::ids::JobId;
use evenkeel_core::panics::PanicLedger;
use evenkeel_core::time::Timestamp;
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::NewBoot;
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::catalog::Keeper;
use crate::drivers::Drivers;
use crate::engine::{Engine, EngineStatus};
use crate::options::{OnShutdown, Options};
use crate::{attempt, claims, guard, housekeeping, recovery};

/// Finished jobs that a waiter may lag behind by before it looks the job up itself.
const FINISHED_BACKLOG: usize = 1_024;

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The boot could not be registered.
    #[error("the boot could not be registered: {0}")]
    Store(#[from] StoreError),
}

/// No new run starts.
#[derive(Debug)]
struct Hold {
    reason: String,
    /// When it last was given a reason.
    since: Instant,
}

/// What the loops, the drivers and the handle share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) started_at: Timestamp,
    pub(crate) catalog: Keeper,
    pub(crate) drivers: Drivers,
    /// There may be work to claim.
    pub(crate) wake: Notify,
    /// Names of jobs that have become final.
    pub(crate) finished: broadcast::Sender<JobId>,
    /// No new run starts, for this reason.
    held: Mutex<Option<Hold>>,
    /// What keeps a loop from getting on, by its name.
    troubles: Mutex<BTreeMap<&'static str, String>>,
    pub(crate) panics: Mutex<PanicLedger>,
    pub(crate) recovered: AtomicBool,
    /// The last pass of recovery left nothing undone.
    pub(crate) settled: AtomicBool,
    /// No further claims; loops end.
    pub(crate) ending: CancellationToken,
    /// Drivers let go of their runs.
    pub(crate) letting_go: CancellationToken,
    /// Drivers stop their runs at no charge.
    pub(crate) stopping_runs: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Shared {
    pub(crate) fn now(&self) -> Timestamp {
        self.options.world.now()
    }

    /// Why no new run starts, if so. A hold ends after a quiet period.
    pub(crate) fn held(&self) -> Option<String> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held
            .as_ref()
            .is_some_and(|hold| hold.since.elapsed() >= self.options.hold_quiet)
        {
            tracing::warn!("held no longer: nothing was wrong for a while");
            *held = None;
        }
        held.as_ref().map(|hold| hold.reason.clone())
    }

    pub(crate) fn hold(&self, reason: String) {
        tracing::error!(reason, "held: no new run starts");
        let since = Instant::now();
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(Hold { reason, since });
    }

    /// Notes what keeps a loop from getting on, or that nothing does any more. Logged when it is
    /// news: a loop meets the same trouble several times a second.
    pub(crate) fn trouble(&self, with: &'static str, what: Option<String>) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        if troubles.get(with) == what.as_ref() {
            return;
        }
        match what {
            Some(what) => {
                tracing::warn!("{with}: {what}; trying again");
                troubles.insert(with, what);
            }
            None => {
                tracing::info!("{with}: going on");
                troubles.remove(with);
            }
        }
    }

    fn trouble_with(&self, with: &'static str) -> Option<String> {
        let troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.get(with).cloned()
    }

    pub(crate) fn job_finished(&self, job: JobId) {
        // Nobody waiting is no failure.
        drop(self.finished.send(job));
        self.wake.notify_one();
    }

    /// Starts a named task that is waited for at the end, and whose panic stays with it.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let guarded = async move {
            if let Err(panic) = guard::catch(AssertUnwindSafe(task)).await {
                tracing::error!(task = name, location = panic.location, "a task panicked");
            }
        };
        drop(self.tasks.spawn(guarded));
    }

    pub(crate) async fn status(&self) -> EngineStatus {
        EngineStatus {
            boot: self.options.boot,
            started_at: self.started_at,
            recovered: self.recovered.load(Ordering::SeqCst),
            unrecovered: self.trouble_with(recovery::NAME),
            held: self.held().or_else(|| self.trouble_with(claims::NAME)),
            draining: self.ending.is_cancelled(),
            driving: self.drivers.count(),
            concurrency: self.options.concurrency,
            counts: self.options.store.counts().await,
        }
    }

    pub(crate) async fn reload_catalog(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        let now = self.now();
        if let Err(error) = run_blocking(move || shared.catalog.reload(now)).await {
            tracing::error!(error, "the catalog could not be read");
            return;
        }
        let catalog = self.catalog.current();
        for problem in &catalog.problems {
            if problem.fatal {
                tracing::error!(bundle = problem.bundle, "not offered: {}", problem.message);
            } else {
                tracing::warn!(bundle = problem.bundle, "{}", problem.message);
            }
        }
        tracing::info!(services = catalog.services.len(), "catalog read");
    }
}

/// Runs blocking work on the runtime's threads for it.
///
/// # Errors
/// The work panicked, or the runtime is ending.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| error.to_string())
}

/// A running engine's owner: whoever holds it ends it.
#[derive(Debug)]
pub struct Service {
    shared: Arc<Shared>,
}

impl Service {
    /// Registers the boot, reads the bundles and starts the loops. Recovery goes on behind.
    ///
    /// # Errors
    /// The store does not take the boot.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        guard::install_hook();
        let now = options.world.now();
        options
            .store
            .open_boot(&NewBoot {
                id: options.boot,
                run_root: options.run_root,
                at: now,
                pid: std::process::id(),
                host_boot: options.host_boot.clone(),
                version: options.version.clone(),
            })
            .await?;
        let shared = Arc::new(Shared {
            started_at: now,
            catalog: Keeper::new(
                options.bundles.clone(),
                options.data_dir.clone(),
                options.namespace,
                now,
            ),
            drivers: Drivers::default(),
            wake: Notify::new(),
            finished: broadcast::channel(FINISHED_BACKLOG).0,
            held: Mutex::new(None),
            troubles: Mutex::default(),
            panics: Mutex::new(PanicLedger::default()),
            recovered: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            ending: CancellationToken::new(),
            letting_go: CancellationToken::new(),
            stopping_runs: CancellationToken::new(),
            tasks: TaskTracker::new(),
            options,
        });
        shared.reload_catalog().await;
        shared.spawn("recovery", recovery::run(Arc::clone(&shared)));
        shared.spawn("claims", claims::run(Arc::clone(&shared)));
        shared.spawn("deadlines", housekeeping::deadlines(Arc::clone(&shared)));
        shared.spawn(
            "signs of life",
            housekeeping::signs_of_life(Arc::clone(&shared)),
        );
        shared.spawn("unclaimed runs", housekeeping::runs(Arc::clone(&shared)));
        shared.spawn("retention", housekeeping::retention(Arc::clone(&shared)));
        Ok(Self { shared })
    }

    /// A handle to the engine.
    pub fn engine(&self) -> Engine {
        Engine {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Ends the engine: leaves the drain mark before it waits for anything, claims nothing
    /// more, and lets go of the runs or waits for them.
    pub async fn shutdown(self) {
        let shared = self.shared;
        shared.ending.cancel();
        shared.wake.notify_one();
        if let Err(error) = shared
            .options
            .store
            .mark_drained(shared.options.boot, shared.now())
            .await
        {
            tracing::error!(%error, "the drain mark could not be left");
        }
        if shared.options.on_shutdown == OnShutdown::Drain {
            attempt::wait_for_drivers(&shared, shared.options.drain_limit).await;
            shared.stopping_runs.cancel();
            attempt::wait_for_drivers(&shared, shared.options.grace + Duration::from_secs(10))
                .await;
        }
        shared.letting_go.cancel();
        shared.tasks.close();
        if tokio::time::timeout(Duration::from_secs(10), shared.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(tasks = shared.tasks.len(), "tasks were left behind");
        }
    }
}

/// What a panic carried, as text.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
