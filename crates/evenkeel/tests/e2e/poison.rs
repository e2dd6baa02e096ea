//! A job that kills its own supervisor each time costs itself three attempts, and nobody else
//! anything (I5, I6, I13); no restart, no repeated request gives it more (promise 3), an
//! operator's word does, on record; DELETE works throughout (I12).

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, eventually};
use crate::stage::{Offer, Order, Scene, Stage};

/// Where a run can kill its shim.
const SWEEP: &str = "[process]\ncontainment = \"sweep\"";
/// One attempt, and a long time until the next.
const ONE: &str =
    "[process]\ncontainment = \"sweep\"\n[recovery]\nbackoff_min = \"1h\"\nbackoff_max = \"1h\"";
/// Long enough to act between two attempts.
const SLOW: &str =
    "[process]\ncontainment = \"sweep\"\n[recovery]\nbackoff_min = \"3s\"\nbackoff_max = \"3s\"";

/// The job is quarantined after exactly three starts, each charged, the last one alone.
async fn quarantined(stage: &Stage, scene: &Scene, order: &Order, action: &str) -> Value {
    let job = stage.broker.job_is(&order.job, "quarantined").await;
    assert_eq!(scene.starts(action), 3, "{job}");
    let history = job["history"].as_array().unwrap();
    assert_eq!(history.len(), 3, "{job}");
    for attempt in history {
        assert_eq!(attempt["end"], "crashed", "{job}");
        assert_eq!(attempt["charge"], "crash", "{job}");
    }
    assert_eq!(history[2]["solo"], true, "{job}");
    let told = stage.failed(order).await;
    assert!(told.contains(&order.job), "the poll names the job: {told}");
    assert!(told.contains("operators"), "{told}");
    job
}

/// A job for a target without a budget: set aside without a run.
async fn refused_a_run(
    stage: &Stage,
    scene: &Scene,
    action: &str,
    answer: Answer,
    binding: Option<&'static str>,
) {
    let starts = scene.starts(action);
    let order = Order {
        job: answer.operation(),
        instance: scene.instance.clone(),
        binding,
    };
    let job = stage.broker.job_is(&order.job, "quarantined").await;
    assert_eq!(job["history"].as_array().unwrap().len(), 0, "{job}");
    assert!(stage.failed(&order).await.contains(&order.job));
    assert_eq!(scene.starts(action), starts, "no run was started");
}

#[tokio::test]
async fn a_poison_job_beside_fifty_others_costs_only_itself() {
    let mut stage = Stage::new(SWEEP).await;
    let (ok, poison) = (stage.offer("ok").await, stage.offer("kill-parent").await);
    let broker = stage.broker.pid();
    let poisoned = stage.scene("poison");
    poisoned.open_gate();
    let mut others = Vec::new();
    let mut bad = None;
    for number in 0..50 {
        if number == 25 {
            bad = Some(stage.provision(&poisoned, &poison, "provision").await);
        }
        let scene = stage.scene(&format!("other-{number}"));
        scene.open_gate();
        let order = stage.provision(&scene, &ok, "provision").await;
        others.push((scene, order));
    }
    let bad = bad.expect("it was ordered among the others");
    for (scene, order) in &others {
        stage.succeeded(order).await;
        let attempts = stage.attempts(order).await;
        assert_eq!(attempts.len(), 1, "{attempts:?}");
        assert_eq!((scene.starts("provision"), scene.ends("provision")), (1, 1));
    }
    quarantined(&stage, &poisoned, &bad, "provision").await;
    assert!(stage.broker.is_alive());
    assert_eq!(stage.broker.pid(), broker);
    stage.broker.nothing_left().await;
}

/// Waits until so many attempts have ended and the next is some time away.
async fn between_attempts(stage: &Stage, order: &Order, ended: u64) {
    eventually(&format!("attempt {ended} has ended"), || async {
        let job = stage.broker.job(&order.job).await;
        (job["state"] == "backoff" && job["attempts"] == ended).then_some(())
    })
    .await;
}

