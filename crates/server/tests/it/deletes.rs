//! Deletes that cross something, and what can be asked meanwhile (OSB.md 1.5, 1.10, 1.11).

use serde_json::json;

use crate::broker::{Broker, Call, bind, provision};

const INSTANCE: &str = "/v2/service_instances/i";
const BINDING: &str = "/v2/service_instances/i/service_bindings/b";
const IDS: &str = "service_id=db&plan_id=db-small";

fn delete(path: &str) -> Call {
    Call::new("DELETE", &format!("{path}?{IDS}"))
}

fn state(answer: &crate::broker::Answer) -> (u16, String) {
    (answer.status, answer.text("state"))
}

#[tokio::test]
async fn ids_that_a_delete_has_of_old_are_no_reason_to_refuse_it() {
    let broker = Broker::start().await;
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    assert_eq!(broker.bind("i", "b", json!({})).await.status, 201);
    for path in [BINDING, INSTANCE] {
        let call = Call::new("DELETE", &format!("{path}?service_id=old&plan_id=older"));
        let answer = broker.ask(call).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_known_binding_is_not_deleted_without_its_ids() {
    let broker = Broker::start().await;
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    assert_eq!(broker.bind("i", "b", json!({})).await.status, 201);
    for (query, missing) in [("", "service_id"), ("?service_id=db", "plan_id")] {
        let call = Call::new("DELETE", &format!("{BINDING}{query}"));
        let answer = broker.ask(call).await;
        assert_eq!(answer.status, 400, "{query}");
        let text = answer.text("description");
        assert!(text.contains(missing), "{text}");
    }
    assert_eq!(broker.ask(Call::new("GET", BINDING)).await.status, 200);
}

#[tokio::test]
async fn an_unbind_of_the_unknown_asks_the_instance_whether_it_could_be_synchronous() {
    let broker = Broker::start().await;
    let order = json!({
        "service_id": "slow", "plan_id": "slow-only", "organization_guid": "o", "space_guid": "s",
        "parameters": {"size": 1},
    });
    let put = Call::new("PUT", INSTANCE).json(&order).later();
    assert_eq!(broker.ask(put).await.status, 202);
    broker.polled(&format!("{INSTANCE}/last_operation")).await;
    // No ids at all: the plan is the instance's.
    let answer = broker.ask(Call::new("DELETE", BINDING)).await;
    assert_eq!(
        (answer.status, answer.text("error").as_str()),
        (422, "AsyncRequired")
    );
    let answer = broker.ask(Call::new("DELETE", BINDING).later()).await;
    assert_eq!(answer.status, 410);
}

#[tokio::test]
async fn an_unbind_ends_the_bind_that_it_comes_after() {
    let broker = Broker::start().await;
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    let hold = bind(json!({"bind": "hold"}));
    let put = Call::new("PUT", BINDING).json(&hold).later();
    let binding = broker.ask(put).await.text("operation");
    broker.run_is_held().await;
    let first = broker.ask(delete(BINDING).later()).await;
    assert_eq!(first.status, 202, "{}", first.body);
    let poll = format!("{BINDING}/last_operation?operation=");
    let answer = broker
        .polled(&format!("{poll}{}", first.text("operation")))
        .await;
    assert_eq!(state(&answer), (200, "succeeded".to_owned()));
    let answer = broker.polled(&format!("{poll}{binding}")).await;
    assert_eq!(state(&answer), (200, "failed".to_owned()));
    assert_eq!(broker.ask(delete(BINDING)).await.status, 410);
    assert_eq!(broker.ask(Call::new("GET", BINDING)).await.status, 404);
}

#[tokio::test]
async fn a_synchronous_delete_waits_for_what_it_ends() {
    let broker = Broker::start().await;
    let hold = provision(json!({"provision": "hold"}));
    let put = Call::new("PUT", INSTANCE).json(&hold).later();
    let made = broker.ask(put).await.text("operation");
    broker.run_is_held().await;
    let answer = broker.ask(delete(INSTANCE)).await;
    assert_eq!((answer.status, answer.body), (200, json!({})));
    let poll = format!("{INSTANCE}/last_operation?operation={made}");
    let answer = broker.ask(Call::new("GET", &poll)).await;
    assert_eq!(state(&answer), (200, "failed".to_owned()));
}

#[tokio::test]
async fn a_repeated_unbind_is_the_same_operation() {
    let broker = Broker::start().await;
    assert_eq!(broker.provision("i", json!({})).await.status, 201);
    let hold = json!({"unbind": "hold"});
    assert_eq!(broker.bind("i", "b", hold).await.status, 201);
    let first = broker.ask(delete(BINDING).later()).await;
    assert_eq!(first.status, 202);
    broker.run_is_held().await;
    let again = broker.ask(delete(BINDING).later()).await;
    assert_eq!(
        (again.status, again.text("operation")),
        (202, first.text("operation"))
    );
    assert_eq!(broker.ask(Call::new("GET", BINDING)).await.status, 404);
    broker.runs.release();
    let answer = broker.polled(&format!("{BINDING}/last_operation")).await;
    assert_eq!(state(&answer), (200, "succeeded".to_owned()));
}

#[tokio::test]
async fn an_instance_is_not_told_while_it_goes_and_is_again_when_that_failed() {
    let broker = Broker::start().await;
    let hold = json!({"deprovision": "hold"});
    assert_eq!(broker.provision("i", hold).await.status, 201);
    assert_eq!(broker.ask(delete(INSTANCE).later()).await.status, 202);
    broker.run_is_held().await;
    let answer = broker.ask(Call::new("GET", INSTANCE)).await;
    assert_eq!(
        (answer.status, answer.text("error").as_str()),
        (422, "ConcurrencyError")
    );
    let fail = json!({"deprovision": "fail"});
    assert_eq!(broker.provision("j", fail).await.status, 201);
    let other = "/v2/service_instances/j";
    let answer = broker.ask(delete(other)).await;
    assert_eq!(answer.status, 500);
    assert_eq!(broker.ask(Call::new("GET", other)).await.status, 200);
}
