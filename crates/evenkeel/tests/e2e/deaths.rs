//! Real deaths of the broker, by what one job does in a driving step: whatever the way, the job is
//! set aside in time (I7), innocents end well (I5), and the broker serves. What is only a panic
//! costs the job and not the broker (I6, I14).

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use tokio::task::JoinSet;

use crate::casualties::{Casualty, DEATHS, convicted, innocents, settles, staged};

mod host;
mod limits;
mod stopped;

const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;

/// How the broker ends.
#[derive(Clone, Copy)]
enum Way {
    Signal(i32),
    Code(i32),
}

impl Way {
    fn is(self, status: ExitStatus) -> bool {
        match self {
            Self::Signal(signal) => status.signal() == Some(signal),
            Self::Code(code) => status.code() == Some(code),
        }
    }
}

async fn set_aside_in_time(what: &str, way: Way) {
    let mut case = Casualty::running().await;
    let rule = format!("engine.watch~^update={what}");
    let died = case.kills(&rule, |status| way.is(status)).await;
    assert_eq!(died, DEATHS, "{what}");
    case.convicted().await;
}

/// Ending it costs two brokers more than condemning it, then nobody tries any longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i7_a_job_whose_end_kills_whoever_writes_it_is_set_aside_by_its_row_alone() {
    let mut case = Casualty::running().await;
    case.scene.open_gate();
    let segv = |status| Way::Signal(SIGSEGV).is(status);
    let died = case.kills("engine.conclude~^update=segv", segv).await;
    assert_eq!(died, DEATHS + 2);
    let job = case.stage.broker.job(&case.poison.job).await;
    let why = job["reason"].as_str().unwrap();
    assert!(why.contains("whenever its end was written"), "{why}");
    case.convicted().await;
}

/// Nor does one that is condemned excuse another for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i7_two_jobs_whose_ends_kill_are_both_set_aside() {
    let (mut stage, scene, of) = staged().await;
    let other = stage.scene("other");
    stage.prepare(&other, &of, "update").await;
    let mut orders = Vec::new();
    for scene in [&scene, &other] {
        orders.push(stage.order(scene, &of, "update").await);
        scene.started("update", 1).await;
    }
    stage.broker.kill();
    [&scene, &other].iter().for_each(|scene| scene.open_gate());
    "engine.conclude~^update=segv".clone_into(&mut stage.broker.setup.faults);
    let mut died = 0;
    loop {
        stage.broker.spawn();
        if settles(&mut stage, &orders[0]).await && settles(&mut stage, &orders[1]).await {
            break;
        }
        let status = stage.broker.died().await;
        assert!(Way::Signal(SIGSEGV).is(status), "{status}");
        died += 1;
        assert!(died <= 2 * (DEATHS + 2), "it never ends");
    }
    stage.broker.ready().await;
    for order in &orders {
        let job = stage.broker.job(&order.job).await;
        assert_eq!(job["state"], "quarantined", "{job:#}");
    }
    stage.broker.nothing_left().await;
}

async fn all_ways(ways: &[(&'static str, Way)]) {
    let mut running = JoinSet::new();
    for (what, way) in ways.iter().copied() {
        running.spawn(set_aside_in_time(what, way));
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i7_a_job_that_breaks_the_process_of_its_broker_is_set_aside_in_time() {
    all_ways(&[
        ("segv", Way::Signal(SIGSEGV)),
        ("overflow", Way::Signal(SIGABRT)),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i7_a_job_that_has_its_broker_end_itself_is_set_aside_in_time() {
    all_ways(&[
        ("abort", Way::Signal(SIGABRT)),
        ("exit", Way::Code(0)),
        ("double-panic", Way::Signal(SIGABRT)),
    ])
    .await;
}

/// Each attempt panics: three crashes with evidence, and the broker is none the worse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i6_i14_panics_with_a_lock_held_or_in_a_destructor_cost_the_job_and_not_the_broker() {
    for what in ["panic", "drop-panic", "panic-locked"] {
        let (mut stage, scene, of) = staged().await;
        let others = innocents(&stage, &of).await;
        stage.reboot(&format!("engine.watch~^update={what}")).await;
        let broker = stage.broker.pid();
        let poison = stage.order(&scene, &of, "update").await;
        let job = stage.broker.job_is(&poison.job, "quarantined").await;
        for attempt in job["history"].as_array().unwrap() {
            assert_eq!(attempt["charge"], "crash", "{what}: {job:#}");
            let reason = attempt["reason"].as_str().unwrap();
            assert!(reason.contains("panicked at"), "{what}: {reason}");
        }
        others.iter().for_each(|(other, _)| other.open_gate());
        convicted(&stage, &poison, &others).await;
        assert_eq!(stage.broker.pid(), broker, "{what}");
        assert!(stage.broker.is_alive(), "{what}");
    }
}
