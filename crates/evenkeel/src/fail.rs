//! Why a command ended without success: a message, a hint, and an exit code that programs can
//! rely on (docs/config.md lists them).

use std::fmt;
use std::process::ExitCode;

/// The exit codes. 0 is success; they never change their meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Exit {
    /// It was tried and did not work.
    Failed = 1,
    /// The command line or the configuration is wrong; nothing was tried.
    Usage = 2,
    /// There is no such job, instance, binding, service or plan.
    NotFound = 3,
    /// The broker does not answer.
    Unreachable = 4,
    /// The broker does not know this token, user or password.
    Refused = 5,
    /// It does not apply to a thing that stands as this one does.
    NotApplicable = 6,
    /// The operation goes on; waiting for it was given up.
    StillInProgress = 7,
    /// `serve` cannot listen on an address.
    Listen = 10,
    /// `serve` cannot use its data folder.
    DataDir = 11,
    /// Another broker uses the data folder.
    Locked = 12,
    /// The key file does not belong to the store.
    WrongKey = 13,
    /// The store cannot be used: damaged, or written by a newer release.
    Store = 14,
    /// `serve` handed over: what all jobs share failed, or its warden died.
    HandedOver = 15,
}

impl Exit {
    /// Whether a broker that ends so would only do so again: somebody has to change something.
    pub(crate) fn is_final(code: u8) -> bool {
        [Self::Usage, Self::Listen, Self::DataDir, Self::Locked]
            .iter()
            .any(|exit| *exit as u8 == code)
    }
}

/// The end of a command that did not succeed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Empty where everything has been said.
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            hint: None,
        }
    }

    /// Everything has been said.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
