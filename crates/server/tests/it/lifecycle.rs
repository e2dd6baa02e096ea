//! The lives of instances and bindings, as platforms see them.

use evenkeel_server::{DeletedAs, OsbSettings};
use serde_json::json;

use crate::broker::{Broker, Call, bind, provision};
use crate::runs::PASSWORD;

const INSTANCE: &str = "/v2/service_instances/i";
const BINDING: &str = "/v2/service_instances/i/service_bindings/b";
const IDS: &str = "service_id=db&plan_id=db-small";

fn delete(path: &str) -> Call {
    Call::new("DELETE", &format!("{path}?{IDS}"))
}

#[tokio::test]
async fn a_synchronous_life_from_provision_to_deprovision() {
    let broker = Broker::start().await;
    let info = json!({
        "dashboard_url": "https://dashboard/small",
        "metadata": {"labels": {"made": "by a test"}},
    });
    for status in [201, 200] {
        let answer = broker.provision("i", json!({"size": 1})).await;
        assert_eq!((answer.status, &answer.body), (status, &info));
    }
    let mut details = info.clone();
    details["service_id"] = json!("db");
    details["plan_id"] = json!("db-small");
    details["parameters"] = json!({"size": 1});
    let answer = broker.ask(Call::new("GET", INSTANCE)).await;
    assert_eq!((answer.status, answer.body), (200, details));
    let made = json!({
        "credentials": {"user": "b", "password": PASSWORD},
        "endpoints": [{"host": "db.example", "ports": ["5432"]}],
    });
    for status in [201, 200] {
        let answer = broker.bind("i", "b", json!({})).await;
        assert_eq!((answer.status, &answer.body), (status, &made));
    }
    let answer = broker.ask(Call::new("GET", BINDING)).await;
    assert_eq!((answer.status, &answer.body), (200, &made));
    let other = broker.bind("i", "b", json!({"other": true})).await;
    assert_eq!(other.status, 409);
    for status in [200, 410] {
        assert_eq!(broker.ask(delete(BINDING)).await.status, status);
    }
    assert_eq!(broker.ask(Call::new("GET", BINDING)).await.status, 404);
    let answer = broker.ask(delete(INSTANCE)).await;
    assert_eq!((answer.status, answer.body), (200, json!({})));
    assert_eq!(broker.ask(delete(INSTANCE)).await.status, 410);
    assert_eq!(broker.ask(Call::new("GET", INSTANCE)).await.status, 404);
    // The id may live again.
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
}