#[tokio::test]
async fn restarts_and_identical_puts_give_a_poison_job_no_more_attempts() {
    let mut stage = Stage::new(SLOW).await;
    let of = stage.offer("kill-parent").await;
    let scene = stage.scene("poison");
    scene.open_gate();
    let order = stage.provision(&scene, &of, "provision").await;
    for ended in [1, 2] {
        between_attempts(&stage, &order, ended).await;
        stage.reboot("").await;
        // The same request while it is under way is the same operation.
        let again = stage.provision(&scene, &of, "provision").await;
        assert_eq!(again.job, order.job);
    }
    quarantined(&stage, &scene, &order, "provision").await;
    stage.reboot("").await;
    for _ in 0..2 {
        let parameters = scene.parameters("provision");
        let again = stage
            .broker
            .provision(&scene.instance, &of, parameters)
            .await;
        assert_ne!(again.body["operation"], order.job.as_str());
        refused_a_run(&stage, &scene, "provision", again, None).await;
    }
    // What the platform was told of the first operation stays so (I11).
    assert!(stage.failed(&order).await.contains(&order.job));
    delete_helps(&stage, &scene, &of).await;
}

/// DELETE ends the instance, and its name can be used again, with an account of its own.
async fn delete_helps(stage: &Stage, scene: &Scene, of: &Offer) {
    let order = stage.order(scene, of, "deprovision").await;
    stage.succeeded(&order).await;
    let path = format!("/v2/service_instances/{}", scene.instance);
    assert_eq!(stage.broker.osb(Method::GET, &path, None).await.status, 404);
    let of = stage.offer("ok").await;
    let order = stage.provision(scene, &of, "provision").await;
    stage.succeeded(&order).await;
    stage.broker.nothing_left().await;
}

#[tokio::test]
async fn a_repeated_delete_gives_a_poison_delete_no_more_attempts_and_retry_does() {
    let mut stage = Stage::new(SWEEP).await;
    let of = stage.offer("kill-parent").await;
    let scene = stage.scene("poison");
    scene.open_gate();
    stage.prepare(&scene, &of, "deprovision").await;
    let order = stage.order(&scene, &of, "deprovision").await;
    quarantined(&stage, &scene, &order, "deprovision").await;
    for _ in 0..2 {
        let again = stage.broker.deprovision(&scene.instance, &of).await;
        assert_ne!(again.body["operation"], order.job.as_str());
        refused_a_run(&stage, &scene, "deprovision", again, None).await;
    }
    // Where a run cannot harm its shim the operator's retry succeeds, with a budget of its own.
    stage.broker.setup.toml = "[process]\ncontainment = \"pidns\"".to_owned();
    stage.reboot("").await;
    let retried = stage.broker.cli(&["jobs", "retry", &order.job, "--json"]);
    assert!(retried.status.success(), "{retried:?}");
    let retried: Value = serde_json::from_slice(&retried.stdout).unwrap();
    let new = retried["job"].as_str().unwrap();
    let new = Order {
        job: new.to_owned(),
        ..order.clone()
    };
    stage.succeeded(&new).await;
    on_record(&stage, &order, &new).await;
    assert_eq!(scene.starts("deprovision"), 4);
    stage.broker.nothing_left().await;
}

