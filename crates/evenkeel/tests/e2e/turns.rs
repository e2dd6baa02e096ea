//! A suspect's turn to run alone, as every surface tells it: whose it is, what it waits for, until
//! when others wait at the latest, and what ends it.

use reqwest::Method;
use serde_json::Value;

use crate::harness::{Broker, eventually};
use crate::operator::{ONE_CRASH, done};
use crate::stage::Stage;

async fn status(broker: &Broker) -> Value {
    let status = broker.admin(Method::GET, "/admin/v1/status").await;
    assert_eq!(status.status, 200, "{status:?}");
    status.body
}

/// Waits until it is this job's turn, and its run has begun, or has not.
async fn turn_of(broker: &Broker, job: &str, runs: bool) {
    let what = format!("it is the turn of {job}, which runs: {runs}");
    let turn = eventually(&what, || async {
        let turn = status(broker).await["isolation"].clone();
        (turn["runs"] == runs).then_some(turn)
    })
    .await;
    assert_eq!(turn["job"], job, "{turn}");
    // A minute at least: what is waited for at first, and the shortest time alone is twice that.
    let time = |at: &Value| at.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let ordered = time(&broker.job(job).await["created_at"]);
    let longest = time(&turn["until"]).duration_since(ordered);
    assert!(longest.as_secs() >= 60, "{turn}");
}

/// What everybody, an operator who looks at all, and one who looks at a job that waits are told.
async fn all_tell(broker: &Broker, waiting: &str, why: &str, limit: &str) {
    let ready = broker.admin(Method::GET, "/readyz").await;
    assert_eq!(ready.status, 200, "no reason not to serve: {ready:?}");
    let reasons = ready.body["reasons"].as_array().unwrap();
    let [reason] = reasons.as_slice() else {
        panic!("one reason: {ready:?}");
    };
    assert_eq!(reason["about"], "isolation", "{reason}");
    let message = reason["message"].as_str().unwrap();
    assert!(
        message.contains(why) && message.contains(limit),
        "{message}"
    );
    assert!(message.contains("evenkeel jobs clear "), "{message}");
    let shown = done(broker, &["status"]).out;
    assert!(
        shown.contains(&format!("note: isolation: no other run starts: {why}")),
        "{shown}"
    );
    assert!(shown.contains("suspects   1, "), "{shown}");
    let reason = broker.job(waiting).await["reason"].clone();
    let reason = reason.as_str().unwrap();
    assert!(reason.contains(why), "{reason}");
    for surface in [["jobs", "show"], ["jobs", "explain"]] {
        let shown = done(broker, &[&surface[..], &[waiting]].concat()).out;
        assert!(shown.contains(why), "{shown}");
    }
    assert!(done(broker, &["jobs", "list"]).out.contains(why));
}

#[tokio::test]
async fn a_suspects_turn_is_told_on_every_surface_and_a_word_of_the_operator_ends_it() {
    let stage = Stage::new(ONE_CRASH).await;
    let broker = &stage.broker;
    let (ok, deadly) = (stage.offer("ok").await, stage.offer("kill-self").await);
    let (beside, poison, late) = (
        stage.scene("beside"),
        stage.scene("poison"),
        stage.scene("late"),
    );
    let long = stage.provision(&beside, &ok, "provision").await;
    beside.started("provision", 1).await;
    // It dies in company, which proves nothing.
    poison.open_gate();
    let suspect = stage.provision(&poison, &deadly, "provision").await;
    turn_of(broker, &suspect.job, false).await;
    std::fs::remove_file(poison.gate()).unwrap();
    let waiting = stage.provision(&late, &ok, "provision").await;
    let name = &suspect.job;
    let why = format!(
        "job {name} is a suspect that is to run alone, and waits for the runs under way to end"
    );
    all_tell(broker, &waiting.job, &why, ", and gives way at ").await;
    let own = broker.job(name).await["reason"].clone();
    let own = own.as_str().unwrap();
    assert!(own.contains("its turn has come"), "{own}");
    let listed = done(broker, &["jobs", "list", "--suspect", "--json"]).json();
    let ids: Vec<_> = listed["jobs"].as_array().unwrap().iter().collect();
    assert_eq!(ids.len(), 1, "{listed}");
    assert_eq!(ids[0]["id"], name.as_str(), "{listed}");

    beside.open_gate();
    stage.succeeded(&long).await;
    turn_of(broker, name, true).await;
    let why = format!("job {name} is a suspect and runs alone");
    all_tell(broker, &waiting.job, &why, "Z at the latest").await;
    // The one that runs is told of its own window, and the platform of none of it.
    let own = broker.job(name).await["reason"].clone();
    assert!(!own.as_str().unwrap().contains("no other run"), "{own}");
    let path = format!(
        "/v2/service_instances/late/last_operation?operation={}",
        waiting.job
    );
    let poll = broker.osb(Method::GET, &path, None).await.body;
    assert!(!poll.to_string().contains("suspect"), "{poll}");
    assert_eq!(late.starts("provision"), 0);

    done(broker, &["jobs", "clear", name]);
    late.started("provision", 1).await;
    let now = eventually("nobody's turn is told any more", || async {
        let now = status(broker).await;
        now["isolation"].is_null().then_some(now)
    })
    .await;
    assert_eq!(now["reasons"], serde_json::json!([]), "{now}");
    assert_eq!(now["counts"]["suspects"], 0, "{now}");
    // In company again: a death that nobody can explain convicts nobody.
    poison.open_gate();
    let second = eventually("its second attempt is over", || async {
        let second = stage.attempts(&suspect).await[1].clone();
        second["ended_at"].is_string().then_some(second)
    })
    .await;
    assert_eq!(second["charge"], "exposure", "{second}");
    done(broker, &["jobs", "cancel", name]);
    broker.job_is(name, "cancelled").await;
    late.open_gate();
    stage.succeeded(&waiting).await;
    broker.nothing_left().await;
}