#[tokio::test]
async fn an_asynchronous_life_is_polled_by_its_operations() {
    let broker = Broker::start().await;
    let hold = json!({"provision": "hold"});
    let put = Call::new("PUT", INSTANCE).json(&provision(hold)).later();
    let first = broker.ask(put.clone()).await;
    assert_eq!(first.status, 202);
    let operation = first.text("operation");
    // Asked again, the same; asked otherwise, a conflict.
    let again = broker.ask(put.clone()).await;
    assert_eq!(
        (again.status, again.text("operation")),
        (202, operation.clone())
    );
    let other = Call::new("PUT", INSTANCE)
        .json(&provision(json!({"other": 1})))
        .later();
    assert_eq!(broker.ask(other).await.status, 409);
    // Not there before it is; busy meanwhile.
    assert_eq!(broker.ask(Call::new("GET", INSTANCE)).await.status, 404);
    let update = json!({"service_id": "db", "parameters": {"size": 2}});
    let patch = Call::new("PATCH", INSTANCE).json(&update).later();
    for call in [
        patch,
        Call::new("PUT", BINDING).json(&bind(json!({}))).later(),
    ] {
        let answer = broker.ask(call).await;
        assert_eq!(
            (answer.status, answer.text("error").as_str()),
            (422, "ConcurrencyError")
        );
    }
    let poll = format!("{INSTANCE}/last_operation");
    for query in [
        "",
        "?operation=",
        "?operation=provision",
        &format!("?operation={operation}&plan_id=x"),
    ] {
        let answer = broker
            .ask(Call::new("GET", &format!("{poll}{query}")))
            .await;
        assert_eq!(
            (answer.status, answer.text("state").as_str()),
            (200, "in progress"),
            "{query}"
        );
        assert!(!answer.text("description").is_empty());
        assert_eq!(answer.header("retry-after"), "5");
    }
    broker.run_is_held().await;
    broker.runs.release();
    let answer = broker
        .polled(&format!("{poll}?operation={operation}"))
        .await;
    assert_eq!(
        (answer.status, answer.text("state").as_str()),
        (200, "succeeded")
    );
    assert_eq!(broker.ask(put).await.status, 200);

    let answer = broker
        .ask(Call::new("PUT", BINDING).json(&bind(json!({}))).later())
        .await;
    assert_eq!(answer.status, 202);
    assert_eq!(
        answer.body.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["operation"]
    );
    let answer = broker.polled(&format!("{BINDING}/last_operation")).await;
    assert_eq!(answer.text("state"), "succeeded");
    assert!(!answer.body.to_string().contains(PASSWORD));
    let answer = broker.ask(Call::new("GET", BINDING)).await;
    assert_eq!(answer.body["credentials"]["password"], PASSWORD);

    let answer = broker.ask(delete(INSTANCE).later()).await;
    assert_eq!(answer.status, 202);
    let answer = broker.polled(&poll).await;
    assert_eq!(
        (answer.status, answer.text("state").as_str()),
        (200, "succeeded")
    );
    // The operation of before still has its answer, and so has the binding that went with it.
    let answer = broker
        .ask(Call::new("GET", &format!("{poll}?operation={operation}")))
        .await;
    assert_eq!(
        (answer.status, answer.text("state").as_str()),
        (200, "succeeded")
    );
    assert_eq!(broker.ask(Call::new("GET", BINDING)).await.status, 404);
    assert_eq!(broker.ask(delete(BINDING)).await.status, 410);
}

