//! The Kubernetes service catalog (OSB.md §3.5): controllers that ask again until it is so, undo
//! what may have been left behind, and then use the same name once more.

use std::time::{Duration, Instant as Clock};

use reqwest::Method;
use serde_json::{Value, json};

use super::Platform;
use super::client::{Dialect, Reply};
use super::desk::{ARRIVED, Change, Desk, Instance, Polled};

const BACKOFF: Duration = Duration::from_millis(40);

#[derive(Debug)]
pub(crate) struct Kubernetes;

fn context() -> Value {
    json!({
        "platform": "kubernetes", "namespace": "default",
        "clusterid": "7c2b4a2e-55d7-4d0b-8f3e-0d7e9f4b6a11", "instance_name": "db",
    })
}

impl Platform for Kubernetes {
    const NAME: &'static str = "kubernetes";
    const DELETED_AS: &'static str = "gone";
    const DIALECT: Dialect = Dialect {
        version: "2.14",
        headers: &[],
        named: &[],
        identity: "kubernetes eyJ1c2VybmFtZSI6ImR1a2UiLCJ1aWQiOiJjMmRkZTI0Mi01Y2U0LTExZTctOTg4Yy0wMDBjMjk0NmYxNGYiLCJncm91cHMiOlsiYWRtaW4iLCJkZXYiXSwiZXh0cmEiOnsibXlkYXRhIjpbImRhdGExIiwiZGF0YTMiXX19",
    };

    async fn create(desk: &mut Desk, instance: &Instance) -> bool {
        let body = json!({
            "service_id": instance.offer.id, "plan_id": instance.plan_id(),
            "organization_guid": "namespace-uid", "space_guid": "namespace-uid",
            "context": context(), "parameters": instance.parameters,
        });
        let url = format!("{}?accepts_incomplete=true", instance.path());
        let since = Clock::now();
        for tries in 0.. {
            desk.decree("provision", &instance.id, tries);
            let reply = desk
                .send(Method::PUT, url.clone(), Some(body.clone()))
                .await;
            match reply.status() {
                Some(200 | 201) => return true,
                Some(202) if desk.is_unwanted().await => return false,
                Some(202) => {
                    let (path, ids) = (instance.path(), instance.ids());
                    let operation = reply.operation();
                    if desk.poll(&path, &ids, &operation, false).await == Polled::Succeeded {
                        return true;
                    }
                }
                Some(status) if status < 500 => desk.shock("a PUT was refused", &reply),
                Some(_) | None => {}
            }
            // Where the connection broke it is simply asked again.
            if !matches!(reply, Reply::Unreachable | Reply::Broken) {
                tokio::time::sleep(ARRIVED).await;
                desk.delete_instance(instance).await;
            }
            assert!(
                since.elapsed() < desk.client.patience,
                "{instance:?}: {reply:?}"
            );
            tokio::time::sleep(BACKOFF).await;
        }
        unreachable!("tries have no end")
    }

    fn patch(instance: &Instance, change: &Change) -> Value {
        let wanted = change.of(instance);
        let mut body = json!({
            "service_id": instance.offer.id, "context": context(),
            "previous_values": { "plan_id": instance.plan_id() },
        });
        if change.plan.is_some() {
            body["plan_id"] = wanted.plan_id().into();
        }
        // All of them, where one changes; an empty map would be left out.
        if !change.parameters.is_empty() {
            body["parameters"] = wanted.parameters.into();
        }
        body
    }

    async fn bind(desk: &mut Desk, instance: &Instance, binding: &str) -> Option<Value> {
        let body = json!({
            "service_id": instance.offer.id, "plan_id": instance.plan_id(),
            "context": context(), "bind_resource": { "app_guid": "namespace-uid" },
            "app_guid": "namespace-uid",
        });
        let (path, ids) = (instance.binding_path(binding), instance.ids());
        let url = format!("{path}?accepts_incomplete=true");
        let since = Clock::now();
        for tries in 0.. {
            desk.decree("bind", &instance.binding_target(binding), tries);
            let reply = desk
                .send(Method::PUT, url.clone(), Some(body.clone()))
                .await;
            match reply.status() {
                Some(200 | 201) => return Some(reply.body()["credentials"].clone()),
                Some(202) => {
                    let operation = reply.operation();
                    if desk.poll(&path, &ids, &operation, false).await == Polled::Succeeded {
                        let got = desk.fetch(&path, &ids).await;
                        match got.status() {
                            Some(200) => return Some(got.body()["credentials"].clone()),
                            _ if !desk.calm => {}
                            _ => desk.shock("GET right after a bind", &got),
                        }
                    }
                    break;
                }
                Some(status) if status < 500 && desk.calm => {
                    desk.shock("a bind was refused", &reply);
                }
                // Every answer is final, and so is a time-out.
                Some(_) => break,
                None if matches!(reply, Reply::TimedOut) => break,
                None => {}
            }
            assert!(since.elapsed() < desk.client.patience, "{path}: {reply:?}");
            tokio::time::sleep(BACKOFF).await;
        }
        tokio::time::sleep(ARRIVED).await;
        desk.delete_binding(instance, binding).await;
        None
    }
}
