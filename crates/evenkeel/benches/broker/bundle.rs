//! A bundle for measuring: every action is one command.

use std::fs;
use std::path::{Path, PathBuf};

/// Writes the bundle below `folder`; every action runs `command`.
pub(crate) fn write(folder: &Path, command: &[&str]) -> PathBuf {
    let bundle = folder.join("bench");
    fs::create_dir_all(&bundle).expect("a folder");
    let text = format!(
        "bundle: 1
service: {{name: bench, description: For measuring}}
plans:
  - {{name: only, description: The only one}}
actions:
  provision: {{command: {command:?}}}
  deprovision: {{command: {command:?}}}
"
    );
    fs::write(bundle.join("bundle.yml"), text).expect("a file");
    bundle
}
