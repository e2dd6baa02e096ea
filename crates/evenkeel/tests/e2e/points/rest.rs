//! Points that no job passes on its straight way: of a boot's own, after a death, of operators.
//!
//! What happens at a write of the store is a parameter: the broker is killed here, and meets a full
//! disk in `full.rs`.

use std::fs;
use std::process::ExitStatus;
use std::time::Duration;

use reqwest::Method;
use rusqlite::Connection;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::kill;
use super::life::{Life, side_by_side};
use crate::harness::{eventually, pid, was_killed};
use crate::stage::ACTIONS;

/// Every one of them is in one of the lists below.
pub(super) const POINTS: [&str; 52] = [
    "engine.claim",
    "engine.exited",
    "engine.housekeeping",
    "recovery.action",
    "recovery.deaths",
    "recovery.look",
    "run.remains",
    "run.stop.after",
    "run.stop.before",
    "run.sweep.after",
    "run.sweep.before",
    "shim.first",
    "store.adopt.after",
    "store.adopt.before",
    "store.boot_died.after",
    "store.boot_died.before",
    "store.boot_seen.after",
    "store.boot_seen.before",
    "store.check.after",
    "store.check.before",
    "store.clear_suspicion.after",
    "store.clear_suspicion.before",
    "store.close_boot.after",
    "store.close_boot.before",
    "store.commit.after",
    "store.commit.before",
    "store.discard.after",
    "store.discard.before",
    "store.expire.after",
    "store.expire.before",
    "store.expose.after",
    "store.expose.before",
    "store.hold.after",
    "store.hold.before",
    "store.keep_context.after",
    "store.keep_context.before",
    "store.mark_drained.after",
    "store.mark_drained.before",
    "store.open_boot.after",
    "store.open_boot.before",
    "store.progress.after",
    "store.progress.before",
    "store.purge.after",
    "store.purge.before",
    "store.release.after",
    "store.release.before",
    "store.retry.after",
    "store.retry.before",
    "store.set_aside.after",
    "store.set_aside.before",
    "store.stop_job.after",
    "store.stop_job.before",
];

/// What a boot writes whatever it has to do.
pub(super) const OWN_WRITES: [&str; 6] = [
    "open_boot",
    "boot_seen",
    "close_boot",
    "expire",
    "purge",
    "check",
];

/// Whoever comes by first is killed.
pub(super) fn killed_once(points: &[&str]) -> Vec<String> {
    points
        .iter()
        .map(|point| format!("{point}=kill@1"))
        .collect()
}

