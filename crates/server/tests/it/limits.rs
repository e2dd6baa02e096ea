//! How long operations may take, and what is told when they take longer (OSB.md H18, L10).

use std::time::Duration;

use evenkeel_server::OsbSettings;
use serde_json::{Value, json};

use crate::broker::{Broker, Call, bind, provision, until};

const INSTANCE: &str = "/v2/service_instances/i";
const IDS: &str = "service_id=db&plan_id=db-small";

async fn hurried() -> Broker {
    Broker::tuned(OsbSettings::default(), |options| {
        options.sync_limit = Duration::from_millis(300);
    })
    .await
}

fn flags(body: &Value) -> (Option<bool>, Option<bool>) {
    let flag = |name: &str| body.get(name).and_then(Value::as_bool);
    (flag("instance_usable"), flag("update_repeatable"))
}

async fn is_final(broker: &Broker, path: &str) -> Value {
    broker.polled(&format!("{path}/last_operation")).await.body
}

#[tokio::test]
async fn what_takes_longer_than_a_synchronous_answer_may_is_cancelled_and_can_be_deleted() {
    let broker = hurried().await;
    let hold = provision(json!({"provision": "hold"}));
    let answer = broker.ask(Call::new("PUT", INSTANCE).json(&hold)).await;
    assert_eq!(answer.status, 500, "{}", answer.body);
    assert_eq!(flags(&answer.body), (None, None), "not of a provision");
    assert_eq!(is_final(&broker, INSTANCE).await["state"], "failed");
    // Orphan mitigation.
    let delete = Call::new("DELETE", &format!("{INSTANCE}?{IDS}"));
    assert_eq!(broker.ask(delete).await.status, 200);
}

#[tokio::test]
async fn a_change_that_took_too_long_says_what_it_leaves() {
    let broker = hurried().await;
    let made = broker.provision("i", json!({"deprovision": "hold"})).await;
    assert_eq!(made.status, 201);
    let slow = json!({"service_id": "db", "parameters": {"update": "hold"}});
    let answer = broker.ask(Call::new("PATCH", INSTANCE).json(&slow)).await;
    assert_eq!(answer.status, 500);
    assert_eq!(flags(&answer.body), (Some(true), Some(true)));
    is_final(&broker, INSTANCE).await;
    let delete = Call::new("DELETE", &format!("{INSTANCE}?{IDS}"));
    let answer = broker.ask(delete).await;
    assert_eq!(answer.status, 500);
    assert_eq!(flags(&answer.body).0, Some(false), "it may be half gone");
}

#[tokio::test]
async fn who_sends_a_request_again_that_has_to_be_asynchronous_is_told_at_once() {
    let broker = Broker::start().await;
    let order = json!({
        "service_id": "slow", "plan_id": "slow-only", "organization_guid": "o", "space_guid": "s",
        "parameters": {"size": 1, "provision": "hold"},
    });
    let put = Call::new("PUT", INSTANCE).json(&order);
    assert_eq!(broker.ask(put.clone().later()).await.status, 202);
    let answer = broker.ask(put).await;
    assert_eq!(
        (answer.status, answer.text("error").as_str()),
        (422, "AsyncRequired")
    );
}

#[tokio::test]
async fn a_plans_longest_polling_is_its_jobs_deadline_with_time_to_end_the_run() {
    let broker = Broker::start().await;
    let bundle = |seconds: u32| {
        format!(
            "
bundle: 1
service: {{id: brief, name: brief, description: Brief}}
plans: [{{id: brief-only, name: only, description: One, maximum_polling_duration: {seconds}}}]
actions: {{provision: {{command: [./act]}}, deprovision: {{command: [./act]}}}}
"
        )
    };
    let order = json!({
        "service_id": "brief", "plan_id": "brief-only", "organization_guid": "o",
        "space_guid": "s", "parameters": {"provision": "hold"},
    });
    // The grace of this broker is a second, and two more are kept.
    for (seconds, left) in [(60, 57_000), (4, 2_000)] {
        broker.offer("brief", &bundle(seconds)).await;
        let id = format!("for-{seconds}");
        let path = format!("/v2/service_instances/{id}");
        let put = Call::new("PUT", &path).json(&order).later();
        assert_eq!(broker.ask(put).await.status, 202);
        let id = id.parse().unwrap();
        let found = broker.engine.read().operation(&id, None, None).await;
        let job = found.unwrap().unwrap().job;
        let room = job.deadline_at.since(job.created_at);
        assert_eq!(room, Duration::from_millis(left));
    }
    // And the platform, which gives up after 4 seconds, hears of the end before.
    let poll = Call::new("GET", "/v2/service_instances/for-4/last_operation");
    until("the operation has failed", async || {
        broker.ask(poll.clone()).await.text("state") == "failed"
    })
    .await;
}

#[tokio::test]
async fn parameters_are_judged_before_what_is_under_way() {
    let broker = Broker::start().await;
    broker.offer("strict", STRICT).await;
    let order = json!({
        "service_id": "strict", "plan_id": "strict-only", "organization_guid": "o",
        "space_guid": "s",
    });
    let put = Call::new("PUT", INSTANCE).json(&order);
    assert_eq!(broker.ask(put).await.status, 201);
    let patch = |parameters: Value| {
        let body = json!({"service_id": "strict", "parameters": parameters});
        Call::new("PATCH", INSTANCE).json(&body)
    };
    let binding = format!("{INSTANCE}/service_bindings/b");
    let put = |parameters: Value| {
        let mut body = bind(parameters);
        body["service_id"] = json!("strict");
        body["plan_id"] = json!("strict-only");
        Call::new("PUT", &binding).json(&body)
    };
    let told = async |call: Call| {
        let answer = broker.ask(call).await;
        (answer.status, answer.text("error"))
    };
    let word = |word: &str| (422, word.to_owned());
    let bad = json!({"size": "large"});
    for (what, call) in [("PATCH", patch(bad.clone())), ("bind", put(bad.clone()))] {
        assert_eq!(told(call.clone()).await, word("AsyncRequired"), "{what}");
        assert_eq!(told(call.later()).await.0, 400, "{what}");
    }
    let stale = json!({
        "service_id": "strict", "parameters": bad, "maintenance_info": {"version": "9.0.0"},
    });
    let stale = Call::new("PATCH", INSTANCE).json(&stale);
    assert_eq!(told(stale).await, word("MaintenanceInfoConflict"));
    // Cloud Foundry's empty parameters are not judged.
    assert_eq!(told(patch(json!({})).later()).await.0, 200);
    let held = patch(json!({"size": 1, "update": "hold"}));
    assert_eq!(told(held.later()).await.0, 202);
    let other = json!({"size": 2});
    for (what, good, bad) in [
        ("PATCH", patch(other.clone()), patch(bad_size())),
        ("bind", put(other), put(bad_size())),
    ] {
        assert_eq!(told(bad.later()).await.0, 400, "{what}");
        assert_eq!(told(good.later()).await, word("ConcurrencyError"), "{what}");
    }
}

fn bad_size() -> Value {
    json!({"size": "large"})
}

const STRICT: &str = r"
bundle: 1
service: {id: strict, name: strict, description: Strict}
plans:
  - id: strict-only
    name: only
    description: The only one
    schemas:
      update: &size {$schema: 'http://json-schema.org/draft-04/schema#', type: object,
        required: [size], properties: {size: {type: integer}}}
      bind: *size
actions:
  provision: {command: [./act]}
  update: {command: [./act], async: required}
  deprovision: {command: [./act]}
  bind: {command: [./act], async: required}
  unbind: {command: [./act]}
";
