//! `isolate_platforms`: what one user ordered is not there for another.

use evenkeel_server::OsbSettings;
use serde_json::{Value, json};

use crate::broker::{Broker, Call, bind, provision};

const INSTANCE: &str = "/v2/service_instances/i";
const BINDING: &str = "/v2/service_instances/i/service_bindings/b";
const IDS: &str = "service_id=db&plan_id=db-small";

/// Every request about an instance and a binding that exist, and what a stranger is to be told.
fn every_request() -> Vec<(Call, u16)> {
    let call = |method: &str, path: &str| Call::new(method, path);
    let polled = |path: &str| call("GET", &format!("{path}/last_operation"));
    let deleted = |path: &str| call("DELETE", &format!("{path}?{IDS}"));
    let update = json!({"service_id": "db", "parameters": {"size": 9}});
    vec![
        (call("GET", INSTANCE), 404),
        (call("GET", BINDING), 404),
        (polled(INSTANCE), 404),
        (polled(BINDING), 404),
        (call("PATCH", INSTANCE).json(&update), 404),
        (call("PUT", BINDING).json(&bind(json!({}))), 404),
        (deleted(BINDING), 410),
        (deleted(INSTANCE), 410),
        // The very same order, which would be answered 200 with the dashboard.
        (call("PUT", INSTANCE).json(&provision(json!({}))), 409),
    ]
}

async fn made(broker: &Broker) {
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    assert_eq!(broker.bind("i", "b", json!({})).await.status, 201);
}

#[tokio::test]
async fn what_another_platform_ordered_is_not_there_and_its_id_is_taken() {
    let broker = Broker::tuned(OsbSettings::default(), |options| {
        options.isolate_platforms = true;
    })
    .await;
    made(&broker).await;
    for (call, status) in every_request() {
        let answer = broker.ask(call.clone().of_other()).await;
        assert_eq!(answer.status, status, "{call:?}: {}", answer.body);
        let text = answer.body.to_string();
        assert!(
            !text.contains("dashboard") && !text.contains("password"),
            "{text}"
        );
    }
    let own: Value = broker.ask(Call::new("GET", INSTANCE)).await.body;
    assert_eq!(own["service_id"], "db", "its owner has it unchanged");
    let gone = Call::new("DELETE", &format!("{INSTANCE}?{IDS}"));
    assert_eq!(broker.ask(gone).await.status, 200);
    // Also how it ended is its owner's.
    let poll = Call::new("GET", &format!("{INSTANCE}/last_operation"));
    assert_eq!(broker.ask(poll.clone()).await.status, 200);
    assert_eq!(broker.ask(poll.of_other()).await.status, 404);
    // A free id is anybody's.
    let order = Call::new("PUT", INSTANCE).json(&provision(json!({})));
    assert_eq!(broker.ask(order.of_other()).await.status, 201);
}

#[tokio::test]
async fn without_it_users_share_everything() {
    let broker = Broker::start().await;
    made(&broker).await;
    for (call, _) in every_request().into_iter().take(6) {
        let answer = broker.ask(call.clone().of_other()).await;
        assert_eq!(answer.status, 200, "{call:?}: {}", answer.body);
    }
}
