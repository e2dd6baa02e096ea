//! A panic in each request handler: a 500 for that request, and nothing else.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Broker, eventually};
use crate::panics::patient;

/// A route of either API and its fault point; `{job}` stands for a job's id.
struct Handler {
    point: &'static str,
    method: Method,
    path: &'static str,
    body: Option<Value>,
}

fn handler(point: &'static str, method: Method, path: &'static str) -> Handler {
    Handler {
        point,
        method,
        path,
        body: None,
    }
}

fn handlers(of: &(String, String)) -> Vec<Handler> {
    const INSTANCE: &str = "/v2/service_instances/i";
    const BINDING: &str = "/v2/service_instances/i/service_bindings/b";
    let body = json!({"service_id": of.0, "plan_id": of.1, "parameters": {},
        "organization_guid": "org", "space_guid": "space"});
    let with_body = |point, method, path| Handler {
        body: Some(body.clone()),
        ..handler(point, method, path)
    };
    vec![
        // First, for the others' jobs are waited for by polls.
        handler(
            "server.instance_poll",
            Method::GET,
            "{instance}/last_operation",
        ),
        handler(
            "server.binding_poll",
            Method::GET,
            "{binding}/last_operation",
        ),
        handler("server.catalog", Method::GET, "/v2/catalog"),
        with_body(
            "server.provision",
            Method::PUT,
            "{instance}?accepts_incomplete=true",
        ),
        with_body(
            "server.update",
            Method::PATCH,
            "{instance}?accepts_incomplete=true",
        ),
        handler("server.instance", Method::GET, INSTANCE),
        with_body(
            "server.bind",
            Method::PUT,
            "{binding}?accepts_incomplete=true",
        ),
        handler("server.binding", Method::GET, BINDING),
        handler(
            "server.unbind",
            Method::DELETE,
            "{binding}?accepts_incomplete=true&{of}",
        ),
        handler(
            "server.deprovision",
            Method::DELETE,
            "{instance}?accepts_incomplete=true&{of}",
        ),
        handler("server.livez", Method::GET, "/livez"),
        handler("server.readyz", Method::GET, "/readyz"),
        handler("server.status", Method::GET, "/admin/v1/status"),
        handler("server.boots", Method::GET, "/admin/v1/boots"),
        handler("server.admin_catalog", Method::GET, "/admin/v1/catalog"),
        handler("server.reload", Method::POST, "/admin/v1/reload"),
        handler("server.jobs", Method::GET, "/admin/v1/jobs"),
        handler("server.job", Method::GET, "/admin/v1/jobs/{job}"),
        handler("server.log", Method::GET, "/admin/v1/jobs/{job}/log"),
        handler(
            "server.explanation",
            Method::GET,
            "/admin/v1/jobs/{job}/explanation",
        ),
        handler("server.retry", Method::POST, "/admin/v1/jobs/{job}/retry"),
        handler(
            "server.discard",
            Method::POST,
            "/admin/v1/jobs/{job}/discard",
        ),
        handler("server.cancel", Method::POST, "/admin/v1/jobs/{job}/cancel"),
        handler("server.clear", Method::POST, "/admin/v1/jobs/{job}/clear"),
    ]
}

impl Handler {
    /// Asks, and waits for what a 202 started, so that the next answer does not depend on time.
    async fn ask(&self, broker: &Broker, of: &(String, String), job: &str) -> Answer {
        let path = self
            .path
            .replace("{instance}", "/v2/service_instances/i")
            .replace("{binding}", "/v2/service_instances/i/service_bindings/b")
            .replace("{of}", &format!("service_id={}&plan_id={}", of.0, of.1))
            .replace("{job}", job);
        if !path.starts_with("/v2") {
            return broker.admin(self.method.clone(), &path).await;
        }
        let answer = broker
            .osb(self.method.clone(), &path, self.body.clone())
            .await;
        if answer.status == 202 {
            let binding = path.contains("service_bindings").then_some("b");
            broker.succeeded("i", binding, &answer.operation()).await;
        }
        answer
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_any_handler_costs_its_request_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let of = Default::default();
    let rules: Vec<_> = handlers(&of)
        .iter()
        .map(|handler| format!("{}=panic@1", handler.point))
        .collect();
    let mut broker = Broker::start(patient(scratch.path()).with_faults(&rules.join(";"))).await;
    let pid = broker.pid();
    // The harness asks /readyz and the catalog before the test can.
    eventually("the catalog has panicked and answers", || async {
        let answer = broker.osb(Method::GET, "/v2/catalog", None).await;
        (answer.status == 200).then_some(())
    })
    .await;
    let of = broker.ids("faults", "ok").await;
    let gate = scratch.path().join("gate");
    let mut held: Option<String> = None;
    let mut answers = Vec::new();
    for handler in handlers(&of) {
        let job = held.clone().unwrap_or_default();
        let first = handler.ask(&broker, &of, &job).await;
        let asked_before = ["server.catalog", "server.readyz"].contains(&handler.point);
        if asked_before {
            assert_eq!(first.status, 200, "{}: {first:?}", handler.point);
        } else {
            assert_eq!(first.status, 500, "{}: {first:?}", handler.point);
            let text = first.body.to_string();
            assert!(text.contains("log"), "it says where to look: {text}");
            assert!(
                !text.contains("fault injected"),
                "and not what is inside: {text}"
            );
        }
        let second = handler.ask(&broker, &of, &job).await;
        answers.push((handler.point, second.status));
        if handler.point == "server.livez" {
            // A run that goes on below all that follows.
            let asked = broker
                .provision("under-way", &of, json!({"gate": gate}))
                .await;
            held = Some(asked.operation());
        }
    }
    let unwell: Vec<_> = answers
        .iter()
        .filter(|(_, status)| *status >= 500)
        .collect();
    assert!(unwell.is_empty(), "{answers:?}");
    let done: Vec<_> = answers
        .iter()
        .filter(|(point, _)| {
            [
                "server.provision",
                "server.bind",
                "server.unbind",
                "server.deprovision",
            ]
            .contains(point)
        })
        .map(|(_, status)| *status)
        .collect();
    assert_eq!(
        done, [202; 4],
        "a request that panicked left nothing in the way: {answers:?}"
    );
    // Each is told with its place; its words were put together at run time, and stay out (I16).
    let log = broker.log();
    let told = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!(told("a request handler panicked"), handlers(&of).len());
    assert_eq!(told("fault injected at"), 0);

    // The operator's cancel above has reached the run; it is the one thing that ended it.
    let operation = held.expect("a run is under way");
    let job = broker.job_is(&operation, "cancelled").await;
    assert_eq!(job["history"].as_array().unwrap().len(), 1, "{job:#}");
    assert!(broker.is_alive());
    assert_eq!(broker.pid(), pid);
    broker.nothing_left().await;
}
