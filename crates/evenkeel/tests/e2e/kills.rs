//! `kill -9` of the broker, at every place that matters: what was accepted succeeds under the same
//! operation, and what had been started is not started again (I1, I3).

use std::fs;
use std::path::PathBuf;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::harness::{eventually, pid};
use crate::stage::{ACTIONS, Offer, Order, Scene, Stage, reached};

/// A scene for each action, prepared up to the point where the action itself can be asked for.
async fn prepared(stage: &Stage, of: &Offer) -> Vec<(&'static str, Scene)> {
    let mut scenes = Vec::new();
    for action in ACTIONS {
        let scene = stage.scene(&format!("for-{action}"));
        stage.prepare(&scene, of, action).await;
        scenes.push((action, scene));
    }
    scenes
}

/// The order succeeds, at its only start and its only attempt, which cost nothing.
async fn succeeded_at_once(stage: &Stage, scene: &Scene, action: &str, order: &Order) {
    stage.succeeded(order).await;
    assert_eq!(scene.starts(action), 1, "{action}");
    assert_eq!(scene.ends(action), 1, "{action}");
    let attempts = stage.attempts(order).await;
    assert_eq!(attempts.len(), 1, "{action}: {attempts:?}");
    assert_eq!(attempts[0]["charge"], "none", "{action}: {attempts:?}");
}

