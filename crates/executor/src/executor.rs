//! What the engine asks of runs, whatever they are made of.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use evenkeel_core::attempt::{Containment, RunReport};
use evenkeel_core::bundle::Limits;
use evenkeel_core::forensics::Forensics;
use evenkeel_core::ids::AttemptId;
use evenkeel_core::time::Timestamp;
use evenkeel_run::{LogTail, RunError, Standing};
use tokio::sync::mpsc;

/// Runs of one kind. Every method may be repeated, and may be cancelled at any point by dropping
/// its future: what it had begun is then done or not, and a later call finds out.
#[async_trait]
pub trait Executor: Send + Sync + fmt::Debug {
    /// Starts the run of an attempt. A second start of the same attempt never makes a second run.
    ///
    /// # Errors
    /// [`StartError::Refused`]: nothing was started, and would not be another time.
    /// [`StartError::Failed`]: [`Self::probe`] tells whether something was.
    async fn start(&self, spec: RunSpec) -> Result<Handle, StartError>;

    /// What became of a run. A fence: `NeverStarted`, `Exited` and `Vanished` stay true, whoever
    /// else is about to start it.
    ///
    /// # Errors
    /// No answer can be given now.
    async fn probe(&self, attempt: AttemptId) -> Result<Probe, ExecutorError>;

    /// Whether a run is over, without understanding what it left: for one whose record may be what
    /// kills its reader. `Over` is a fence, as in [`Self::probe`].
    ///
    /// # Errors
    /// No answer can be given now.
    async fn standing(&self, attempt: AttemptId) -> Result<Standing, ExecutorError>;

    /// Whether the run's action began, nobody watches over it any more, and no record of its end is
    /// there. No fence, and nothing of what it left is understood.
    ///
    /// # Errors
    /// No answer can be given now.
    async fn is_lost(&self, attempt: AttemptId) -> Result<bool, ExecutorError>;

    /// Waits until the run is no longer simply alive, whoever started it, and passes on lines of
    /// progress; a line that finds no room in the channel is overtaken by the next one.
    ///
    /// # Errors
    /// No answer can be given now.
    async fn watch(
        &self,
        attempt: AttemptId,
        progress: mpsc::Sender<String>,
    ) -> Result<WatchEnd, ExecutorError>;

    /// Asks a run to stop: SIGTERM to all of it, SIGKILL after `grace`. Its end comes by
    /// [`Self::watch`]. Nothing happens to a run that is over.
    ///
    /// # Errors
    /// The wish could not be passed on.
    async fn stop(&self, attempt: AttemptId, grace: Duration) -> Result<(), ExecutorError>;

    /// Ends the supervisor of a run if it is silent ([`WatchEnd::Silent`]) still; says whether it
    /// did. What it leaves is [`Probe::Lingering`].
    ///
    /// # Errors
    /// It could not be ended.
    async fn end_silent(&self, attempt: AttemptId) -> Result<bool, ExecutorError>;

    /// Ends what a dead supervisor left; says whether nothing is left.
    ///
    /// # Errors
    /// The run is alive, or its processes cannot be looked at.
    async fn sweep(&self, attempt: AttemptId) -> Result<bool, ExecutorError>;

    /// Removes everything of a run whose end the caller has written down, secrets first; keeps its
    /// log. After this only the caller knows that the run has been.
    ///
    /// # Errors
    /// The run is alive or lingering, or something could not be removed; nothing is lost by
    /// trying again.
    async fn conclude(&self, attempt: AttemptId) -> Result<(), ExecutorError>;

    /// The runs that have not been concluded.
    ///
    /// # Errors
    /// They cannot be listed.
    async fn runs(&self) -> Result<Vec<AttemptId>, ExecutorError>;

    /// The last bytes, at most `max_bytes` of each stream, of a run's log, concluded or not; `None`
    /// if there is none (any more).
    ///
    /// # Errors
    /// It cannot be read.
    async fn log(
        &self,
        attempt: AttemptId,
        max_bytes: usize,
    ) -> Result<Option<LogTail>, ExecutorError>;

    /// Removes the logs of runs that were concluded before.
    ///
    /// # Errors
    /// Some of them could not be removed.
    async fn forget_logs(&self, before: Timestamp) -> Result<(), ExecutorError>;

    /// How long ago a run last showed a sign of life; `None` where that cannot be told.
    ///
    /// # Errors
    /// It cannot be read.
    async fn silence(&self, attempt: AttemptId) -> Result<Option<Duration>, ExecutorError> {
        let _: AttemptId = attempt;
        Ok(None)
    }

