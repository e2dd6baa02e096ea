//! Requests that come at once, again, or across one another: the same one many times is one job,
//! different ones have one winner, and a delete wins over whatever it crosses, in every order and
//! however each side wants to be answered.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{Answer, eventually};
use crate::stage::{Offer, Scene, Stage};

const AT_ONCE: usize = 32;

/// Whether a platform waits for the end, or polls for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Sync,
    Async,
}

const MODES: [Mode; 2] = [Mode::Sync, Mode::Async];

/// What a request is about: an instance, or a binding of it.
#[derive(Clone, Debug)]
struct Target {
    instance: String,
    binding: Option<&'static str>,
    of: Offer,
}

impl Target {
    fn instance(scene: &Scene, of: &Offer) -> Self {
        Self {
            instance: scene.instance.clone(),
            binding: None,
            of: of.clone(),
        }
    }

    fn binding(&self) -> Self {
        Self {
            binding: Some("b"),
            ..self.clone()
        }
    }

    fn path(&self) -> String {
        let binding = self.binding.map(|id| format!("/service_bindings/{id}"));
        format!(
            "/v2/service_instances/{}{}",
            self.instance,
            binding.unwrap_or_default()
        )
    }

    fn request(
        &self,
        method: &Method,
        mode: Mode,
        parameters: Value,
    ) -> (Method, String, Option<Value>) {
        let mut path = format!(
            "{}?service_id={}&plan_id={}",
            self.path(),
            self.of.0,
            self.of.1
        );
        if mode == Mode::Async {
            path += "&accepts_incomplete=true";
        }
        let body = json!({
            "service_id": self.of.0, "plan_id": self.of.1,
            "organization_guid": "org", "space_guid": "space", "parameters": parameters,
        });
        let body = (*method != Method::DELETE).then_some(body);
        (method.clone(), path, body)
    }

    async fn ask(&self, stage: &Stage, method: Method, mode: Mode, parameters: Value) -> Answer {
        let (method, path, body) = self.request(&method, mode, parameters);
        stage.broker.osb(method, &path, body).await
    }

    async fn delete(&self, stage: &Stage, mode: Mode) -> Answer {
        self.ask(stage, Method::DELETE, mode, json!({})).await
    }

    async fn get(&self, stage: &Stage) -> Answer {
        stage.broker.osb(Method::GET, &self.path(), None).await
    }

    /// The last poll of an operation: its state and what is said about it.
    async fn end(&self, stage: &Stage, operation: &str) -> (String, String) {
        let poll = stage
            .broker
            .finished(&self.instance, self.binding, operation)
            .await;
        let text = |field: &str| poll[field].as_str().unwrap_or_default().to_owned();
        (text("state"), text("description"))
    }

    /// Waits for the end of what was answered with 202; else the answer was the end.
    async fn settled(&self, stage: &Stage, answer: &Answer) {
        if answer.status == 202 {
            self.end(stage, &answer.operation()).await;
        }
    }

    /// Neither the instance nor anybody who asks for it is there any more.
    async fn is_gone(&self, stage: &Stage) {
        let (got, again) = (self.get(stage).await, self.delete(stage, Mode::Async).await);
        assert_eq!((got.status, again.status), (404, 410), "{got:?} {again:?}");
    }
}

/// The instance's jobs with this action, as operators see them.
async fn jobs(stage: &Stage, instance: &str, action: &str) -> Vec<Value> {
    let path = format!("/admin/v1/jobs?limit=500&instance={instance}");
    let list = stage.broker.admin(Method::GET, &path).await;
    assert_eq!(list.status, 200, "{list:?}");
    let all = list.body["jobs"].as_array().unwrap().iter();
    all.filter(|job| job["action"] == action).cloned().collect()
}

fn is_busy(answer: &Answer) -> bool {
    answer.status == 422 && answer.body["error"] == "ConcurrencyError"
}

