//! A run root, an executor over it, and specs of scripts.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use evenkeel_core::attempt::RunReport;
use evenkeel_core::bundle::Limits;
use evenkeel_core::ids::AttemptId;
use evenkeel_core::time::Timestamp;
use evenkeel_executor::{
    Executor, ProcessExecutor, ProcessOptions, RunRoot, RunSpec, ShimCommand, WatchEnd,
};
use tempfile::TempDir;
use tokio::sync::mpsc;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) executor: ProcessExecutor,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(crate) fn with(change: impl FnOnce(&mut ProcessOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("bundle")).unwrap();
        fs::create_dir(dir.path().join("state")).unwrap();
        let executor = executor(dir.path().join("root"), change);
        Self { dir, executor }
    }

    /// What the next life of the broker would have.
    pub(crate) fn another(&self) -> ProcessExecutor {
        executor(self.path("root"), |_| ())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn run_path(&self, attempt: AttemptId) -> PathBuf {
        self.path("root").join("runs").join(attempt.to_string())
    }

    /// A run of a shell script, under a fresh name.
    pub(crate) fn script(&self, script: &str) -> RunSpec {
        let attempt = fresh();
        let name = format!("action-{attempt}");
        let path = self.path("bundle").join(&name);
        fs::write(&path, format!("#!/bin/bash\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        RunSpec {
            attempt,
            env: BTreeMap::from([("WORLD".into(), self.dir.path().to_str().unwrap().into())]),
            command: vec![format!("./{name}")],
            bundle_dir: self.path("bundle"),
            state_dir: self.path("state"),
            state_read_only: false,
            request: br#"{"password": "hunter2"}"#.to_vec(),
            secrets: BTreeMap::from([("KEY".into(), b"hunter2".to_vec())]),
            limits: Limits::default(),
            timeout: PATIENCE,
            deadline: Timestamp(i64::MAX),
            grace: Duration::from_secs(5),
        }
    }
}

fn executor(root: PathBuf, change: impl FnOnce(&mut ProcessOptions)) -> ProcessExecutor {
    let root = RunRoot::open(&root, "0190-root").unwrap();
    let program = env!("CARGO_BIN_EXE_evenkeel-executor-test-shim").into();
    let mut options = ProcessOptions {
        shim: ShimCommand {
            program,
            args: vec![],
        },
        ..ProcessOptions::default()
    };
    change(&mut options);
    ProcessExecutor::new(root, options)
}

#[expect(clippy::disallowed_methods, reason = "a test is where ids come from")]
pub(crate) fn fresh() -> AttemptId {
    AttemptId(uuid::Uuid::now_v7())
}

/// Watches a run to whatever end, with a limit.
pub(crate) async fn watched(executor: &ProcessExecutor, attempt: AttemptId) -> WatchEnd {
    let (progress, _lines) = mpsc::channel(1);
    tokio::time::timeout(PATIENCE, executor.watch(attempt, progress))
        .await
        .unwrap()
        .unwrap()
}

pub(crate) async fn finished(executor: &ProcessExecutor, attempt: AttemptId) -> RunReport {
    let end = watched(executor, attempt).await;
    let WatchEnd::Exited(report) = end else {
        panic!("{end:?} instead of an exit record")
    };
    *report
}

/// Waits until something can be observed.
pub(crate) async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
