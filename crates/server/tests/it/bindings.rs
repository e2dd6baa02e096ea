//! What bindings may hand out, and to whom (OSB.md 1.7, 1.9, 3.3).

use serde_json::{Value, json};

use crate::broker::{Broker, Call, bind};

const INSTANCE: &str = "/v2/service_instances/i";
const BINDING: &str = "/v2/service_instances/i/service_bindings/b";

fn logs(mut body: Value) -> Value {
    body["service_id"] = json!("logs");
    body["plan_id"] = json!("logs-only");
    body
}

async fn made(broker: &Broker) {
    let order = logs(json!({"organization_guid": "o", "space_guid": "s"}));
    let answer = broker.ask(Call::new("PUT", INSTANCE).json(&order)).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
}

#[tokio::test]
async fn a_service_that_drains_logs_needs_an_application() {
    let broker = Broker::start().await;
    made(&broker).await;
    for resource in [json!({}), json!({"credential_client_id": "c"})] {
        let body = logs(json!({"bind_resource": resource}));
        let answer = broker.ask(Call::new("PUT", BINDING).json(&body)).await;
        assert_eq!(
            (answer.status, answer.text("error").as_str()),
            (422, "RequiresApp")
        );
    }
    // The deprecated field is as good.
    let body = logs(json!({
        "app_guid": "app", "parameters": {"write": {"syslog_drain_url": "syslog://logs:514"}},
    }));
    let answer = broker.ask(Call::new("PUT", BINDING).json(&body)).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    assert_eq!(answer.body["syslog_drain_url"], "syslog://logs:514");
}

#[tokio::test]
async fn a_bind_that_hands_out_what_is_not_granted_fails_once_and_for_all() {
    let broker = Broker::start().await;
    made(&broker).await;
    let no_drain = logs(json!({"bind_resource": {"app_guid": "app"}}));
    let call = Call::new("PUT", BINDING).json(&no_drain).later();
    assert_eq!(broker.ask(call.clone()).await.status, 202);
    let poll = format!("{BINDING}/last_operation");
    let answer = broker.polled(&poll).await;
    assert_eq!(answer.body["state"], "failed", "{}", answer.body);
    assert_eq!(broker.ask(Call::new("GET", BINDING)).await.status, 404);
    // Of another service, a drain that nobody granted.
    assert_eq!(broker.provision("d", json!({})).await.status, 201);
    let path = "/v2/service_instances/d/service_bindings/b";
    let drain = json!({"write": {"syslog_drain_url": "syslog://logs:514"}});
    let call = Call::new("PUT", path).json(&bind(drain));
    assert_eq!(broker.ask(call).await.status, 500);
    assert_eq!(broker.ask(Call::new("GET", path)).await.status, 404);
    let delete = format!("{path}?service_id=db&plan_id=db-small");
    assert_eq!(broker.ask(Call::new("DELETE", &delete)).await.status, 200);
}

#[tokio::test]
async fn an_expiry_is_told_with_the_binding() {
    let broker = Broker::start().await;
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    let until = json!({"write": {
        "expires_at": "2031-01-31T23:59:59.0Z", "renew_before": "2031-01-01T00:00:00.0Z",
    }});
    let told = json!({
        "expires_at": "2031-01-31T23:59:59.0Z", "renew_before": "2031-01-01T00:00:00.0Z",
    });
    let answer = broker.bind("i", "b", until.clone()).await;
    assert_eq!((answer.status, &answer.body["metadata"]), (201, &told));
    let answer = broker.ask(Call::new("GET", BINDING)).await;
    assert_eq!((answer.status, &answer.body["metadata"]), (200, &told));
    assert_eq!(answer.body["parameters"], until);
}

#[tokio::test]
async fn annotations_of_the_application_do_not_make_another_binding() {
    let broker = Broker::start().await;
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    let with = |resource: Value| {
        let mut body = bind(json!({}));
        body["bind_resource"] = resource;
        Call::new("PUT", BINDING).json(&body)
    };
    let first = with(json!({"app_guid": "a", "app_annotations": {"team": "x"}}));
    assert_eq!(broker.ask(first).await.status, 201);
    let renamed = with(json!({"app_guid": "a", "app_annotations": {"team": "y"}}));
    assert_eq!(broker.ask(renamed).await.status, 200);
    let other = with(json!({"app_guid": "b", "app_annotations": {"team": "x"}}));
    assert_eq!(broker.ask(other).await.status, 409);
}

#[tokio::test]
async fn a_known_binding_asked_for_with_another_plan_or_service_is_a_conflict() {
    let broker = Broker::start().await;
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    assert_eq!(broker.bind("i", "b", json!({})).await.status, 201);
    for (service, plan) in [("db", "db-large"), ("slow", "slow-only")] {
        let body = json!({"service_id": service, "plan_id": plan});
        let answer = broker.ask(Call::new("PUT", BINDING).json(&body)).await;
        assert_eq!(answer.status, 409, "{plan}: {}", answer.body);
    }
}
