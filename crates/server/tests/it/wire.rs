//! Ids, bodies and headers of every shape.

use std::time::Duration;

use evenkeel_server::{OsbSettings, RequestLimits};
use serde_json::{Value, json};

use crate::broker::{Broker, Call, bind, provision};

const IDS: &str = "service_id=db&plan_id=db-small";

#[tokio::test]
async fn ids_of_any_characters_live_apart_from_one_another() {
    let broker = Broker::start().await;
    let ids = [
        "a/b",
        "a%2Fb",
        "a b",
        "a+b",
        "🚢 ünï",
        "..",
        "last_operation",
        "a?b#c&d=e",
    ];
    for id in ids {
        let path = format!("/v2/service_instances/{}", evenkeel_osb::encode_segment(id));
        let put = Call::new("PUT", &path).json(&provision(json!({"id": id})));
        assert_eq!(broker.ask(put).await.status, 201, "{id}");
        let binding = format!(
            "{path}/service_bindings/{}",
            evenkeel_osb::encode_segment(id)
        );
        let answer = broker
            .ask(Call::new("PUT", &binding).json(&bind(json!({}))))
            .await;
        assert_eq!(
            (answer.status, answer.body["credentials"]["user"].as_str()),
            (201, Some(id))
        );
    }
    for id in ids {
        let path = format!("/v2/service_instances/{}", evenkeel_osb::encode_segment(id));
        let answer = broker.ask(Call::new("GET", &path)).await;
        assert_eq!(answer.body["parameters"]["id"], id);
        let answer = broker
            .ask(Call::new("GET", &format!("{path}/last_operation")))
            .await;
        assert_eq!(answer.text("state"), "succeeded", "{id}");
        let binding = format!(
            "{path}/service_bindings/{}",
            evenkeel_osb::encode_segment(id)
        );
        for path in [binding, path] {
            assert_eq!(
                broker
                    .ask(Call::new("DELETE", &format!("{path}?{IDS}")))
                    .await
                    .status,
                200
            );
        }
    }
}

#[tokio::test]
async fn ids_that_nothing_can_have_are_bad_requests() {
    let broker = Broker::start().await;
    let long = "x".repeat(2000);
    for id in ["%00", "a%0Ab", "%FF%FE", long.as_str()] {
        for method in ["GET", "PUT", "PATCH", "DELETE"] {
            let call = Call::new(method, &format!("/v2/service_instances/{id}"));
            assert_eq!(
                broker.ask(call.json(&provision(json!({})))).await.status,
                400,
                "{method} {id}"
            );
        }
    }
}

