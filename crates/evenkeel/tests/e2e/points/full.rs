//! A disk that is full at each write of the store, by the write's name: before it is done, and when
//! it is done and its answer says so all the same. Nobody dies; whoever asked for it is told to come
//! again later; the broker goes on by itself, and nothing is lost or done twice.
//!
//! The error is the store's own for SQLITE_FULL; `disk.rs` has disks that are full.

use std::collections::BTreeSet;

use super::life::Life;
use super::rest::{self, around};
use super::{names_in, root};
use crate::stage::ACTIONS;

const FULL: &str = "error:full";

/// Every write, by the test below that has it.
const WRITES: [&[&str]; 9] = [
    &JOB,
    &rest::OWN_WRITES,
    &RECOVERY,
    &["progress"],
    &["stop_job"],
    &["retry", "discard", "clear_suspicion"],
    &["mark_drained", "boot_died", "set_aside"],
    &["hold", "release"],
    &["keep_context"],
];

/// On a job's straight way.
const JOB: [&str; 4] = ["submit", "claim_due", "started", "finish_attempt"];
/// Where a run is taken over.
const RECOVERY: [&str; 2] = ["expose", "adopt"];

#[test]
fn every_write_of_the_store_meets_a_full_disk_here() {
    let mut points = BTreeSet::new();
    names_in(&root().join("crates/engine/src/faults"), &mut points);
    let named: BTreeSet<_> = points
        .iter()
        .filter_map(|point| point.strip_prefix("store.")?.strip_suffix(".before"))
        .collect();
    let here: BTreeSet<_> = WRITES.into_iter().flatten().copied().collect();
    assert_eq!(named, here);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_at_each_write_of_a_job_delays_it_and_costs_nothing() {
    let rules = ACTIONS.iter().flat_map(|action| {
        JOB.into_iter().flat_map(move |write| {
            ["before", "after"].map(|point| format!("store.{write}.{point}~^{action}={FULL}@1"))
        })
    });
    let mut life = Life::begin(rules.collect(), "").await;
    life.settled().await;
    for action in ACTIONS {
        let before = life.put_off;
        life.does(action).await;
        assert!(life.put_off >= before + 2, "{action}: two orders met it");
        assert_eq!(life.victim.starts(action), 1, "{action}");
    }
    assert_eq!(life.deaths, 0);
    let end = life.end().await;
    end.all_succeeded();
    assert_eq!(end.charges_in_all(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_at_each_write_of_a_boots_own_ends_nobody_and_costs_nothing() {
    let detach = "[shutdown]\non_shutdown = \"detach\"";
    let mut life = Life::begin(around(&rest::OWN_WRITES, FULL), detach).await;
    life.settled().await;
    for action in ACTIONS {
        life.does(action).await;
        assert_eq!(life.victim.starts(action), 1, "{action}");
    }
    assert_eq!(life.deaths, 0);
    // Retention comes by once an hour, and when a broker starts.
    life.dies(2 * rest::OWN_WRITES.len() - 1).await;
    assert!(life.stage.broker.terminate().success());
    life.comes_back();
    let end = life.end().await;
    end.all_succeeded();
    assert_eq!(end.charges_in_all(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_at_each_write_of_recovery_is_tried_again_and_a_death_counted_once() {
    let mut rules = vec!["engine.ended~^provision=kill@1".to_owned()];
    for write in RECOVERY {
        rules.extend(
            ["before", "after"].map(|point| format!("store.{write}.{point}~^provision={FULL}@1")),
        );
    }
    let mut life = Life::begin(rules, "").await;
    for action in ["provision", "deprovision"] {
        life.does(action).await;
        assert_eq!(life.victim.starts(action), 1, "{action}");
    }
    assert_eq!(life.deaths, 1, "by the kill");
    let end = life.end().await;
    end.all_succeeded();
    assert_eq!(end.charges("provision"), ["none"]);
    assert_eq!(end.exposures_of_the_victim(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_over_a_line_of_progress_loses_the_line_at_most() {
    rest::over_a_line_of_progress(FULL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_operator_asks_of_a_full_disk_is_put_off_and_done_once() {
    rest::over_a_cancel(around(&["stop_job"], FULL)).await;
    rest::over_acts_of_an_operator(FULL).await;
    rest::over_a_hold_and_its_release(FULL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_context_that_meets_a_full_disk_is_put_off_and_kept() {
    rest::over_a_context(FULL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_mark_that_meets_a_full_disk_keeps_nobody_from_ending_and_charges_nobody() {
    rest::over_a_drain_mark(FULL, |end| end.success()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_found_out_about_the_dead_and_the_unreadable_outlasts_a_full_disk() {
    rest::over_a_record_of_a_death(FULL).await;
    rest::over_a_record_that_is_set_aside(FULL).await;
}
