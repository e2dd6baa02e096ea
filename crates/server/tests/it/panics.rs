//! I14: a panic in any handler leaves every route answering.

use evenkeel_server::admin::types::ErrorAnswer;
use serde_json::json;

use crate::broker::{Broker, Call, bind, provision};

const JOB: &str = "018f6f2e-0000-7000-8000-000000000001";

fn every_route() -> Vec<Call> {
    let instance = "/v2/service_instances/i";
    let binding = "/v2/service_instances/i/service_bindings/b";
    let osb = |method, path: &str| Call::new(method, path);
    let job = |what: &str| format!("/admin/v1/jobs/{JOB}{what}");
    vec![
        osb("GET", "/v2/catalog"),
        osb("PUT", instance).json(&provision(json!({}))),
        osb("PATCH", instance).json(&json!({"service_id": "db"})),
        osb("DELETE", instance),
        osb("GET", instance),
        osb("GET", &format!("{instance}/last_operation")),
        osb("PUT", binding).json(&bind(json!({}))),
        osb("DELETE", binding),
        osb("GET", binding),
        osb("GET", &format!("{binding}/last_operation")),
        Call::admin("GET", "/livez"),
        Call::admin("GET", "/readyz"),
        Call::admin("GET", "/admin/v1/status"),
        Call::admin("GET", "/admin/v1/boots"),
        Call::admin("GET", "/admin/v1/catalog"),
        Call::admin("POST", "/admin/v1/reload"),
        Call::admin("GET", "/admin/v1/jobs"),
        Call::admin("GET", &job("")),
        Call::admin("GET", &job("/log")),
        Call::admin("POST", &job("/retry")),
        Call::admin("POST", &job("/discard")),
        Call::admin("POST", &job("/cancel")),
        Call::admin("POST", &job("/clear")),
    ]
}

#[tokio::test]
async fn i14_a_panic_in_any_handler_leaves_every_route_answering() {
    let broker = Broker::start().await;
    for call in every_route() {
        let panicking = call.clone().header("x-broker-api-request-identity", "boom");
        for _ in 0..2 {
            let answer = broker.ask(panicking.clone()).await;
            assert_eq!(answer.status, 500, "{call:?}");
            let said = answer.text("description");
            assert!(
                said.contains("log") && !said.contains("fault injected"),
                "{said}"
            );
            if answer.body.get("error").is_some() {
                let error: ErrorAnswer = serde_json::from_value(answer.body).unwrap();
                assert_eq!(
                    error.error,
                    evenkeel_server::admin::types::ErrorKind::Internal
                );
            }
        }
        // The route itself answers on, and so do all others.
        let answer = broker.ask(call.clone()).await;
        assert!(answer.status < 500, "{call:?}: {}", answer.body);
        assert_eq!(
            broker.ask(Call::new("GET", "/v2/catalog")).await.status,
            200
        );
    }
}
