//! Held: no new run starts, everything else is served, every surface says why, and it ends by itself
//! or by hand.

use reqwest::Method;
use rusqlite::{Connection, params};
use serde_json::{Value, json};

use crate::harness::{Broker, Setup, eventually, was_killed};
use crate::stage::{Offer, Stage, reached};

mod by_hand;
mod panics;

/// So long that no test meets its end.
const LONG: &str =
    "[recovery]\nbackoff_min = \"20ms\"\nbackoff_max = \"200ms\"\nhold_quiet = \"10m\"";

/// Longer than a broker of these tests lives before it is killed.
const SHORT: &str =
    "[recovery]\nbackoff_min = \"20ms\"\nbackoff_max = \"200ms\"\nhold_quiet = \"12s\"";

fn database(broker: &Broker) -> Connection {
    Connection::open(broker.data().join("evenkeel.db")).unwrap()
}

/// What `/readyz` says about holds: requests are served all the same.
async fn reasons(broker: &Broker) -> Vec<String> {
    let ready = broker.admin(Method::GET, "/readyz").await;
    assert_eq!(
        ready.status, 200,
        "held is no reason not to serve: {ready:?}"
    );
    let reasons = ready.body["reasons"].as_array().unwrap();
    let held = reasons.iter().filter(|reason| reason["about"] == "held");
    held.map(|reason| reason["message"].as_str().unwrap().to_owned())
        .collect()
}

/// Holds as the admin API's status has them.
async fn holds(broker: &Broker) -> Vec<Value> {
    let status = broker.admin(Method::GET, "/admin/v1/status").await;
    assert_eq!(status.status, 200, "{status:?}");
    status.body["holds"].as_array().cloned().unwrap_or_default()
}

/// Waits until the broker is held for this cause; gives the hold.
async fn held_for(broker: &Broker, cause: &str) -> Value {
    eventually(&format!("held for {cause}"), || async {
        let holds = holds(broker).await;
        holds.into_iter().find(|hold| hold["cause"] == cause)
    })
    .await
}

async fn not_held(broker: &Broker) {
    assert_eq!(holds(broker).await, Vec::<Value>::new());
    assert_eq!(reasons(broker).await, Vec::<String>::new());
}

