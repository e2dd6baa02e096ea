//! The warden killed before and after each of its own steps, and started again as an operator's
//! service manager would. Its broker, if there is one, hands over; connections are served again at
//! the same addresses; what the warden wrote down of a death is told once, and what it had no time
//! to write down costs nobody anything.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU8, Ordering};

use reqwest::Method;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::kill;
use super::life::{Life, side_by_side};
use super::rest::killed_once;
use crate::harness::pid;
use crate::stage::{ACTIONS, Stage};

/// Until a broker runs, in this order.
const STARTING: [&str; 10] = [
    "warden.bind.before",
    "warden.bind.after",
    "warden.prune.before",
    "warden.prune.after",
    "warden.stderr.after",
    "warden.draft.before",
    "warden.draft.after",
    "warden.spawn.before",
    // The broker-to-be, before it is one.
    "warden.child",
    "warden.spawn.after",
];

/// When a broker has died.
const DEATH: [&str; 5] = [
    "warden.reaped",
    "warden.record.before",
    "warden.record.drafted",
    "warden.record.renamed",
    "warden.record.after",
];

/// From where the record is in its place: a process that is killed takes nothing back.
const WRITTEN: usize = 2;

/// When an end is asked for.
const ASKED: [&str; 2] = ["warden.asked", "warden.passed_on"];
const OVER: [&str; 1] = ["warden.over"];

pub(super) fn points() -> impl Iterator<Item = &'static str> {
    let starting = STARTING.into_iter().chain(DEATH);
    starting.chain(ASKED).chain(OVER)
}

/// Boots of which the warden keeps something.
const KEPT_BOOTS: usize = 64;

/// An address of this life's own: while nobody has it, nobody else takes it.
fn own_address() -> Ipv4Addr {
    static LIVES: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    let life = LIVES.fetch_add(1, Ordering::Relaxed) % 128;
    Ipv4Addr::new(127, 64 + life, high, low)
}

/// A life under a warden, at addresses that stay.
async fn under_a_warden(rules: Vec<String>, toml: &str, change: impl FnOnce(&mut Stage)) -> Life {
    let own = own_address();
    let toml = format!(
        "[osb]\nlisten = \"{own}:8080\"\n[admin]\nlisten = \"{own}:8081\"\n\
         [serve]\nrestart_pause = \"20ms\"\n{toml}"
    );
    let life = Life::begin_after(rules, &toml, |stage| {
        stage.broker.setup.warden = true;
        change(stage);
    });
    let mut life = life.await;
    // A death of a broker and one of its warden are one for the job.
    life.company_ends_after = 4;
    life
}

/// More records of boots of long ago than are kept.
fn leave_old_records(stage: &mut Stage) {
    let folder = stage.broker.data().join("warden");
    fs::create_dir_all(&folder).unwrap();
    for number in 0..KEPT_BOOTS + 6 {
        let boot = format!("019c0000-0000-7000-8000-{number:012}");
        fs::write(folder.join(format!("{boot}.json")), "{}").unwrap();
    }
}

