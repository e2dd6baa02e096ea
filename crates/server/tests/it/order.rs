//! Which of several things that are wrong with a request is answered (OSB.md §1.0).

use serde_json::{Value, json};

use crate::broker::{Broker, Call, WRONG_BASIC, bind, provision};

const INSTANCE: &str = "/v2/service_instances/unknown";
const BINDING: &str = "/v2/service_instances/unknown/service_bindings/unknown";
const IDS: &str = "service_id=db&plan_id=db-small";

struct Case {
    method: &'static str,
    path: String,
    body: Option<Value>,
    /// What an otherwise right request gets, for an id that nobody knows.
    at_last: u16,
}

fn case(method: &'static str, path: impl Into<String>, body: Option<Value>, at_last: u16) -> Case {
    Case {
        method,
        path: path.into(),
        body,
        at_last,
    }
}

fn every_route() -> Vec<Case> {
    vec![
        case("GET", "/v2/catalog", None, 200),
        case("GET", INSTANCE, None, 404),
        case("GET", format!("{INSTANCE}/last_operation"), None, 404),
        case("GET", BINDING, None, 404),
        case("GET", format!("{BINDING}/last_operation"), None, 404),
        case("DELETE", format!("{INSTANCE}?{IDS}"), None, 410),
        case("DELETE", format!("{BINDING}?{IDS}"), None, 410),
        case("PATCH", INSTANCE, Some(json!({"service_id": "db"})), 404),
        case("PUT", BINDING, Some(bind(json!({}))), 404),
        case(
            "PUT",
            "/v2/service_instances/new",
            Some(provision(json!({}))),
            201,
        ),
        case("GET", "/v2/nothing", None, 404),
        case("TRACE", INSTANCE, None, 405),
    ]
}

#[tokio::test]
async fn of_several_things_wrong_the_first_of_the_pipeline_is_answered() {
    let broker = Broker::start().await;
    for Case {
        method,
        path,
        body,
        at_last,
    } in every_route()
    {
        let what = format!("{method} {path}");
        let bare = Call::new(method, &path);
        let garbage = bare.clone().body("{");
        for version in [Some("garbage"), Some("1.0"), Some("2.17"), None] {
            let call = match version {
                Some(version) => garbage.clone().header("x-broker-api-version", version),
                None => garbage.clone().without("x-broker-api-version"),
            };
            for call in [
                call.clone().without("authorization"),
                call.header("authorization", WRONG_BASIC),
            ] {
                let answer = broker.ask(call).await;
                assert_eq!(answer.status, 401, "{what} {version:?}");
                assert!(
                    answer.header("www-authenticate").starts_with("Basic "),
                    "{what}"
                );
            }
        }
        for version in [Some(""), Some("garbage"), Some("3.0"), Some("1.17"), None] {
            let call = match version {
                Some(version) => garbage.clone().header("x-broker-api-version", version),
                None => garbage.clone().without("x-broker-api-version"),
            };
            let answer = broker.ask(call.header("content-type", "text/plain")).await;
            assert_eq!(answer.status, 412, "{what} {version:?}");
            assert!(answer.text("description").contains("2.17"), "{what}");
        }
        let Some(body) = body else {
            assert_eq!(broker.ask(garbage).await.status, at_last, "{what}");
            assert_eq!(broker.ask(bare.body("")).await.status, at_last, "{what}");
            continue;
        };
        for text in ["", "{", "[]", "null", "\"x\"", "{\"service_id\": 1}", "{}"] {
            assert_eq!(
                broker.ask(bare.clone().body(text)).await.status,
                400,
                "{what} {text}"
            );
        }
        for missing in required(&body) {
            for nothing in [Value::Null, json!(""), json!(7)] {
                let mut body = body.clone();
                body[missing] = nothing;
                let answer = broker.ask(bare.clone().json(&body)).await;
                assert_eq!(answer.status, 400, "{what} without {missing}");
                assert!(
                    answer.text("description").contains(missing),
                    "{}",
                    answer.body
                );
            }
        }
        let right = broker.ask(bare.clone().json(&body)).await;
        assert_eq!(right.status, at_last, "{what}: {}", right.body);
    }
}

fn required(body: &Value) -> Vec<&'static str> {
    let names = ["service_id", "plan_id", "organization_guid", "space_guid"];
    names
        .into_iter()
        .filter(|name| body.get(name).is_some())
        .collect()
}

#[tokio::test]
async fn platforms_of_every_version_in_use_are_served() {
    let broker = Broker::start().await;
    for version in ["2.11", "2.13", "2.14", "2.15", "2.17", "2.99"] {
        let call = Call::new("GET", "/v2/catalog").header("x-broker-api-version", version);
        assert_eq!(broker.ask(call).await.status, 200, "{version}");
    }
}

