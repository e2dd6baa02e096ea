//! One try of a job: what its run did, and what that means.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::forensics::Forensics;
use crate::ids::{AttemptId, BootId, RunRootId};
use crate::request::Outputs;
use crate::time::Timestamp;

/// `EX_TEMPFAIL` of sysexits.h: the action asks to be tried again later.
pub const EX_TEMPFAIL: i32 = 75;

/// How a run's process tree is held together, strongest first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Containment {
    /// A PID namespace whose init dies with the shim.
    Pidns,
    /// A cgroup2 of its own, ended by `cgroup.kill`.
    Cgroup,
    /// An inherited lock, and a sweep by attempt id in the environment.
    Sweep,
}

impl Containment {
    /// The word used in settings, records and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pidns => "pidns",
            Self::Cgroup => "cgroup",
            Self::Sweep => "sweep",
        }
    }
}

/// A limit of a run that its bundle or the operator set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// Memory of the whole tree.
    Memory,
    /// Processor time.
    CpuTime,
    /// Room used in the work, temporary and state folders.
    Disk,
    /// Number of processes.
    Processes,
    /// Bytes written to standard output and error.
    Output,
}

/// How a run ended, as its exit record tells.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RunEnd {
    /// The main process returned this code.
    Exited {
        /// 0 to 255.
        code: i32,
    },
    /// The main process was ended by this signal.
    Signalled {
        /// As in signal(7).
        signal: i32,
    },
    /// It outlived the action's timeout and was ended.
    TimedOut,
    /// It outlived the job's deadline and was ended.
    DeadlinePassed,
    /// It was asked to stop, and did.
    Stopped,
    /// It went over a limit of its own and was ended.
    LimitExceeded {
        /// Which one.
        limit: LimitKind,
    },
    /// The kernel ended it for the memory of its own cgroup.
    OutOfMemory,
    /// The command could not be started at all.
    NotRunnable {
        /// What the kernel said, and of which file.
        message: String,
    },
}

/// A run that has ended, told by its exit record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunReport {
    /// How it ended.
    pub end: RunEnd,
    /// When the action's first instruction could run; `None` if it never came to that.
    pub started_at: Option<Timestamp>,
    /// When the last of its processes was gone.
    pub ended_at: Timestamp,
    /// How the tree was held; `None` if it never came to that.
    pub containment: Option<Containment>,
    /// The most memory that the tree is known to have used, in bytes.
    pub peak_memory: Option<u64>,
    /// Processor time of the tree, in milliseconds.
    pub cpu_millis: Option<u64>,
    /// Whether the host ran out of memory meanwhile (somebody else may have been the cause).
    pub host_oom_grew: bool,
    /// What the action wrote, checked by the shim; `Err` says what is wrong with it.
    pub outputs: Result<Outputs, String>,
    /// The last line of progress.
    pub progress: Option<String>,
    /// What else is known of its end.
    pub forensics: Forensics,
}

impl RunReport {
    /// How long the run lived.
    pub fn ran(&self) -> Duration {
        self.started_at
            .map_or(Duration::ZERO, |started| self.ended_at.since(started))
    }
}

/// Proof that a run's death was of its own making (DESIGN §4).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Evidence {
    /// A signal that a process brings on itself.
    FatalSignal {
        /// As in signal(7).
        signal: i32,
    },
    /// A limit of its own.
    Limit {
        /// Which one.
        limit: LimitKind,
    },
    /// Its own cgroup ran out of memory.
    OutOfMemory,
    /// A driving step of the job panicked.
    Panic {
        /// `file:line:column` of the panic.
        location: String,
    },
}

/// Why an attempt that says nothing against its job ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisruptionCause {
    /// The broker was asked to end and took its runs with it.
    Drain,
    /// Somebody stopped the run.
    Stopped,
    /// The run never started while its broker lived to see it, or its death cannot be laid at
    /// the job's door.
    NeverStarted,
    /// The host was restarted in an orderly way.
    Reboot,
}

/// Why a job was near the death of a broker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExposureCause {
    /// The run vanished with the broker.
    VanishedWithBroker,
    /// The black box names the job.
    NamedByBlackBox,
    /// The host was restarted without warning.
    HostLost,
}

/// The death of a broker that is counted against an attempt. It is counted before the run is
/// looked at, because looking at it may be what kills.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Death {
    /// Who died.
    pub boot: BootId,
    /// How the attempt was near.
    pub cause: ExposureCause,
    /// The black box named it in an exclusive step, and no other run vanished.
    pub exclusive: bool,
    /// What it cost.
    pub charge: Charge,
}

/// Deaths that are counted against one attempt; further ones add nothing to what is known.
pub const MAX_DEATHS: usize = 64;

/// Why a job failed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FailReason {
    /// The action said so by its exit code.
    ExitCode {
        /// 1 to 255.
        code: i32,
    },
    /// The action asked for more tries than it has.
    RetriesSpent,
    /// The action took longer than its timeout.
    Timeout,
    /// The job took longer than its deadline.
    Deadline,
    /// The action ended well but what it wrote cannot be used.
    BadOutput {
        /// What is wrong with it.
        message: String,
    },
    /// The command could not be started.
    NotRunnable {
        /// What the kernel said, and of which file.
        message: String,
    },
    /// The job could not be prepared (a secret file is missing, say).
    NotPrepared {
        /// What is missing, and where.
        message: String,
    },
}

