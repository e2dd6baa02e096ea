//! What platforms do all day: repeat themselves, change their minds, poll what is long over.

use std::fs;
use std::path::PathBuf;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Broker, Setup, root};

type Ids = (String, String);

/// A broker with the fault bundle, and a gate that its actions can be held at.
struct Stage {
    broker: Broker,
    ok: Ids,
    gate: PathBuf,
    marks: PathBuf,
}

impl Stage {
    async fn set() -> Self {
        let broker = Broker::patient("").await;
        let ok = broker.ids("faults", "ok").await;
        let (gate, marks) = (
            broker.dir.path().join("gate"),
            broker.dir.path().join("marks"),
        );
        fs::create_dir(&marks).unwrap();
        Self {
            broker,
            ok,
            gate,
            marks,
        }
    }

    /// Parameters with which `action` waits for [`Self::open`].
    fn held(&self, action: &str) -> Value {
        json!({"when": action, "gate": self.gate, "marks": self.marks})
    }

    fn open(&self) {
        fs::write(&self.gate, "").unwrap();
    }

    /// Actions that were started, in order.
    fn started(&self) -> Vec<String> {
        let starts = fs::read_to_string(self.marks.join("starts")).unwrap_or_default();
        let action = |line: &str| line.split(' ').next().unwrap().to_owned();
        starts.lines().map(action).collect()
    }

    async fn get(&self, path: &str) -> Answer {
        self.broker.osb(Method::GET, path, None).await
    }

    async fn provisioned(&self, id: &str, parameters: Value) {
        let asked = self.broker.provision(id, &self.ok, parameters).await;
        self.broker.succeeded(id, None, &asked.operation()).await;
    }

    async fn bound(&self, id: &str, binding: &str) {
        let asked = self.broker.bind(id, binding, &self.ok, json!({})).await;
        let operation = asked.operation();
        self.broker.succeeded(id, Some(binding), &operation).await;
    }
}

fn assert_busy(answer: &Answer) {
    assert_eq!(answer.status, 422, "{answer:?}");
    assert_eq!(answer.body["error"], "ConcurrencyError", "{answer:?}");
}

