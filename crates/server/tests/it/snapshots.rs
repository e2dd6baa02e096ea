//! An instance answers by what it was made with, whatever has become of its bundle since.

use std::fs;

use serde_json::json;

use crate::broker::{Broker, Call, KEYS};

const INSTANCE: &str = "/v2/service_instances/i";
const BINDING: &str = "/v2/service_instances/i/service_bindings/b";
const IDS: &str = "service_id=keys&plan_id=keys-a";

fn order() -> Call {
    Call::new("PUT", INSTANCE).json(&json!({
        "service_id": "keys", "plan_id": "keys-a", "organization_guid": "o", "space_guid": "s",
    }))
}

fn patch(body: serde_json::Value) -> Call {
    let mut body = body;
    body["service_id"] = json!("keys");
    Call::new("PATCH", INSTANCE).json(&body)
}

fn without_plan_a() -> String {
    let lines = KEYS.lines().filter(|line| !line.contains("keys-a"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// All that can be asked of it.
async fn lives_on(broker: &Broker, what: &str) {
    let status = async |call: Call| broker.ask(call).await.status;
    assert_eq!(status(order()).await, 200, "{what}: the same order");
    assert_eq!(status(Call::new("GET", INSTANCE)).await, 200, "{what}");
    let poll = format!("{INSTANCE}/last_operation");
    assert_eq!(status(Call::new("GET", &poll)).await, 200, "{what}");
    // Cloud Foundry names the plan with every update.
    let same = patch(json!({"plan_id": "keys-a", "parameters": {}}));
    assert_eq!(status(same).await, 200, "{what}: the plan that it has");
    let body = json!({"service_id": "keys", "plan_id": "keys-a"});
    let bind = Call::new("PUT", BINDING).json(&body);
    assert_eq!(status(bind).await, 201, "{what}: bind");
    assert_eq!(status(Call::new("GET", BINDING)).await, 200, "{what}");
    let delete = |path: &str| Call::new("DELETE", &format!("{path}?{IDS}"));
    assert_eq!(status(delete(BINDING)).await, 200, "{what}: unbind");
    assert_eq!(status(delete(INSTANCE)).await, 200, "{what}: delete");
    assert_eq!(
        status(order()).await,
        400,
        "{what}: it is not offered any more"
    );
}

#[tokio::test]
async fn a_plan_that_left_its_bundle_goes_on_for_those_who_have_it() {
    let broker = Broker::start().await;
    assert_eq!(broker.ask(order()).await.status, 201);
    let without = without_plan_a();
    broker.offer("keys", &without).await;
    // Its parameters can still be changed, and its own word on being left still counts.
    let resize = patch(json!({"plan_id": "keys-a", "parameters": {"size": 2}}));
    assert_eq!(broker.ask(resize).await.status, 200);
    let back = patch(json!({"parameters": {"size": null}}));
    assert_eq!(broker.ask(back).await.status, 200);
    let gone = patch(json!({"plan_id": "keys-c"}));
    assert_eq!(broker.ask(gone).await.status, 400);
    lives_on(&broker, "its plan has gone").await;
}

#[tokio::test]
async fn a_plan_that_left_its_bundle_can_be_left() {
    let broker = Broker::start().await;
    assert_eq!(broker.ask(order()).await.status, 201);
    let without = without_plan_a();
    broker.offer("keys", &without).await;
    let leave = patch(json!({"plan_id": "keys-b"}));
    assert_eq!(broker.ask(leave).await.status, 200);
    let told = broker.runs.last_request();
    assert_eq!(told["previous"]["plan"], "a", "the name that it had");
    let answer = broker.ask(Call::new("GET", INSTANCE)).await;
    assert_eq!(answer.text("plan_id"), "keys-b");
    // Plan b does not say that it can be left, and neither does the service.
    let stay = patch(json!({"plan_id": "keys-b"}));
    assert_eq!(broker.ask(stay).await.status, 200);
}

#[tokio::test]
async fn a_bundle_that_broke_or_vanished_goes_on_for_those_who_have_it() {
    for broken in [true, false] {
        let broker = Broker::start().await;
        assert_eq!(broker.ask(order()).await.status, 201);
        if broken {
            broker.offer("keys", "bundle: 1\nservice: [").await;
        } else {
            fs::remove_dir_all(broker.dir.path().join("bundles/keys")).unwrap();
            broker.engine.reload().await;
        }
        lives_on(&broker, if broken { "it broke" } else { "it vanished" }).await;
    }
}

#[tokio::test]
async fn an_instance_whose_offering_vanished_is_updated_as_its_own_content_allows() {
    let broker = Broker::start().await;
    assert_eq!(broker.ask(order()).await.status, 201);
    fs::remove_dir_all(broker.dir.path().join("bundles/keys")).unwrap();
    broker.engine.reload().await;
    let change = patch(json!({"plan_id": "keys-b"}));
    assert_eq!(broker.ask(change).await.status, 200);
    let told = broker.runs.last_request();
    assert_eq!(told["plan"]["name"], "b");
    assert_eq!(told["previous"]["plan"], "a");
    let unknown = patch(json!({"plan_id": "keys-c"}));
    assert_eq!(broker.ask(unknown).await.status, 400);
}

#[tokio::test]
async fn a_delete_goes_by_what_is_offered_where_the_pinned_copy_is_gone() {
    let broker = Broker::start().await;
    assert_eq!(broker.ask(order()).await.status, 201);
    let copies = broker.dir.path().join("data/bundles");
    fs::remove_dir_all(&copies).unwrap();
    broker
        .offer("keys", &KEYS.replace("The first", "The very first"))
        .await;
    let delete = Call::new("DELETE", &format!("{INSTANCE}?{IDS}")).later();
    let answer = broker.ask(delete).await;
    assert!(matches!(answer.status, 200 | 202), "{}", answer.body);
}