#[tokio::test]
async fn queries_may_repeat_themselves_and_hold_what_nobody_knows() {
    let broker = Broker::start().await;
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    let query =
        "service_id=db&service_id=db&plan_id=&plan_id=db-small&x&&=&y=%41&accepts_incomplete=maybe";
    let call = Call::new("DELETE", &format!("/v2/service_instances/i?{query}"));
    assert_eq!(broker.ask(call).await.status, 200);
    // What cannot be read is nothing, and missed only where it is needed.
    let call = Call::new("DELETE", "/v2/service_instances/i?service_id=%FF&plan_id=p");
    assert_eq!(broker.ask(call).await.status, 400);
    let binding = "/v2/service_instances/i/service_bindings/b";
    let call = Call::new("DELETE", &format!("{binding}?service_id=%FF"));
    assert_eq!(broker.ask(call).await.status, 410);
    let odd = format!(
        "service_id=%FF&plan_id=%FF&operation={}",
        "x".repeat(10_001)
    );
    for (path, status) in [
        ("/v2/catalog", 200),
        ("/v2/service_instances/i", 404),
        ("/v2/service_instances/i/last_operation", 200),
    ] {
        let call = Call::new("GET", &format!("{path}?{odd}"));
        assert_eq!(broker.ask(call).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn bodies_that_are_too_large_or_too_deep_are_refused_and_cost_nobody_else() {
    let broker = Broker::start().await;
    let put = |body: Vec<u8>| Call::new("PUT", "/v2/service_instances/i").body(body);
    let text = provision(json!({"blob": "x".repeat(10 * 1024 * 1024)})).to_string();
    let answer = broker.ask(put(text.into_bytes())).await;
    assert_eq!(answer.status, 413);
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(broker.ask(put(deep.clone().into_bytes())).await.status, 400);
    let inside = format!("{{\"service_id\":\"db\",\"parameters\":{{\"a\":{deep}}}}}");
    let answer = broker.ask(put(inside.into_bytes())).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text("description").contains("nested"));
    assert_eq!(broker.ask(put(vec![0xFF; 100])).await.status, 400);
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
}

#[tokio::test]
async fn a_content_type_has_to_be_json_if_there_is_one() {
    let broker = Broker::start().await;
    for (n, (content_type, status)) in [
        ("application/json", 201),
        ("application/json; charset=UTF-8", 201),
        ("Application/JSON;charset=utf-8", 201),
        ("", 201),
        ("text/plain", 400),
        ("application/x-www-form-urlencoded", 400),
        ("application/jsonish", 400),
    ]
    .into_iter()
    .enumerate()
    {
        let call = Call::new("PUT", &format!("/v2/service_instances/{n}"));
        let call = call
            .json(&provision(json!({})))
            .header("content-type", content_type);
        assert_eq!(broker.ask(call).await.status, status, "{content_type}");
    }
    let call = Call::new("PUT", "/v2/service_instances/none").json(&provision(json!({})));
    assert_eq!(broker.ask(call.without("content-type")).await.status, 201);
}

#[tokio::test]
async fn unknown_fields_and_nulls_are_nothing() {
    let broker = Broker::start().await;
    let mut body = provision(Value::Null);
    body["context"] = Value::Null;
    body["maintenance_info"] = json!({});
    body["future"] = json!([1]);
    let call = Call::new("PUT", "/v2/service_instances/i").json(&body);
    assert_eq!(broker.ask(call).await.status, 201);
    // So it is the same request as the one without them.
    assert_eq!(broker.provision("i", json!({})).await.status, 200);
}

#[tokio::test]
async fn an_originating_identity_that_cannot_be_read_is_no_reason_to_refuse() {
    let broker = Broker::start().await;
    for (n, identity) in ["garbage", "cf !!!", "cloudfoundry eyJ1c2VyX2lkIjoiMSJ9"]
        .iter()
        .enumerate()
    {
        let call = Call::new("PUT", &format!("/v2/service_instances/{n}"));
        let call = call.header("x-broker-api-originating-identity", identity);
        assert_eq!(
            broker.ask(call.json(&provision(json!({})))).await.status,
            201,
            "{identity}"
        );
    }
}

#[tokio::test]
async fn the_catalog_says_what_is_offered_and_is_sent_once_to_who_remembers_it() {
    let broker = Broker::start().await;
    let get = Call::new("GET", "/v2/catalog");
    let answer = broker.ask(get.clone()).await;
    let db = &answer.body["services"][0];
    assert_eq!(db["id"], "db");
    assert_eq!(db["bindable"], true);
    assert_eq!(db["instances_retrievable"], true);
    assert_eq!(db["bindings_retrievable"], true);
    assert_eq!(db["plan_updateable"], true);
    assert_eq!(db["allow_context_updates"], true);
    assert!(db.get("tags").is_none() && db.get("requires").is_none());
    assert_eq!(
        db["plans"][1]["maintenance_info"],
        json!({"version": "1.0.0"})
    );
    assert_eq!(db["plans"][2]["bindable"], false);
    let services = answer.body["services"].as_array().unwrap();
    let slow = services.iter().find(|one| one["id"] == "slow").unwrap();
    let schema = "/plans/0/schemas/service_instance/create/parameters/required";
    assert_eq!(slow.pointer(schema), Some(&json!(["size"])));
    let tag = answer.header("etag").to_owned();
    assert!(tag.starts_with('"') && tag.ends_with('"'));
    assert_eq!(
        broker
            .ask(get.clone().header("if-none-match", &tag))
            .await
            .status,
        304
    );
    assert_eq!(
        broker
            .ask(get.clone().header("if-none-match", "\"other\""))
            .await
            .status,
        200
    );
    let call = get
        .header("if-none-match", &tag)
        .without("x-broker-api-version");
    assert_eq!(broker.ask(call).await.status, 412);
}

#[tokio::test]
async fn a_request_identity_of_any_bytes_comes_back_and_none_is_invented() {
    let broker = Broker::start().await;
    for identity in ["x", "with spaces, and (more)", "ünï"] {
        let call =
            Call::new("GET", "/v2/catalog").header("x-broker-api-request-identity", identity);
        assert_eq!(broker.ask(call).await.status, 200);
    }
    let call = Call::new("GET", "/v2/catalog").without("x-broker-api-request-identity");
    assert_eq!(broker.ask(call).await.status, 200);
}

#[tokio::test]
async fn an_answer_that_takes_too_long_is_a_503_that_says_when_to_ask_again() {
    let limits = RequestLimits {
        answer: Duration::from_millis(500),
        ..RequestLimits::default()
    };
    let broker = Broker::with(OsbSettings {
        limits,
        ..OsbSettings::default()
    })
    .await;
    let answer = broker.provision("i", json!({"provision": "hold"})).await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, "5"));
    // What was accepted goes on all the same.
    broker.run_is_held().await;
    broker.runs.release();
    let answer = broker
        .polled("/v2/service_instances/i/last_operation")
        .await;
    assert_eq!(answer.text("state"), "succeeded");
}