#[tokio::test]
async fn the_same_provision_again_gets_the_same_operation_and_then_200() {
    let stage = Stage::set().await;
    let broker = &stage.broker;
    let parameters = stage.held("provision");
    let operation = broker
        .provision("i", &stage.ok, parameters.clone())
        .await
        .operation();
    broker.job_is(&operation, "running").await;

    let again = broker.provision("i", &stage.ok, parameters.clone()).await;
    assert_eq!(again.operation(), operation);
    let other = broker
        .provision("i", &stage.ok, json!({"when": "bind"}))
        .await;
    assert_eq!(other.status, 409, "{other:?}");
    let abort = broker.ids("faults", "abort").await;
    let other = broker.provision("i", &abort, parameters.clone()).await;
    assert_eq!(other.status, 409, "{other:?}");
    let poll = stage.get("/v2/service_instances/i/last_operation").await;
    assert_eq!(poll.body["state"], "in progress", "{poll:?}");
    let seconds: u32 = poll.headers["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(seconds >= 1);
    assert_eq!(stage.get("/v2/service_instances/i").await.status, 404);
    assert_eq!(
        broker.bind("i", "b", &stage.ok, json!({})).await.status,
        422
    );

    stage.open();
    broker.succeeded("i", None, &operation).await;
    let again = broker.provision("i", &stage.ok, parameters.clone()).await;
    assert_eq!(again.status, 200, "{again:?}");
    let other = broker.provision("i", &stage.ok, json!({})).await;
    assert_eq!(other.status, 409, "{other:?}");
    let fetched = stage.get("/v2/service_instances/i").await;
    assert_eq!(fetched.status, 200, "{fetched:?}");
    assert_eq!(fetched.body["service_id"], stage.ok.0);
    assert_eq!(fetched.body["plan_id"], stage.ok.1);
    assert_eq!(fetched.body["parameters"], parameters);
    assert_eq!(stage.started(), ["provision"]);
}

#[tokio::test]
async fn the_same_bind_again_gets_the_same_operation_and_then_the_credentials() {
    let stage = Stage::set().await;
    let broker = &stage.broker;
    stage.provisioned("i", json!({})).await;
    let parameters = stage.held("bind");
    let path = "/v2/service_instances/i/service_bindings/b";
    let operation = broker
        .bind("i", "b", &stage.ok, parameters.clone())
        .await
        .operation();
    broker.job_is(&operation, "running").await;
    let again = broker.bind("i", "b", &stage.ok, parameters.clone()).await;
    assert_eq!(again.operation(), operation);
    let other = broker.bind("i", "b", &stage.ok, json!({})).await;
    assert_eq!(other.status, 409, "{other:?}");
    assert_eq!(stage.get(path).await.status, 404);
    // Binds of one instance run side by side.
    stage.bound("i", "beside").await;

    stage.open();
    broker.succeeded("i", Some("b"), &operation).await;
    let again = broker.bind("i", "b", &stage.ok, parameters.clone()).await;
    assert_eq!(again.status, 200, "{again:?}");
    let credentials = json!({"fault": "ok", "attempt": "1"});
    assert_eq!(again.body["credentials"], credentials, "{again:?}");
    let other = broker.bind("i", "b", &stage.ok, json!({})).await;
    assert_eq!(other.status, 409, "{other:?}");
    let fetched = stage.get(path).await;
    assert_eq!(fetched.body["credentials"], credentials, "{fetched:?}");
    assert_eq!(fetched.body["parameters"], parameters, "{fetched:?}");

    let unbind = broker.unbind("i", "b", &stage.ok).await.operation();
    broker.succeeded("i", Some("b"), &unbind).await;
    assert_eq!(stage.get(path).await.status, 404);
    assert_eq!(broker.unbind("i", "b", &stage.ok).await.status, 410);
    // A poll of what is over says what it always said.
    broker.succeeded("i", Some("b"), &operation).await;
    let unknown = broker.bind("nobody", "b", &stage.ok, json!({})).await;
    assert_eq!(unknown.status, 404, "{unknown:?}");
}

#[tokio::test]
async fn while_an_instance_is_deleted_only_its_deletion_is_taken_on() {
    let stage = Stage::set().await;
    let broker = &stage.broker;
    let parameters = stage.held("deprovision");
    let made = broker
        .provision("i", &stage.ok, parameters.clone())
        .await
        .operation();
    broker.succeeded("i", None, &made).await;
    let deleted = broker.deprovision("i", &stage.ok).await.operation();
    broker.job_is(&deleted, "running").await;

    assert_busy(&broker.provision("i", &stage.ok, parameters.clone()).await);
    assert_busy(&broker.update("i", &stage.ok, json!({"a": 1})).await);
    assert_busy(&broker.bind("i", "b", &stage.ok, json!({})).await);
    let again = broker.deprovision("i", &stage.ok).await;
    assert_eq!(again.operation(), deleted);

    stage.open();
    broker.succeeded("i", None, &deleted).await;
    assert_eq!(broker.deprovision("i", &stage.ok).await.status, 410);
    assert_eq!(stage.get("/v2/service_instances/i").await.status, 404);

    // The id lives again; both operations of its first life still answer.
    let second = broker
        .provision("i", &stage.ok, json!({"life": 2}))
        .await
        .operation();
    assert_ne!(second, made);
    broker.succeeded("i", None, &second).await;
    broker.succeeded("i", None, &made).await;
    broker.succeeded("i", None, &deleted).await;
    let fetched = stage.get("/v2/service_instances/i").await;
    assert_eq!(
        fetched.body["parameters"],
        json!({"life": 2}),
        "{fetched:?}"
    );
}

#[tokio::test]
async fn a_deprovision_takes_the_bindings_along_and_first() {
    let stage = Stage::set().await;
    let broker = &stage.broker;
    stage.provisioned("i", json!({"marks": stage.marks})).await;
    stage.bound("i", "one").await;
    stage.bound("i", "two").await;
    let deleted = broker.deprovision("i", &stage.ok).await.operation();
    broker.succeeded("i", None, &deleted).await;
    assert_eq!(
        stage.started(),
        [
            "provision",
            "bind",
            "bind",
            "unbind",
            "unbind",
            "deprovision"
        ]
    );
    for binding in ["one", "two"] {
        let path = format!("/v2/service_instances/i/service_bindings/{binding}");
        assert_eq!(stage.get(&path).await.status, 404);
        let gone = broker.unbind("i", binding, &stage.ok).await;
        assert_eq!(gone.status, 410, "{gone:?}");
    }
    let status = broker.admin(Method::GET, "/admin/v1/status").await.body;
    assert_eq!(status["counts"]["bindings"], 0, "{status}");
    assert_eq!(status["counts"]["instances"], 0, "{status}");
}

#[tokio::test]
async fn what_is_unknown_is_gone_or_not_found() {
    let stage = Stage::set().await;
    let broker = &stage.broker;
    assert_eq!(broker.deprovision("i", &stage.ok).await.status, 410);
    assert_eq!(broker.unbind("i", "b", &stage.ok).await.status, 410);
    assert_eq!(broker.update("i", &stage.ok, json!({})).await.status, 404);
    for path in [
        "/v2/service_instances/i",
        "/v2/service_instances/i/last_operation",
        "/v2/service_instances/i/service_bindings/b",
        "/v2/service_instances/i/service_bindings/b/last_operation",
        "/v2/nowhere",
    ] {
        assert_eq!(stage.get(path).await.status, 404, "{path}");
    }
}

/// A request that does not accept an incomplete answer.
async fn sync(broker: &Broker, method: Method, path: &str, of: &Ids, parameters: Value) -> Answer {
    let path = format!("/v2/service_instances/{path}");
    if method == Method::DELETE {
        let path = format!("{path}?service_id={}&plan_id={}", of.0, of.1);
        return broker.osb(method, &path, None).await;
    }
    let mut body = json!({"service_id": of.0, "plan_id": of.1, "parameters": parameters});
    if method == Method::PUT && !path.contains("service_bindings") {
        body["organization_guid"] = json!("org");
        body["space_guid"] = json!("space");
    }
    broker.osb(method, &path, Some(body)).await
}

#[tokio::test]
async fn who_does_not_accept_incomplete_answers_gets_whole_ones() {
    let stage = Stage::set().await;
    let broker = &stage.broker;
    let (put, patch, delete) = (Method::PUT, Method::PATCH, Method::DELETE);
    let binding = "i/service_bindings/b";
    let asked = |method: &Method, path: &'static str, parameters| {
        sync(broker, method.clone(), path, &stage.ok, parameters)
    };
    assert_eq!(asked(&put, "i", json!({"n": 1})).await.status, 201);
    assert_eq!(asked(&put, "i", json!({"n": 1})).await.status, 200);
    assert_eq!(asked(&put, "i", json!({"n": 2})).await.status, 409);
    assert_eq!(asked(&patch, "i", json!({"n": 3})).await.status, 200);
    let fetched = stage.get("/v2/service_instances/i").await;
    assert_eq!(fetched.body["parameters"], json!({"n": 3}));
    let bound = asked(&put, binding, json!({})).await;
    assert_eq!(bound.status, 201, "{bound:?}");
    assert_eq!(bound.body["credentials"]["fault"], "ok", "{bound:?}");
    let again = asked(&put, binding, json!({})).await;
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(again.body, bound.body);
    assert_eq!(asked(&delete, binding, json!({})).await.status, 200);
    assert_eq!(asked(&delete, binding, json!({})).await.status, 410);
    assert_eq!(asked(&delete, "i", json!({})).await.status, 200);
    assert_eq!(asked(&delete, "i", json!({})).await.status, 410);

    // A failure is a failure, never a 201.
    let failing = broker.ids("faults", "exit1-message").await;
    let failed = sync(broker, put, "f", &failing, json!({})).await;
    assert_eq!(failed.status, 500, "{failed:?}");
    assert_eq!(failed.body["description"], "Out of teapots.", "{failed:?}");
    assert_eq!(stage.get("/v2/service_instances/f").await.status, 404);
}

