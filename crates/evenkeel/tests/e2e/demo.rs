//! `evenkeel demo`: its promises are kept, it leaves nothing behind, and it says so when one breaks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{eventually, pid};

/// A demo in a folder of the test's own.
fn start(folder: &Path, seconds: &str, faults: &str) -> Child {
    #[expect(clippy::disallowed_methods, reason = "a test starts the real binary")]
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command
        .args(["demo", "--json", "--seconds", seconds])
        .env("TMPDIR", folder)
        .env("EVENKEEL_FAULTS", faults)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

async fn ended(child: Child) -> (Output, Value) {
    let output = tokio::task::spawn_blocking(|| child.wait_with_output().unwrap());
    let output = output.await.unwrap();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output, report)
}

fn stages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Processes that name the folder, zombies aside.
fn left(folder: &TempDir) -> Vec<String> {
    let name = folder.path().display().to_string();
    let mut left = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(&name) {
            left.push(line);
        }
    }
    left
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_keeps_every_promise_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (output, report) = ended(start(folder.path(), "20", "")).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{report:#}\n{said}");
    assert_eq!(report["kept"], true, "{report:#}");
    assert_eq!(report["connections_refused"], 0, "{report:#}");
    let attempts = report["poison_attempts"].as_u64().unwrap();
    assert!((1..=3).contains(&attempts), "{report:#}");
    for some in [
        "operations_accepted",
        "broker_deaths_by_demo",
        "connections",
    ] {
        assert!(report[some].as_u64().unwrap() > 0, "{some}: {report:#}");
    }
    // What is on the screen in the first moments says what is to be seen.
    assert!(
        said.starts_with("A service broker is killed again and again"),
        "{said}"
    );
    for told in [
        "kill -9 of broker",
        "crashes: set aside",
        "kills-its-broker: set aside",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    assert_eq!(stages(folder.path()), Vec::<PathBuf>::new());
    assert_eq!(left(&folder), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_whose_broker_loses_operations_says_so_keeps_the_evidence_and_exits_with_1() {
    let folder = tempfile::tempdir().unwrap();
    // The same place panics for one job after the other: the broker takes it for a fault of its
    // own, holds, and none of what it has accepted comes to its end.
    let faults = "engine.prepare~unbind=panic";
    let (output, report) = ended(start(folder.path(), "10", faults)).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{report:#}\n{said}");
    assert_eq!(report["kept"], false, "{report:#}");
    assert!(
        report["operations_lost"].as_u64().unwrap() > 0,
        "{report:#}"
    );
    assert!(said.contains("error: a promise broke"), "{said}");
    assert!(said.contains("lost: unbind of customer-"), "{said}");
    let stages = stages(folder.path());
    assert_eq!(stages.len(), 1, "{stages:?}");
    assert!(said.contains(&stages[0].display().to_string()), "{said}");
    for kept in ["report.json", "broker.log", "data/evenkeel.db"] {
        assert!(stages[0].join(kept).exists(), "{kept}");
    }
    assert_eq!(left(&folder), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_that_is_interrupted_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let demo = start(folder.path(), "60", "");
    eventually("orders have come to their actions", || {
        let begun = stages(folder.path())
            .iter()
            .any(|stage| stage.join("starts").exists());
        std::future::ready(begun.then_some(()))
    })
    .await;
    kill_process(pid(demo.id()), Signal::INT).unwrap();
    let output = tokio::task::spawn_blocking(|| demo.wait_with_output().unwrap());
    let output = output.await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_eq!(stages(folder.path()), Vec::<PathBuf>::new());
    assert_eq!(left(&folder), Vec::<String>::new());
}
