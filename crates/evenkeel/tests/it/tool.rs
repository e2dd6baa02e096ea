//! Runs the binary as a command, in a folder of its own.

use std::path::Path;
use std::process::{Command, Output};

/// What a command said and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    /// All of it, for snapshots.
    pub(crate) fn whole(&self) -> String {
        let Self {
            code,
            stdout,
            stderr,
        } = self;
        format!("exit code {code}\n--- stdout\n{stdout}--- stderr\n{stderr}")
    }
}

/// The binary, in `folder`, without anything of the caller's environment that it would read.
pub(crate) fn command(folder: &Path) -> Command {
    #[expect(clippy::disallowed_methods, reason = "tests run the real binary")]
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.current_dir(folder).env("COLUMNS", "100");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("EVENKEEL_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the binary in `folder` to its end.
pub(crate) fn evenkeel(folder: &Path, args: &[&str]) -> Said {
    let Output {
        status,
        stdout,
        stderr,
    } = command(folder)
        .args(args)
        .output()
        .expect("the binary can be started");
    Said {
        code: status.code().expect("the binary ended by itself"),
        stdout: String::from_utf8(stdout).expect("UTF-8"),
        stderr: String::from_utf8(stderr).expect("UTF-8"),
    }
}
