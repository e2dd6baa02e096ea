//! An operator's hold: until an operator's release, whatever happens in between.

use super::*;

/// Lines of the audit table about the broker itself: who did what, oldest first.
fn audited(broker: &Broker) -> Vec<String> {
    let database = database(broker);
    let mut lines = database
        .prepare("SELECT actor, what, detail, at FROM audit WHERE job_id IS NULL ORDER BY seq")
        .unwrap();
    let lines = lines.query_map([], |row| {
        let (actor, what, detail): (String, String, String) =
            (row.get(0)?, row.get(1)?, row.get(2)?);
        let at: i64 = row.get(3)?;
        assert!(at > 1_500_000_000_000, "{at}");
        Ok(format!("{actor} {what} {detail}"))
    });
    lines.unwrap().collect::<Result<_, _>>().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_by_hand_outlives_restarts_kills_and_quiet_periods() {
    let quiet = "[recovery]\nbackoff_min = \"20ms\"\nbackoff_max = \"200ms\"\nhold_quiet = \"1s\"";
    let mut broker = Broker::start(Setup::faults_bundle().with_toml(quiet)).await;
    let of = broker.ids("faults", "ok").await;
    let told = said(&broker, &["hold", "--reason", "moving \u{1b}[31mthe disks"]);
    assert!(
        told.contains("no new run starts") && told.contains("moving"),
        "{told}"
    );
    assert!(
        !told.contains('\u{1b}'),
        "a reason commands no terminal: {told:?}"
    );
    let hold = held_for(&broker, "hand").await;
    assert_eq!(hold["actor"], "operator");
    assert_eq!(hold["ends_at"], Value::Null, "{hold}");
    let operation = order(&broker, &of, "i").await;
    waits(&broker, "i", &operation, "held by the operator: moving").await;
    // Again, for the same reason: as it was.
    let again = said(
        &broker,
        &["hold", "--reason", "moving \u{1b}[31mthe disks", "--json"],
    );
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["outcome"], "already", "{again}");

    assert!(broker.terminate().success());
    broker.boot().await;
    broker.kill();
    broker.boot().await;
    assert_eq!(held_for(&broker, "hand").await, hold);
    eventually("a quiet period has been served", || {
        let served: i64 = database(&broker)
            .query_row(
                "SELECT seen_at - started_at FROM boots ORDER BY rowid DESC LIMIT 1",
                [],
                |row| row.get(0),
            )
            .unwrap();
        std::future::ready((served > 1_500).then_some(()))
    })
    .await;
    assert_eq!(held_for(&broker, "hand").await, hold);
    waits(&broker, "i", &operation, "moving").await;

    // For another reason: since the same instant.
    said(&broker, &["hold"]);
    let other = held_for(&broker, "hand").await;
    assert_eq!(other["reason"], "held by the operator");
    assert_eq!(other["since"], hold["since"]);
    let released = said(&broker, &["release", "--json"]);
    let released: Value = serde_json::from_str(&released).unwrap();
    assert_eq!(
        (&released["outcome"], &released["holds"]),
        (&json!("done"), &json!([]))
    );
    broker.succeeded("i", None, &operation).await;
    let [first, second, third] = &*audited(&broker) else {
        panic!("{:?}", audited(&broker));
    };
    assert!(
        first.starts_with("operator hold held by the operator: moving"),
        "{first}"
    );
    assert_eq!(second, "operator hold held by the operator");
    assert_eq!(third, "operator release no longer: held by the operator");
    broker.terminate();
    broker.boot().await;
    not_held(&broker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_by_hand_stands_beside_one_by_the_rule_and_one_release_ends_both() {
    let mut broker = Broker::start(Setup::faults_bundle().with_toml(SHORT)).await;
    let of = broker.ids("faults", "ok").await;
    for _ in 0..3 {
        broker.kill();
        broker.boot().await;
    }
    held_for(&broker, "deaths").await;
    said(&broker, &["hold", "--reason", "to look into it"]);
    assert_eq!(reasons(&broker).await.len(), 2);
    let operation = order(&broker, &of, "i").await;
    for why in ["died in a row", "to look into it"] {
        waits(&broker, "i", &operation, why).await;
    }
    // The one that is over by itself leaves the other.
    eventually("the hold by the rule is over", || async {
        (holds(&broker).await.len() == 1).then_some(())
    })
    .await;
    waits(&broker, "i", &operation, "to look into it").await;
    said(&broker, &["release"]);
    not_held(&broker).await;
    broker.succeeded("i", None, &operation).await;
    broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_broker_stops_what_is_to_stop() {
    let toml = format!("{LONG}\n[jobs]\ntimeout = \"6s\"\ndeadline = \"6s\"");
    let stage = Stage::new(&toml).await;
    let broker = &stage.broker;
    let of = stage.offer("ok").await;
    let scenes = ["cancelled", "superseded", "late"].map(|name| stage.scene(name));
    let mut running = Vec::new();
    for scene in &scenes {
        running.push(stage.provision(scene, &of, "provision").await);
        scene.started("provision", 1).await;
    }
    said(broker, &["hold"]);
    let waiting = order(broker, &of, "waiting").await;
    said(broker, &["jobs", "cancel", &running[0].job]);
    assert_eq!(
        broker.job_is(&running[0].job, "cancelled").await["attempts"],
        1
    );
    let delete = broker.deprovision("superseded", &of).await.operation();
    broker.job_is(&running[1].job, "cancelled").await;
    assert_eq!(
        broker.job(&delete).await["state"],
        "queued",
        "what cleans up is a run too"
    );
    // Deadlines pass for what runs and for what waits.
    assert!(stage.failed(&running[2]).await.contains("deadline"));
    let end = broker.finished("waiting", None, &waiting).await;
    assert_eq!(end["state"], "failed", "{end}");
    broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_cannot_be_understood_or_kept_is_refused() {
    let broker = Broker::start(Setup::faults_bundle()).await;
    let long = "x".repeat(501);
    let out = broker.cli(&["hold", "--reason", &long]);
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(
        told.contains("501 characters") && told.contains("500"),
        "{told}"
    );
    let token = std::fs::read_to_string(broker.data().join("admin-token")).unwrap();
    let url = format!("{}/admin/v1/hold", broker.url("admin-url"));
    for body in ["{\"reasn\": \"x\"}", "no", "5"] {
        let request = broker.http.post(&url).bearer_auth(token.trim()).body(body);
        assert_eq!(request.send().await.unwrap().status(), 400, "{body}");
    }
    assert_eq!(broker.http.post(&url).send().await.unwrap().status(), 401);
    let get = broker.http.get(&url).bearer_auth(token.trim());
    assert_eq!(get.send().await.unwrap().status(), 405);
    not_held(&broker).await;
    // A body is not needed.
    let bare = broker.http.post(&url).bearer_auth(token.trim());
    assert_eq!(bare.send().await.unwrap().status(), 200);
    held_for(&broker, "hand").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_claimed_before_a_hold_is_not_started_until_its_release() {
    let mut stage = Stage::new(LONG).await;
    let of = stage.offer("ok").await;
    let scene = stage.scene("i");
    let prepared = stage.file("prepared");
    stage
        .reboot(&format!("engine.start=hold:{}@1", prepared.display()))
        .await;
    let operation = stage.provision(&scene, &of, "provision").await;
    reached(&prepared).await;
    said(&stage.broker, &["hold", "--reason", "moving"]);
    std::fs::write(&prepared, "").unwrap();
    let first = eventually("its first attempt has ended", || async {
        let first = stage.attempts(&operation).await[0].clone();
        first["ended_at"].is_string().then_some(first)
    })
    .await;
    assert_eq!(first["charge"], "disruption", "{first:#}");
    assert_eq!(scene.starts("provision"), 0);
    said(&stage.broker, &["release"]);
    scene.open_gate();
    stage.succeeded(&operation).await;
    assert_eq!(scene.starts("provision"), 1);
    stage.broker.nothing_left().await;
}
