//! A job that kills the broker itself, at whatever step: it is named in the black box, made a
//! suspect, and set aside after 2 + `loss_limit` deaths (I7). Nobody else is charged more than an
//! exposure (I5).

use reqwest::Method;
use rustix::process::{Signal, kill_process};

use crate::casualties::{Casualty, DEATHS, QUICK, charged, convicted, deaths, innocents, staged};
use crate::harness::{Broker, eventually, pid, was_killed};
use crate::operator::done;
use crate::stage::{Stage, reached};

#[tokio::test]
async fn i7_a_job_that_kills_the_broker_while_it_is_prepared_is_set_aside_in_time() {
    let (mut stage, scene, of) = staged().await;
    let others = innocents(&stage, &of).await;
    for (other, _) in &others {
        other.started("provision", 1).await;
        other.open_gate();
    }
    // Nothing is claimed before the poison is on disk.
    let hold = stage.file("hold");
    let held = format!("engine.claim=hold:{}", hold.display());
    stage.reboot(&held).await;
    let poison = stage.order(&scene, &of, "update").await;
    stage.broker.kill();
    let died = deaths(
        &mut stage,
        &poison,
        "engine.prepare~update=kill",
        was_killed,
    )
    .await;
    assert_eq!(died, DEATHS);
    assert_eq!(scene.starts("update"), 0);
    convicted(&stage, &poison, &others).await;
}

#[tokio::test]
async fn i7_a_job_that_kills_the_broker_while_it_is_watched_is_set_aside_in_time() {
    let mut case = Casualty::running().await;
    let died = case.kills("engine.watch~update=kill", was_killed).await;
    assert_eq!(died, DEATHS);
    case.convicted().await;
}

#[tokio::test]
async fn i7_a_job_that_kills_the_broker_while_it_is_concluded_is_set_aside_in_time() {
    let mut case = Casualty::running().await;
    case.scene.open_gate();
    let rules = "engine.exited~update=kill;engine.ended~update=kill";
    let died = case.kills(rules, was_killed).await;
    assert_eq!(died, DEATHS);
    case.convicted().await;
}

#[tokio::test]
async fn i7_a_job_that_kills_every_broker_that_looks_at_it_is_set_aside_in_time() {
    let mut case = Casualty::running().await;
    let died = case.kills("recovery.look~update=kill", was_killed).await;
    assert_eq!(died, DEATHS);
    case.convicted().await;
}

/// A suspect whose exclusive step was cut off, while a run beside it vanished with that broker:
/// nobody can say who did what, so it is an exposure and no loss.
#[tokio::test]
async fn i5_an_exclusive_step_convicts_nobody_if_another_run_vanished_with_the_broker() {
    for vanishes in [true, false] {
        exclusive_step(vanishes, &[]).await;
    }
}

/// What was found out is on disk before anything is done by it: afterwards it could not be found
/// out again.
#[tokio::test]
async fn i5_a_broker_killed_over_the_mark_that_a_step_was_not_exclusive_leaves_nobody_convicted() {
    exclusive_step(true, &["run.spoil.before=kill", "run.spoil.after=kill"]).await;
    // The death cannot be counted against the suspect yet, and when the other job has been dealt
    // with nobody sees any more that its run vanished.
    let counted_late = "store.expose.before~^update=error:unavailable;\
                        store.finish_attempt.after~^provision=kill";
    exclusive_step(true, &[counted_late]).await;
}

/// `deaths`: of the brokers that come after the one that died in the step, each of its rule.
async fn exclusive_step(vanishes: bool, deaths: &[&str]) {
    let (mut stage, scene, of) = staged().await;
    let other = stage.scene("other");
    let beside = stage.provision(&other, &of, "provision").await;
    let suspect = stage.order(&scene, &of, "update").await;
    scene.started("update", 1).await;
    other.started("provision", 1).await;
    stage.broker.kill();
    // Two deaths make it a suspect.
    for _ in 0..2 {
        "engine.watch~update=kill".clone_into(&mut stage.broker.setup.faults);
        stage.broker.spawn();
        assert!(was_killed(stage.broker.died().await));
    }
    // The third is in an exclusive step, while both runs are its broker's.
    stage.boot("engine.ended~update=kill").await;
    let owner = stage.attempts(&suspect).await[0]["boot"].clone();
    let run = eventually("the other run is taken over too", || async {
        let attempt = stage.attempts(&beside).await[0].clone();
        (attempt["boot"] == owner).then(|| attempt["id"].as_str().unwrap().to_owned())
    })
    .await;
    scene.open_gate();
    assert!(was_killed(stage.broker.died().await));
    if vanishes {
        end_shim(&stage.broker, &run);
    }
    for death in deaths {
        (*death).clone_into(&mut stage.broker.setup.faults);
        stage.broker.spawn();
        assert!(was_killed(stage.broker.died().await), "{death}");
    }
    stage.boot("").await;
    stage.succeeded(&suspect).await;
    let lost = charged(&stage, &suspect, "loss").await;
    assert_eq!(lost, usize::from(!vanishes));
    other.open_gate();
    stage.succeeded(&beside).await;
    assert_eq!(other.starts("provision"), 1 + usize::from(vanishes));
    stage.broker.nothing_left().await;
}

/// Ends the shim of an attempt's run.
fn end_shim(broker: &Broker, attempt: &str) {
    let read = |id: u32, name: &str| {
        let bytes = std::fs::read(format!("/proc/{id}/{name}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let shims: Vec<_> = broker
        .run_processes()
        .into_iter()
        .filter(|id| read(*id, "comm").trim() == "evenkeel-shim")
        .filter(|id| read(*id, "cmdline").contains(attempt))
        .collect();
    assert_eq!(shims.len(), 1, "one run, one shim: {shims:?}");
    kill_process(pid(shims[0]), Signal::KILL).unwrap();
}

#[tokio::test]
async fn who_is_named_once_by_a_foreign_kill_is_only_exposed() {
    let mut stage = Stage::new(QUICK).await;
    let of = stage.offer("ok").await;
    let scene = stage.scene("i");
    scene.open_gate();
    let hold = stage.file("hold");
    stage
        .reboot(&format!("engine.prepare=hold:{}", hold.display()))
        .await;
    let order = stage.provision(&scene, &of, "provision").await;
    reached(&hold).await;
    stage.reboot("").await;
    stage.succeeded(&order).await;
    let attempts = stage.attempts(&order).await;
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    assert_eq!(attempts[0]["charge"], "exposure", "{attempts:?}");
    let death = &attempts[0]["deaths"][0];
    assert_eq!(death["boot"], attempts[0]["boot"], "{attempts:?}");
    assert_eq!(death["cause"], "named_by_black_box", "{attempts:?}");
    let shown = done(&stage.broker, &["jobs", "show", &order.job]).out;
    assert!(
        shown.contains(" died in a step for this job; counted as an"),
        "{shown}"
    );
    // Whoever asks how the last broker died is told who was named.
    let named = format!(", in a step of job {}", order.job);
    for surface in ["/readyz", "/admin/v1/status"] {
        let told = stage.broker.admin(Method::GET, surface).await.body;
        assert!(told.to_string().contains(&named), "{told}");
    }
    assert_eq!(scene.starts("provision"), 1);
    eventually("the boxes of dead boots are gone", || async {
        let boots = std::fs::read_dir(stage.broker.data().join("run/boots")).unwrap();
        // One lock and one box: those of the boot that lives.
        (boots.count() == 2).then_some(())
    })
    .await;
}
