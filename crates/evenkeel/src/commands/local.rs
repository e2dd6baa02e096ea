//! What a broker on this host has left in its data folder for commands to find.

use std::fs;
use std::path::PathBuf;

use super::address;
use crate::cli::Local;
use crate::config::{Config, DEFAULT_FILE};
use crate::fail::{Exit, Failure};

/// The data folder of a broker on this host.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    /// Where the folder was found by a configuration.
    pub(super) config: Option<Config>,
}

impl DataDir {
    pub(super) fn find(local: &Local) -> Result<Self, Failure> {
        if let Some(path) = &local.data_dir {
            return Ok(Self {
                path: path.clone(),
                config: None,
            });
        }
        let config = super::config::load(local.config.as_deref())?;
        Ok(Self {
            path: config.data_dir.clone(),
            config: Some(config),
        })
    }

    /// Refuses to hand this folder's secret to an address that was given apart from it, unless its
    /// broker listens there: `file` says where that is.
    pub(super) fn vouch(&self, file: &str, url: &str, instead: &str) -> Result<(), Failure> {
        let own = fs::read_to_string(self.path.join(file));
        if own.is_ok_and(|own| address::is_same(own.trim_end(), url)) {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "no secret is given for this address, and the data folder {} is not that of its broker",
            self.path.display()
        ))
        .hint(format!("give {instead}")))
    }

    /// The one line of a file that `serve` writes at every start; `what` says what it is and
    /// `instead` how to do without it.
    pub(super) fn line(&self, name: &str, what: &str, instead: &str) -> Result<String, Failure> {
        let path = self.path.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.trim_end().to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Failure::new(
                Exit::Unreachable,
                format!("{what} is not known: there is no {}", path.display()),
            )
            .hint(format!(
                "start a broker with `evenkeel serve`, run this in the folder with its {DEFAULT_FILE} or evenkeel-data, name its data folder with --data-dir, or give {instead}"
            ))),
            Err(error) => Err(Failure::new(
                if error.kind() == std::io::ErrorKind::PermissionDenied { Exit::Refused } else { Exit::Failed },
                format!("{what} cannot be read: {}: {error}", path.display()),
            )),
        }
    }
}