/// Sends all of them at once.
async fn all_at_once(
    stage: &Stage,
    requests: impl IntoIterator<Item = (Method, String, Option<Value>)>,
) -> Vec<Answer> {
    let url = stage.broker.url("osb-url");
    let password = stage.broker.password();
    let start = Arc::new(tokio::sync::Barrier::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    for (method, path, body) in requests {
        let http = stage.broker.http.clone();
        let (url, password) = (format!("{url}{path}"), password.clone());
        let start = Arc::clone(&start);
        tasks.spawn(async move {
            let mut request = http
                .request(method, url)
                .basic_auth("platform", Some(password))
                .header("X-Broker-API-Version", "2.17");
            if let Some(body) = body {
                request = request.json(&body);
            }
            start.wait().await;
            let response = request.send().await.unwrap();
            Answer {
                status: response.status().as_u16(),
                headers: response.headers().clone(),
                body: response.json().await.unwrap(),
            }
        });
    }
    tasks.join_all().await
}

#[tokio::test]
async fn thirty_two_identical_requests_at_once_are_one_job_and_one_operation() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    let scene = stage.scene("same");
    let instance = Target::instance(&scene, &ok);

    let provision = instance.request(&Method::PUT, Mode::Async, scene.parameters("provision"));
    let answers = all_at_once(&stage, std::iter::repeat_n(provision, AT_ONCE)).await;
    let operation = answers[0].operation();
    assert!(answers.iter().all(|answer| answer.operation() == operation));
    scene.open_gate();
    assert_eq!(instance.end(&stage, &operation).await.0, "succeeded");
    assert_eq!(jobs(&stage, "same", "provision").await.len(), 1);
    assert_eq!(scene.starts("provision"), 1);

    let update = instance.request(&Method::PATCH, Mode::Async, json!({ "when": "bind" }));
    let answers = all_at_once(&stage, std::iter::repeat_n(update, AT_ONCE)).await;
    // Whoever comes when it has happened already is told so.
    let accepted: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 202)
        .collect();
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer.status, 200 | 202)),
        "{answers:?}"
    );
    let operation = accepted[0].operation();
    assert!(
        accepted
            .iter()
            .all(|answer| answer.operation() == operation)
    );
    assert_eq!(instance.end(&stage, &operation).await.0, "succeeded");
    assert_eq!(scene.starts("update"), 1);

    let binding = instance.binding();
    let bind = binding.request(&Method::PUT, Mode::Async, json!({}));
    let answers = all_at_once(&stage, std::iter::repeat_n(bind, AT_ONCE)).await;
    let accepted: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 202)
        .collect();
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer.status, 200 | 202)),
        "{answers:?}"
    );
    let operation = accepted[0].operation();
    assert!(
        accepted
            .iter()
            .all(|answer| answer.operation() == operation)
    );
    assert_eq!(binding.end(&stage, &operation).await.0, "succeeded");
    assert_eq!(jobs(&stage, "same", "bind").await.len(), 1);
    assert_eq!(scene.starts("bind"), 1);

    for (target, action) in [(&binding, "unbind"), (&instance, "deprovision")] {
        let delete = target.request(&Method::DELETE, Mode::Async, json!({}));
        let answers = all_at_once(&stage, std::iter::repeat_n(delete, AT_ONCE)).await;
        let accepted: Vec<_> = answers
            .iter()
            .filter(|answer| answer.status == 202)
            .collect();
        assert!(
            answers
                .iter()
                .all(|answer| matches!(answer.status, 202 | 410)),
            "{answers:?}"
        );
        let operation = accepted[0].operation();
        assert!(
            accepted
                .iter()
                .all(|answer| answer.operation() == operation)
        );
        assert_eq!(target.end(&stage, &operation).await.0, "succeeded");
        assert_eq!(scene.starts(action), 1);
    }
}

