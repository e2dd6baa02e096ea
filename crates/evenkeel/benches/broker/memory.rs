//! Memory: of an idle broker, and of each run in flight with its shim.

use std::fs;

use serde_json::json;

use crate::bundle;
use crate::harness::{Broker, Setup, eventually};

const RUNS: usize = 50;

pub(crate) async fn run() {
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup {
        bundles: vec![bundle::write(folder.path(), &["sleep", "600"])],
        toml: format!("[jobs]\nconcurrency = {RUNS}\nper_service = {RUNS}\n"),
        ..Setup::default()
    };
    let broker = Broker::start(setup).await;
    let ids = broker.ids("bench", "only").await;
    let idle = kib(broker.pid(), "Pss:");
    println!("idle      {idle:8} KiB of the broker (proportional set size)");
    for nth in 0..RUNS {
        broker
            .provision(&format!("i-{nth}"), &ids, json!({}))
            .await
            .operation();
    }
    let sleeping = || {
        broker
            .run_processes()
            .into_iter()
            .filter(|pid| is_action(*pid))
            .count()
    };
    eventually("all runs are under way", || {
        std::future::ready((sleeping() == RUNS).then_some(()))
    })
    .await;
    let grown = kib(broker.pid(), "Pss:").saturating_sub(idle);
    let shims: u64 = broker
        .run_processes()
        .into_iter()
        .filter(|pid| !is_action(*pid))
        .map(|pid| kib(pid, "Pss:"))
        .sum();
    println!(
        "in flight {:8} KiB of shim (and namespace init) a run, {RUNS} runs",
        shims / RUNS as u64
    );
    println!("          {:8} KiB of broker a run\n", grown / RUNS as u64);
}

fn is_action(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0)
        .any(|argument| argument == b"600")
}

/// A line of `smaps_rollup`, in KiB; 0 if the process has gone.
fn kib(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or(0)
}