/// Standard output of a command that did well.
fn said(broker: &Broker, arguments: &[&str]) -> String {
    let out = broker.cli(arguments);
    let (said, told) = (&out.stdout, String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{arguments:?}: {told}");
    String::from_utf8(said.clone()).unwrap()
}

async fn order(broker: &Broker, of: &Offer, id: &str) -> String {
    broker.provision(id, of, json!({})).await.operation()
}

/// The last poll of an instance's operation.
async fn poll(broker: &Broker, id: &str, operation: &str) -> Value {
    let path = format!("/v2/service_instances/{id}/last_operation?operation={operation}");
    let poll = broker.osb(Method::GET, &path, None).await;
    assert_eq!(poll.status, 200, "{poll:?}");
    poll.body
}

/// The job waits, its operator is told why, and its platform is told nothing of it.
async fn waits(broker: &Broker, id: &str, operation: &str, why: &str) {
    let job = broker.job(operation).await;
    assert_eq!(job["state"], "queued", "{job:#}");
    assert_eq!(job["attempts"], 0, "{job:#}");
    let reason = job["reason"].as_str().unwrap();
    assert!(
        reason.contains("no new run starts") && reason.contains(why),
        "{reason}"
    );
    let shown = said(broker, &["jobs", "show", operation]);
    assert!(shown.contains(why), "{shown}");
    let poll = poll(broker, id, operation).await;
    assert_eq!(poll["state"], "in progress", "{poll}");
    let neutral = format!("job {operation} is waiting to start");
    assert_eq!(poll["description"], neutral.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn three_brokers_that_die_in_a_row_hold_the_fourth_which_serves_all_but_new_runs() {
    let mut stage = Stage::new(LONG).await;
    let of = stage.offer("ok").await;
    let (early, late) = (stage.scene("early"), stage.scene("late"));
    let running = stage.provision(&early, &of, "provision").await;
    early.started("provision", 1).await;
    for _ in 0..3 {
        not_held(&stage.broker).await;
        stage.reboot("").await;
    }
    let broker = &stage.broker;
    let hold = held_for(broker, "deaths").await;
    assert_eq!(hold["actor"], "broker", "{hold}");
    assert!(
        hold["ends_at"].is_string() && hold["since"].is_string(),
        "{hold}"
    );
    let why = hold["reason"].as_str().unwrap();
    assert!(why.starts_with("3 broker processes died in a row"), "{why}");
    let [reason] = &*reasons(broker).await else {
        panic!("one reason");
    };
    assert!(
        reason.contains(why) && reason.contains("evenkeel release"),
        "{reason}"
    );
    let status = said(broker, &["status"]);
    assert!(
        status.contains(&format!("note: held: {reason}")),
        "{status}"
    );
    assert!(
        broker.log().contains("held: no new run starts"),
        "{}",
        broker.log()
    );

    // What is asked is accepted, and waits.
    let waiting = stage.provision(&late, &of, "never").await;
    waits(broker, "late", &waiting.job, why).await;
    assert_eq!(
        broker.osb(Method::GET, "/v2/catalog", None).await.status,
        200
    );
    // What runs is adopted and concluded; a place that becomes free makes no difference.
    early.open_gate();
    stage.succeeded(&running).await;
    assert_eq!(stage.attempts(&running).await.len(), 1, "adopted");
    // A wish to end needs no run.
    let unwanted = order(broker, &of, "unwanted").await;
    said(broker, &["jobs", "cancel", &unwanted]);
    assert_eq!(poll(broker, "unwanted", &unwanted).await["state"], "failed");
    let replaced = order(broker, &of, "replaced").await;
    let delete = broker.deprovision("replaced", &of).await;
    assert!([200, 202].contains(&delete.status), "{delete:?}");
    assert_eq!(broker.job(&replaced).await["state"], "cancelled");
    waits(broker, "late", &waiting.job, why).await;
    assert_eq!(late.starts("provision"), 0);

    let released = said(broker, &["release"]);
    assert!(released.contains("new runs start again"), "{released}");
    not_held(broker).await;
    stage.succeeded(&waiting).await;
    assert_eq!(late.starts("provision"), 1);
    assert!(said(broker, &["release"]).contains("nothing was held"));
    broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_dies_at_each_claim_stops_dying_and_its_deaths_count_once() {
    let setup = Setup::faults_bundle()
        .with_toml(LONG)
        .with_faults("engine.claim=kill");
    let mut broker = Broker::start(setup).await;
    let of = broker.ids("faults", "ok").await;
    let url = format!(
        "{}/v2/service_instances/i?accepts_incomplete=true",
        broker.url("osb-url")
    );
    let order = broker
        .http
        .put(url)
        .basic_auth("platform", Some(broker.password()))
        .header("X-Broker-API-Version", "2.17")
        .json(&json!({
            "service_id": of.0, "plan_id": of.1, "organization_guid": "o", "space_guid": "s",
        }));
    // It may die before it has answered.
    drop(order.send().await);
    for _ in 0..2 {
        assert!(was_killed(broker.died().await));
        broker.spawn();
    }
    assert!(was_killed(broker.died().await));
    let operation: String = database(&broker)
        .query_row("SELECT id FROM jobs", [], |row| row.get(0))
        .unwrap();
    // The fourth would die just so, but it claims nothing.
    broker.boot().await;
    let hold = held_for(&broker, "deaths").await;
    waits(&broker, "i", &operation, hold["reason"].as_str().unwrap()).await;
    assert!(broker.is_alive());

    said(&broker, &["release"]);
    assert!(was_killed(broker.died().await), "it claims again");
    // One death since: what was counted before is forgiven.
    broker.setup.faults.clear();
    broker.boot().await;
    broker.succeeded("i", None, &operation).await;
    not_held(&broker).await;
    assert_eq!(broker.job(&operation).await["attempts"], 1);
    broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_ends_by_itself_after_a_quiet_period_and_is_forgotten() {
    let mut broker = Broker::start(Setup::faults_bundle().with_toml(SHORT)).await;
    let of = broker.ids("faults", "ok").await;
    for _ in 0..3 {
        broker.kill();
        broker.boot().await;
    }
    let first = held_for(&broker, "deaths").await;
    let operation = order(&broker, &of, "i").await;
    waits(&broker, "i", &operation, "died in a row").await;
    // A death under it begins the quiet period anew, and not the hold.
    broker.kill();
    broker.boot().await;
    let second = held_for(&broker, "deaths").await;
    assert_eq!(second["since"], first["since"]);
    assert!(
        second["ends_at"].as_str() > first["ends_at"].as_str(),
        "{first} {second}"
    );
    assert_eq!(broker.job(&operation).await["state"], "queued");

    broker.succeeded("i", None, &operation).await;
    not_held(&broker).await;
    assert!(broker.log().contains("held no longer"), "{}", broker.log());
    let now = database(&broker);
    let (what, actor): (String, String) = now
        .query_row(
            "SELECT what, actor FROM audit WHERE job_id IS NULL ORDER BY seq DESC LIMIT 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!((what.as_str(), actor.as_str()), ("release", "broker"));
    let left: i64 = now
        .query_row("SELECT count(*) FROM holds", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
    broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_concluded_or_a_culprit_named_or_an_end_in_order_in_between_is_no_reason_to_hold() {
    for what in ["concluded", "named", "in order"] {
        let mut broker = Broker::start(Setup::faults_bundle().with_toml(LONG)).await;
        let of = broker.ids("faults", "ok").await;
        broker.kill();
        broker.boot().await;
        if what == "concluded" {
            let operation = order(&broker, &of, "done").await;
            broker.succeeded("done", None, &operation).await;
        }
        if what == "in order" {
            assert!(broker.terminate().success());
        } else {
            broker.kill();
        }
        if what == "named" {
            let named = json!([uuid::Uuid::from_u128(1)]).to_string();
            let changed = database(&broker)
                .execute(
                    "UPDATE boots SET culprits = ?1
                     WHERE rowid = (SELECT max(rowid) FROM boots)",
                    params![named],
                )
                .unwrap();
            assert_eq!(changed, 1);
        }
        broker.boot().await;
        broker.kill();
        broker.boot().await;
        let operation = order(&broker, &of, "i").await;
        broker.succeeded("i", None, &operation).await;
        not_held(&broker).await;
        broker.nothing_left().await;
    }
}