#[tokio::test]
async fn thirty_two_identical_requests_that_wait_get_the_end_of_one_job() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    let scene = stage.scene("same");
    scene.open_gate();
    let instance = Target::instance(&scene, &ok);
    let provision = instance.request(&Method::PUT, Mode::Sync, scene.parameters("provision"));
    let answers = all_at_once(&stage, std::iter::repeat_n(provision, AT_ONCE)).await;
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer.status, 200 | 201)),
        "{answers:?}"
    );
    assert_eq!(scene.starts("provision"), 1);

    let binding = instance.binding();
    let bind = binding.request(&Method::PUT, Mode::Sync, json!({}));
    let answers = all_at_once(&stage, std::iter::repeat_n(bind, AT_ONCE)).await;
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer.status, 200 | 201)),
        "{answers:?}"
    );
    let credentials = &answers[0].body["credentials"];
    assert!(credentials.is_object(), "{answers:?}");
    assert!(
        answers
            .iter()
            .all(|answer| answer.body["credentials"] == *credentials)
    );
    assert_eq!(scene.starts("bind"), 1);

    for (target, action) in [(&binding, "unbind"), (&instance, "deprovision")] {
        let delete = target.request(&Method::DELETE, Mode::Sync, json!({}));
        let answers = all_at_once(&stage, std::iter::repeat_n(delete, AT_ONCE)).await;
        assert!(
            answers
                .iter()
                .all(|answer| matches!(answer.status, 200 | 410)),
            "{answers:?}"
        );
        assert!(
            answers.iter().any(|answer| answer.status == 200),
            "{answers:?}"
        );
        assert_eq!(scene.starts(action), 1);
    }
}

/// Exactly one is accepted, and what it asked for is what there is.
fn one_winner(answers: &[Answer]) -> String {
    let accepted: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 202)
        .collect();
    let conflicts = answers.iter().filter(|answer| answer.status == 409).count();
    assert_eq!((accepted.len(), conflicts), (1, AT_ONCE - 1), "{answers:?}");
    accepted[0].operation()
}

#[tokio::test]
async fn of_thirty_two_different_creates_at_once_one_wins_and_the_others_are_conflicts() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    let scene = stage.scene("other");
    let instance = Target::instance(&scene, &ok);
    let different = |target: &Target, base: Value| {
        let target = target.clone();
        (0..AT_ONCE).map(move |nth| {
            let mut parameters = base.clone();
            parameters["nth"] = nth.into();
            target.request(&Method::PUT, Mode::Async, parameters)
        })
    };

    let answers = all_at_once(&stage, different(&instance, scene.parameters("provision"))).await;
    let operation = one_winner(&answers);
    scene.open_gate();
    assert_eq!(instance.end(&stage, &operation).await.0, "succeeded");
    assert_eq!(jobs(&stage, "other", "provision").await.len(), 1);
    assert_eq!(scene.starts("provision"), 1);

    let binding = instance.binding();
    let answers = all_at_once(&stage, different(&binding, json!({}))).await;
    let operation = one_winner(&answers);
    assert_eq!(binding.end(&stage, &operation).await.0, "succeeded");
    assert_eq!(jobs(&stage, "other", "bind").await.len(), 1);
    assert_eq!(scene.starts("bind"), 1);
    // What won is what there is: it alone is "identical" from now on.
    let mut identical = 0;
    for nth in 0..AT_ONCE {
        let wish = json!({ "nth": nth });
        let answer = binding.ask(&stage, Method::PUT, Mode::Async, wish).await;
        assert!(matches!(answer.status, 200 | 409), "{answer:?}");
        identical += usize::from(answer.status == 200);
    }
    assert_eq!(identical, 1);
}

#[tokio::test]
async fn of_thirty_two_different_updates_at_once_those_that_do_not_run_are_told_to_wait() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    let scene = stage.scene("i");
    stage.prepare(&scene, &ok, "update").await;
    let instance = Target::instance(&scene, &ok);
    let updates = (0..AT_ONCE)
        .map(|nth| instance.request(&Method::PATCH, Mode::Async, json!({ "nth": nth })));
    let answers = all_at_once(&stage, updates).await;
    let accepted: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 202)
        .collect();
    let busy = answers.iter().filter(|answer| is_busy(answer)).count();
    assert_eq!((accepted.len(), busy), (1, AT_ONCE - 1), "{answers:?}");
    scene.open_gate();
    assert_eq!(
        instance.end(&stage, &accepted[0].operation()).await.0,
        "succeeded"
    );
    assert_eq!(scene.starts("update"), 1);
}