#[tokio::test]
async fn a_provision_is_judged_by_identity_maintenance_asynchrony_and_schema_in_this_order() {
    let broker = Broker::start().await;
    let path = "/v2/service_instances/i";
    let put = |body: &Value| Call::new("PUT", path).json(body);
    let mut slow = provision(json!({}));
    slow["service_id"] = json!("slow");
    slow["plan_id"] = json!("slow-only");
    slow["maintenance_info"] = json!({"version": "Invalid"});
    let answer = broker.ask(put(&slow)).await;
    assert_eq!(
        (answer.status, answer.text("error").as_str()),
        (422, "MaintenanceInfoConflict")
    );
    slow["maintenance_info"] = json!({});
    let answer = broker.ask(put(&slow)).await;
    assert_eq!(
        (answer.status, answer.text("error").as_str()),
        (422, "AsyncRequired")
    );
    let answer = broker.ask(put(&slow).later()).await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    // Nothing of it was kept: the next one is a first one.
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    assert_eq!(broker.provision("i", json!({})).await.status, 200);
    // What exists with other attributes is a conflict, whatever else is wrong.
    slow["maintenance_info"] = json!({"version": "Invalid"});
    let answer = broker.ask(put(&slow)).await;
    assert_eq!(answer.status, 409, "{}", answer.body);
    for field in ["organization_guid", "space_guid"] {
        let mut elsewhere = provision(json!({}));
        elsewhere[field] = json!("elsewhere");
        assert_eq!(broker.ask(put(&elsewhere)).await.status, 409, "{field}");
    }
    for (field, value) in [("plan_id", "none"), ("service_id", "none")] {
        let mut unknown = provision(json!({}));
        unknown[field] = json!(value);
        let call = Call::new("PUT", "/v2/service_instances/other").json(&unknown);
        assert_eq!(broker.ask(call).await.status, 400, "{field}");
    }
}

#[tokio::test]
async fn a_deprovision_of_the_unknown_asks_for_ids_then_for_asynchrony_and_is_gone_at_last() {
    let broker = Broker::start().await;
    let delete = |query: &str| Call::new("DELETE", &format!("{INSTANCE}?{query}"));
    for query in [
        "",
        "service_id=slow",
        "plan_id=slow-only",
        "service_id=&plan_id=",
    ] {
        assert_eq!(broker.ask(delete(query)).await.status, 400, "{query}");
        assert_eq!(
            broker.ask(delete(query).later()).await.status,
            400,
            "{query}"
        );
    }
    let slow = "service_id=slow&plan_id=slow-only";
    let answer = broker.ask(delete(slow)).await;
    assert_eq!(
        (answer.status, answer.text("error").as_str()),
        (422, "AsyncRequired")
    );
    assert_eq!(broker.ask(delete(slow).later()).await.status, 410);
    assert_eq!(broker.ask(delete(IDS)).await.status, 410);
}

#[tokio::test]
async fn an_unbind_of_the_unknown_is_gone_before_ids_are_missed() {
    let broker = Broker::start().await;
    let delete = |query: &str| Call::new("DELETE", &format!("{BINDING}?{query}"));
    let answer = broker.ask(delete("service_id=slow")).await;
    assert_eq!(
        (answer.status, answer.text("error").as_str()),
        (422, "AsyncRequired")
    );
    for query in ["", "service_id=db", "plan_id=db-small", IDS] {
        assert_eq!(broker.ask(delete(query)).await.status, 410, "{query}");
    }
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    assert_eq!(broker.bind("i", "b", json!({})).await.status, 201);
    let path = "/v2/service_instances/i/service_bindings/b";
    for query in ["", "service_id=db", "plan_id=db-small"] {
        let call = Call::new("DELETE", &format!("{path}?{query}"));
        assert_eq!(broker.ask(call).await.status, 400, "{query}");
    }
    let call = Call::new("DELETE", &format!("{path}?{IDS}"));
    assert_eq!(broker.ask(call).await.status, 200);
}

#[tokio::test]
async fn a_wrong_method_is_told_which_are_allowed() {
    let broker = Broker::start().await;
    let answer = broker.ask(Call::new("POST", "/v2/catalog")).await;
    assert_eq!((answer.status, answer.header("allow")), (405, "GET, HEAD"));
    let answer = broker.ask(Call::new("TRACE", INSTANCE)).await;
    assert_eq!(
        (answer.status, answer.header("allow")),
        (405, "GET, HEAD, PUT, PATCH, DELETE")
    );
    let answer = broker.ask(Call::admin("GET", "/admin/v1/reload")).await;
    assert_eq!((answer.status, answer.header("allow")), (405, "POST"));
}
