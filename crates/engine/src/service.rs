//! Starts an engine and ends it.

use std::collections::{BTreeMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use evenkeel_core::explain::Turn;
use evenkeel_core::ids::{BootId, JobId};
use evenkeel_core::panics::PanicLedger;
use evenkeel_core::time::Timestamp;
use evenkeel_executor::blocking::{self, Unfinished};
use evenkeel_executor::panics;
use evenkeel_store::error::StoreError;
use evenkeel_store::seam::NewBoot;
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::catalog::Keeper;
use crate::drivers::Drivers;
use crate::engine::{Engine, EngineStatus, LastDeath};
use crate::guard::Caught;
use crate::hold::Holds;
use crate::options::{OnShutdown, Options};
use crate::{attempt, claims, guard, housekeeping, recovery};

/// Finished jobs that a waiter may lag behind by before it looks the job up itself.
const FINISHED_BACKLOG: usize = 1_024;

/// How long an end waits for a store that may hang; a lock that somebody else holds is given up
/// before.
const DRAIN_MARK_LIMIT: Duration = Duration::from_secs(10);

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The boot could not be registered, or what is held could not be read.
    #[error("the boot could not be registered: {0}")]
    Store(#[from] StoreError),
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
    pub(crate) holds: Holds,
    /// Whose turn to run alone it is.
    alone: Mutex<Option<Turn>>,
    /// What keeps a loop from getting on, by its name.
    troubles: Mutex<BTreeMap<&'static str, String>>,
    pub(crate) panics: Mutex<PanicLedger>,
    /// Dead boots of which it is known whether their exclusive step was all that went wrong: `true`
    /// if it was not.
    judged: Mutex<BTreeMap<BootId, bool>>,
    pub(crate) recovered: AtomicBool,
    /// The last pass of recovery left nothing undone.
    pub(crate) settled: AtomicBool,
    /// The last end of an earlier boot that nobody asked for; known after recovery's first pass.
    pub(crate) last_death: OnceLock<Option<LastDeath>>,
    /// Boots whose end has been taken over from their wardens; as many as were open at the start.
    deaths_taken: Mutex<HashSet<BootId>>,
    /// Which of the tasks that all share has panicked first, if any has.
    broken: watch::Sender<Option<&'static str>>,
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

    /// Why no new run starts, if so: held, or no job can be claimed.
    pub(crate) fn held(&self) -> Option<String> {
        self.holds
            .line()
            .or_else(|| self.trouble_with(claims::NAME))
    }

    /// Whose turn to run alone it is, if it is a suspect's.
    pub(crate) fn alone(&self) -> Option<Turn> {
        *self.alone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whose turn it is, and says whose it was.
    pub(crate) fn tell_alone(&self, now: Option<Turn>) -> Option<Turn> {
        let mut alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut alone, now)
    }

    pub(crate) fn judged(&self) -> MutexGuard<'_, BTreeMap<BootId, bool>> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether more went wrong with a dead boot than its exclusive step.
    pub(crate) fn spoilt(&self, boot: BootId) -> bool {
        self.judged().get(&boot).copied().unwrap_or(false)
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

    pub(crate) fn deaths_taken(&self) -> MutexGuard<'_, HashSet<BootId>> {
        self.deaths_taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn job_finished(&self, job: JobId) {
        // Nobody waiting is no failure.
        drop(self.finished.send(job));
        self.wake.notify_one();
    }

    /// A task that all jobs share has panicked. What it left half done cannot be known, so that
    /// nothing is claimed any more and whoever runs this engine has it hand over: a clean start
    /// mends it. No job is charged for what is not about one.
    pub(crate) fn is_broken(&self, task: &'static str, panic: &Caught) {
        tracing::error!(
            task,
            location = panic.location,
            said = panic.words(),
            "a task that all jobs share panicked"
        );
        self.break_down(task);
    }

    fn break_down(&self, what: &'static str) {
        self.ending.cancel();
        self.broken.send_if_modified(|broken| {
            let first = broken.is_none();
            broken.get_or_insert(what);
            first
        });
    }

    /// Starts a named task that is waited for at the end, and whose panic stays with it: a job's.
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

    /// As [`Self::spawn`], but a task that all jobs share, without which this engine is broken.
    fn spawn_shared(
        self: &Arc<Self>,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let shared = Arc::clone(self);
        let guarded = async move {
            if let Err(panic) = guard::catch(AssertUnwindSafe(task)).await {
                shared.is_broken(name, &panic);
            }
        };
        drop(self.tasks.spawn(guarded));
    }

    pub(crate) fn status(&self) -> EngineStatus {
        EngineStatus {
            boot: self.options.boot,
            started_at: self.started_at,
            recovered: self.recovered.load(Ordering::SeqCst),
            unrecovered: self.trouble_with(recovery::NAME),
            holds: self.holds.all(),
            alone: self.alone(),
            unclaimed: self.trouble_with(claims::NAME),
            last_death: self.last_death.get().cloned().flatten(),
            draining: self.ending.is_cancelled(),
            driving: self.drivers.count(),
            concurrency: self.options.concurrency,
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

/// Does blocking work that its caller can do without.
///
/// # Errors
/// The work panicked, or the runtime is ending: a text with the place of the panic, and none of its
/// words.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let done = blocking::run(work).await;
    done.map_err(|error| error.to_string())
}

/// Does blocking work that a step needs: its panic is the step's, for the guard that catches it.
pub(crate) async fn step_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    match blocking::run(work).await {
        Ok(done) => done,
        Err(Unfinished::Panicked(panic)) => panic.resume(),
        // The step ends here with the runtime. It has failed at nothing: the next boot takes it up.
        Err(Unfinished::CutOff) => std::future::pending().await,
    }
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
        panics::install_hook();
        let now = options.world.now();
        // Whoever registers has nothing left that could fail: what tries again would look like
        // brokers that die in a row.
        let holds = Holds::load(&options, now).await?;
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
            holds,
            alone: Mutex::default(),
            troubles: Mutex::default(),
            panics: Mutex::new(PanicLedger::default()),
            judged: Mutex::default(),
            recovered: AtomicBool::new(false),
            last_death: OnceLock::new(),
            deaths_taken: Mutex::default(),
            broken: watch::Sender::new(None),
            settled: AtomicBool::new(false),
            ending: CancellationToken::new(),
            letting_go: CancellationToken::new(),
            stopping_runs: CancellationToken::new(),
            tasks: TaskTracker::new(),
            options,
        });
        #[cfg(feature = "faults")]
        crate::faults::share(&shared);
        shared.reload_catalog().await;
        shared.spawn_shared("recovery", recovery::run(Arc::clone(&shared)));
        shared.spawn_shared("claims", claims::run(Arc::clone(&shared)));
        shared.spawn_shared("deadlines", housekeeping::deadlines(Arc::clone(&shared)));
        shared.spawn_shared(
            "signs of life",
            housekeeping::signs_of_life(Arc::clone(&shared)),
        );
        shared.spawn_shared("unclaimed runs", housekeeping::runs(Arc::clone(&shared)));
        shared.spawn_shared("the store's watch", watch_store(Arc::clone(&shared)));
        shared.spawn_shared("retention", housekeeping::retention(Arc::clone(&shared)));
        Ok(Self { shared })
    }

    /// A handle to the engine.
    pub fn engine(&self) -> Engine {
        Engine {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Until a task that all jobs share has panicked; says which. The engine claims nothing any
    /// more, and is to be ended by [`Self::shutdown`], which hands over.
    pub async fn broken(&self) -> &'static str {
        let mut broken = self.shared.broken.subscribe();
        loop {
            if let Some(task) = *broken.borrow_and_update() {
                return task;
            }
            if broken.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Ends the engine: leaves the drain mark before it waits for anything, claims nothing
    /// more, and lets go of the runs or waits for them.
    pub async fn shutdown(&self) {
        let on_shutdown = self.shared.options.on_shutdown;
        self.end(on_shutdown, None).await;
    }

    /// As [`Self::shutdown`], but the runs go on whatever is configured: for an engine whose
    /// successor waits already. It may be asked for in the midst of a [`Self::shutdown`], whose
    /// future is then dropped.
    pub async fn hand_over(&self) {
        self.end(OnShutdown::Detach, None).await;
    }

    /// As [`Self::shutdown`], where nobody has asked for it: `what` has panicked, which is put on
    /// record with the drain mark. `followed` says that the next process starts at once and nothing
    /// ends the runs: they go on then, whatever is configured.
    pub async fn give_up(&self, what: &'static str, followed: bool) {
        let on_shutdown = if followed {
            OnShutdown::Detach
        } else {
            self.shared.options.on_shutdown
        };
        self.end(on_shutdown, Some(what)).await;
    }

    async fn end(&self, on_shutdown: OnShutdown, broke: Option<&'static str>) {
        let shared = &self.shared;
        shared.ending.cancel();
        shared.wake.notify_one();
        let mark = shared
            .options
            .store
            .mark_drained(shared.options.boot, broke, shared.now());
        match tokio::time::timeout(DRAIN_MARK_LIMIT, mark).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the drain mark could not be left"),
            // If somebody asked for the end, a warden has the same on record; else it counts as a death.
            Err(_) => tracing::error!("the drain mark is not waited for: the store hangs"),
        }
        if on_shutdown == OnShutdown::Drain {
            attempt::wait_for_drivers(shared, shared.options.drain_limit).await;
            shared.stopping_runs.cancel();
            attempt::wait_for_drivers(shared, shared.options.grace + Duration::from_secs(10)).await;
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

async fn watch_store(shared: Arc<Shared>) {
    tokio::select! {
        what = shared.options.store.broken() => shared.break_down(what),
        () = shared.ending.cancelled() => {}
    }
}
