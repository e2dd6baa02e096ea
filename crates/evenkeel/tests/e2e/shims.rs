//! `kill -9` of the shim, and a shim that is stopped: the next attempt starts only when nothing of
//! the first is left, whatever held its tree together (I3, I18).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::{Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use crate::harness::{Answer, Broker, Setup, eventually, pid};
use crate::stage::reached;

/// The first attempt starts a family in which every process holds the lock (descriptor 9), and
/// which neither a signal to its session nor a hang-up ends. The second needs the lock.
const FAMILY: &str = r#"#!/bin/sh
set -eu
echo "$EVENKEEL_ACTION $EVENKEEL_ATTEMPT" >>"$FOLDER/starts"
exec 9>>"$FOLDER/lock"
flock -n 9 || { echo "attempt $EVENKEEL_ATTEMPT" >>"$FOLDER/DOUBLE"; exit 1; }
[ "$EVENKEEL_ATTEMPT" = 1 ] || exit 0
[ "$EVENKEEL_ACTION" = provision ] || exit 0
sleep 600 &
setsid sleep 600 &
(setsid sh -c 'trap "" TERM HUP INT; sleep 600 & echo x >>"$FOLDER/family"; sleep 600' &)
sh -c 'trap "" TERM HUP INT; echo x >>"$FOLDER/family"; sleep 600 & wait' &
wait
"#;

/// A broker whose first attempt has a family under way.
struct Family {
    broker: Broker,
    folder: TempDir,
    operation: String,
}

impl Family {
    async fn under_way(level: &str, toml: &str) -> Self {
        let family = Self::ordered(level, toml, "").await;
        eventually("the family is complete", || {
            let lines = read(&family.folder.path().join("family")).lines().count();
            std::future::ready((lines == 2).then_some(()))
        })
        .await;
        family
    }

    async fn ordered(level: &str, toml: &str, faults: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("bundle");
        fs::create_dir(&bundle).unwrap();
        let yml = format!(
            "bundle: 1\nservice: {{name: family, description: Leaves a family}}\n\
             plans: [{{name: big, description: Many processes}}]\n\
             actions:\n  provision: {{command: [./action], timeout: 5m}}\n  \
             deprovision: {{command: [./action]}}\n\
             env: {{FOLDER: {:?}}}\n",
            folder.path().display().to_string()
        );
        fs::write(bundle.join("bundle.yml"), yml).unwrap();
        fs::write(bundle.join("action"), FAMILY).unwrap();
        fs::set_permissions(bundle.join("action"), fs::Permissions::from_mode(0o755)).unwrap();
        let setup = Setup {
            bundles: vec![bundle],
            ..Setup::default()
        };
        let process = format!("[process]\ncontainment = {level:?}\n{toml}");
        let faults = faults.replace("FOLDER", &folder.path().display().to_string());
        let broker = Broker::start(setup.with_toml(&process).with_faults(&faults)).await;
        let of = broker.ids("family", "big").await;
        let answer: Answer = broker.provision("i", &of, json!({})).await;
        Self {
            operation: answer.operation(),
            broker,
            folder,
        }
    }

    /// The shim: it alone is named by its argument, and nobody's child of the run.
    fn shim(&self) -> u32 {
        let shims: Vec<_> = self
            .broker
            .run_processes()
            .into_iter()
            .filter(|id| name(*id) == "evenkeel-shim")
            .collect();
        assert_eq!(shims.len(), 1, "one run, one shim: {shims:?}");
        shims[0]
    }

    fn signal_shim(&self, signal: Signal) {
        kill_process(pid(self.shim()), signal).unwrap();
    }