#[tokio::test]
async fn an_update_sent_again_while_it_runs_is_the_same_operation_and_another_one_is_busy() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    let scene = stage.scene("i");
    stage.prepare(&scene, &ok, "update").await;
    let instance = Target::instance(&scene, &ok);
    let update =
        |size: u32| instance.ask(&stage, Method::PATCH, Mode::Async, json!({ "size": size }));
    let operation = update(2).await.operation();
    assert_eq!(update(2).await.operation(), operation);
    scene.started("update", 1).await;
    assert_eq!(update(2).await.operation(), operation);
    assert!(is_busy(&update(3).await));
    let binding = instance.binding();
    let bind = binding
        .ask(&stage, Method::PUT, Mode::Async, json!({}))
        .await;
    assert!(is_busy(&bind), "{bind:?}");
    scene.open_gate();
    assert_eq!(instance.end(&stage, &operation).await.0, "succeeded");
    assert_eq!(update(2).await.status, 200, "it has happened already");
    assert_eq!(scene.starts("update"), 1);
}

/// What a DELETE can find: each is asked to be deleted, in both ways, and is gone.
#[tokio::test]
async fn a_delete_crosses_a_create_wherever_that_stands() {
    // One slot, so that a job can be made to wait.
    let stage = Stage::new("[jobs]\nconcurrency = 1\nper_service = 1").await;
    let ok = stage.offer("ok").await;
    let fails = stage.offer("exit1").await;
    for mode in MODES {
        let name = |what: &str| format!("{what}-{mode:?}");
        // Before it: nobody is there, and the create that follows is untouched.
        let scene = stage.scene(&name("first"));
        scene.open_gate();
        let instance = Target::instance(&scene, &ok);
        assert_eq!(instance.delete(&stage, mode).await.status, 410);
        let made = instance
            .ask(
                &stage,
                Method::PUT,
                Mode::Sync,
                scene.parameters("provision"),
            )
            .await;
        assert_eq!(made.status, 201, "{made:?}");

        // While it waits for a slot, which another one holds.
        let holder = stage.scene(&name("holder"));
        let held = stage.order(&holder, &ok, "provision").await;
        holder.started("provision", 1).await;
        let scene = stage.scene(&name("queued"));
        let instance = Target::instance(&scene, &ok);
        let create = stage.order(&scene, &ok, "provision").await;
        let (deleted, ()) = tokio::join!(instance.delete(&stage, mode), async {
            // Superseded at once, before anybody runs: it never will.
            let (state, why) = instance.end(&stage, &create.job).await;
            assert_eq!(state, "failed", "{why}");
            assert!(why.contains("superseded by delete"), "{why}");
            holder.open_gate();
        });
        assert!(matches!(deleted.status, 200 | 202), "{deleted:?}");
        instance.settled(&stage, &deleted).await;
        stage.succeeded(&held).await;
        instance.is_gone(&stage).await;
        assert_eq!(
            (scene.starts("provision"), scene.starts("deprovision")),
            (0, 1)
        );

        // While it runs: its run is ended first.
        let scene = stage.scene(&name("running"));
        let instance = Target::instance(&scene, &ok);
        let create = stage.order(&scene, &ok, "provision").await;
        scene.started("provision", 1).await;
        let deleted = instance.delete(&stage, mode).await;
        assert!(matches!(deleted.status, 200 | 202), "{deleted:?}");
        instance.settled(&stage, &deleted).await;
        assert_eq!(instance.end(&stage, &create.job).await.0, "failed");
        instance.is_gone(&stage).await;
        assert_eq!((scene.starts("provision"), scene.ends("provision")), (1, 0));
        assert_eq!(scene.starts("deprovision"), 1);

        // After it, whether it went well or not.
        for (what, of) in [("ready", &ok), ("failed", &fails)] {
            let scene = stage.scene(&name(what));
            scene.open_gate();
            let instance = Target::instance(&scene, of);
            let create = stage.order(&scene, of, "provision").await;
            instance.end(&stage, &create.job).await;
            let deleted = instance.delete(&stage, mode).await;
            assert!(matches!(deleted.status, 200 | 202), "{deleted:?}");
            instance.settled(&stage, &deleted).await;
            instance.is_gone(&stage).await;
            assert_eq!(scene.starts("deprovision"), 1);
        }
    }
}