/// The retry is in the audit of what was retried or of what does it, with who asked for it.
async fn on_record(stage: &Stage, old: &Order, new: &Order) {
    let (old_job, new_job) = (
        stage.broker.job(&old.job).await,
        stage.broker.job(&new.job).await,
    );
    assert_eq!(new_job["retry_of"], old.job.as_str(), "{new_job}");
    let lines = [&old_job, &new_job].map(|job| job["audit"].as_array().unwrap().clone());
    assert!(
        lines
            .iter()
            .flatten()
            .any(|line| line["what"] == "retry" && line["actor"] == "operator"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn an_operators_retry_opens_one_new_budget_of_three_attempts() {
    let stage = Stage::new(SWEEP).await;
    let of = stage.offer("kill-parent").await;
    let scene = stage.scene("poison");
    scene.open_gate();
    let order = stage.provision(&scene, &of, "provision").await;
    quarantined(&stage, &scene, &order, "provision").await;
    let path = format!("/admin/v1/jobs/{}/retry", order.job);
    let answer = stage.broker.admin(Method::POST, &path).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let new = Order {
        job: answer.body["job"].as_str().unwrap().to_owned(),
        ..order.clone()
    };
    let job = stage.broker.job_is(&new.job, "quarantined").await;
    assert_eq!(job["history"].as_array().unwrap().len(), 3, "{job}");
    assert_eq!(scene.starts("provision"), 6);
    on_record(&stage, &order, &new).await;
    let parameters = scene.parameters("provision");
    let again = stage
        .broker
        .provision(&scene.instance, &of, parameters)
        .await;
    refused_a_run(&stage, &scene, "provision", again, None).await;
    delete_helps(&stage, &scene, &of).await;
}

#[tokio::test]
async fn delete_works_while_a_poison_job_runs() {
    let stage = Stage::new(SWEEP).await;
    let of = stage.offer("kill-parent").await;
    let scene = stage.scene("poison");
    let order = stage.provision(&scene, &of, "provision").await;
    scene.started("provision", 1).await;
    let delete = stage.order(&scene, &of, "deprovision").await;
    assert!(stage.failed(&order).await.contains(&delete.job));
    stage.succeeded(&delete).await;
    assert_eq!(scene.starts("provision"), 1);
    scene.open_gate();
    delete_helps_again(&stage, &scene).await;
}

async fn delete_helps_again(stage: &Stage, scene: &Scene) {
    let of = stage.offer("ok").await;
    let order = stage.provision(scene, &of, "provision").await;
    stage.succeeded(&order).await;
    delete_helps(stage, scene, &of).await;
}

#[tokio::test]
async fn delete_works_at_once_while_a_poison_job_waits_for_its_next_attempt() {
    let stage = Stage::new(ONE).await;
    let of = stage.offer("kill-parent").await;
    let scene = stage.scene("poison");
    scene.open_gate();
    let order = stage.provision(&scene, &of, "provision").await;
    between_attempts(&stage, &order, 1).await;
    let delete = stage.order(&scene, &of, "deprovision").await;
    assert!(stage.failed(&order).await.contains(&delete.job));
    stage.succeeded(&delete).await;
    assert_eq!(scene.starts("provision"), 1);
    delete_helps_again(&stage, &scene).await;
}

#[tokio::test]
async fn a_cancel_between_two_attempts_ends_the_job_and_clears_no_account() {
    let stage = Stage::new(ONE).await;
    let of = stage.offer("kill-parent").await;
    let scene = stage.scene("poison");
    scene.open_gate();
    let order = stage.provision(&scene, &of, "provision").await;
    between_attempts(&stage, &order, 1).await;
    let path = format!("/admin/v1/jobs/{}/cancel", order.job);
    let answer = stage.broker.admin(Method::POST, &path).await;
    assert_eq!(answer.status, 200, "final at once: {answer:?}");
    assert!(stage.failed(&order).await.contains(&order.job));
    let next = stage.provision(&scene, &of, "provision").await;
    assert_ne!(next.job, order.job);
    between_attempts(&stage, &next, 1).await;
    let job = stage.broker.job(&next.job).await;
    assert_eq!(job["budget"]["crashes"], 2, "{job}");
    assert_eq!(scene.starts("provision"), 2);
    delete_helps(&stage, &scene, &of).await;
}

#[tokio::test]
async fn a_poison_binding_costs_neither_its_instance_nor_its_neighbour() {
    let stage = Stage::new(SWEEP).await;
    let of = stage.offer("kill-parent").await;
    let scene = stage.scene("poison");
    scene.open_gate();
    stage.prepare(&scene, &of, "bind").await;
    let order = stage.order(&scene, &of, "bind").await;
    quarantined(&stage, &scene, &order, "bind").await;
    let again = stage
        .broker
        .bind(&scene.instance, "b", &of, json!({}))
        .await;
    refused_a_run(&stage, &scene, "bind", again, Some("b")).await;
    // Another binding of the same instance, told to do nothing of the kind.
    let neighbour = json!({"when": "nothing"});
    let answer = stage
        .broker
        .bind(&scene.instance, "other", &of, neighbour)
        .await;
    let operation = answer.operation();
    stage
        .broker
        .succeeded(&scene.instance, Some("other"), &operation)
        .await;
    let unbind = stage.order(&scene, &of, "unbind").await;
    stage.succeeded(&unbind).await;
    delete_helps(&stage, &scene, &of).await;
}
