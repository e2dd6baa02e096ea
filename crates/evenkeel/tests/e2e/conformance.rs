//! The broker as public conformance suites for versions 2.13 to 2.15 of the API see it: the
//! bundles of `examples/bundles/conformance`, each through a whole life, and the cases in which
//! those suites are known to be particular. Whatever is asked, the answer is checked for what
//! every answer has.

use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::harness::{Answer, Broker, Setup, eventually, root};

mod cases;
mod lives;
mod maintained;
mod polls;
mod shapes;

/// Every bundle for suites.
const BUNDLES: [&str; 4] = ["async-instances", "async-bindings", "sync", "maintained"];

const IDENTITY: &str = "e26cee84-6b38-4456-b34e-d1a9f002c956";

/// A suite against a broker of its own.
struct Suite {
    broker: Broker,
    catalog: Value,
}

/// A request as suites send it.
#[derive(Clone, Debug)]
struct Ask {
    method: Method,
    path: String,
    version: Option<&'static str>,
    password: Option<String>,
    content_type: Option<&'static str>,
    body: Option<Value>,
}

impl Ask {
    fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    fn version(mut self, version: Option<&'static str>) -> Self {
        self.version = version;
        self
    }

    fn password(mut self, password: Option<&str>) -> Self {
        self.password = password.map(str::to_owned);
        self
    }

    fn content_type(mut self, content_type: Option<&'static str>) -> Self {
        self.content_type = content_type;
        self
    }
}

/// What a suite knows of one plan.
#[derive(Clone, Debug)]
struct Plan {
    service: String,
    id: String,
    /// The same service's other plan.
    other: String,
}

impl Plan {
    fn ids(&self) -> String {
        format!("service_id={}&plan_id={}", self.service, self.id)
    }

    fn provision(&self, parameters: Value) -> Value {
        json!({
            "service_id": self.service, "plan_id": self.id,
            "organization_guid": "org", "space_guid": "space", "parameters": parameters,
        })
    }

    fn bind(&self, parameters: Value) -> Value {
        json!({"service_id": self.service, "plan_id": self.id, "parameters": parameters})
    }
}

fn instance(id: &str) -> String {
    format!("/v2/service_instances/{id}")
}

fn binding(id: &str, binding: &str) -> String {
    format!("/v2/service_instances/{id}/service_bindings/{binding}")
}

/// The parameters that the bundles demand.
fn named() -> Value {
    json!({"name": "n"})
}

fn reader() -> Value {
    json!({"role": "reader"})
}

fn is_error(answer: &Answer, status: u16, word: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.body["error"], word, "{answer:?}");
}

impl Suite {
    async fn start(deleted_as: &str) -> Self {
        let bundles = ["examples/bundles/conformance", "examples/bundles/hello"];
        let setup = Setup {
            bundles: bundles.map(|path| root().join(path)).to_vec(),
            ..Setup::default()
        };
        let osb = format!("[osb]\nlisten = \"127.0.0.1:0\"\ndeleted_as = \"{deleted_as}\"\n");
        Self::on(Broker::start(setup.with_toml(&osb)).await).await
    }

    async fn on(broker: Broker) -> Self {
        let mut suite = Self {
            broker,
            catalog: Value::Null,
        };
        suite.catalog = suite.send(suite.ask(Method::GET, "/v2/catalog")).await.body;
        suite
    }

    fn ask(&self, method: Method, path: &str) -> Ask {
        let has_body = method == Method::PUT || method == Method::PATCH;
        Ask {
            method,
            path: path.to_owned(),
            version: Some("2.15"),
            password: Some(self.broker.password()),
            content_type: has_body.then_some("application/json"),
            body: None,
        }
    }

    /// Sends it as it is, and checks what every answer has.
    async fn send(&self, ask: Ask) -> Answer {
        let url = format!("{}{}", self.broker.url("osb-url"), ask.path);
        let mut request = self
            .broker
            .http
            .request(ask.method.clone(), url)
            .header("X-Broker-API-Request-Identity", IDENTITY);
        if let Some(version) = ask.version {
            request = request.header("X-Broker-API-Version", version);
        }
        if let Some(password) = &ask.password {
            request = request.basic_auth("platform", Some(password));
        }
        if let Some(content_type) = ask.content_type {
            request = request.header("Content-Type", content_type);
        }
        if let Some(body) = &ask.body {
            request = request.body(body.to_string());
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await.unwrap();
        let what = format!("{} {}: {status}", ask.method, ask.path);
        assert_eq!(headers["x-broker-api-request-identity"], IDENTITY, "{what}");
        assert_eq!(headers["content-type"], "application/json", "{what}");
        let body: Value = serde_json::from_slice(&bytes).expect(&what);
        shapes::check(&ask, status, &body);
        Answer {
            status,
            body,
            headers,
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(self.ask(Method::GET, path)).await
    }

    async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(self.ask(Method::PUT, path).body(body)).await
    }

    async fn patch(&self, path: &str, body: Value) -> Answer {
        self.send(self.ask(Method::PATCH, path).body(body)).await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.send(self.ask(Method::DELETE, path)).await
    }

    fn service(&self, name: &str) -> &Map<String, Value> {
        let services = self.catalog["services"].as_array().unwrap();
        let found = services.iter().find(|one| one["name"] == name);
        found.and_then(Value::as_object).unwrap()
    }

    /// The first plan of a bundle for suites.
    fn plan(&self, bundle: &str) -> Plan {
        self.plan_of(&format!("conformance-{bundle}"))
    }

    fn plan_of(&self, service: &str) -> Plan {
        let service = self.service(service);
        let id = |value: &Value| value.as_str().unwrap().to_owned();
        Plan {
            service: id(&service["id"]),
            id: id(&service["plans"][0]["id"]),
            other: id(&service["plans"][1]["id"]),
        }
    }

    /// Polls until the operation is over, if the answer was a 202 at all; suites ask without
    /// `operation`, or with a word of their own.
    async fn over(&self, answer: &Answer, path: &str, query: &str) -> Answer {
        assert!([200, 201, 202].contains(&answer.status), "{answer:?}");
        if answer.status != 202 {
            return answer.clone();
        }
        let path = format!("{path}/last_operation?{query}");
        eventually(&path, || async {
            let poll = self.get(&path).await;
            (poll.status != 200 || poll.body["state"] != "in progress").then_some(poll)
        })
        .await
    }

    /// Makes an instance of this plan and waits for it.
    async fn provisioned(&self, plan: &Plan, id: &str, parameters: Value) {
        let path = format!("{}?accepts_incomplete=true", instance(id));
        let answer = self.put(&path, plan.provision(parameters)).await;
        let end = self
            .over(&answer, &instance(id), "operation=provision")
            .await;
        assert!(
            end.status == 201 || end.body["state"] == "succeeded",
            "{end:?}"
        );
    }

    /// Makes a binding of this plan and waits for it.
    async fn bound(&self, plan: &Plan, id: &str, name: &str, parameters: Value) {
        let path = format!("{}?accepts_incomplete=true", binding(id, name));
        let answer = self.put(&path, plan.bind(parameters)).await;
        let end = self.over(&answer, &binding(id, name), "").await;
        assert!(
            end.status == 201 || end.body["state"] == "succeeded",
            "{end:?}"
        );
    }
}
