//! Jobs that are ended because somebody asks for it: DELETE during create, an operator's cancel,
//! deadlines and timeouts. What runs is gone before anything else starts (I3, I12, I18).

use std::fs;
use std::os::unix::fs::PermissionsExt;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Broker, Setup, eventually};
use crate::stage::{Order, Stage, reached};

/// One run at a time: whatever is ordered while one waits at its gate stays queued.
const ONE_AT_A_TIME: &str = "[jobs]\nconcurrency = 1";

#[tokio::test]
async fn delete_during_create_starts_only_when_the_run_has_ended_however_long_that_takes() {
    // The run ignores SIGTERM: long after the delete has come it is still there, with the lock.
    let stage = Stage::new("[process]\ngrace = \"4s\"").await;
    let of = stage.offer("ignore-term").await;
    let scene = stage.scene("i");
    scene.open_gate();
    let create = stage.provision(&scene, &of, "provision").await;
    eventually("the run ignores signals", || async {
        let job = stage.broker.job(&create.job).await;
        (job["progress"] == "fault ignore-term").then_some(())
    })
    .await;
    let delete = stage.order(&scene, &of, "deprovision").await;
    // Repeated while it is under way it is the same operation.
    let again = stage.order(&scene, &of, "deprovision").await;
    assert_eq!(again.job, delete.job);
    stage.succeeded(&delete).await;
    let told = stage.failed(&create).await;
    assert!(
        told.contains("superseded") && told.contains(&delete.job),
        "{told}"
    );
    assert_eq!((scene.starts("provision"), scene.ends("provision")), (1, 0));
    assert_eq!(scene.starts("deprovision"), 1);
    let job = stage.broker.job(&create.job).await;
    assert_eq!(job["state"], "cancelled", "{job}");
    assert_eq!(job["superseded_by"], delete.job.as_str(), "{job}");
    assert_eq!(job["history"][0]["charge"], "none", "{job}");
    stage.broker.nothing_left().await;
}

#[tokio::test]
async fn delete_during_create_survives_a_kill_of_the_broker() {
    let mut stage = Stage::new("").await;
    let of = stage.offer("ok").await;
    let scene = stage.scene("i");
    let hold = stage.file("hold");
    // The run's end is known and not written down when the delete comes, and then the broker dies.
    stage
        .reboot(&format!("engine.ended~provision=hold:{}@1", hold.display()))
        .await;
    let create = stage.provision(&scene, &of, "provision").await;
    scene.started("provision", 1).await;
    let delete = stage.order(&scene, &of, "deprovision").await;
    reached(&hold).await;
    stage.reboot("").await;
    stage.succeeded(&delete).await;
    assert!(stage.failed(&create).await.contains(&delete.job));
    assert_eq!(
        (scene.starts("provision"), scene.starts("deprovision")),
        (1, 1)
    );
    stage.broker.nothing_left().await;
}

/// Provision says in its private data what it made; deprovision notes what it was told to remove.
const KEEPER: &str = r#"#!/bin/sh
set -eu
case $EVENKEEL_ACTION in
    provision) echo '{"data": {"made": "volume-7"}}' >"$EVENKEEL_OUTPUT" ;;
    deprovision) jq -c '.instance.data' "$EVENKEEL_REQUEST" >"$FOLDER/removed" ;;
esac
"#;

#[tokio::test]
async fn what_a_create_made_that_succeeded_too_late_is_handed_to_the_delete() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    fs::create_dir(&bundle).unwrap();
    let yml = format!(
        "bundle: 1\nservice: {{name: keeper, description: Keeps volumes}}\n\
         plans: [{{name: small, description: One volume}}]\n\
         actions:\n  provision: {{command: [./action]}}\n  deprovision: {{command: [./action]}}\n\
         env: {{FOLDER: {:?}}}\n",
        folder.path().display().to_string()
    );
    fs::write(bundle.join("bundle.yml"), yml).unwrap();
    fs::write(bundle.join("action"), KEEPER).unwrap();
    fs::set_permissions(bundle.join("action"), fs::Permissions::from_mode(0o755)).unwrap();
    let hold = folder.path().join("hold");
    let setup = Setup {
        bundles: vec![bundle],
        ..Setup::default()
    }
    .with_faults(&format!("engine.ended~provision=hold:{}@1", hold.display()));
    let broker = Broker::start(setup).await;
    let of = broker.ids("keeper", "small").await;
    let create = broker.provision("i", &of, json!({})).await.operation();
    reached(&hold).await;
    let delete = broker.deprovision("i", &of).await.operation();
    fs::write(&hold, "").unwrap();
    broker.succeeded("i", None, &delete).await;
    assert_eq!(broker.finished("i", None, &create).await["state"], "failed");
    assert_eq!(broker.job(&create).await["state"], "cancelled");
    let removed = fs::read_to_string(folder.path().join("removed")).unwrap();
    assert_eq!(removed, "{\"made\":\"volume-7\"}\n");
}

async fn cancel(stage: &Stage, order: &Order, status: u16) {
    let path = format!("/admin/v1/jobs/{}/cancel", order.job);
    let answer = stage.broker.admin(Method::POST, &path).await;
    assert_eq!(answer.status, status, "{answer:?}");
}

async fn was_cancelled(stage: &Stage, order: &Order) -> Value {
    let job = stage.broker.job_is(&order.job, "cancelled").await;
    let told = stage.failed(order).await;
    assert!(
        told.contains(&order.job) && told.contains("operator"),
        "{told}"
    );
    let audit = job["audit"].as_array().unwrap();
    assert!(
        audit
            .iter()
            .any(|line| line["what"] == "cancel" && line["actor"] == "operator"),
        "{job}"
    );
    job
}

