//! What a configuration finds on this host: files that are missing, or open to others.

use std::os::unix::fs::MetadataExt as _;

use super::{Config, Password};
use crate::secrets;

/// Something that a start would stumble over, or that an operator ought to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Finding {
    /// `serve` would not start, or would offer nothing.
    Error(String),
    /// It would.
    Warning(String),
}

impl Config {
    /// Looks at what the configuration names.
    pub(crate) fn examine(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for user in &self.osb.users {
            let Password::File(path) = &user.password else {
                continue;
            };
            let shown = path.display();
            let looked = secrets::read_line(path).and_then(|_| std::fs::metadata(path));
            match looked {
                Err(error) => findings.push(Finding::Error(format!(
                    "password file {shown} of user {:?}: {error}",
                    user.name
                ))),
                Ok(meta) if meta.mode() & 0o077 != 0 => findings.push(Finding::Warning(format!(
                    "password file {shown} is open to others (mode {:04o}): chmod 600 {shown}",
                    meta.mode() & 0o7777
                ))),
                Ok(_) => {}
            }
        }
        for folder in &self.bundles {
            if !folder.is_dir() && *folder != self.examples() {
                let shown = folder.display();
                findings.push(Finding::Warning(format!(
                    "bundle folder {shown} does not exist: nothing in it is offered"
                )));
            }
        }
        let root = rustix::process::geteuid().is_root();
        if let Some(user) = self.process.run_as.as_ref().filter(|_| !root) {
            findings.push(Finding::Error(format!(
                "process.run_as = {:?} needs a broker that runs as root",
                user.text
            )));
        }
        for (key, address) in [("osb", self.osb.listen), ("admin", self.admin_listen)] {
            if !address.ip().is_loopback() {
                findings.push(Finding::Warning(format!(
                    "{key}.listen = \"{address}\" is reachable from other hosts without TLS: put a proxy with TLS in front of it"
                )));
            }
        }
        findings
    }
}