/// Once at both points of writes of the store.
pub(super) fn around(writes: &[&str], fault: &str) -> Vec<String> {
    let both =
        |name: &&str| ["before", "after"].map(|point| format!("store.{name}.{point}={fault}@1"));
    writes.iter().flat_map(both).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_at_each_of_its_own_steps_comes_back_and_charges_nobody() {
    let mut rules = around(&OWN_WRITES, "kill");
    rules.extend(killed_once(&[
        "engine.claim",
        "engine.housekeeping",
        "recovery.deaths",
    ]));
    // Whatever is written then, by the writer's own thread.
    rules.extend(["before", "after"].map(|point| format!("store.commit.{point}=kill+20@1")));
    let mut life = Life::begin(rules, "").await;
    life.settled().await;
    for action in ACTIONS {
        life.does(action).await;
        assert_eq!(life.victim.starts(action), 1, "{action}");
    }
    life.end().await.all_succeeded();
}

/// The broker dies over the end of a run, and the next one over what it finds.
async fn killed_twice(points: Vec<&'static str>) {
    let rules = points
        .iter()
        .zip(ACTIONS)
        .flat_map(|(point, action)| ["engine.ended", *point].map(|point| kill(point, action)));
    let mut life = Life::begin(rules.collect(), "").await;
    for action in ACTIONS {
        life.does(action).await;
        assert_eq!(life.victim.starts(action), 1, "{action}, {points:?}");
    }
    let end = life.end().await;
    end.all_succeeded();
    for action in ACTIONS {
        assert_eq!(end.own_charges(action), ["none"], "{action}, {points:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i9_a_recovery_that_is_killed_at_each_of_its_steps_is_done_by_the_next_boot() {
    let lives = [
        vec![
            "recovery.look",
            "recovery.action",
            "store.adopt.before",
            "store.adopt.after",
            "engine.exited",
        ],
        vec!["store.expose.before", "store.expose.after"],
    ];
    side_by_side(lives.into_iter().map(killed_twice)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_over_a_line_of_progress_adopts_the_run_each_time() {
    over_a_line_of_progress("kill").await;
}

pub(super) async fn over_a_line_of_progress(fault: &str) {
    let rules = ["before", "after"];
    let rules = rules.map(|point| format!("store.progress.{point}~^provision={fault}@1"));
    let mut life = Life::begin(rules.into(), "").await;
    fs::remove_file(life.victim.gate()).unwrap();
    let poll = life.order("provision").await.unwrap();
    life.dies(2).await;
    life.ends_well(&poll).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shim_killed_before_its_first_instruction_is_free_and_another_starts() {
    let mut life = Life::begin(killed_once(&["shim.first"]), "").await;
    for action in ["provision", "deprovision"] {
        life.does(action).await;
        assert_eq!(life.victim.starts(action), 1, "{action}");
    }
    let end = life.end().await;
    end.all_succeeded();
    assert_eq!(end.charges("provision"), ["disruption", "none"]);
}

/// The shim dies, and after it brokers over what it left: `points` and those deaths.
async fn killed_over_what_a_shim_left(points: &[&str]) {
    let points = [&["shim.go.after"], points].concat();
    let rules = points.iter().map(|point| kill(point, "provision"));
    let mut life = Life::begin(rules.collect(), "[process]\ncontainment = \"sweep\"").await;
    fs::remove_file(life.victim.gate()).unwrap();
    let poll = life.order("provision").await.unwrap();
    life.dies(points.len()).await;
    life.victim.open_gate();
    life.succeeds(&poll, 0).await;
    let starts = life.victim.starts("provision");
    assert!((1..=2).contains(&starts), "{starts}");
    life.does("deprovision").await;
    let end = life.end().await;
    end.all_succeeded();
    assert_eq!(end.charges("provision").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i3_i18_a_broker_killed_over_a_sweep_sweeps_again_before_the_next_attempt() {
    killed_over_what_a_shim_left(&["run.sweep.before", "run.sweep.after"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i3_a_broker_killed_over_what_is_left_of_a_run_ends_its_attempt_later() {
    killed_over_what_a_shim_left(&["run.remains"]).await;
}

/// Asks for an operator's act until it is done or was done before.
async fn act(life: &mut Life, job: &str, verb: &str) -> Value {
    let path = format!("/admin/v1/jobs/{job}/{verb}");
    let answer = life.ask(&Method::POST, &path, None).await;
    assert!(answer.status < 300 || answer.status == 409, "{answer:?}");
    answer.body
}

async fn job_is(life: &mut Life, job: &str, state: &str) {
    for _ in 0..2_000 {
        let answer = life
            .ask(&Method::GET, &format!("/admin/v1/jobs/{job}"), None)
            .await;
        if answer.body["state"] == state {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("job {job} never is {state}\n{}", life.stage.broker.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_at_each_step_of_a_cancel_cancels_and_leaves_nothing_running() {
    let mut rules = around(&["stop_job"], "kill");
    rules.extend(killed_once(&["run.stop.before", "run.stop.after"]));
    over_a_cancel(rules).await;
}

pub(super) async fn over_a_cancel(rules: Vec<String>) {
    let writes = 2;
    let mut life = Life::begin(rules, "").await;
    fs::remove_file(life.victim.gate()).unwrap();
    let poll = life.order("provision").await.unwrap();
    life.victim.started("provision", 1).await;
    let job = poll.rsplit('=').next().unwrap().to_owned();
    act(&mut life, &job, "cancel").await;
    life.dies(writes).await;
    // What was asked is on record: nobody has to ask again.
    assert_eq!(life.polled(&poll, 0).await, "failed");
    assert_eq!(life.victim.starts("provision"), 1);
    assert_eq!(life.victim.ends("provision"), 0);
    life.victim.open_gate();
    life.does("deprovision").await;
    let end = life.end().await;
    let cancelled = "jobs WHERE action = 'provision' AND state = 'cancelled'";
    assert_eq!(end.count(cancelled), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_at_each_act_of_an_operator_does_it_once() {
    over_acts_of_an_operator("kill").await;
}

pub(super) async fn over_acts_of_an_operator(fault: &str) {
    let rules = around(&["retry", "discard", "clear_suspicion"], fault);
    let mut life = Life::begin(rules, "").await;
    life.settled().await;
    let plan = life.stage.offer("abort").await.1;
    let body = json!({
        "service_id": life.of.0, "plan_id": plan, "organization_guid": "o", "space_guid": "s",
    });
    let path = "/v2/service_instances/victim?accepts_incomplete=true";
    let asked = life.ask(&Method::PUT, path, Some(&body)).await;
    let first = asked.operation();
    job_is(&mut life, &first, "quarantined").await;
    act(&mut life, &first, "clear").await;
    act(&mut life, &first, "retry").await;
    let newest = life.ask(&Method::GET, "/admin/v1/jobs", None).await;
    let second = newest.body["jobs"][0]["id"].as_str().unwrap().to_owned();
    job_is(&mut life, &second, "quarantined").await;
    act(&mut life, &second, "discard").await;
    let end = life.end().await;
    let retries = format!("jobs WHERE retry_of = '{first}'");
    assert_eq!(end.count(&retries), 1);
    assert_eq!(end.count("leaks"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i8_a_broker_killed_over_its_drain_mark_charges_nobody() {
    over_a_drain_mark("kill", was_killed).await;
}

pub(super) async fn over_a_drain_mark(fault: &str, ends: impl Fn(ExitStatus) -> bool) {
    // A drain would wait for those who wait at their gates.
    let detach = "[shutdown]\non_shutdown = \"detach\"";
    let mut life = Life::begin(around(&["mark_drained"], fault), detach).await;
    for _ in 0..2 {
        life.settled().await;
        kill_process(pid(life.stage.broker.pid()), Signal::TERM).unwrap();
        let end = life.stage.broker.died().await;
        assert!(ends(end), "{end}\n{}", life.stage.broker.log());
        life.stage.broker.spawn();
    }
    life.does("provision").await;
    life.does("deprovision").await;
    let end = life.end().await;
    end.all_succeeded();
    assert_eq!(end.charges_in_all(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_over_a_hold_and_its_release_has_done_both_or_is_asked_again() {
    over_a_hold_and_its_release("kill").await;
}

pub(super) async fn over_a_hold_and_its_release(fault: &str) {
    let mut life = Life::begin(around(&["hold", "release"], fault), "").await;
    life.settled().await;
    for (verb, held) in [("hold", 1), ("release", 0)] {
        let path = format!("/admin/v1/{verb}");
        let answer = life.ask(&Method::POST, &path, None).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let status = life.ask(&Method::GET, "/admin/v1/status", None).await;
        let holds = status.body["holds"].as_array().map_or(0, Vec::len);
        assert_eq!(holds, held, "{}", status.body);
    }
    life.does("provision").await;
    life.does("deprovision").await;
    life.end().await.all_succeeded();
}

/// What a warden says of a boot is taken over once, however often that is cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_while_it_takes_over_a_record_of_a_death_takes_it_over_later() {
    over_a_record_of_a_death("kill").await;
}

pub(super) async fn over_a_record_of_a_death(fault: &str) {
    let mut life = Life::begin(around(&["boot_died"], fault), "").await;
    life.settled().await;
    let boots = life.ask(&Method::GET, "/admin/v1/boots", None).await.body;
    let boot = boots["boots"][0]["id"].as_str().unwrap().to_owned();
    life.stage.broker.kill();
    let warden = life.stage.broker.data().join("warden");
    fs::create_dir_all(&warden).unwrap();
    let record = json!({
        "ended_at": 1, "exit_code": null, "signal": 9, "core_dumped": false,
        "asked_to_end": false, "killed_by_watchdog": false, "peak_memory": 1, "cpu_millis": 1,
        "own_oom": false, "host_oom": false, "last_words": "",
    });
    fs::write(warden.join(format!("{boot}.json")), record.to_string()).unwrap();
    life.stage.broker.spawn();
    life.dies(2).await;
    life.does("provision").await;
    let boots = life.ask(&Method::GET, "/admin/v1/boots", None).await.body;
    let told = boots["boots"].as_array().unwrap().iter();
    let told: Vec<_> = told.filter(|told| told["death"]["signal"] == 9).collect();
    assert_eq!(told.len(), 1, "{boots}");
    assert_eq!(told[0]["id"], boot.as_str());
    life.does("deprovision").await;
    life.end().await.all_succeeded();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i10_a_broker_killed_while_it_sets_a_record_aside_does_so_later() {
    over_a_record_that_is_set_aside("kill").await;
}

pub(super) async fn over_a_record_that_is_set_aside(fault: &str) {
    let mut life = Life::begin(around(&["set_aside"], fault), "").await;
    fs::remove_file(life.victim.gate()).unwrap();
    let poll = life.order("provision").await.unwrap();
    life.victim.started("provision", 1).await;
    let job = poll.rsplit('=').next().unwrap().to_owned();
    life.stage.broker.kill();
    let database = Connection::open(life.stage.broker.data().join("evenkeel.db")).unwrap();
    let spoil = "UPDATE jobs SET bundle = 'no digest' WHERE id = ?1";
    assert_eq!(database.execute(spoil, [&job]).unwrap(), 1);
    drop(database);
    life.stage.broker.spawn();
    life.dies(2).await;
    let broker = &life.stage.broker;
    eventually("its run is ended", || {
        // Two runs are at their gates: shim, init, the action and its sleep at the most.
        std::future::ready((broker.run_processes().len() <= 2 * 4).then_some(()))
    })
    .await;
    assert_eq!(life.victim.ends("provision"), 0);
    let end = life.end().await;
    assert_eq!(end.count("jobs WHERE state = 'quarantined'"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_while_it_keeps_a_context_keeps_it() {
    over_a_context("kill").await;
}

pub(super) async fn over_a_context(fault: &str) {
    let mut life = Life::begin_after(around(&["keep_context"], fault), "", |stage| {
        let path = stage.file("bundles/faults/bundle.yml");
        let text = fs::read_to_string(&path).unwrap();
        let changed = text.replace(
            "plan_updateable: true",
            "plan_updateable: true\n  allow_context_updates: true",
        );
        assert_ne!(changed, text);
        fs::write(path, changed).unwrap();
    })
    .await;
    life.settled().await;
    life.of = life.stage.offer("ok").await;
    life.does("provision").await;
    let body = json!({"service_id": life.of.0, "context": {"platform": "test", "name": "new"}});
    let path = "/v2/service_instances/victim?accepts_incomplete=true";
    let answer = life.ask(&Method::PATCH, path, Some(&body)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    life.does("deprovision").await;
    life.end().await.all_succeeded();
}