#[tokio::test]
async fn a_finished_delete_is_gone_to_its_poll_where_it_is_set_so() {
    let settings = OsbSettings {
        deleted_as: DeletedAs::Gone,
        ..OsbSettings::default()
    };
    let broker = Broker::with(settings).await;
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    assert_eq!(broker.bind("i", "b", json!({})).await.status, 201);
    let poll = |path: &str| format!("{path}/last_operation");
    assert_eq!(broker.ask(delete(BINDING).later()).await.status, 202);
    assert_eq!(broker.polled(&poll(BINDING)).await.status, 410);
    assert_eq!(broker.ask(delete(INSTANCE).later()).await.status, 202);
    assert_eq!(broker.polled(&poll(INSTANCE)).await.status, 410);
    assert_eq!(
        broker
            .ask(Call::new("GET", &poll("/v2/service_instances/never")))
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn a_delete_during_create_ends_the_create_and_deletes() {
    let broker = Broker::start().await;
    let put = Call::new("PUT", INSTANCE)
        .json(&provision(json!({"provision": "hold"})))
        .later();
    let provisioning = broker.ask(put).await.text("operation");
    let answer = broker.ask(delete(INSTANCE).later()).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    let deleting = answer.text("operation");
    let again = broker.ask(delete(INSTANCE).later()).await;
    assert_eq!(
        (again.status, again.text("operation")),
        (202, deleting.clone())
    );
    let poll = format!("{INSTANCE}/last_operation?operation=");
    let answer = broker.polled(&format!("{poll}{deleting}")).await;
    assert_eq!(answer.text("state"), "succeeded", "{}", answer.body);
    let answer = broker.polled(&format!("{poll}{provisioning}")).await;
    assert_eq!(answer.text("state"), "failed");
    assert!(
        answer.text("description").contains("superseded"),
        "{}",
        answer.body
    );
    assert_eq!(broker.ask(delete(INSTANCE)).await.status, 410);
}

#[tokio::test]
async fn failures_say_what_the_action_said_and_what_is_left() {
    let broker = Broker::start().await;
    let answer = broker.provision("i", json!({"provision": "fail"})).await;
    assert_eq!(answer.status, 500);
    assert_eq!(answer.text("description"), "no provision today");
    assert!(answer.body.get("instance_usable").is_none());
    assert_eq!(broker.ask(Call::new("GET", INSTANCE)).await.status, 404);
    let answer = broker.polled(&format!("{INSTANCE}/last_operation")).await;
    assert_eq!(
        answer.body,
        json!({"state": "failed", "description": "no provision today"})
    );
    assert_eq!(broker.ask(delete(INSTANCE)).await.status, 200);

    let both = json!({"update": "fail", "deprovision": "fail"});
    assert_eq!(broker.provision("i", both).await.status, 201);
    let update = json!({"service_id": "db", "parameters": {"size": 2}});
    let answer = broker.ask(Call::new("PATCH", INSTANCE).json(&update)).await;
    assert_eq!(answer.status, 500, "{}", answer.body);
    assert_eq!(answer.body["instance_usable"], true);
    assert_eq!(answer.body["update_repeatable"], true);
    let answer = broker.polled(&format!("{INSTANCE}/last_operation")).await;
    assert_eq!(answer.body["update_repeatable"], true);
    let answer = broker.ask(Call::new("GET", INSTANCE)).await;
    assert!(
        answer.body["parameters"].get("size").is_none(),
        "a failed update changed something"
    );
    let answer = broker.ask(delete(INSTANCE)).await;
    assert_eq!(answer.status, 500);
    assert_eq!(answer.body["instance_usable"], false);
    assert!(answer.body.get("update_repeatable").is_none());
    assert_eq!(
        broker
            .polled(&format!("{INSTANCE}/last_operation"))
            .await
            .body["instance_usable"],
        false
    );
}

#[tokio::test]
async fn an_update_merges_parameters_and_changes_the_plan() {
    let broker = Broker::start().await;
    assert_eq!(
        broker
            .provision("i", json!({"size": 1, "kept": true}))
            .await
            .status,
        201
    );
    let patch = |body: serde_json::Value| Call::new("PATCH", INSTANCE).json(&body);
    // Cloud Foundry names the plan and sends `{}` even if nothing changes.
    let same = json!({"service_id": "db", "plan_id": "db-small", "parameters": {}});
    assert_eq!(broker.ask(patch(same)).await.status, 200);
    let wanted = json!({
        "service_id": "db",
        "plan_id": "db-large",
        "parameters": {"size": 2},
        "maintenance_info": {"version": "1.0.0"},
        "previous_values": {"maintenance_info": null},
    });
    let answer = broker.ask(patch(wanted)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let details = broker.ask(Call::new("GET", INSTANCE)).await.body;
    assert_eq!(details["plan_id"], "db-large");
    assert_eq!(details["parameters"], json!({"size": 2, "kept": true}));
    assert_eq!(details["maintenance_info"], json!({"version": "1.0.0"}));
    let stale = json!({"service_id": "db", "maintenance_info": {"version": "0.9.0"}});
    let answer = broker.ask(patch(stale)).await;
    assert_eq!(
        (answer.status, answer.text("error").as_str()),
        (422, "MaintenanceInfoConflict")
    );
    let foreign = json!({"service_id": "slow"});
    assert_eq!(broker.ask(patch(foreign)).await.status, 400);
}

#[tokio::test]
async fn what_cannot_be_bound_is_a_bad_request_and_never_a_bare_422() {
    let broker = Broker::start().await;
    let mut closed = provision(json!({}));
    closed["plan_id"] = json!("db-closed");
    let put = Call::new("PUT", "/v2/service_instances/closed").json(&closed);
    assert_eq!(broker.ask(put).await.status, 201);
    let mut body = bind(json!({}));
    body["plan_id"] = json!("db-closed");
    let path = "/v2/service_instances/closed/service_bindings/b";
    assert_eq!(
        broker.ask(Call::new("PUT", path).json(&body)).await.status,
        400
    );
    // Another plan than the instance's.
    assert_eq!(broker.bind("closed", "b", json!({})).await.status, 400);
    // Rotation is refused where it is not offered.
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    assert_eq!(broker.bind("i", "a", json!({})).await.status, 201);
    let rotate = Call::new("PUT", BINDING).json(&json!({"predecessor_binding_id": "a"}));
    let answer = broker.ask(rotate).await;
    assert_eq!(answer.status, 400);
    assert!(
        answer
            .text("description")
            .contains("predecessor_binding_id")
    );
    assert_eq!(broker.ask(delete(path)).await.status, 410);
}