async fn boots(life: &mut Life) -> Vec<Value> {
    let path = "/admin/v1/boots?limit=500";
    let answer = life.ask(&Method::GET, path, None).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body["boots"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i1_i3_a_warden_killed_at_each_step_of_a_start_is_followed_by_one_that_serves() {
    let rules = killed_once(&STARTING);
    let mut life = under_a_warden(rules, "", leave_old_records).await;
    life.dies(STARTING.len()).await;
    life.settled().await;
    // One of the kills is not of a warden: that one restarts its broker.
    assert_eq!(life.deaths, STARTING.len() - 1);
    for action in ACTIONS {
        life.does(action).await;
        assert_eq!(life.victim.starts(action), 1, "{action}");
    }
    let folder = life.stage.broker.data().join("warden");
    let left: BTreeSet<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_owned())
        .collect();
    assert!(left.len() <= KEPT_BOOTS, "{left:?}");
    let end = life.end().await;
    end.all_succeeded();
    assert_eq!(end.charges_in_all(), 0);
}

/// The broker dies in a step of a job, and its warden while it writes that down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i9_a_warden_killed_while_it_records_a_death_loses_no_record_that_it_wrote_and_counts_none_twice()
 {
    let brokers = ACTIONS.map(|action| kill("engine.ended", action));
    let rules: Vec<_> = brokers.into_iter().chain(killed_once(&DEATH)).collect();
    let mut life = under_a_warden(rules, "", |_| {}).await;
    for action in ACTIONS {
        life.does(action).await;
        assert_eq!(life.victim.starts(action), 1, "{action}");
    }
    assert_eq!(life.deaths, DEATH.len());
    life.settled().await;
    let boots = boots(&mut life).await;
    let died = boots.iter().filter(|boot| boot["verdict"] == "died");
    let died: Vec<_> = died.collect();
    // The first one had no warden.
    assert_eq!(died.len(), 1 + DEATH.len(), "{boots:#?}");
    let told = died.iter().filter(|boot| boot["death"].is_object());
    let told: Vec<_> = told.collect();
    assert_eq!(told.len(), WRITTEN, "{died:#?}");
    for boot in told {
        assert_eq!(boot["death"]["signal"], 9, "{boot}");
    }
    let end = life.end().await;
    end.all_succeeded();
    assert_eq!(end.exposures_of_the_victim() as usize, ACTIONS.len());
    for action in ACTIONS {
        assert_eq!(end.charges(action), ["none"], "{action}");
    }
}

/// The broker dies at a step of each action, wherever that is, and its warden over the record.
pub(super) async fn killed_with_its_broker(points: Vec<&'static str>) {
    let brokers = points
        .iter()
        .zip(ACTIONS)
        .map(|(point, action)| kill(point, action));
    let rules = brokers.chain(killed_once(&DEATH)).collect();
    let mut life = under_a_warden(rules, "", |_| {}).await;
    for (number, action) in ACTIONS.into_iter().enumerate() {
        life.does(action).await;
        assert_eq!(life.victim.starts(action), 1, "{action}: {points:?}");
        // The last steps come after the platform has been told: before the next order's first.
        life.dies(2 * (number + 1)).await;
    }
    let end = life.end().await;
    end.all_succeeded();
    for action in ACTIONS {
        let charges = end.charges(action);
        let free = |charge: &String| ["none", "disruption", "exposure"].contains(&charge.as_str());
        assert!(
            charges.iter().all(free),
            "{action}: {charges:?}: {points:?}"
        );
    }
}

/// The end is asked for while a run is at its gate; a drain would wait for it for minutes.
async fn asked_to_end(points: &'static [&'static str], on_shutdown: &'static str) {
    let toml = format!("[shutdown]\non_shutdown = \"{on_shutdown}\"\ndrain_limit = \"5m\"");
    let mut life = under_a_warden(killed_once(points), &toml, |_| {}).await;
    fs::remove_file(life.victim.gate()).unwrap();
    let poll = life.order("provision").await.unwrap();
    life.victim.started("provision", 1).await;
    for point in points {
        life.settled().await;
        let boot = life.stage.broker.boot_id().await.expect("it is ready");
        kill_process(pid(life.stage.broker.pid()), Signal::TERM).unwrap();
        life.goes_down().await;
        life.comes_back();
        life.stage.broker.next_boot(&boot).await;
        let boots = boots(&mut life).await;
        let told = boots.iter().find(|told| told["id"] == boot.as_str());
        let told = told.unwrap_or_else(|| panic!("{boot} is not in {boots:#?}"));
        assert_eq!(told["verdict"], "ended in order", "{point}: {told}");
        let recorded = json!(true) == told["death"]["asked_to_end"];
        assert_eq!(recorded, OVER.contains(point), "{point}: {told}");
    }
    let end = life.ends_well(&poll).await;
    assert_eq!(end.charges_in_all(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i8_a_warden_killed_while_it_ends_in_order_leaves_a_boot_that_ended_in_order() {
    let asked: [&'static [&'static str]; 2] = [&ASKED, &OVER];
    let lives = asked.into_iter().zip(["drain", "detach"]);
    side_by_side(lives.map(|(points, on_shutdown)| asked_to_end(points, on_shutdown))).await;
}
