//! Cloud Foundry's Cloud Controller (OSB.md §3.2 to §3.4): asks once, cleans up after what it did
//! not understand, and leaves it to its users to ask again.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::client::{Dialect, Reply};
use super::desk::{ARRIVED, Change, Desk, Instance, Polled};
use super::{PAUSE, Platform};

/// Attempts of orphan mitigation come after twice the time of the one before each.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct CloudController;

fn context() -> Value {
    json!({
        "platform": "cloudfoundry",
        "organization_guid": "org", "organization_name": "system",
        "space_guid": "space", "space_name": "dev",
        "organization_annotations": { "example.com/a": "b" }, "space_annotations": {},
    })
}

fn with(mut body: Value, more: Value) -> Value {
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    body
}

/// DELETE without a user, more and more rarely, until it was taken; a 202 is enough.
async fn mitigate(desk: &mut Desk, action: &str, target: &str, path: &str, ids: &str) {
    // Nobody looks at the end of it, so a failure of the action itself would stay unseen.
    desk.world.decree(action, target, "ok");
    let since = Instant::now();
    let mut pause = ARRIVED;
    while since.elapsed() < desk.client.patience {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        let url = format!("{path}?accepts_incomplete=true&{ids}");
        let reply = desk.send_unasked(Method::DELETE, url).await;
        match reply.status() {
            Some(200 | 202 | 410) => return,
            _ if reply.is_trouble() => {}
            _ => desk.shock("orphan mitigation", &reply),
        }
    }
    panic!("seed {}: {path} stays an orphan", desk.seed);
}

/// What comes of a create that was answered otherwise than with success.
enum Declined {
    /// Left behind, perhaps: it has to be cleaned up.
    Orphan,
    /// Refused, or never arrived.
    Nothing,
}

fn declined(desk: &Desk, reply: &Reply) -> Declined {
    match reply {
        Reply::Unreachable => Declined::Nothing,
        // A connection that breaks says as little as a time-out.
        Reply::TimedOut | Reply::Broken => Declined::Orphan,
        Reply::Answer(answer) if answer.status >= 500 => Declined::Orphan,
        Reply::Answer(answer) => {
            let expected = reply.is_busy() || matches!(answer.status, 400 | 404);
            if desk.calm || !expected {
                desk.shock("a create was refused", reply);
            }
            Declined::Nothing
        }
    }
}

impl Platform for CloudController {
    const NAME: &'static str = "cloud_controller";
    const DELETED_AS: &'static str = "succeeded";
    const DIALECT: Dialect = Dialect {
        version: "2.15",
        headers: &[
            ("X-Api-Info-Location", "api.example.com/v2/info"),
            ("Accept", "application/json"),
        ],
        named: &["X-VCAP-Request-ID"],
        identity: "cloudfoundry eyJ1c2VyX2lkIjoiNjgzZWE3NDgtMzA5Mi00ZmY0LWI2NTYtMzljYWNjNGQ1MzYwIn0=",
    };

    async fn create(desk: &mut Desk, instance: &Instance) -> bool {
        let body = json!({
            "service_id": instance.offer.id, "plan_id": instance.plan_id(),
            "organization_guid": "org", "space_guid": "space",
            "context": with(context(), json!({ "instance_name": "db", "instance_annotations": {} })),
            "parameters": instance.parameters,
        });
        desk.decree("provision", &instance.id, 0);
        let url = format!("{}?accepts_incomplete=true", instance.path());
        let reply = desk.send(Method::PUT, url, Some(body)).await;
        match reply.status() {
            Some(200 | 201) => true,
            Some(202) if desk.is_unwanted().await => false,
            Some(202) => {
                let (path, ids) = (instance.path(), instance.ids());
                desk.poll(&path, &ids, &reply.operation(), false).await == Polled::Succeeded
            }
            _ => {
                if let Declined::Orphan = declined(desk, &reply) {
                    let (path, ids) = (instance.path(), instance.ids());
                    mitigate(desk, "deprovision", &instance.id, &path, &ids).await;
                }
                false
            }
        }
    }

    fn patch(instance: &Instance, change: &Change) -> Value {
        json!({
            "service_id": instance.offer.id, "plan_id": change.of(instance).plan_id(),
            "previous_values": {
                "plan_id": instance.plan_id(), "service_id": instance.offer.id,
                "organization_id": "org", "space_id": "space", "maintenance_info": null,
            },
            "context": with(context(), json!({ "instance_name": "db" })),
            "parameters": change.parameters,
        })
    }

    async fn bind(desk: &mut Desk, instance: &Instance, binding: &str) -> Option<Value> {
        let mut body = json!({
            "service_id": instance.offer.id, "plan_id": instance.plan_id(), "context": context(),
        });
        // For an application, or a service key.
        let for_whom = if desk.dice.chance(70) {
            let app = json!({ "app_guid": "app", "space_guid": "space", "app_annotations": {} });
            json!({ "app_guid": "app", "bind_resource": app })
        } else {
            json!({ "bind_resource": { "credential_client_id": "cc-service-key" } })
        };
        body = with(body, for_whom);
        let (path, ids) = (instance.binding_path(binding), instance.ids());
        let target = instance.binding_target(binding);
        desk.decree("bind", &target, 0);
        let url = format!("{path}?accepts_incomplete=true");
        let reply = desk.send(Method::PUT, url, Some(body)).await;
        match reply.status() {
            Some(200 | 201) => return Some(reply.body()["credentials"].clone()),
            Some(202) => {
                let unwanted = desk.is_unwanted().await;
                if !unwanted
                    && desk.poll(&path, &ids, &reply.operation(), false).await == Polled::Succeeded
                {
                    let got = desk
                        .send_unasked(Method::GET, format!("{path}?{ids}"))
                        .await;
                    match got.status() {
                        Some(200) => return Some(got.body()["credentials"].clone()),
                        // A failed binding: its user deletes it.
                        _ if got.is_trouble() || !desk.calm => {}
                        _ => desk.shock("GET right after a bind", &got),
                    }
                }
                desk.delete_binding(instance, binding).await;
            }
            _ => {
                if let Declined::Orphan = declined(desk, &reply) {
                    mitigate(desk, "unbind", &target, &path, &ids).await;
                }
            }
        }
        None
    }

    /// Its user renames it: an update of nothing but the context.
    async fn look_again(desk: &mut Desk, instance: &Instance) {
        if !desk.dice.chance(25) {
            return;
        }
        let name = desk.dice.guid();
        let body = with(
            Self::patch(instance, &Change::default()),
            json!({ "context": with(context(), json!({ "instance_name": name })) }),
        );
        let url = format!("{}?accepts_incomplete=true", instance.path());
        let since = Instant::now();
        loop {
            let reply = desk
                .send(Method::PATCH, url.clone(), Some(body.clone()))
                .await;
            match reply.status() {
                Some(200) => return,
                _ if reply.is_trouble() || reply.is_busy() => {}
                _ => desk.shock("a new name was refused", &reply),
            }
            assert!(
                since.elapsed() < desk.client.patience,
                "seed {}: {instance:?} cannot be renamed: {reply:?}",
                desk.seed
            );
            tokio::time::sleep(PAUSE).await;
        }
    }
}
