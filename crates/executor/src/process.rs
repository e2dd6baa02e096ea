//! Runs as contained process trees on this host.

mod report;
mod spec;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use evenkeel_core::ids::AttemptId;
use evenkeel_core::time::Timestamp;
use evenkeel_run::faults;
use evenkeel_run::{
    Begin, ContainmentWish, LogTail, RunAs, RunError, RunFolder, RunRoot, SilentEnd, Standing,
    StartTicket,
};
use tokio::sync::mpsc;

use crate::blocking::{self, Unfinished};
use crate::executor::{
    Executor, ExecutorError, Handle, Probe, Remains, RunSpec, StartError, WatchEnd,
};

/// More run folders than any host can have alive; the rest is listed when these are gone.
const MAX_LISTED: usize = 100_000;
/// How long a start waits to learn how the run's tree is held. The answer is for the record only.
const STARTED_WITHIN: Duration = Duration::from_secs(2);

/// How the shim is started: in production this very program, which branches off to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShimCommand {
    /// The program.
    pub program: PathBuf,
    /// Arguments before the run folder.
    pub args: Vec<OsString>,
}

impl Default for ShimCommand {
    fn default() -> Self {
        // What is running, even if its file was replaced by another release meanwhile.
        Self {
            program: "/proc/self/exe".into(),
            args: vec!["shim".into()],
        }
    }
}

/// Settings of a [`ProcessExecutor`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessOptions {
    /// How the shim is started.
    pub shim: ShimCommand,
    /// The whole environment of the shim. None of it reaches an action.
    pub shim_env: Vec<(OsString, OsString)>,
    /// How trees are to be held.
    pub containment: ContainmentWish,
    /// Another user for actions; needs a broker that runs as root.
    pub run_as: Option<RunAs>,
    /// A shim that has not shown itself for so long is silent. Shims show themselves twice a
    /// second.
    pub silent_after: Duration,
    /// With less room than this on the run root's disk, in bytes, no run shall start.
    pub low_water_bytes: u64,
}

impl Default for ProcessOptions {
    fn default() -> Self {
        Self {
            shim: ShimCommand::default(),
            shim_env: Vec::new(),
            containment: ContainmentWish::Auto,
            run_as: None,
            silent_after: Duration::from_secs(30),
            low_water_bytes: 256 << 20,
        }
    }
}

/// Runs actions as process trees, each under a shim of its own that outlives this process.
#[derive(Clone, Debug)]
pub struct ProcessExecutor {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: RunRoot,
    options: ProcessOptions,
    /// Shims that are children of this process, kept only to be reaped. Nothing is concluded from
    /// them: a run is watched and judged in the same way whoever started it.
    children: Mutex<Vec<Child>>,
}

