//! A store that fails, is slow, answers nothing after its COMMIT, is torn in the middle of a write
//! or holds a damaged page: every action is started once all the same, and what is wrong is said.
//!
//! A full disk at each step is in `disk.rs`; errors of full disks by their type are here.

use std::fs;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::harness::{Broker, Setup, eventually};
use crate::points::Life;
use crate::stage::ACTIONS;

mod recovery;
mod wal;

/// Every write that an operation needs, from its order to its end.
const WRITES: [&str; 4] = ["submit", "claim_due", "started", "finish_attempt"];

/// A life in which each of these writes goes wrong once for each action, in this way; nobody dies.
async fn goes_wrong(point: &str, what: &str) {
    let rules = ACTIONS
        .iter()
        .flat_map(|action| WRITES.map(|write| format!("store.{write}.{point}~^{action}={what}@1")));
    let mut life = Life::begin(rules.collect(), "").await;
    life.settled().await;
    for action in ACTIONS {
        life.does(action).await;
        assert_eq!(life.victim.starts(action), 1, "{action}: {point}, {what}");
    }
    assert_eq!(life.deaths, 0);
    let end = life.end().await;
    end.all_succeeded();
    assert_eq!(end.charges_in_all(), 0, "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_fail_are_done_again() {
    for kind in ["error:unavailable", "error:full", "error:overloaded"] {
        goes_wrong("before", kind).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_take_their_time_are_waited_for() {
    goes_wrong("before", "delay:150").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_whose_acknowledgement_is_lost_are_found_done() {
    goes_wrong("after", "lost").await;
}

/// What is asked of those who take a run over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_recovery_writes_may_fail_or_lose_its_acknowledgement() {
    let wrong = ["expose", "adopt", "close_boot"].map(|write| {
        [
            format!("store.{write}.before=error:unavailable@1"),
            format!("store.{write}.after=lost+2@1"),
        ]
    });
    let mut rules = vec!["engine.ended~^provision=kill@1".to_owned()];
    rules.extend(wrong.into_iter().flatten());
    let mut life = Life::begin(rules, "").await;
    for action in ["provision", "deprovision"] {
        life.does(action).await;
        assert_eq!(life.victim.starts(action), 1, "{action}");
    }
    life.end().await.all_succeeded();
}

/// The broker dies right after a COMMIT that nobody has heard of yet, and its last frames with it.
async fn torn(point: &str, tear: wal::Tear) {
    let rule = format!("{point}~^provision=kill@1");
    let mut life = Life::begin(vec![rule], "").await;
    life.settled().await;
    let path = life.stage.broker.data().join("evenkeel.db-wal");
    // Whoever orders hears nothing if it is the order that is torn.
    life.order_once("provision").await;
    life.goes_down().await;
    tear.apply(&path);
    life.comes_back();
    life.does("provision").await;
    assert_eq!(life.victim.starts("provision"), 1, "{point}, {tear:?}");
    assert_eq!(life.victim.ends("provision"), 1, "{point}, {tear:?}");
    life.does("deprovision").await;
    life.end().await.all_succeeded();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_torn_at_a_power_cut_did_not_happen_and_nothing_else_is_lost() {
    for tear in [wal::Tear::Cut, wal::Tear::Garbled, wal::Tear::Trailing] {
        for write in WRITES {
            torn(&format!("store.{write}.after"), tear).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_page_is_reported_and_not_looped_over() {
    let mut broker = Broker::start(Setup::faults_bundle()).await;
    let of = broker.ids("faults", "ok").await;
    for number in 0..30 {
        let id = format!("i-{number}");
        let asked = broker.provision(&id, &of, json!({})).await.operation();
        broker.succeeded(&id, None, &asked).await;
    }
    assert!(broker.terminate().success());
    let path = broker.data().join("evenkeel.db");
    let mut bytes = fs::read(&path).unwrap();
    // The schema comes first; what follows are rows and indexes.
    let rows = bytes.len() * 2 / 3;
    bytes[rows..].fill(0xA5);
    fs::write(&path, bytes).unwrap();
    broker.spawn();
    broker.listening().await;
    let process = broker.pid();
    eventually("the damage is told", || async {
        let told = broker.admin(Method::GET, "/readyz").await.body.to_string();
        (told.contains("damaged") && told.contains("backup")).then_some(())
    })
    .await;
    // Whatever is tried again is tried at leisure, and said once.
    let lines = |broker: &Broker| {
        let log = broker.log();
        let own = |line: &&str| !line.contains("\"request\"");
        log.lines().filter(own).count()
    };
    let before = lines(&broker);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let said = lines(&broker) - before;
    assert!(said < 30, "{said} lines in 3 s:\n{}", broker.log());
    assert!(broker.is_alive());
    assert_eq!(broker.pid(), process);
    assert_eq!(broker.admin(Method::GET, "/livez").await.status, 200);
}