/// The hello bundle with one word of its description changed.
fn hello_with(broker: &Broker, from: &str, to: &str) -> PathBuf {
    let folder = broker.dir.path().join("hello");
    fs::create_dir_all(&folder).unwrap();
    for entry in fs::read_dir(root().join("examples/bundles/hello")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
    }
    let file = folder.join("bundle.yml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(from));
    fs::write(file, text.replace(from, to)).unwrap();
    folder
}

async fn hello_whose_provision_is(mode: &str) -> (Broker, Ids) {
    let mut broker = Broker::new(Setup::default());
    let timeout = "provision: {command: [./provision], timeout: 1m";
    let bundle = hello_with(&broker, timeout, &format!("{timeout}, async: {mode}"));
    broker.setup.bundles = vec![bundle];
    broker.boot().await;
    let plain = broker.ids("hello", "plain").await;
    (broker, plain)
}

#[tokio::test]
async fn an_action_that_has_to_be_asynchronous_is_not_started_otherwise() {
    let (broker, plain) = hello_whose_provision_is("required").await;
    let refused = sync(&broker, Method::PUT, "i", &plain, json!({})).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert_eq!(refused.body["error"], "AsyncRequired", "{refused:?}");
    let jobs = broker.admin(Method::GET, "/admin/v1/jobs").await;
    assert_eq!(jobs.body["jobs"], json!([]));
    let asked = broker.provision("i", &plain, json!({})).await;
    broker.succeeded("i", None, &asked.operation()).await;
}

#[tokio::test]
async fn an_action_that_is_always_synchronous_is_answered_when_it_is_done() {
    let (broker, plain) = hello_whose_provision_is("unsupported").await;
    let made = broker.provision("i", &plain, json!({})).await;
    assert_eq!(made.status, 201, "{made:?}");
    let asked = broker.deprovision("i", &plain).await;
    broker.succeeded("i", None, &asked.operation()).await;
}

#[tokio::test]
async fn an_update_changes_parameters_and_plan_and_reaches_later_binds() {
    let broker = Broker::start(Setup {
        bundles: vec![root().join("examples/bundles/hello")],
        ..Setup::default()
    })
    .await;
    let (plain, loud) = (
        broker.ids("hello", "plain").await,
        broker.ids("hello", "loud").await,
    );
    let asked = broker
        .provision("i", &plain, json!({"greeting": "Hi"}))
        .await;
    broker.succeeded("i", None, &asked.operation()).await;

    let same = broker.update("i", &plain, json!({"greeting": "Hi"})).await;
    assert_eq!(same.status, 200, "nothing changes: {same:?}");
    let refused = broker.update("i", &plain, json!({"greeting": 5})).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    let asked = broker
        .update("i", &plain, json!({"greeting": "Ahoy"}))
        .await;
    broker.succeeded("i", None, &asked.operation()).await;
    let asked = broker.update("i", &loud, json!({})).await;
    broker.succeeded("i", None, &asked.operation()).await;

    let fetched = broker
        .osb(Method::GET, "/v2/service_instances/i", None)
        .await;
    assert_eq!(fetched.body["plan_id"], loud.1, "{fetched:?}");
    assert_eq!(fetched.body["parameters"], json!({"greeting": "Ahoy"}));
    let bound = sync(
        &broker,
        Method::PUT,
        "i/service_bindings/b",
        &loud,
        json!({}),
    )
    .await;
    assert_eq!(
        bound.body["credentials"]["message"], "Ahoy, world!",
        "{bound:?}"
    );
}

#[tokio::test]
async fn an_update_that_fails_leaves_plan_and_parameters_as_they_were() {
    let stage = Stage::set().await;
    let broker = &stage.broker;
    let parameters = json!({"when": "update", "keep": "me"});
    stage.provisioned("i", parameters.clone()).await;
    let failing = broker.ids("faults", "exit1").await;
    let asked = broker
        .update("i", &failing, json!({"keep": "not", "new": true}))
        .await;
    let end = broker.finished("i", None, &asked.operation()).await;
    assert_eq!(end["state"], "failed", "{end}");
    assert_eq!(end["instance_usable"], true, "{end}");
    assert_eq!(end["update_repeatable"], true, "{end}");
    let fetched = stage.get("/v2/service_instances/i").await;
    assert_eq!(fetched.body["plan_id"], stage.ok.1, "{fetched:?}");
    assert_eq!(fetched.body["parameters"], parameters, "{fetched:?}");
}

#[tokio::test]
async fn a_provision_that_failed_can_be_asked_for_again_and_deleted() {
    let stage = Stage::set().await;
    let broker = &stage.broker;
    let failing = broker.ids("faults", "exit1-message").await;
    let first = broker.provision("i", &failing, json!({})).await.operation();
    let end = broker.finished("i", None, &first).await;
    assert_eq!(end["state"], "failed", "{end}");
    assert_eq!(end["description"], "Out of teapots.", "{end}");
    // Not 200, and not the dead operation: a new try.
    let second = broker.provision("i", &failing, json!({})).await.operation();
    assert_ne!(second, first);
    let end = broker.finished("i", None, &second).await;
    assert_eq!(end["state"], "failed", "{end}");
    let deleted = broker.deprovision("i", &failing).await.operation();
    broker.succeeded("i", None, &deleted).await;
    stage.provisioned("i", json!({})).await;
}
