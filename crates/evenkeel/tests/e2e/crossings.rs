//! Requests that come at once, again, or across one another: the same one many times is one job,
//! different ones have one winner, and a delete wins over whatever it crosses, in every order and
//! however each side wants to be answered.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::Answer;
use crate::stage::{Offer, Scene, Stage};

mod at_once;
mod races;
mod states;

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