#[tokio::test]
async fn a_create_that_comes_during_a_delete_waits_and_one_after_it_is_a_new_life() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    let scene = stage.scene("i");
    stage.prepare(&scene, &ok, "deprovision").await;
    let instance = Target::instance(&scene, &ok);
    let same = || {
        instance.ask(
            &stage,
            Method::PUT,
            Mode::Async,
            scene.parameters("deprovision"),
        )
    };
    let deleted = instance.delete(&stage, Mode::Async).await.operation();
    for answer in [
        same().await,
        instance
            .ask(&stage, Method::PUT, Mode::Async, json!({}))
            .await,
        instance
            .ask(&stage, Method::PATCH, Mode::Async, json!({ "size": 9 }))
            .await,
        instance
            .binding()
            .ask(&stage, Method::PUT, Mode::Async, json!({}))
            .await,
    ] {
        assert!(is_busy(&answer), "{answer:?}");
    }
    scene.open_gate();
    assert_eq!(instance.end(&stage, &deleted).await.0, "succeeded");
    let anew = same().await;
    instance.settled(&stage, &anew).await;
    assert_eq!(instance.get(&stage).await.status, 200);
    // The former life is still told of.
    assert_eq!(instance.end(&stage, &deleted).await.0, "succeeded");
    assert_eq!(
        (scene.starts("provision"), scene.starts("deprovision")),
        (2, 1)
    );
}

#[tokio::test]
async fn a_delete_sent_again_is_the_same_operation_until_that_is_final() {
    // A backoff that is long enough to be seen.
    let stage = Stage::new("[recovery]\nbackoff_min = \"1s\"\nbackoff_max = \"1s\"").await;
    let later = stage.offer("later").await;
    let fails = stage.offer("exit1").await;

    // Behind a create that is being stopped, running, in backoff, running again, over.
    let scene = stage.scene("later");
    let instance = Target::instance(&scene, &later);
    stage.provision(&scene, &later, "deprovision").await;
    let operation = instance.delete(&stage, Mode::Async).await.operation();
    assert_eq!(
        instance.delete(&stage, Mode::Async).await.operation(),
        operation
    );
    scene.started("deprovision", 1).await;
    assert_eq!(
        instance.delete(&stage, Mode::Async).await.operation(),
        operation
    );
    let (waited, ()) = tokio::join!(instance.delete(&stage, Mode::Sync), async {
        scene.open_gate();
        stage.broker.job_is(&operation, "backoff").await;
        let again = instance.delete(&stage, Mode::Async).await;
        assert_eq!(again.operation(), operation);
    });
    assert_eq!(
        waited.status, 200,
        "who waits, waits with the first: {waited:?}"
    );
    assert_eq!(scene.starts("deprovision"), 3);
    instance.is_gone(&stage).await;
    assert_eq!(jobs(&stage, "later", "deprovision").await.len(), 1);

    // What has failed is final, and asking again is another operation.
    let scene = stage.scene("fails");
    scene.open_gate();
    let instance = Target::instance(&scene, &fails);
    let create = stage.provision(&scene, &fails, "deprovision").await;
    stage.succeeded(&create).await;
    let mut operations = Vec::new();
    for _ in 0..2 {
        let operation = instance.delete(&stage, Mode::Async).await.operation();
        assert_eq!(instance.end(&stage, &operation).await.0, "failed");
        operations.push(operation);
    }
    assert_ne!(operations[0], operations[1]);
    let failed = instance.delete(&stage, Mode::Sync).await;
    assert_eq!(failed.status, 500, "{failed:?}");
    assert_eq!(scene.starts("deprovision"), 3);
}