    /// The second attempt succeeded, found the lock free, and the first cost this.
    async fn succeeded_alone(&self, end: &str, charge: &str, level: &str) {
        self.broker.succeeded("i", None, &self.operation).await;
        let file = |name: &str| read(&self.folder.path().join(name));
        assert_eq!(file("DOUBLE"), "", "the first tree was still there");
        assert_eq!(file("starts"), "provision 1\nprovision 2\n");
        let job = self.broker.job(&self.operation).await;
        let history = job["history"].as_array().unwrap();
        assert_eq!(history.len(), 2, "{job}");
        assert_eq!(history[0]["end"], end, "{job}");
        assert_eq!(history[0]["charge"], charge, "{job}");
        assert_eq!(history[0]["containment"], level, "{job}");
        self.broker.nothing_left().await;
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn name(id: u32) -> String {
    read(Path::new(&format!("/proc/{id}/comm")))
        .trim()
        .to_owned()
}

async fn killed_shim(level: &str) {
    let mut family = Family::under_way(level, "").await;
    let broker = family.broker.pid();
    family.signal_shim(Signal::KILL);
    family.succeeded_alone("crashed", "crash", level).await;
    assert!(family.broker.is_alive());
    assert_eq!(family.broker.pid(), broker);
}

#[tokio::test]
async fn after_a_killed_shim_in_a_pid_namespace_the_next_attempt_is_alone() {
    killed_shim("pidns").await;
}

#[tokio::test]
async fn after_a_killed_shim_in_a_cgroup_the_next_attempt_is_alone() {
    killed_shim("cgroup").await;
}

#[tokio::test]
async fn after_a_killed_shim_whose_tree_is_swept_the_next_attempt_is_alone() {
    killed_shim("sweep").await;
}

/// The broker is dead when the shim dies: the next boot finds the tree without either.
async fn killed_both(level: &str) {
    let mut family = Family::under_way(level, "").await;
    let shim = family.shim();
    family.broker.kill();
    kill_process(pid(shim), Signal::KILL).unwrap();
    family.broker.boot().await;
    family.succeeded_alone("exposed", "exposure", level).await;
}

#[tokio::test]
async fn after_broker_and_shim_in_a_pid_namespace_are_killed_the_next_attempt_is_alone() {
    killed_both("pidns").await;
}

#[tokio::test]
async fn after_broker_and_shim_in_a_cgroup_are_killed_the_next_attempt_is_alone() {
    killed_both("cgroup").await;
}

#[tokio::test]
async fn after_broker_and_shim_of_a_swept_tree_are_killed_the_next_attempt_is_alone() {
    killed_both("sweep").await;
}

async fn stopped_shim(level: &str) {
    let family = Family::under_way(level, "silent_after = \"2s\"").await;
    family.signal_shim(Signal::STOP);
    family.succeeded_alone("crashed", "crash", level).await;
    let job = family.broker.job(&family.operation).await;
    let known = &job["history"][0]["forensics"];
    assert!(known["silent_ms"].as_u64().unwrap() >= 2000, "{job:#}");
}

#[tokio::test]
async fn a_stopped_shim_of_a_pid_namespace_is_found_and_ended() {
    stopped_shim("pidns").await;
}

#[tokio::test]
async fn a_stopped_shim_of_a_cgroup_is_found_and_ended() {
    stopped_shim("cgroup").await;
}

#[tokio::test]
async fn a_stopped_shim_of_a_swept_tree_is_found_and_ended() {
    stopped_shim("sweep").await;
}

#[tokio::test]
async fn a_shim_stopped_before_the_next_boot_is_found_by_it_and_ended() {
    let mut family = Family::under_way("pidns", "silent_after = \"2s\"").await;
    family.signal_shim(Signal::STOP);
    family.broker.kill();
    family.broker.boot().await;
    family.succeeded_alone("crashed", "crash", "pidns").await;
}

#[tokio::test]
async fn a_shim_that_is_stuck_before_its_first_instruction_is_ended_at_no_charge() {
    let faults = "shim.first=hold:FOLDER/held";
    let family = Family::ordered("pidns", "silent_after = \"2s\"", faults).await;
    let held = family.folder.path().join("held");
    reached(&held).await;
    let first = family.broker.run_processes();
    assert_eq!(first.len(), 1, "{first:?}");
    eventually("the stuck shim is ended", || {
        std::future::ready((!family.broker.run_processes().contains(&first[0])).then_some(()))
    })
    .await;
    // What was never at work has cost nothing; the next shim may go.
    fs::write(held, "").unwrap();
    family.broker.succeeded("i", None, &family.operation).await;
    assert_eq!(read(&family.folder.path().join("starts")), "provision 2\n");
    let job = family.broker.job(&family.operation).await;
    assert_eq!(job["history"].as_array().unwrap().len(), 2, "{job}");
    assert_eq!(job["history"][0]["charge"], "disruption", "{job}");
}