/// How an attempt ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum End {
    /// The action did what it was asked for.
    Succeeded,
    /// The action did not, in an orderly way.
    Failed {
        /// Why.
        reason: FailReason,
        /// What the action has to say to the platform.
        message: Option<String>,
    },
    /// The action asks to be tried again (exit code 75).
    TryLater,
    /// The run was stopped because the broker asked for it.
    Stopped,
    /// The run ended without an outcome while the broker lived, or a driving step panicked.
    Crashed {
        /// Proof that it was the job's own doing, if there is any.
        evidence: Option<Evidence>,
    },
    /// The broker died with or beside it. Costs nothing more where the owner's death was counted
    /// before ([`Death`]).
    Exposed {
        /// How it was near.
        cause: ExposureCause,
    },
    /// It ended through nobody's fault.
    Disrupted {
        /// How.
        cause: DisruptionCause,
    },
    /// A panic that several jobs share at one place is the broker's fault, not theirs.
    OurBug {
        /// `file:line:column` of the panic.
        location: String,
    },
    /// The job's stored body authenticates but cannot be understood.
    Unreadable {
        /// What the decoder said.
        message: String,
    },
}

/// What an attempt's end costs its job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Charge {
    /// Nothing.
    None,
    /// One of `crash_limit`.
    Crash,
    /// Makes a suspect, never convicts.
    Exposure,
    /// One of `loss_limit`.
    Loss,
    /// Free, but five in a row make a suspect.
    Disruption,
}

impl Charge {
    /// The word used in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Crash => "crash",
            Self::Exposure => "exposure",
            Self::Loss => "loss",
            Self::Disruption => "disruption",
        }
    }
}

/// An attempt that is under way, as the job's row holds it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// Its name, chosen before the claim is committed.
    pub id: AttemptId,
    /// 1 for the first try of the job.
    pub ordinal: u32,
    /// The boot that owns it.
    pub boot: BootId,
    /// Where its run lives.
    pub run_root: RunRootId,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// How long it runs alone, if it does.
    pub solo: Option<Duration>,
    /// Brokers that died near it, as far as they are counted; oldest first.
    pub deaths: Vec<Death>,
}

impl Attempt {
    /// Whether the attempt was still running alone after it had lived for `ran`.
    pub fn is_solo_after(&self, ran: Duration) -> bool {
        self.solo.is_some_and(|window| ran < window)
    }

    /// The death of this boot, if it is counted.
    pub fn death_of(&self, boot: BootId) -> Option<&Death> {
        self.deaths.iter().find(|death| death.boot == boot)
    }
}

/// Signals that a process brings on itself: faults, aborts and its own resource limits.
/// Numbers as on Linux for x86-64 and aarch64, signal(7).
const OWN_SIGNALS: [i32; 10] = [
    4,  // SIGILL
    5,  // SIGTRAP
    6,  // SIGABRT
    7,  // SIGBUS
    8,  // SIGFPE
    11, // SIGSEGV
    13, // SIGPIPE
    24, // SIGXCPU
    25, // SIGXFSZ
    31, // SIGSYS
];

/// What the end of a run means for its attempt.
///
/// `asked_to_stop` says that this broker asked the run to stop: a stop that nobody here asked
/// for is a disruption.
pub fn classify(report: &RunReport, asked_to_stop: bool) -> End {
    let failed = |reason| End::Failed {
        reason,
        message: report_message(report),
    };
    match &report.end {
        RunEnd::Exited { code: 0 } => match &report.outputs {
            Ok(_) => End::Succeeded,
            Err(message) => failed(FailReason::BadOutput {
                message: message.clone(),
            }),
        },
        RunEnd::Exited { code: EX_TEMPFAIL } => End::TryLater,
        RunEnd::Exited { code } => failed(FailReason::ExitCode { code: *code }),
        RunEnd::TimedOut => failed(FailReason::Timeout),
        RunEnd::DeadlinePassed => failed(FailReason::Deadline),
        RunEnd::NotRunnable { message } => failed(FailReason::NotRunnable {
            message: message.clone(),
        }),
        RunEnd::Stopped if asked_to_stop => End::Stopped,
        RunEnd::Stopped => End::Disrupted {
            cause: DisruptionCause::Stopped,
        },
        RunEnd::LimitExceeded { limit } => End::Crashed {
            evidence: Some(Evidence::Limit { limit: *limit }),
        },
        RunEnd::OutOfMemory => End::Crashed {
            evidence: Some(Evidence::OutOfMemory),
        },
        RunEnd::Signalled { signal } if OWN_SIGNALS.contains(signal) => End::Crashed {
            evidence: Some(Evidence::FatalSignal { signal: *signal }),
        },
        RunEnd::Signalled { .. } => End::Crashed { evidence: None },
    }
}

fn report_message(report: &RunReport) -> Option<String> {
    report
        .outputs
        .as_ref()
        .ok()
        .and_then(|outputs| outputs.error_message.clone())
}
