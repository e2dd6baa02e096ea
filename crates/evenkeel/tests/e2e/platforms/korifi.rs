//! Korifi: Cloud Foundry's API on Kubernetes. Each reconcile sends the PUT again until it is
//! answered with 200 or 201, and what a binding is worth it takes from that answer.

use std::time::{Duration, Instant as Clock};

use reqwest::Method;
use serde_json::{Value, json};

use super::Platform;
use super::client::Dialect;
use super::desk::{Change, Desk, Instance};

const REQUEUE: Duration = Duration::from_millis(30);

#[derive(Debug)]
pub(crate) struct Korifi;

/// Where a resource stands after one reconcile.
enum Reconciled {
    Ready(Value),
    /// Reconciled again after a while.
    Requeue,
    /// A condition that only a delete gets rid of.
    Failed,
}

fn provision_body(instance: &Instance) -> Value {
    json!({
        "service_id": instance.offer.id, "plan_id": instance.plan_id(),
        "organization_guid": "org", "space_guid": "space",
        "parameters": instance.parameters,
    })
}

fn bind_body(instance: &Instance) -> Value {
    json!({
        "service_id": instance.offer.id, "plan_id": instance.plan_id(),
        "app_guid": "app", "bind_resource": { "app_guid": "app" },
    })
}

/// PUT once more, and one look at the operation if there is one.
async fn reconcile(desk: &mut Desk, path: &str, ids: &str, body: &Value) -> Reconciled {
    let url = format!("{path}?accepts_incomplete=true");
    let reply = desk.send(Method::PUT, url, Some(body.clone())).await;
    match reply.status() {
        Some(200 | 201) => Reconciled::Ready(reply.body().clone()),
        Some(202) => {
            let operation = reply.operation();
            let poll = format!("{path}/last_operation?{ids}&operation={operation}");
            let told = desk.send_unasked(Method::GET, poll).await;
            match told.status() {
                Some(200) if told.body()["state"] == "failed" => Reconciled::Failed,
                Some(200 | 503) | None => Reconciled::Requeue,
                Some(_) => desk.shock("poll", &told),
            }
        }
        _ if reply.is_trouble() => Reconciled::Requeue,
        Some(400 | 404 | 422) if !desk.calm => Reconciled::Failed,
        _ => desk.shock(&format!("PUT {path} {body}"), &reply),
    }
}

impl Platform for Korifi {
    const NAME: &'static str = "korifi";
    const DELETED_AS: &'static str = "succeeded";
    const DIALECT: Dialect = Dialect {
        version: "2.17",
        headers: &[("Content-Type", "application/json")],
        named: &[],
        identity: "cloudfoundry eyJ1c2VyX2lkIjoiNjgzZWE3NDgtMzA5Mi00ZmY0LWI2NTYtMzljYWNjNGQ1MzYwIn0=",
    };

    async fn create(desk: &mut Desk, instance: &Instance) -> bool {
        let (path, ids, body) = (instance.path(), instance.ids(), provision_body(instance));
        let since = Clock::now();
        for tries in 0.. {
            desk.decree("provision", &instance.id, tries);
            match reconcile(desk, &path, &ids, &body).await {
                Reconciled::Ready(_) => return true,
                Reconciled::Failed => return false,
                Reconciled::Requeue => {}
            }
            if desk.dice.chance(5) {
                return false;
            }
            assert!(
                since.elapsed() < desk.client.patience,
                "{path} does not come about"
            );
            tokio::time::sleep(REQUEUE).await;
        }
        unreachable!("tries have no end")
    }

    fn patch(instance: &Instance, change: &Change) -> Value {
        json!({
            "service_id": instance.offer.id, "plan_id": change.of(instance).plan_id(),
            "parameters": change.parameters,
            "previous_values": {
                "service_id": instance.offer.id, "plan_id": instance.plan_id(),
                "organization_id": "org", "space_id": "space",
            },
        })
    }

    async fn bind(desk: &mut Desk, instance: &Instance, binding: &str) -> Option<Value> {
        let body = bind_body(instance);
        let (path, ids) = (instance.binding_path(binding), instance.ids());
        let since = Clock::now();
        for tries in 0.. {
            desk.decree("bind", &instance.binding_target(binding), tries);
            match reconcile(desk, &path, &ids, &body).await {
                Reconciled::Ready(bound) => return Some(bound["credentials"].clone()),
                Reconciled::Failed => break,
                Reconciled::Requeue => {}
            }
            assert!(
                since.elapsed() < desk.client.patience,
                "{path} does not come about"
            );
            tokio::time::sleep(REQUEUE).await;
        }
        desk.delete_binding(instance, binding).await;
        None
    }

    /// The controllers look at what is ready as well, and send its PUT: as the instance is now.
    async fn look_again(desk: &mut Desk, instance: &Instance) {
        still_ready(desk, &instance.path(), provision_body(instance)).await;
        if let Some((binding, credentials)) = instance.bindings.iter().next() {
            let path = instance.binding_path(binding);
            let told = still_ready(desk, &path, bind_body(instance)).await;
            assert_eq!(told["credentials"], *credentials, "{path}");
        }
    }
}

async fn still_ready(desk: &mut Desk, path: &str, body: Value) -> Value {
    let url = format!("{path}?accepts_incomplete=true");
    let since = Clock::now();
    loop {
        let reply = desk
            .send(Method::PUT, url.clone(), Some(body.clone()))
            .await;
        match reply.status() {
            Some(200) => return reply.body().clone(),
            _ if reply.is_trouble() => {}
            _ => desk.shock(&format!("PUT of what is ready, {path} {body}"), &reply),
        }
        assert!(since.elapsed() < desk.client.patience, "{path}: {reply:?}");
        tokio::time::sleep(REQUEUE).await;
    }
}
