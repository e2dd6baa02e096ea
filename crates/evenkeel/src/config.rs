//! The configuration: `evenkeel.toml` → [`RawConfig`](raw::RawConfig) → [`Config`].
//!
//! Parsed once into meaning: whoever holds a [`Config`] need not check anything again. Relative
//! paths are relative to the file's folder; the store's is relative to `data_dir`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

pub(crate) use error::{ConfigError, Problem};
pub(crate) use examine::Finding;
pub(crate) use raw::{Containment, DeletedAs, OnShutdown};
pub(crate) use source::Source;
pub(crate) use units::{Count, Time};

mod error;
mod examine;
mod place;
mod raw;
mod resolve;
mod show;
mod source;
mod units;

/// The file that is read where none is named.
pub(crate) const DEFAULT_FILE: &str = "evenkeel.toml";

/// What the operator wants, checked.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The file that it was read from.
    pub(crate) file: Option<PathBuf>,
    pub(crate) data_dir: PathBuf,
    pub(crate) bundles: Vec<PathBuf>,
    /// None: a random one, kept in the data folder.
    pub(crate) namespace: Option<Uuid>,
    pub(crate) osb: Osb,
    pub(crate) admin_listen: SocketAddr,
    /// The SQLite file; relative to `data_dir`.
    pub(crate) store: PathBuf,
    pub(crate) jobs: Jobs,
    pub(crate) process: Process,
    pub(crate) recovery: Recovery,
    /// How long a broker may not turn until the warden ends it; none: for ever.
    pub(crate) watchdog: Option<Duration>,
    /// The longest pause before the broker is started again.
    pub(crate) restart_pause: Time,
    pub(crate) on_shutdown: OnShutdown,
    pub(crate) drain_limit: Time,
}

#[derive(Clone, Debug)]
pub(crate) struct Osb {
    pub(crate) listen: SocketAddr,
    pub(crate) sync_limit: Time,
    pub(crate) deleted_as: DeletedAs,
    pub(crate) isolate_platforms: bool,
    /// None: one with a generated password.
    pub(crate) users: Vec<User>,
}

#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) password: Password,
}

#[derive(Clone)]
pub(crate) enum Password {
    /// The first line of a file.
    File(PathBuf),
    /// An argon2id hash in PHC form.
    Hash(String),
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Hash(_) => f.write_str("Hash(hidden)"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Jobs {
    pub(crate) concurrency: Count,
    pub(crate) per_service: Count,
    pub(crate) timeout: Time,
    pub(crate) deadline: Time,
    pub(crate) retention: Time,
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) containment: Containment,
    pub(crate) run_as: Option<RunAs>,
    pub(crate) grace: Time,
    pub(crate) silent_after: Time,
}

/// A user for actions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RunAs {
    /// As written: a name of /etc/passwd, or `UID:GID`.
    pub(crate) text: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    pub(crate) crash_limit: Count,
    pub(crate) loss_limit: Count,
    pub(crate) backoff_min: Time,
    pub(crate) backoff_max: Time,
    pub(crate) hold_after: Count,
    pub(crate) hold_quiet: Time,
}

impl Config {
    /// Reads the configuration and understands it.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, ConfigError> {
        Source::read(named)?.config()
    }

    /// From the text of a file, which none stands for no file at all.
    fn parse(file: Option<&Path>, text: &str) -> Result<Self, ConfigError> {
        let locator = error::Locator::new(file, text);
        let raw = toml::from_str(text).map_err(|error| ConfigError {
            problems: vec![locator.reading(&error)],
        })?;
        resolve::resolve(file, raw, &locator)
    }

    /// Where the embedded examples are written to.
    pub(crate) fn examples(&self) -> PathBuf {
        self.data_dir.join("examples")
    }
}

#[cfg(test)]
mod tests;