#[tokio::test]
async fn an_operator_cancels_a_running_job_and_its_run_is_gone() {
    let stage = Stage::new("").await;
    let of = stage.offer("ok").await;
    let scene = stage.scene("i");
    let order = stage.provision(&scene, &of, "provision").await;
    scene.started("provision", 1).await;
    cancel(&stage, &order, 202).await;
    let job = was_cancelled(&stage, &order).await;
    assert_eq!(job["history"][0]["end"], "stopped", "{job}");
    assert_eq!(job["history"][0]["charge"], "none", "{job}");
    stage.broker.nothing_left().await;
    assert_eq!((scene.starts("provision"), scene.ends("provision")), (1, 0));
    cancel(&stage, &order, 409).await;
    let delete = stage.order(&scene, &of, "deprovision").await;
    stage.succeeded(&delete).await;
}

#[tokio::test]
async fn a_cancel_that_the_broker_did_not_live_to_carry_out_is_carried_out_by_the_next() {
    let mut stage = Stage::new("").await;
    let of = stage.offer("ok").await;
    let scene = stage.scene("i");
    let hold = stage.file("hold");
    stage
        .reboot(&format!("engine.watch~provision=hold:{}@1", hold.display()))
        .await;
    let order = stage.provision(&scene, &of, "provision").await;
    scene.started("provision", 1).await;
    reached(&hold).await;
    cancel(&stage, &order, 202).await;
    stage.reboot("").await;
    was_cancelled(&stage, &order).await;
    stage.broker.nothing_left().await;
    assert_eq!((scene.starts("provision"), scene.ends("provision")), (1, 0));
}

#[tokio::test]
async fn an_operator_cancels_a_queued_job_which_never_starts() {
    let stage = Stage::new(ONE_AT_A_TIME).await;
    let of = stage.offer("ok").await;
    let (first, second) = (stage.scene("first"), stage.scene("second"));
    let running = stage.provision(&first, &of, "provision").await;
    first.started("provision", 1).await;
    let queued = stage.provision(&second, &of, "provision").await;
    assert_eq!(stage.broker.job(&queued.job).await["state"], "queued");
    let done = stage.broker.cli(&["jobs", "cancel", &queued.job]);
    assert!(done.status.success(), "{done:?}");
    let job = was_cancelled(&stage, &queued).await;
    assert_eq!(job["history"].as_array().unwrap().len(), 0, "{job}");
    first.open_gate();
    stage.succeeded(&running).await;
    assert_eq!(second.starts("provision"), 0);
    // Its place is free for the delete that a platform sends after a failure.
    let delete = stage.order(&second, &of, "deprovision").await;
    stage.succeeded(&delete).await;
}

async fn past_its_deadline(stage: &Stage, order: &Order) -> Value {
    let told = stage.failed(order).await;
    assert!(
        told.contains(&order.job) && told.contains("deadline"),
        "{told}"
    );
    let job = stage.broker.job(&order.job).await;
    assert_eq!(job["state"], "failed", "{job}");
    job
}

#[tokio::test]
async fn a_job_past_its_deadline_fails_whether_it_runs_or_waits() {
    let toml = format!("{ONE_AT_A_TIME}\ntimeout = \"4s\"\ndeadline = \"4s\"");
    let stage = Stage::new(&toml).await;
    let of = stage.offer("ok").await;
    let (first, second) = (stage.scene("first"), stage.scene("second"));
    let running = stage.provision(&first, &of, "provision").await;
    let queued = stage.provision(&second, &of, "provision").await;
    let job = past_its_deadline(&stage, &running).await;
    assert_eq!(job["history"].as_array().unwrap().len(), 1, "{job}");
    assert_eq!(job["history"][0]["charge"], "none", "{job}");
    past_its_deadline(&stage, &queued).await;
    stage.broker.nothing_left().await;
    assert_eq!((first.starts("provision"), first.ends("provision")), (1, 0));
    assert_eq!(second.ends("provision"), 0);
}

#[tokio::test]
async fn a_deadline_that_passes_while_no_broker_is_there_ends_the_run_all_the_same() {
    let mut stage = Stage::new("[jobs]\ntimeout = \"4s\"\ndeadline = \"4s\"").await;
    let of = stage.offer("ok").await;
    let scene = stage.scene("i");
    let order = stage.provision(&scene, &of, "provision").await;
    scene.started("provision", 1).await;
    stage.broker.kill();
    stage.broker.nothing_left().await;
    stage.boot("").await;
    let job = past_its_deadline(&stage, &order).await;
    assert_eq!(job["history"].as_array().unwrap().len(), 1, "{job}");
    assert_eq!(scene.starts("provision"), 1);
}

#[tokio::test]
async fn a_timeout_ends_the_run_with_or_without_a_broker() {
    let mut stage = Stage::with_timeout("", "3s").await;
    let of = stage.offer("ok").await;
    let (first, second) = (stage.scene("first"), stage.scene("second"));
    let order = stage.provision(&first, &of, "provision").await;
    let told = stage.failed(&order).await;
    assert!(told.contains(&order.job), "{told}");
    let order_too = stage.provision(&second, &of, "provision").await;
    second.started("provision", 1).await;
    stage.broker.kill();
    stage.broker.nothing_left().await;
    stage.boot("").await;
    stage.failed(&order_too).await;
    for (scene, order) in [(&first, &order), (&second, &order_too)] {
        let job = stage.broker.job(&order.job).await;
        assert!(job["reason"].as_str().unwrap().contains("timeout"), "{job}");
        assert_eq!(job["history"].as_array().unwrap().len(), 1, "{job}");
        assert_eq!((scene.starts("provision"), scene.ends("provision")), (1, 0));
    }
}
