//! What headers decide on every route that looks at them.

use serde_json::{Value, json};

use crate::broker::{Broker, Call, bind, provision};

const ROUTES: [(&str, &str); 3] = [
    ("PUT", "/v2/service_instances/i"),
    ("PATCH", "/v2/service_instances/i"),
    ("PUT", "/v2/service_instances/i/service_bindings/b"),
];

fn body(method: &str, path: &str) -> Value {
    match method {
        "PATCH" => json!({"service_id": "db"}),
        _ if path.ends_with("/b") => bind(json!({})),
        _ => provision(json!({})),
    }
}

// H7
#[tokio::test]
async fn every_route_that_reads_a_body_wants_json_and_takes_no_type_for_it() {
    let broker = Broker::start().await;
    for (method, path) in ROUTES {
        let call = Call::new(method, path).json(&body(method, path));
        for other in [
            "text/plain",
            "application/jsonish",
            ";",
            "multipart/form-data",
        ] {
            let answer = broker.ask(call.clone().header("content-type", other)).await;
            assert_eq!(answer.status, 400, "{method} {path} {other}");
            assert!(answer.text("description").contains("application/json"));
        }
        let untyped = broker.ask(call.without("content-type")).await;
        assert!(untyped.status < 300, "{method} {path}: {untyped:?}");
    }
}

// H7: as rest-assured and eden send them.
#[tokio::test]
async fn requests_that_read_no_body_do_not_mind_one() {
    let broker = Broker::start().await;
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    for (method, path, status) in [
        ("GET", "/v2/catalog", 200),
        ("GET", "/v2/service_instances/i", 200),
        ("GET", "/v2/service_instances/i/last_operation", 200),
        ("GET", "/v2/service_instances/i/service_bindings/b", 404),
        (
            "DELETE",
            "/v2/service_instances/i/service_bindings/b?service_id=db&plan_id=db-small",
            410,
        ),
        (
            "DELETE",
            "/v2/service_instances/i?service_id=db&plan_id=db-small",
            200,
        ),
    ] {
        for text in ["", "{}", "not JSON"] {
            if method == "DELETE" && status == 200 && !text.is_empty() {
                assert_eq!(broker.provision("i", json!({})).await.status, 201);
            }
            let answer = broker.ask(Call::new(method, path).body(text)).await;
            assert_eq!(answer.status, status, "{method} {path} {text:?}");
        }
    }
}

// H5
#[tokio::test]
async fn a_request_identity_with_a_tab_comes_back_with_it() {
    let broker = Broker::start().await;
    // The broker of the tests looks whether it does.
    let call = Call::new("GET", "/v2/catalog");
    let call = call.header("x-broker-api-request-identity", "a\tb");
    assert_eq!(
        broker
            .ask(call)
            .await
            .header("x-broker-api-request-identity"),
        "a\tb"
    );
}