    /// What there is to tell of a run that is over, whether it left a record of its end or not,
    /// until it is concluded. For people: nothing is decided by it.
    ///
    /// # Errors
    /// It cannot be looked at.
    async fn remains(&self, attempt: AttemptId) -> Result<Remains, ExecutorError> {
        let _: AttemptId = attempt;
        Ok(Remains::default())
    }

    /// Whether there is too little room for another run.
    async fn disk_low(&self) -> bool;
}

/// What a run is to do.
#[derive(Clone, PartialEq)]
pub struct RunSpec {
    /// The run's name.
    pub attempt: AttemptId,
    /// The bundle's `env` and the variables of the action contract that say what is asked. Those
    /// that say where things are (`EVENKEEL_REQUEST` and so on, `HOME`, `TMPDIR`) and defaults of
    /// `PATH` and `LANG` are the executor's.
    pub env: BTreeMap<String, String>,
    /// The program and its arguments. With a `/` it lies in `bundle_dir`, else on the `PATH`.
    pub command: Vec<String>,
    /// The bundle's pinned copy.
    pub bundle_dir: PathBuf,
    /// The instance's own folder (`EVENKEEL_STATE`), which exists.
    pub state_dir: PathBuf,
    /// Whether the action shall not change it.
    pub state_read_only: bool,
    /// The document at `EVENKEEL_REQUEST`. A secret.
    pub request: Vec<u8>,
    /// Name and content of the files in `EVENKEEL_SECRETS`.
    pub secrets: BTreeMap<String, Vec<u8>>,
    /// What it may use.
    pub limits: Limits,
    /// How long it may take.
    pub timeout: Duration,
    /// When it must be over.
    pub deadline: Timestamp,
    /// How long it may take to end when it is asked to.
    pub grace: Duration,
}

impl fmt::Debug for RunSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither request nor secrets.
        f.debug_struct("RunSpec")
            .field("attempt", &self.attempt)
            .field("command", &self.command)
            .field("timeout", &self.timeout)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// A run that was started, by this call or an earlier one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Handle {
    /// How its tree is held, as far as it is known by now.
    pub containment: Option<Containment>,
}

/// What became of a run.
#[derive(Clone, Debug)]
pub enum Probe {
    /// None of its code ever ran, and none ever will.
    NeverStarted,
    /// It is supervised.
    Alive,
    /// Its supervisor is dead, and it is not known to be.
    Lingering,
    /// It ended, and this is how.
    Exited(Box<RunReport>),
    /// It is gone, and nobody wrote down how it ended.
    Vanished,
}

/// What there is to tell of a run that is over; what is not known is left out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Remains {
    /// When its action's first instruction could run.
    pub started_at: Option<Timestamp>,
    /// How its tree was held.
    pub containment: Option<Containment>,
    /// How long ago it last showed a sign of life.
    pub last_sign_ago: Option<Duration>,
    /// The most memory that its tree is known to have used, in bytes.
    pub peak_memory: Option<u64>,
    /// Processor time of its tree, in milliseconds.
    pub cpu_millis: Option<u64>,
    /// All else.
    pub forensics: Forensics,
}

/// Why a watch is over.
#[derive(Clone, Debug)]
pub enum WatchEnd {
    /// As [`Probe::NeverStarted`].
    NeverStarted,
    /// As [`Probe::Lingering`]: to be swept.
    Lingering,
    /// As [`Probe::Exited`].
    Exited(Box<RunReport>),
    /// As [`Probe::Vanished`].
    Vanished,
    /// Its supervisor does not show itself any more: to be ended.
    Silent,
}

/// Why a run was not started, as far as is known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// It was not, and never will be: the spec asks for what cannot be.
    #[error("the run is refused: {0}")]
    Refused(String),
    /// Something failed on the way.
    #[error("the run could not be started: {0}")]
    Failed(#[from] ExecutorError),
}

/// Why an executor has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecutorError {
    /// The run folder.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The supervisor could not be started.
    #[error("cannot start the shim {}: {source}", program.display())]
    Spawn {
        /// Its program.
        program: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A supervisor could not be ended.
    #[error("the silent shim of run {attempt} does not end")]
    StillThere {
        /// The run.
        attempt: AttemptId,
    },
    /// The process is ending, or a fault of ours.
    #[error("the work on a run was cut off: {0}")]
    CutOff(String),
}
