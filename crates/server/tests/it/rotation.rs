//! Rotation of bindings (OSB.md 1.7, R1 to R5).

use serde_json::{Value, json};

use crate::broker::{Broker, Call};

const INSTANCE: &str = "/v2/service_instances/i";

fn path(binding: &str) -> String {
    format!("{INSTANCE}/service_bindings/{binding}")
}

async fn made(broker: &Broker, plan: &str) {
    let order = json!({
        "service_id": "keys", "plan_id": plan, "organization_guid": "o", "space_guid": "s",
    });
    let answer = broker.ask(Call::new("PUT", INSTANCE).json(&order)).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
}

async fn put(broker: &Broker, binding: &str, body: Value) -> (u16, Value) {
    let answer = broker
        .ask(Call::new("PUT", &path(binding)).json(&body))
        .await;
    (answer.status, answer.body)
}

fn first() -> Value {
    json!({
        "service_id": "keys", "plan_id": "keys-a",
        "parameters": {"role": "reader"}, "bind_resource": {"app_guid": "app"},
    })
}

#[tokio::test]
async fn what_a_rotation_does_not_say_is_its_predecessors_and_both_stay_valid() {
    let broker = Broker::start().await;
    made(&broker, "keys-a").await;
    assert_eq!(put(&broker, "old", first()).await.0, 201);
    let rotate = json!({"predecessor_binding_id": "old"});
    let (status, new) = put(&broker, "new", rotate.clone()).await;
    assert_eq!(status, 201, "{new}");
    let told = &new["credentials"];
    assert_eq!(
        told["predecessor"],
        json!({"id": "old", "data": {"made": "old"}})
    );
    assert_eq!(told["parameters"], json!({"role": "reader"}));
    assert_eq!(told["bind_resource"], json!({"app_guid": "app"}));
    for binding in ["old", "new"] {
        let answer = broker.ask(Call::new("GET", &path(binding))).await;
        assert_eq!(answer.status, 200, "{binding}");
    }
    // R5: the same again is the same; another predecessor is another request.
    assert_eq!(put(&broker, "new", rotate).await, (200, new));
    assert_eq!(put(&broker, "third", first()).await.0, 201);
    let other = json!({"predecessor_binding_id": "third"});
    assert_eq!(put(&broker, "new", other).await.0, 409);
    // What it does say counts.
    let own = json!({"predecessor_binding_id": "old", "parameters": {"role": "writer"}});
    let (status, fourth) = put(&broker, "fourth", own).await;
    assert_eq!(
        (status, &fourth["credentials"]["parameters"]),
        (201, &json!({"role": "writer"}))
    );
    // Without its predecessor it lives on.
    let delete = format!("{}?service_id=keys&plan_id=keys-a", path("old"));
    assert_eq!(broker.ask(Call::new("DELETE", &delete)).await.status, 200);
    assert_eq!(broker.ask(Call::new("GET", &path("new"))).await.status, 200);
}

#[tokio::test]
async fn a_predecessor_that_cannot_be_taken_over_from_is_a_bad_request() {
    let broker = Broker::start().await;
    made(&broker, "keys-a").await;
    let expired = json!({
        "service_id": "keys", "plan_id": "keys-a",
        "parameters": {"write": {"expires_at": "2001-01-01T00:00:00Z"}},
    });
    assert_eq!(put(&broker, "expired", expired).await.0, 201);
    let failed = json!({"service_id": "keys", "plan_id": "keys-a", "parameters": {"bind": "fail"}});
    assert_eq!(put(&broker, "failed", failed).await.0, 500);
    for (predecessor, words) in [
        ("unknown", "is not a binding of this instance"),
        ("expired", "has expired"),
        ("failed", "is not made"),
        ("new", "cannot take over from itself"),
    ] {
        let body = json!({"predecessor_binding_id": predecessor});
        let (status, answer) = put(&broker, "new", body).await;
        assert_eq!(status, 400, "{predecessor}: {answer}");
        let text = answer["description"].as_str().unwrap();
        assert!(text.contains(words), "{text}");
    }
    let foreign = json!({"predecessor_binding_id": "expired", "plan_id": "keys-b"});
    assert_eq!(put(&broker, "new", foreign).await.0, 400);
    // Nothing was made by any of them.
    assert_eq!(broker.ask(Call::new("GET", &path("new"))).await.status, 404);
}

#[tokio::test]
async fn a_predecessor_whose_creation_is_under_way_is_a_bad_request() {
    let broker = Broker::start().await;
    made(&broker, "keys-a").await;
    let held = json!({"service_id": "keys", "plan_id": "keys-a", "parameters": {"bind": "hold"}});
    let call = Call::new("PUT", &path("old")).json(&held).later();
    assert_eq!(broker.ask(call).await.status, 202);
    broker.run_is_held().await;
    let rotate = json!({"predecessor_binding_id": "old"});
    assert_eq!(put(&broker, "new", rotate.clone()).await.0, 400);
    broker.runs.release();
    broker
        .polled(&format!("{}/last_operation", path("old")))
        .await;
    let (status, answer) = put(
        &broker,
        "new",
        json!({
            "predecessor_binding_id": "old", "parameters": {"role": "reader"},
        }),
    )
    .await;
    assert_eq!(status, 201, "{answer}");
}
