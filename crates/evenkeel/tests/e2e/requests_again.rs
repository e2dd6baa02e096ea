//! Faults of the broker that came before (docs/faults.md), asked for once more: what failed can be
//! asked for again, what has left the catalog lives on, and nothing that an action needs is lost.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Broker, Setup};
use crate::stage::copy_faults;

/// A bundle of one plan without parameters; each action is a line of shell.
fn bundle(folder: &Path, actions: &[(&str, &str)]) -> PathBuf {
    let folder = folder.join("bundles/small");
    fs::create_dir_all(&folder).unwrap();
    let mut yml = "bundle: 1\n\
        service: {name: small, description: Does little, bindable: true}\n\
        plans: [{name: only, description: The only one}]\nactions:\n"
        .to_owned();
    for (name, line) in actions {
        let file = folder.join(name);
        fs::write(&file, format!("#!/bin/sh\nset -eu\n{line}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        yml.push_str(&format!("  {name}: {{command: [./{name}], timeout: 1m}}\n"));
    }
    fs::write(folder.join("bundle.yml"), yml).unwrap();
    folder
}

async fn with_small(actions: impl FnOnce(&Path) -> Vec<(&'static str, String)>) -> Broker {
    let mut broker = Broker::new(Setup::default());
    let lines = actions(broker.dir.path());
    let lines: Vec<_> = lines
        .iter()
        .map(|(name, line)| (*name, line.as_str()))
        .collect();
    broker.setup.bundles = vec![bundle(broker.dir.path(), &lines)];
    broker.boot().await;
    broker
}

#[tokio::test]
async fn what_has_left_the_catalog_is_finished_used_and_deleted_all_the_same() {
    let mut broker = Broker::new(Setup::default());
    let folder = broker.dir.path().join("bundles/faults");
    copy_faults(&folder, "5m");
    broker.setup.bundles = vec![folder.clone()];
    broker.boot().await;
    let ok = broker.ids("faults", "ok").await;
    let asked = broker.provision("old", &ok, json!({})).await;
    broker.succeeded("old", None, &asked.operation()).await;
    let gate = broker.dir.path().join("gate");
    let asked = broker
        .provision("new", &ok, json!({"when": "provision", "gate": gate}))
        .await;
    let operation = asked.operation();
    broker.job_is(&operation, "running").await;

    broker.kill();
    fs::remove_dir_all(&folder).unwrap();
    broker.boot().await;
    let catalog = broker.osb(Method::GET, "/v2/catalog", None).await.body;
    assert_eq!(catalog["services"], json!([]));
    fs::write(&gate, "").unwrap();
    broker.succeeded("new", None, &operation).await;
    for id in ["old", "new"] {
        let path = format!("/v2/service_instances/{id}");
        assert_eq!(broker.osb(Method::GET, &path, None).await.status, 200);
        let bound = broker.bind(id, "b", &ok, json!({})).await.operation();
        broker.succeeded(id, Some("b"), &bound).await;
        let unbound = broker.unbind(id, "b", &ok).await.operation();
        broker.succeeded(id, Some("b"), &unbound).await;
        let deleted = broker.deprovision(id, &ok).await.operation();
        broker.succeeded(id, None, &deleted).await;
    }
    // Nothing new of it, though.
    let refused = broker.provision("more", &ok, json!({})).await;
    assert_eq!(refused.status, 400, "{refused:?}");
}

/// PUT of an instance for somebody.
async fn for_user(broker: &Broker, of: &(String, String), identity: &str) -> (u16, Value) {
    let url = broker.url("osb-url");
    let answer = broker
        .http
        .put(format!(
            "{url}/v2/service_instances/i?accepts_incomplete=true"
        ))
        .basic_auth("platform", Some(broker.password()))
        .header("X-Broker-API-Version", "2.17")
        .header("X-Broker-API-Originating-Identity", identity)
        .json(&json!({
            "service_id": of.0, "plan_id": of.1, "organization_guid": "org", "space_guid": "space",
        }))
        .send()
        .await
        .unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test]
async fn who_repeats_an_order_for_another_user_gets_the_same_answer() {
    let broker = Broker::patient("").await;
    let ok = broker.ids("faults", "ok").await;
    // {"user": "a"} and {"user": "b"}
    let (a, b) = ("test eyJ1c2VyIjogImEifQ==", "test eyJ1c2VyIjogImIifQ==");
    let (status, first) = for_user(&broker, &ok, a).await;
    assert_eq!(status, 202, "{first}");
    let operation = first["operation"].as_str().unwrap();
    broker.succeeded("i", None, operation).await;
    let (status, again) = for_user(&broker, &ok, b).await;
    assert_eq!(status, 200, "{again}");
}

#[tokio::test]
async fn a_deprovision_that_failed_keeps_all_that_the_next_one_needs() {
    let mut broker = with_small(|folder| {
        let gate = folder.join("gate").display().to_string();
        let provision = "echo kept >\"$EVENKEEL_STATE/thing\"
            echo '{\"data\": {\"handle\": \"h-1\"}}' >\"$EVENKEEL_OUTPUT\"";
        let deprovision = format!(
            "[ \"$(cat \"$EVENKEEL_STATE/thing\")\" = kept ]
             jq -e '.instance.data.handle == \"h-1\" and .instance.parameters.size == 5 and
                 .identity.value.user == \"a\"' \"$EVENKEEL_REQUEST\"
             [ -e {gate} ]"
        );
        vec![
            ("provision", provision.to_owned()),
            ("deprovision", deprovision),
        ]
    })
    .await;
    let only = broker.ids("small", "only").await;
    let asked = broker.provision("i", &only, json!({"size": 5})).await;
    broker.succeeded("i", None, &asked.operation()).await;
    let first = deleted_for(&broker, &only).await;
    let end = broker.finished("i", None, &first).await;
    assert_eq!(end["state"], "failed", "{end}");

    broker.kill();
    broker.boot().await;
    fs::write(broker.dir.path().join("gate"), "").unwrap();
    let second = deleted_for(&broker, &only).await;
    assert_ne!(second, first, "a dead operation is never handed out again");
    broker.succeeded("i", None, &second).await;
    assert_eq!(broker.deprovision("i", &only).await.status, 410);
}

/// DELETE of an instance for the user `a`; gives the operation.
async fn deleted_for(broker: &Broker, of: &(String, String)) -> String {
    let url = broker.url("osb-url");
    let answer = broker
        .http
        .delete(format!(
            "{url}/v2/service_instances/i?accepts_incomplete=true&service_id={}&plan_id={}",
            of.0, of.1
        ))
        .basic_auth("platform", Some(broker.password()))
        .header("X-Broker-API-Version", "2.17")
        .header(
            "X-Broker-API-Originating-Identity",
            "test eyJ1c2VyIjogImEifQ==",
        )
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 202);
    let answer: Value = answer.json().await.unwrap();
    answer["operation"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_bind_or_unbind_that_failed_can_be_asked_for_again() {
    let broker = Broker::patient("").await;
    let failing = broker.ids("faults", "exit1-message").await;
    for (id, when) in [("one", "bind"), ("two", "unbind")] {
        let asked = broker.provision(id, &failing, json!({"when": when})).await;
        broker.succeeded(id, None, &asked.operation()).await;
        if when == "unbind" {
            let bound = broker.bind(id, "b", &failing, json!({})).await.operation();
            broker.succeeded(id, Some("b"), &bound).await;
        }
        let mut operations = Vec::new();
        for _ in 0..2 {
            let asked = match when {
                "bind" => broker.bind(id, "b", &failing, json!({})).await,
                _ => broker.unbind(id, "b", &failing).await,
            };
            let operation = asked.operation();
            let end = broker.finished(id, Some("b"), &operation).await;
            assert_eq!(end["state"], "failed", "{end}");
            assert_eq!(end["description"], "Out of teapots.", "{end}");
            assert!(
                !operations.contains(&operation),
                "a new operation each time"
            );
            operations.push(operation);
        }
    }
}

#[tokio::test]
async fn a_binding_without_an_action_gets_the_credentials_of_provision_and_none_if_there_are_none()
{
    let broker = with_small(|_| {
        let provision = "if jq -e .instance.parameters.secret \"$EVENKEEL_REQUEST\"; then
            echo '{\"credentials\": {\"key\": \"k\"}}' >\"$EVENKEEL_OUTPUT\"; fi";
        vec![
            ("provision", provision.to_owned()),
            ("deprovision", "true".to_owned()),
        ]
    })
    .await;
    let only = broker.ids("small", "only").await;
    let pid = broker.pid();
    for (id, parameters, credentials) in [
        ("with", json!({"secret": true}), json!({"key": "k"})),
        ("without", json!({}), Value::Null),
    ] {
        let asked = broker.provision(id, &only, parameters).await;
        broker.succeeded(id, None, &asked.operation()).await;
        let bound = broker.bind(id, "b", &only, json!({})).await;
        assert!(matches!(bound.status, 201 | 202), "{bound:?}");
        if bound.status == 202 {
            broker.succeeded(id, Some("b"), &bound.operation()).await;
        }
        let path = format!("/v2/service_instances/{id}/service_bindings/b");
        let fetched = broker.osb(Method::GET, &path, None).await;
        assert_eq!(fetched.status, 200, "{fetched:?}");
        assert_eq!(fetched.body["credentials"], credentials, "{fetched:?}");
        // A fresh binding id as often as a tenant likes.
        for binding in ["c", "d", "e"] {
            let bound = broker.bind(id, binding, &only, json!({})).await;
            assert!(matches!(bound.status, 201 | 202), "{bound:?}");
        }
        let deleted = broker.deprovision(id, &only).await.operation();
        broker.succeeded(id, None, &deleted).await;
    }
    assert_eq!(broker.pid(), pid);
}

#[tokio::test]
async fn a_delete_never_runs_beside_the_update_that_it_comes_after() {
    let broker = Broker::patient("").await;
    let ok = broker.ids("faults", "ok").await;
    let marks = broker.dir.path().join("marks");
    fs::create_dir(&marks).unwrap();
    let parameters = json!({
        "when": "update", "gate": broker.dir.path().join("gate"), "marks": marks,
        "lock": broker.dir.path().join("lock"),
    });
    let asked = broker.provision("i", &ok, parameters).await;
    broker.succeeded("i", None, &asked.operation()).await;
    let update = broker
        .update("i", &ok, json!({"size": 2}))
        .await
        .operation();
    broker.job_is(&update, "running").await;
    let delete = broker.deprovision("i", &ok).await.operation();
    fs::write(broker.dir.path().join("gate"), "").unwrap();
    broker.succeeded("i", None, &delete).await;
    let end = broker.finished("i", None, &update).await;
    assert_ne!(end["state"], "in progress");
    let starts = fs::read_to_string(marks.join("starts")).unwrap();
    let actions: Vec<_> = starts
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(actions.first(), Some(&"provision"));
    assert_eq!(actions.last(), Some(&"deprovision"));
    assert!(
        !marks.join("DOUBLE").exists(),
        "two runs of one instance at a time"
    );
}
