//! The configuration: `evenkeel.toml` → [`RawConfig`](raw::RawConfig) → [`Config`].
//!
//! Parsed once into meaning: whoever holds a [`Config`] need not check anything again. Relative
//! paths are relative to the file's folder; the store's is relative to `data_dir`.

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use uuid::Uuid;

pub(crate) use error::{ConfigError, Problem};
pub(crate) use examine::Finding;
pub(crate) use raw::{Containment, DeletedAs, OnShutdown};
pub(crate) use units::{Count, Time};

mod error;
mod examine;
mod place;
mod raw;
mod resolve;
mod show;
mod units;

/// The file that is read where none is named.
pub(crate) const DEFAULT_FILE: &str = "evenkeel.toml";

/// A larger file is no configuration.
const MAX_FILE_BYTES: u64 = 1 << 20;

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
    /// Reads the named file; without one `evenkeel.toml` of the current folder, or, if there is
    /// none, the defaults.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, ConfigError> {
        let default = Path::new(DEFAULT_FILE);
        match named.or_else(|| default.exists().then_some(default)) {
            Some(file) => Self::parse(Some(file), &read(file)?),
            None => Self::parse(None, ""),
        }
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

fn read(file: &Path) -> Result<String, ConfigError> {
    let problem = |message: String, hint: Option<&str>| ConfigError {
        problems: vec![Problem {
            file: Some(file.to_owned()),
            at: None,
            key: String::new(),
            message,
            hint: hint.map(str::to_owned),
        }],
    };
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|opened| opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| {
            let hint = (error.kind() == std::io::ErrorKind::NotFound)
                .then_some("`evenkeel config show` prints a whole file to start from");
            problem(format!("cannot be read: {error}"), hint)
        })?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(problem("is larger than 1 MiB".to_owned(), None));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        problem(format!("is not UTF-8 at byte {at}"), None)
    })
}

#[cfg(test)]
mod tests;