async fn all_at_the_gate(
    stage: &Stage,
    scenes: &[(&'static str, Scene)],
    of: &Offer,
) -> Vec<Order> {
    let mut orders = Vec::new();
    for (action, scene) in scenes {
        orders.push(stage.order(scene, of, action).await);
    }
    for (action, scene) in scenes {
        scene.started(action, 1).await;
    }
    orders
}

/// The boots that own or owned the attempts of these orders.
async fn owners(stage: &Stage, orders: &[Order]) -> Vec<Value> {
    let mut owners = Vec::new();
    for order in orders {
        let attempts = stage.attempts(order).await;
        owners.extend(
            attempts
                .into_iter()
                .map(|mut attempt| attempt["boot"].take()),
        );
    }
    owners
}

#[tokio::test]
async fn each_action_whose_broker_is_killed_while_it_runs_succeeds_and_was_started_once() {
    let mut stage = Stage::new("").await;
    let of = stage.offer("ok").await;
    let scenes = prepared(&stage, &of).await;
    let orders = all_at_the_gate(&stage, &scenes, &of).await;
    let first = owners(&stage, &orders).await;
    // More than one restart: who adopts is killed as well.
    for _ in 0..2 {
        stage.reboot("").await;
        eventually("all runs are adopted", || async {
            let now = owners(&stage, &orders).await;
            let adopted = now.iter().zip(&first).all(|(now, first)| now != first);
            (now.len() == ACTIONS.len() && adopted).then_some(())
        })
        .await;
    }
    for (_, scene) in &scenes {
        scene.open_gate();
    }
    for ((action, scene), order) in scenes.iter().zip(&orders) {
        succeeded_at_once(&stage, scene, action, order).await;
    }
    stage.broker.nothing_left().await;
}

#[tokio::test]
async fn each_action_that_ends_while_no_broker_is_there_succeeds_and_was_started_once() {
    let mut stage = Stage::new("").await;
    let of = stage.offer("ok").await;
    let scenes = prepared(&stage, &of).await;
    let orders = all_at_the_gate(&stage, &scenes, &of).await;
    stage.broker.kill();
    for (_, scene) in &scenes {
        scene.open_gate();
    }
    stage.broker.nothing_left().await;
    for (action, scene) in &scenes {
        assert_eq!(scene.ends(action), 1, "{action} went on without its broker");
    }
    stage.boot("").await;
    for ((action, scene), order) in scenes.iter().zip(&orders) {
        succeeded_at_once(&stage, scene, action, order).await;
    }
}

/// For each action: a broker that is killed at the point while it works on that action, and how
/// the attempts ended that this cost.
async fn killed_at(point: &str, lost: &[&str]) {
    let mut stage = Stage::new("").await;
    let of = stage.offer("ok").await;
    let scenes = prepared(&stage, &of).await;
    let hold = |stage: &Stage, action: &str| stage.file(&format!("hold-{action}"));
    let rule = |stage: &Stage, action: &str| {
        // Held once: the boot that is armed for an action also ends the one before it.
        format!("{point}~{action}=hold:{}@1", hold(stage, action).display())
    };
    let mut after = ACTIONS.into_iter().skip(1);
    let first = rule(&stage, ACTIONS[0]);
    stage.reboot(&first).await;
    for (action, scene) in &scenes {
        scene.open_gate();
        let order = stage.order(scene, &of, action).await;
        reached(&hold(&stage, action)).await;
        let next = after
            .next()
            .map_or_else(String::new, |action| rule(&stage, action));
        stage.reboot(&next).await;
        stage.succeeded(&order).await;
        assert_eq!(scene.starts(action), 1, "{action}");
        let told = stage.attempts(&order).await;
        let ends: Vec<_> = told.iter().map(|attempt| &attempt["end"]).collect();
        let (last, before) = ends.split_last().unwrap();
        assert_eq!(before, lost, "{action}: {told:?}");
        assert_eq!(*last, "succeeded", "{action}: {told:?}");
    }
    stage.broker.nothing_left().await;
}

#[tokio::test]
async fn a_broker_killed_right_after_a_claim_starts_the_action_once() {
    killed_at("engine.claimed", &["disrupted"]).await;
}

#[tokio::test]
async fn a_broker_killed_between_claim_and_spawn_starts_the_action_once() {
    killed_at("engine.start", &["exposed"]).await;
}

#[tokio::test]
async fn a_broker_killed_after_the_spawn_before_it_is_recorded_does_not_spawn_again() {
    killed_at("engine.started", &[]).await;
}

#[tokio::test]
async fn a_broker_killed_between_exit_record_and_finish_finishes_from_the_record() {
    killed_at("engine.ended", &[]).await;
}

#[tokio::test]
async fn a_broker_killed_after_finish_before_it_is_answered_does_not_finish_again() {
    killed_at("engine.concluded", &[]).await;
}

#[tokio::test]
async fn a_broker_killed_right_after_a_deprovision_leaves_no_folder_of_the_instance() {
    let mut stage = Stage::new("").await;
    let of = stage.offer("ok").await;
    let scene = stage.scene("gone");
    stage.prepare(&scene, &of, "deprovision").await;
    let data = stage.broker.data();
    let count = |name: &str| fs::read_dir(data.join(name)).unwrap().count();
    assert_eq!(count("state"), 1);
    let hold = stage.file("hold");
    let rule = format!("engine.written~deprovision=hold:{}", hold.display());
    stage.reboot(&rule).await;
    scene.open_gate();
    let order = stage.order(&scene, &of, "deprovision").await;
    reached(&hold).await;
    stage.reboot("").await;
    stage.succeeded(&order).await;
    eventually("nothing is left of it", || async {
        (count("state") + count("run/runs") == 0).then_some(())
    })
    .await;
    stage.broker.nothing_left().await;
}

/// Orders an action whose shim waits for the file before its first instruction, and kills the
/// broker meanwhile.
async fn spawned_and_held(
    stage: &mut Stage,
    scene: &Scene,
    of: &Offer,
    action: &str,
) -> (Order, PathBuf) {
    scene.open_gate();
    let hold = stage.file(&format!("hold-{action}"));
    stage
        .reboot(&format!("shim.first=hold:{}", hold.display()))
        .await;
    let order = stage.order(scene, of, action).await;
    reached(&hold).await;
    stage.broker.kill();
    (order, hold)
}

#[tokio::test]
async fn a_run_whose_broker_died_before_its_first_instruction_is_adopted_and_started_once() {
    let mut stage = Stage::new("").await;
    let of = stage.offer("ok").await;
    for (action, scene) in prepared(&stage, &of).await {
        let (order, hold) = spawned_and_held(&mut stage, &scene, &of, action).await;
        stage.boot("").await;
        eventually("the job is adopted", || async {
            let log = stage.broker.log();
            let adopted = |line: &str| line.contains(&order.job) && line.contains("taken over");
            log.lines().any(adopted).then_some(())
        })
        .await;
        assert_eq!(scene.starts(action), 0, "{action}");
        fs::write(hold, "").unwrap();
        succeeded_at_once(&stage, &scene, action, &order).await;
    }
    stage.broker.nothing_left().await;
}

#[tokio::test]
async fn a_run_that_died_with_its_broker_before_its_first_instruction_costs_little_and_starts_once()
{
    let mut stage = Stage::new("").await;
    let of = stage.offer("ok").await;
    for (action, scene) in prepared(&stage, &of).await {
        let (order, _) = spawned_and_held(&mut stage, &scene, &of, action).await;
        let shim = stage.broker.run_processes();
        assert_eq!(shim.len(), 1, "{action}: nothing but the shim is there yet");
        kill_process(pid(shim[0]), Signal::KILL).unwrap();
        stage.boot("").await;
        stage.succeeded(&order).await;
        assert_eq!(scene.starts(action), 1, "{action}");
        let attempts = stage.attempts(&order).await;
        assert_eq!(attempts.len(), 2, "{action}: {attempts:?}");
        // Whether the broker was still in the step that starts it when it died is chance.
        let charge = attempts[0]["charge"].as_str();
        let little = matches!(charge, Some("exposure" | "disruption"));
        assert!(little, "{action}: {attempts:?}");
    }
    stage.broker.nothing_left().await;
}