#[tokio::test]
async fn an_unbind_during_a_bind_stops_it_and_each_side_is_told() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    for (bind, unbind) in [
        (Mode::Async, Mode::Async),
        (Mode::Async, Mode::Sync),
        (Mode::Sync, Mode::Async),
        (Mode::Sync, Mode::Sync),
    ] {
        let scene = stage.scene(&format!("{bind:?}-{unbind:?}"));
        stage.prepare(&scene, &ok, "bind").await;
        let instance = Target::instance(&scene, &ok);
        let binding = instance.binding();
        let (bound, unbound) =
            tokio::join!(binding.ask(&stage, Method::PUT, bind, json!({})), async {
                scene.started("bind", 1).await;
                let answer = binding.delete(&stage, unbind).await;
                binding.settled(&stage, &answer).await;
                answer
            });
        assert_eq!(unbound.status, if unbind == Mode::Sync { 200 } else { 202 });
        match bind {
            Mode::Async => {
                let (state, why) = binding.end(&stage, &bound.operation()).await;
                assert_eq!(state, "failed", "{why}");
                assert!(why.contains("superseded by delete"), "{why}");
            }
            Mode::Sync => assert_eq!(bound.status, 500, "{bound:?}"),
        }
        // Without a name a poll tells of the latest: the delete.
        let latest = format!("{}/last_operation", binding.path());
        let latest = stage.broker.osb(Method::GET, &latest, None).await;
        assert_eq!(latest.body["state"], "succeeded", "{latest:?}");
        binding.is_gone(&stage).await;
        assert_eq!((scene.starts("bind"), scene.ends("bind")), (1, 0));
        assert_eq!(scene.starts("unbind"), 1);
        // The same name is free again, and the instance is none the worse.
        scene.open_gate();
        let again = binding
            .ask(&stage, Method::PUT, Mode::Sync, json!({}))
            .await;
        assert_eq!(again.status, 201, "{again:?}");
        assert_eq!(instance.get(&stage).await.status, 200);
    }
}

#[tokio::test]
async fn a_delete_during_a_create_is_answered_to_both_however_they_wait() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    for create in MODES {
        for delete in MODES {
            let scene = stage.scene(&format!("{create:?}-{delete:?}"));
            let instance = Target::instance(&scene, &ok);
            let (created, deleted) = tokio::join!(
                instance.ask(&stage, Method::PUT, create, scene.parameters("provision")),
                async {
                    scene.started("provision", 1).await;
                    let answer = instance.delete(&stage, delete).await;
                    instance.settled(&stage, &answer).await;
                    answer
                }
            );
            assert_eq!(deleted.status, if delete == Mode::Sync { 200 } else { 202 });
            match create {
                Mode::Async => {
                    assert_eq!(instance.end(&stage, &created.operation()).await.0, "failed");
                }
                Mode::Sync => assert_eq!(created.status, 500, "{created:?}"),
            }
            instance.is_gone(&stage).await;
            assert_eq!((scene.starts("provision"), scene.ends("provision")), (1, 0));
            assert_eq!(scene.starts("deprovision"), 1);
        }
    }
}