impl ProcessExecutor {
    /// An executor over a run root.
    pub fn new(root: RunRoot, options: ProcessOptions) -> Self {
        let inner = Inner {
            root,
            options,
            children: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Where its runs live.
    pub fn root(&self) -> &RunRoot {
        &self.inner.root
    }

    fn folder(&self, attempt: AttemptId) -> Result<RunFolder, RunError> {
        self.inner.root.run(&attempt.to_string())
    }

    /// Does work on a run's folder where waiting for a disk or a lock holds nobody up.
    async fn on_folder<T: Send + 'static>(
        &self,
        attempt: AttemptId,
        work: impl FnOnce(&Inner, RunFolder) -> Result<T, ExecutorError> + Send + 'static,
    ) -> Result<T, ExecutorError> {
        let folder = self.folder(attempt)?;
        self.blocking(move |inner| work(inner, folder)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, ExecutorError> + Send + 'static,
    ) -> Result<T, ExecutorError> {
        let inner = Arc::clone(&self.inner);
        match blocking::run(move || work(&inner)).await {
            Ok(done) => done,
            // A panic there is one of the step that asked.
            Err(Unfinished::Panicked(panic)) => panic.resume(),
            Err(error @ Unfinished::CutOff) => Err(ExecutorError::CutOff(error.to_string())),
        }
    }
}

impl Inner {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the home of starting processes"
    )]
    fn spawn(
        &self,
        mut ticket: StartTicket,
        spec: &evenkeel_run::RunSpec,
    ) -> Result<(), ExecutorError> {
        let program = &self.options.shim.program;
        let fail = |source| ExecutorError::Spawn {
            program: program.clone(),
            source,
        };
        let child = Command::new(program)
            .args(&self.options.shim.args)
            .arg(ticket.folder())
            .env_clear()
            .envs(
                self.options
                    .shim_env
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .current_dir("/")
            .stdin(Stdio::from(ticket.lock_for_shim().map_err(fail)?))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(fail)?;
        faults::hit_with("run.spawn.after", || spec.about());
        self.children
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(child);
        Ok(())
    }

    /// Takes the dead among our children off the kernel's list.
    fn reap(&self) {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

#[async_trait]
impl Executor for ProcessExecutor {
    async fn start(&self, spec: RunSpec) -> Result<Handle, StartError> {
        let attempt = spec.attempt;
        let begun = self.on_folder(attempt, move |inner, folder| {
            inner.reap();
            let (wanted, request, secrets) = spec::for_folder(&folder, spec, &inner.options);
            match folder.begin(&wanted, &request, &secrets)? {
                Begin::Ready(ticket) => {
                    faults::hit_with("run.spawn.before", || wanted.about());
                    inner.spawn(ticket, &wanted)?;
                    faults::hit_with("run.handed_over.after", || wanted.about());
                    Ok(())
                }
                Begin::Already => Ok(()),
            }
        });
        match begun.await {
            Ok(()) => Ok(Handle {
                containment: self.learn_containment(attempt).await,
            }),
            Err(ExecutorError::Run(
                error @ (RunError::TooLarge { .. } | RunError::Name { .. }),
            )) => Err(StartError::Refused(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    async fn probe(&self, attempt: AttemptId) -> Result<Probe, ExecutorError> {
        self.on_folder(attempt, |_, folder| Ok(report::probe(folder.probe()?)))
            .await
    }

    async fn standing(&self, attempt: AttemptId) -> Result<Standing, ExecutorError> {
        self.on_folder(attempt, |_, folder| Ok(folder.standing()?))
            .await
    }

    async fn is_lost(&self, attempt: AttemptId) -> Result<bool, ExecutorError> {
        self.on_folder(attempt, |_, folder| Ok(folder.is_lost()?))
            .await
    }

    async fn watch(
        &self,
        attempt: AttemptId,
        progress: mpsc::Sender<String>,
    ) -> Result<WatchEnd, ExecutorError> {
        let end = watch::watch(self, attempt, progress).await;
        self.inner.reap();
        end
    }

    async fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<(), ExecutorError> {
        self.on_folder(attempt, move |_, folder| {
            Ok(folder.request_stop(Some(grace))?)
        })
        .await
    }

    async fn end_silent(&self, attempt: AttemptId) -> Result<bool, ExecutorError> {
        self.on_folder(attempt, move |inner, folder| {
            match folder.end_silent(inner.options.silent_after)? {
                SilentEnd::Ended => Ok(true),
                SilentEnd::NotAlive | SilentEnd::NotSilent { .. } => Ok(false),
                SilentEnd::StillThere => Err(ExecutorError::StillThere { attempt }),
            }
        })
        .await
    }

    async fn sweep(&self, attempt: AttemptId) -> Result<bool, ExecutorError> {
        self.on_folder(attempt, |_, folder| Ok(folder.sweep()?))
            .await
    }

    async fn conclude(&self, attempt: AttemptId) -> Result<(), ExecutorError> {
        self.on_folder(attempt, |inner, folder| {
            inner.reap();
            Ok(folder.conclude()?)
        })
        .await
    }

    async fn runs(&self) -> Result<Vec<AttemptId>, ExecutorError> {
        self.blocking(|inner| {
            inner.reap();
            let listing = inner.root.runs(MAX_LISTED)?;
            Ok(listing
                .names
                .iter()
                .filter_map(|name| name.parse().ok())
                .collect())
        })
        .await
    }

    async fn log(
        &self,
        attempt: AttemptId,
        max_bytes: usize,
    ) -> Result<Option<LogTail>, ExecutorError> {
        self.on_folder(attempt, move |_, folder| {
            Ok(folder.log_tail(max_bytes as u64)?)
        })
        .await
    }

    async fn forget_logs(&self, before: Timestamp) -> Result<(), ExecutorError> {
        self.blocking(move |inner| Ok(inner.root.forget_logs(before.as_millis()).map(drop)?))
            .await
    }

    async fn silence(&self, attempt: AttemptId) -> Result<Option<Duration>, ExecutorError> {
        self.on_folder(attempt, |_, folder| Ok(folder.heartbeat_age()?))
            .await
    }

    async fn remains(&self, attempt: AttemptId) -> Result<Remains, ExecutorError> {
        self.on_folder(attempt, |_, folder| Ok(report::remains(&folder)))
            .await
    }

    async fn disk_low(&self) -> bool {
        let free = self.blocking(|inner| Ok(inner.root.free_bytes()?)).await;
        match free {
            Ok(bytes) => bytes < self.inner.options.low_water_bytes,
            Err(error) => {
                tracing::warn!(%error, "the room for runs cannot be measured");
                true
            }
        }
    }
}

impl ProcessExecutor {
    async fn learn_containment(
        &self,
        attempt: AttemptId,
    ) -> Option<evenkeel_core::attempt::Containment> {
        let until = tokio::time::Instant::now() + STARTED_WITHIN;
        let mut pause = Duration::from_millis(2);
        loop {
            let look = |_: &Inner, folder: RunFolder| {
                let started = folder.started_record().ok().flatten();
                let over = !matches!(folder.exit_record(), Ok(None));
                Ok((
                    started.map(|record| report::containment(record.containment)),
                    over,
                ))
            };
            match self.on_folder(attempt, look).await {
                Ok((None, false)) if tokio::time::Instant::now() < until => {}
                Ok((containment, _)) => return containment,
                Err(_) => return None,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }
}
