//! What can go wrong with a run folder, said so that it can be mended.

use std::io;
use std::path::{Path, PathBuf};

use crate::frame::FrameError;

/// An operation on a run root or a run folder that did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The operating system refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// A verb phrase: `open`, `lock`, …
        what: &'static str,
        /// What it was done to.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Locks and process ids mean nothing on a shared file system.
    #[error(
        "{} lies on {filesystem}, where a lock does not prove a life; \
         put the run root on a local file system", path.display()
    )]
    FileSystem {
        /// The run root.
        path: PathBuf,
        /// The kind of file system.
        filesystem: &'static str,
    },
    /// The folder was made by a release that this one cannot read.
    #[error(
        "{} has the format {found:?} and this release reads {:?}; \
         use the release that made it, or another run root", path.display(), crate::FORMAT
    )]
    Format {
        /// The run root.
        path: PathBuf,
        /// Its first bytes.
        found: String,
    },
    /// The folder belongs to somebody else.
    #[error("{} belongs to user {owner}, not to user {us}; run as its owner or choose another run root",
        path.display())]
    Owner {
        /// The run root.
        path: PathBuf,
        /// Its user id.
        owner: u32,
        /// Ours.
        us: u32,
    },
    /// Not usable as a file name.
    #[error("{value:?} is no {what}: use 1 to 64 letters, digits and hyphens")]
    Name {
        /// What it should have been.
        what: &'static str,
        /// What it was, shortened.
        value: String,
    },
    /// A record that is not as it was written.
    #[error("{}: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: FrameError,
    },
    /// A record that is intact and says something unknown.
    #[error("{} cannot be understood: {message}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What the reader said.
        message: String,
    },
    /// A file is not the plain, bounded file that it should be.
    #[error("{} is {found}, not a plain file of at most {max_bytes} bytes", path.display())]
    NotPlain {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        found: String,
        /// The most that is read.
        max_bytes: u64,
    },
    /// The run was declared over, or never started, and can never start again.
    #[error(
        "run {attempt_id} has a tombstone: it was found dead or never started; use a new attempt"
    )]
    Tombstone {
        /// The run.
        attempt_id: String,
    },
    /// The run is not over.
    #[error("run {attempt_id} is alive; stop it first")]
    Alive {
        /// The run.
        attempt_id: String,
    },
    /// The shim is dead, and some of its tree is not.
    #[error("run {attempt_id} has processes left; sweep it first")]
    Lingering {
        /// The run.
        attempt_id: String,
    },
    /// Another process has been at work on the run folder for long.
    #[error("{} is in use by another process for more than {waited_secs} s; try again", path.display())]
    Busy {
        /// The run folder.
        path: PathBuf,
        /// How long we waited.
        waited_secs: u64,
    },
    /// More than one run may bring.
    #[error("the {what} of run {attempt_id} takes {bytes} bytes and the limit is {max_bytes}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The run.
        attempt_id: String,
        /// Its size.
        bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
}

impl RunError {
    /// Whether the disk (or a quota) is full: room may come back.
    pub fn is_no_space(&self) -> bool {
        match self {
            Self::Io { source, .. } => {
                matches!(
                    source.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                )
            }
            Self::FileSystem { .. }
            | Self::Format { .. }
            | Self::Owner { .. }
            | Self::Name { .. }
            | Self::Record { .. }
            | Self::Content { .. }
            | Self::NotPlain { .. }
            | Self::Tombstone { .. }
            | Self::Alive { .. }
            | Self::Lingering { .. }
            | Self::Busy { .. }
            | Self::TooLarge { .. } => false,
        }
    }
}

pub(crate) type Result<T, E = RunError> = std::result::Result<T, E>;

/// Adds what was attempted, and on what.
pub(crate) trait Context<T> {
    fn context(self, what: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| RunError::Io {
            what,
            path: path.to_owned(),
            source: source.into(),
        })
    }
}
