//! Deaths by a limit that one job has its broker run into: of time (the watchdog), of its control
//! group's memory, of its own data segment. And by one that takes longer than others wait.

use std::os::unix::process::ExitStatusExt as _;

use serde_json::json;

use super::SIGABRT;
use crate::casualties::{Casualty, DEATHS};
use crate::harness::was_killed;
use crate::warden_memory::Group;

/// Deaths that make a suspect: from the next one on its steps are exclusive.
const SHARED: usize = 2;

/// No step lasts as long as others wait for the first exclusive one, 5 s, before this bites.
const WATCHDOG: &str = "\n[serve]\nwatchdog = \"4s\"\nrestart_pause = \"20ms\"\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i7_a_job_that_wedges_the_runtime_of_its_broker_is_set_aside_in_time() {
    let mut case = Casualty::running().await;
    case.stage.broker.setup.toml.push_str(WATCHDOG);
    let died = case
        .kills_under_a_warden("engine.watch~^update=wedge")
        .await;
    assert_eq!(died.len(), DEATHS, "{died:#?}");
    for boot in &died {
        assert_eq!(boot["death"]["killed_by_watchdog"], true, "{boot:#}");
        assert_eq!(boot["death"]["signal"], SIGABRT, "{boot:#}");
        // Nobody else's step goes on when nothing turns.
        assert_eq!(boot["named"], json!([case.poison.job]), "{boot:#}");
    }
    case.convicted().await;
}

/// The runs are elsewhere: the kernel takes those first of whom it is told that they matter less.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i7_a_job_that_takes_all_memory_of_its_brokers_group_is_set_aside_in_time() {
    let group = Group::new("evenkeel-deaths");
    let mut case = Casualty::running().await;
    case.stage.broker.setup.before = group.before();
    case.stage.broker.setup.toml.push_str(WATCHDOG);
    let died = case.kills_under_a_warden("engine.watch~^update=oom").await;
    assert_eq!(died.len(), DEATHS, "{died:#?}");
    for (nth, boot) in died.iter().enumerate() {
        assert_eq!(boot["death"]["own_oom"], true, "{boot:#}");
        assert_eq!(boot["death"]["signal"], 9, "{boot:#}");
        let named = boot["named"].as_array().unwrap();
        assert!(named.contains(&json!(case.poison.job)), "{boot:#}");
        assert!(named.len() == 1 || nth < SHARED, "{boot:#}");
    }
    case.convicted().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i7_a_job_for_which_its_broker_is_refused_memory_is_set_aside_in_time() {
    let mut case = Casualty::running().await;
    // Half of what the fault asks for, and more than a broker needs.
    case.stage.broker.setup.before = ["prlimit", "--data=536870912"].map(str::to_owned).to_vec();
    let aborted = |status: std::process::ExitStatus| status.signal() == Some(SIGABRT);
    let died = case.kills("engine.watch~^update=alloc", aborted).await;
    assert_eq!(died, DEATHS);
    let log = case.stage.broker.log();
    let told = log.matches("memory allocation of 1073741824 bytes failed");
    assert_eq!(told.count(), DEATHS, "{log}");
    case.convicted().await;
}

/// Others wait 5 s for its first exclusive step, which counts as shared then, and 20 s for the
/// next: who takes 6 s to die outlasts them once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i7_a_job_that_takes_longer_to_kill_than_others_wait_costs_one_broker_more() {
    let mut case = Casualty::running().await;
    for _ in 0..SHARED {
        "engine.watch~^update=kill".clone_into(&mut case.stage.broker.setup.faults);
        case.stage.broker.spawn();
        assert!(was_killed(case.stage.broker.died().await));
    }
    let slowly = "engine.watch~^update=delay:6000;engine.watch~^update=kill";
    let died = case.kills(slowly, was_killed).await;
    assert_eq!(SHARED + died, DEATHS + 1);
    let job = case.stage.broker.job(&case.poison.job).await;
    assert_eq!(job["budget"]["exposures"], SHARED + 1, "{job:#}");
    assert_eq!(job["budget"]["losses"], DEATHS - SHARED, "{job:#}");
    case.convicted().await;
}
