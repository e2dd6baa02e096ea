//! Files and folders that the broker makes and removes beside the store's writes and the runs': the
//! first start in an empty data folder, state folders, and what is left of dead boots and old runs.
//! The mark in a dead boot's black box is in `blackbox.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::json;

use super::life::Life;
use super::rest::killed_once;
use crate::harness::{Broker, Setup, eventually, root, was_killed};
use crate::stage::ACTIONS;

/// Of a start that finds nothing.
const FIRST: [&str; 8] = [
    "store.key.before",
    "store.key.after",
    "engine.copy.before",
    "engine.copy.after",
    "engine.snapshot.before",
    "engine.snapshot.after",
    "run.boot_lock.before",
    "run.boot_lock.after",
];
/// For each of several files, which are their subjects.
const NAMED: [&str; 4] = [
    "run.root.before",
    "run.root.after",
    "serve.stored.before",
    "serve.stored.after",
];
const IN_THE_ROOT: [&str; 2] = ["format", "id"];
const IN_THE_DATA_FOLDER: [&str; 5] = [
    "namespace",
    "admin-token",
    "osb-password",
    "osb-url",
    "admin-url",
];

/// Of an instance's folder, and of what dead boots left.
const ON_THE_WAY: [&str; 8] = [
    "engine.make_state.before",
    "engine.make_state.after",
    "engine.remove_state.before",
    "engine.remove_state.after",
    "run.forget_box.before",
    "run.forget_box.after",
    "run.forget_lock.before",
    "run.forget_lock.after",
];

/// Of retention.
const OLD: [&str; 2] = ["run.forget_log.before", "run.forget_log.after"];

/// Between the verdict on an exclusive step and what is done by it.
const MARK: [&str; 2] = ["run.spoil.before", "run.spoil.after"];

pub(super) fn points() -> impl Iterator<Item = &'static str> {
    let first = FIRST.into_iter().chain(NAMED);
    first.chain(ON_THE_WAY).chain(OLD).chain(MARK)
}

/// Every path below a folder.
fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            below(&path, found);
        }
        found.push(path);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_that_is_killed_at_each_file_it_makes_is_finished_by_the_next() {
    let mut rules = killed_once(&FIRST);
    for (points, files) in [
        (&NAMED[..2], IN_THE_ROOT.as_slice()),
        (&NAMED[2..], &IN_THE_DATA_FOLDER),
    ] {
        for file in files {
            rules.extend(points.iter().map(|point| format!("{point}~^{file}=kill@1")));
        }
    }
    // So many deaths in a row would be held against it.
    let setup = Setup::faults_bundle().with_toml("[recovery]\nhold_after = 1000");
    let mut broker = Broker::new(setup);
    let once = broker.dir.path().join("once");
    fs::create_dir(&once).unwrap();
    broker.setup.faults = format!("once={};{}", once.display(), rules.join(";"));
    let mut passwords = BTreeSet::new();
    for _ in &rules {
        broker.spawn();
        let end = broker.died().await;
        assert!(was_killed(end), "{end}\n{}", broker.log());
        passwords.extend(fs::read_to_string(broker.data().join("osb-password")).ok());
    }
    broker.boot().await;
    assert_eq!(fs::read_dir(&once).unwrap().count(), rules.len());
    // Whoever was told of it may use it.
    assert_eq!(passwords.len(), 1, "a password that is there stays");
    let of = broker.ids("faults", "ok").await;
    let made = broker.provision("i", &of, json!({})).await.operation();
    broker.succeeded("i", None, &made).await;
    let gone = broker.deprovision("i", &of).await.operation();
    broker.succeeded("i", None, &gone).await;
    broker.nothing_left().await;
    let mut found = Vec::new();
    below(&broker.data(), &mut found);
    found.retain(|path| path.extension().is_some_and(|end| end == "new"));
    assert!(found.is_empty(), "halves: {found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_over_folders_of_an_instance_and_files_of_dead_boots_leaves_none() {
    let mut life = Life::begin(killed_once(&ON_THE_WAY), "").await;
    life.settled().await;
    for action in ACTIONS {
        life.does(action).await;
        assert_eq!(life.victim.starts(action), 1, "{action}");
    }
    // Which of them are there, the end looks at.
    life.end().await.all_succeeded();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_over_the_removal_of_old_logs_removes_them_later() {
    let mut life = Life::begin(killed_once(&OLD), "").await;
    life.settled().await;
    life.does("provision").await;
    // As runs of long ago left them.
    let logs = life.stage.broker.data().join("run/logs");
    let old = [1, 2].map(|run| logs.join(format!("019c0000-0000-7000-8000-00000000000{run}")));
    for log in &old {
        fs::create_dir(log).unwrap();
        fs::write(log.join("stdout.log"), "said\n").unwrap();
        let folder = fs::File::open(log).unwrap();
        folder.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    // Retention comes by when a broker starts.
    life.stage.broker.kill();
    life.comes_back();
    life.dies(OLD.len()).await;
    life.settled().await;
    eventually("old logs are gone", || {
        std::future::ready((!old.iter().any(|log| log.exists())).then_some(()))
    })
    .await;
    life.does("deprovision").await;
    life.end().await.all_succeeded();
}

/// What makes a change durable, or takes something away.
const DURABLE: [&str; 12] = [
    "sync_all(",
    "sync_data(",
    "fsync(",
    "msync(",
    "rename(",
    "renameat(",
    "hard_link(",
    "remove_file(",
    "remove_dir(",
    "remove_dir_all(",
    "unlinkat(",
    "set_len(",
];

/// Sources that do so without a point of their own, and why.
const WITHOUT: [(&str, &str); 7] = [
    (
        "store/src/key.rs",
        "its points are given by who opens the store: `around_key`",
    ),
    (
        "store/src/lock.rs",
        "the process's number in the lock file is for people",
    ),
    (
        "run/src/cgroup.rs",
        "groups are the kernel's; between run.sweep.before and .after, or the shim's own",
    ),
    (
        "run/src/gate.rs",
        "what lies where the folder belongs is removed by whoever looks next",
    ),
    (
        "run/src/logs.rs",
        "kept between run.secrets_gone.after and run.log_kept.after; rotation loses lines of a log",
    ),
    (
        "evenkeel/src/serve/examples.rs",
        "written anew at every start",
    ),
    ("evenkeel/src/demo/stage.rs", "the demo's temporary folder"),
];

#[test]
fn a_source_that_makes_something_durable_has_points_or_a_reason_to_have_none() {
    let crates = root().join("crates");
    let mut files = Vec::new();
    for folder in fs::read_dir(&crates).unwrap() {
        below(&folder.unwrap().path().join("src"), &mut files);
    }
    let mut without = BTreeSet::new();
    for path in files {
        let name = path.strip_prefix(&crates).unwrap().display().to_string();
        let is_test = name.contains("/tests/") || name.ends_with("/tests.rs");
        if !name.ends_with(".rs") || is_test {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod ").next().unwrap();
        let durable = DURABLE.iter().any(|call| text.contains(call));
        if durable && !text.contains("faults::hit") {
            without.insert(name);
        }
    }
    let excepted: BTreeSet<_> = WITHOUT.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(without, excepted);
}