#[tokio::test]
async fn a_delete_during_an_update_or_a_bind_takes_everything_along() {
    let stage = Stage::new("").await;
    let ok = stage.offer("ok").await;
    for action in ["update", "bind"] {
        for mode in MODES {
            let scene = stage.scene(&format!("{action}-{mode:?}"));
            stage.prepare(&scene, &ok, action).await;
            let instance = Target::instance(&scene, &ok);
            let order = stage.order(&scene, &ok, action).await;
            scene.started(action, 1).await;
            let deleted = instance.delete(&stage, mode).await;
            instance.settled(&stage, &deleted).await;
            assert!(matches!(deleted.status, 200 | 202), "{deleted:?}");
            assert!(stage.failed(&order).await.contains("superseded by delete"));
            instance.is_gone(&stage).await;
            assert_eq!((scene.starts(action), scene.ends(action)), (1, 0));
            // What was being bound is unbound before the instance goes.
            assert_eq!(scene.starts("unbind"), usize::from(action == "bind"));
            assert_eq!(scene.starts("deprovision"), 1);
            instance.binding().is_gone(&stage).await;
        }
    }
}

/// Both at the same instant, or nearly: whoever is first, both are answered and what they say is
/// so. Every run takes the instance's lock, so that two at once would be seen.
async fn crossed(stage: &Stage, of: &Offer, action: &str, modes: [Mode; 2], pause: i32) {
    let name = format!("{action}-{modes:?}-{pause}").replace(['[', ']', ',', ' '], "");
    let scene = stage.scene(&name);
    scene.open_gate();
    let instance = Target::instance(&scene, of);
    stage.prepare(&scene, of, action).await;
    let (method, target, parameters) = match action {
        "provision" => (Method::PUT, instance.clone(), scene.parameters(action)),
        "update" => (Method::PATCH, instance.clone(), json!({ "size": 2 })),
        _ => (Method::PUT, instance.binding(), json!({})),
    };
    let wait = |ahead: i32| {
        tokio::time::sleep(Duration::from_millis(u64::try_from(ahead.max(0)).unwrap()))
    };
    let (made, deleted) = tokio::join!(
        async {
            wait(-pause).await;
            target.ask(stage, method, modes[0], parameters).await
        },
        async {
            wait(pause).await;
            instance.delete(stage, modes[1]).await
        }
    );
    target.settled(stage, &made).await;
    instance.settled(stage, &deleted).await;
    eventually("every job of the instance is final", || async {
        let path = format!("/admin/v1/jobs?state=queued,running,backoff&instance={name}");
        let list = stage.broker.admin(Method::GET, &path).await.body;
        list["jobs"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
    let say = || format!("{name}: {made:?} {deleted:?}\n{}", stage.broker.log());
    if deleted.status == 410 {
        // The delete was there before the create.
        assert_eq!(action, "provision", "{}", say());
        assert!(matches!(made.status, 201 | 202), "{}", say());
        assert_eq!(instance.get(stage).await.status, 200, "{}", say());
        assert_eq!(scene.starts("deprovision"), 0, "{}", say());
    } else {
        assert!(matches!(deleted.status, 200 | 202), "{}", say());
        let superseded = made.status == 500 && modes[0] == Mode::Sync;
        let too_late = made.status == 404 || is_busy(&made);
        let done = matches!(made.status, 200..=202);
        assert!(
            done || superseded || too_late && action != "provision",
            "{}",
            say()
        );
        instance.is_gone(stage).await;
        assert_eq!(scene.starts("deprovision"), 1, "{}", say());
    }
    assert!(scene.starts(action) <= 1, "{}", say());
    assert!(scene.starts("unbind") <= 1, "{}", say());
}

#[tokio::test]
async fn a_create_an_update_or_a_bind_that_crosses_a_delete_loses_nothing_and_leaves_nothing() {
    let stage = Arc::new(Stage::new("[jobs]\nconcurrency = 32\nper_service = 32").await);
    let ok = stage.offer("ok").await;
    for action in ["provision", "update", "bind"] {
        let mut tasks = JoinSet::new();
        for make in MODES {
            for delete in MODES {
                // Negative: the delete is sent first.
                for pause in [-8, -2, 0, 1, 3, 10, 40] {
                    let (stage, ok) = (Arc::clone(&stage), ok.clone());
                    tasks.spawn(async move {
                        crossed(&stage, &ok, action, [make, delete], pause).await;
                    });
                }
            }
        }
        tasks.join_all().await;
    }
}
