//! PATCH of an instance, and what it makes of the order that is sent again (OSB.md 1.3, 1.6).

use serde_json::{Value, json};

use crate::broker::{Broker, Call, provision};

const INSTANCE: &str = "/v2/service_instances/i";

fn patch(body: Value) -> Call {
    let mut body = body;
    body["service_id"] = json!("db");
    Call::new("PATCH", INSTANCE).json(&body)
}

fn put(plan: &str, parameters: Value) -> Call {
    let mut body = provision(parameters);
    body["plan_id"] = json!(plan);
    Call::new("PUT", INSTANCE).json(&body)
}

#[tokio::test]
async fn after_an_update_the_order_for_what_it_is_now_is_the_same_and_the_old_one_is_another() {
    let broker = Broker::start().await;
    assert_eq!(
        broker
            .ask(put("db-small", json!({"size": 1, "kept": true})))
            .await
            .status,
        201
    );
    let update = json!({"plan_id": "db-large", "parameters": {"size": 2.0}});
    assert_eq!(broker.ask(patch(update)).await.status, 200);
    let now = put("db-large", json!({"kept": true, "size": 2}));
    let answer = broker.ask(now).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(
        broker
            .ask(put("db-small", json!({"size": 1, "kept": true})))
            .await
            .status,
        409
    );
    // One that failed changes nothing of it.
    let fail = json!({"parameters": {"update": "fail"}});
    assert_eq!(broker.ask(patch(fail)).await.status, 500);
    assert_eq!(
        broker
            .ask(put("db-large", json!({"kept": true, "size": 2})))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_bind_sent_again_after_a_change_of_plan_is_the_same_with_the_new_plan() {
    let broker = Broker::start().await;
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    assert_eq!(broker.bind("i", "b", json!({})).await.status, 201);
    assert_eq!(
        broker
            .ask(patch(json!({"plan_id": "db-large"})))
            .await
            .status,
        200
    );
    let bind = json!({"service_id": "db", "plan_id": "db-large", "parameters": {}});
    let call = Call::new("PUT", "/v2/service_instances/i/service_bindings/b").json(&bind);
    assert_eq!(broker.ask(call).await.status, 200);
}

#[tokio::test]
async fn an_update_of_nothing_but_the_context_is_kept_for_later_actions() {
    let broker = Broker::start().await;
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    let context = json!({"platform": "cloudfoundry", "space_name": "renamed"});
    let answer = broker.ask(patch(json!({"context": context}))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let kept = broker.engine.read().instance(&"i".parse().unwrap()).await;
    assert_eq!(Value::Object(kept.unwrap().unwrap().context), context);
    assert_eq!(broker.runs.count(), 1, "no action was run for it");
    // Of a service that does not want to know it is taken, and not kept.
    let order = json!({
        "service_id": "keys", "plan_id": "keys-a", "organization_guid": "o", "space_guid": "s",
    });
    let call = Call::new("PUT", "/v2/service_instances/k").json(&order);
    assert_eq!(broker.ask(call).await.status, 201);
    let update = json!({"service_id": "keys", "context": context});
    let call = Call::new("PATCH", "/v2/service_instances/k").json(&update);
    assert_eq!(broker.ask(call).await.status, 200);
    let kept = broker.engine.read().instance(&"k".parse().unwrap()).await;
    assert!(kept.unwrap().unwrap().context.is_empty());
}

#[tokio::test]
async fn a_repeated_update_is_the_same_operation_and_another_one_has_to_wait() {
    let broker = Broker::start().await;
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    let held = patch(json!({"parameters": {"update": "hold"}})).later();
    let first = broker.ask(held.clone()).await;
    assert_eq!(first.status, 202);
    broker.run_is_held().await;
    let again = broker.ask(held).await;
    assert_eq!(
        (again.status, again.text("operation")),
        (202, first.text("operation"))
    );
    let other = patch(json!({"parameters": {"size": 3}})).later();
    let answer = broker.ask(other).await;
    assert_eq!(
        (answer.status, answer.text("error").as_str()),
        (422, "ConcurrencyError")
    );
    // F2: what is about to change is not told.
    let answer = broker.ask(Call::new("GET", INSTANCE)).await;
    assert_eq!(
        (answer.status, answer.text("error").as_str()),
        (422, "ConcurrencyError")
    );
    broker.runs.release();
    let path = format!(
        "{INSTANCE}/last_operation?operation={}",
        first.text("operation")
    );
    assert_eq!(broker.polled(&path).await.body["state"], "succeeded");
}

#[tokio::test]
async fn what_no_update_can_do_says_so_and_what_it_leaves() {
    let broker = Broker::start().await;
    let told = |answer: &crate::broker::Answer| {
        let flag = |name: &str| answer.body.get(name).and_then(Value::as_bool);
        (
            answer.status,
            flag("instance_usable"),
            flag("update_repeatable"),
        )
    };
    // A plan that may not be left.
    let order = json!({
        "service_id": "keys", "plan_id": "keys-b", "organization_guid": "o", "space_guid": "s",
    });
    let path = "/v2/service_instances/k";
    assert_eq!(
        broker.ask(Call::new("PUT", path).json(&order)).await.status,
        201
    );
    let change = json!({"service_id": "keys", "plan_id": "keys-a"});
    let answer = broker.ask(Call::new("PATCH", path).json(&change)).await;
    assert_eq!(
        told(&answer),
        (422, Some(true), Some(false)),
        "{}",
        answer.body
    );
    assert_eq!(
        answer.body.get("error"),
        None,
        "no word of the specification's fits"
    );
    // A service without an update action.
    let order = json!({
        "service_id": "logs", "plan_id": "logs-only", "organization_guid": "o", "space_guid": "s",
    });
    let path = "/v2/service_instances/l";
    assert_eq!(
        broker.ask(Call::new("PUT", path).json(&order)).await.status,
        201
    );
    let change = json!({"service_id": "logs", "parameters": {"size": 1}});
    let answer = broker.ask(Call::new("PATCH", path).json(&change)).await;
    assert_eq!(
        told(&answer),
        (422, Some(true), Some(false)),
        "{}",
        answer.body
    );
    // An instance that could not be made, with and without an update action.
    let answer = broker
        .ask(put("db-small", json!({"provision": "fail"})))
        .await;
    assert_eq!(answer.status, 500);
    let answer = broker.ask(patch(json!({"parameters": {"size": 1}}))).await;
    assert_eq!(
        told(&answer),
        (422, Some(false), Some(false)),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn a_failed_update_leaves_what_was_in_force() {
    let broker = Broker::start().await;
    assert_eq!(broker.provision("i", json!({"size": 1})).await.status, 201);
    let before = broker.ask(Call::new("GET", INSTANCE)).await.body;
    let fail = patch(json!({
        "plan_id": "db-large",
        "parameters": {"update": "fail", "write": {"dashboard_url": "https://new"}},
    }));
    let answer = broker.ask(fail).await;
    assert_eq!(answer.status, 500);
    assert_eq!(broker.ask(Call::new("GET", INSTANCE)).await.body, before);
}

#[tokio::test]
async fn maintenance_happens_only_where_it_is_asked_for() {
    let broker = Broker::start().await;
    let plan = |version: &str| {
        format!("
bundle: 1
service: {{id: kept, name: kept, description: Kept}}
plans: [{{id: kept-only, name: only, description: One, maintenance_info: {{version: {version}, description: {version}}}}}]
actions: {{provision: {{command: [./act]}}, update: {{command: [./act]}}, deprovision: {{command: [./act]}}}}
")
    };
    broker.offer("kept", &plan("1.0.0")).await;
    let order = json!({
        "service_id": "kept", "plan_id": "kept-only", "organization_guid": "o", "space_guid": "s",
        "maintenance_info": {"version": "1.0.0", "description": "another text"},
    });
    let answer = broker.ask(Call::new("PUT", INSTANCE).json(&order)).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    broker.offer("kept", &plan("2.0.0")).await;
    let version = async || {
        let answer = broker.ask(Call::new("GET", INSTANCE)).await;
        answer.body["maintenance_info"]["version"].clone()
    };
    let patch = |mut body: Value| {
        body["service_id"] = json!("kept");
        Call::new("PATCH", INSTANCE).json(&body)
    };
    let resize = patch(json!({"parameters": {"size": 1}}));
    assert_eq!(broker.ask(resize).await.status, 200);
    assert_eq!(version().await, "1.0.0");
    let runs = broker.runs.count();
    let maintain = || patch(json!({"maintenance_info": {"version": "2.0.0"}, "parameters": {}}));
    assert_eq!(broker.ask(maintain()).await.status, 200);
    assert_eq!(
        (version().await, broker.runs.count()),
        (json!("2.0.0"), runs + 1)
    );
    assert_eq!(broker.ask(maintain()).await.status, 200);
    assert_eq!(broker.runs.count(), runs + 1, "done is done");
}
