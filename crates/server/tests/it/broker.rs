//! A broker for a test, and requests to it. Whatever is asked, the answer is checked for what
//! every answer has: JSON, an object, the request identity, and a description if it is an error.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Once};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request};
use evenkeel_core::ids::{BootId, Platform, RunRootId};
use evenkeel_engine::options::{OnShutdown, Options};
use evenkeel_engine::world::{RealWorld, World as _};
use evenkeel_engine::{Engine, Service};
use evenkeel_server::{
    AdminSettings, AdminState, OsbSettings, OsbState, Password, User, admin_router, osb_router,
};
use evenkeel_store::{SqliteStore, StoreOptions};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tower::ServiceExt as _;

use crate::runs::Runs;

pub(crate) const BASIC: &str = "Basic cGxhdGZvcm06c2VjcmV0"; // platform:secret
pub(crate) const OTHER_BASIC: &str = "Basic b3RoZXI6c2VjcmV0"; // other:secret
pub(crate) const WRONG_BASIC: &str = "Basic cGxhdGZvcm06d3Jvbmc="; // platform:wrong
pub(crate) const TOKEN: &str = "Bearer operator-token";
pub(crate) const IDENTITY: &str = "request 1/2";
/// How long anything may take that has no reason to take long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Bundle `db`: as the platform asks, whatever parameters.
const DB: &str = r"
bundle: 1
service: {id: db, name: db, description: A database, plan_updateable: true, allow_context_updates: true}
plans:
  - {id: db-small, name: small, description: A small one}
  - {id: db-large, name: large, description: A large one, maintenance_info: {version: 1.0.0}}
  - {id: db-closed, name: closed, description: For nobody, bindable: false}
actions:
  provision: {command: [./act]}
  update: {command: [./act]}
  deprovision: {command: [./act]}
  bind: {command: [./act]}
  unbind: {command: [./act]}
";

/// Bundle `logs`: wants its bindings to have a drain; its tokens rotate; its plans have a word
/// of their own on being left.
pub(crate) const LOGS: &str = r"
bundle: 1
service: {id: logs, name: logs, description: Logs, requires: [syslog_drain]}
plans:
  - {id: logs-only, name: only, description: The only one}
actions:
  provision: {command: [./act]}
  deprovision: {command: [./act]}
  bind: {command: [./act]}
  unbind: {command: [./act]}
";

/// Bundle `keys`: bindings that can be rotated; plans with a word of their own on being left.
pub(crate) const KEYS: &str = r"
bundle: 1
service: {id: keys, name: keys, description: Keys}
plans:
  - {id: keys-a, name: a, description: The first, binding_rotatable: true, plan_updateable: true}
  - {id: keys-b, name: b, description: The second, binding_rotatable: true}
actions:
  provision: {command: [./act]}
  update: {command: [./act]}
  deprovision: {command: [./act]}
  bind: {command: [./act]}
  unbind: {command: [./act]}
";

/// Bundle `slow`: asynchronous only, with a parameter that has to be there.
const SLOW: &str = r"
bundle: 1
service: {id: slow, name: slow, description: Takes its time}
plans:
  - id: slow-only
    name: only
    description: The only one
    schemas:
      provision: {$schema: 'http://json-schema.org/draft-04/schema#', type: object, required: [size]}
actions:
  provision: {command: [./act], async: required}
  deprovision: {command: [./act], async: required}
  bind: {command: [./act], async: required}
  unbind: {command: [./act], async: required}
";

pub(crate) struct Broker {
    pub(crate) engine: Engine,
    pub(crate) osb: Router,
    pub(crate) admin: Router,
    pub(crate) runs: Arc<Runs>,
    pub(crate) service: Service,
    pub(crate) dir: TempDir,
}

impl Broker {
    pub(crate) async fn start() -> Self {
        Self::with(OsbSettings::default()).await
    }

    pub(crate) async fn with(settings: OsbSettings) -> Self {
        Self::tuned(settings, |_| {}).await
    }

    /// With other settings of the engine.
    pub(crate) async fn tuned(settings: OsbSettings, tune: impl FnOnce(&mut Options)) -> Self {
        arm_faults();
        let dir = tempfile::tempdir().unwrap();
        bundle(&dir.path().join("bundles/db"), DB);
        bundle(&dir.path().join("bundles/slow"), SLOW);
        bundle(&dir.path().join("bundles/logs"), LOGS);
        bundle(&dir.path().join("bundles/keys"), KEYS);
        let data_dir = dir.path().join("data");
        let runs = Arc::new(Runs::default());
        let opened = SqliteStore::open(StoreOptions::new(&data_dir)).unwrap();
        let mut options = Options {
            boot: BootId(RealWorld.id()),
            run_root: RunRootId(RealWorld.id()),
            host_boot: "of the test".to_owned(),
            version: "0".to_owned(),
            bundles: vec![dir.path().join("bundles")],
            data_dir,
            namespace: RealWorld.id(),
            store: Arc::new(opened.store),
            executor: Arc::clone(&runs) as _,
            black_boxes: None,
            world: Arc::new(RealWorld),
            concurrency: 8,
            per_service: 8,
            timeout: Duration::from_secs(60),
            deadline: Duration::from_secs(600),
            retention: Duration::from_secs(600),
            sync_limit: Duration::from_secs(20),
            isolate_platforms: false,
            grace: Duration::from_secs(1),
            reconcile_every: Duration::from_secs(1),
            hold_after: 3,
            hold_quiet: Duration::from_secs(600),
            on_shutdown: OnShutdown::Detach,
            drain_limit: Duration::from_secs(1),
            deaths: Arc::new(evenkeel_engine::NoDeaths),
        };
        tune(&mut options);
        let service = Service::start(options).await.unwrap();
        let engine = service.engine();
        let user = |name: &str| User {
            name: Platform::new(name).unwrap(),
            password: Password::Plain("secret".into()),
        };
        let users = vec![user("platform"), user("other")];
        let osb = osb_router(OsbState::new(engine.clone(), users, settings).unwrap());
        let about = AdminSettings {
            version: "1.2.3".to_owned(),
            notes: vec!["runs go on at shutdown".to_owned()],
            ..AdminSettings::default()
        };
        let state = AdminState::new(engine.clone(), &"operator-token".into(), about).unwrap();
        let admin = admin_router(state);
        let broker = Self {
            engine,
            osb,
            admin,
            runs,
            service,
            dir,
        };
        until("the broker is ready", async || {
            broker.ask(Call::admin("GET", "/readyz")).await.status == 200
        })
        .await;
        broker
    }

    /// Puts another version of a bundle in the place of the one that is offered.
    pub(crate) async fn offer(&self, name: &str, yaml: &str) {
        bundle(&self.dir.path().join("bundles").join(name), yaml);
        self.engine.reload().await;
    }

    pub(crate) async fn ask(&self, call: Call) -> Answer {
        let router = if call.admin { &self.admin } else { &self.osb };
        call.send(router.clone()).await
    }

    /// The answer to a poll as soon as it is not `in progress` any more.
    pub(crate) async fn polled(&self, path: &str) -> Answer {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask(Call::new("GET", path)).await;
            if answer.body["state"] != "in progress" {
                return answer;
            }
            assert_eq!(answer.header("retry-after"), "5");
            assert!(
                Instant::now() < end,
                "{path} is still in progress: {}",
                answer.body
            );
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for a run that waits to be released.
    pub(crate) async fn run_is_held(&self) {
        until("a run is held", async || self.runs.held() > 0).await;
    }

    /// Makes an instance of `db`'s small plan.
    pub(crate) async fn provision(&self, id: &str, parameters: Value) -> Answer {
        let call = Call::new("PUT", &format!("/v2/service_instances/{id}"));
        self.ask(call.json(&provision(parameters))).await
    }

    /// Binds it.
    pub(crate) async fn bind(&self, id: &str, binding: &str, parameters: Value) -> Answer {
        let path = format!("/v2/service_instances/{id}/service_bindings/{binding}");
        self.ask(Call::new("PUT", &path).json(&bind(parameters)))
            .await
    }
}

pub(crate) fn provision(parameters: Value) -> Value {
    json!({
        "service_id": "db",
        "plan_id": "db-small",
        "organization_guid": "org",
        "space_guid": "space",
        "parameters": parameters,
    })
}

pub(crate) fn bind(parameters: Value) -> Value {
    json!({"service_id": "db", "plan_id": "db-small", "parameters": parameters})
}

pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < end, "waited too long until {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn bundle(folder: &Path, yaml: &str) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("bundle.yml"), yaml).unwrap();
    let act = folder.join("act");
    fs::write(&act, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&act, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Has every handler panic for requests whose identity says `boom`. Before anything else of this
/// process passes a fault point: the rules are read once.
fn arm_faults() {
    static ARMED: Once = Once::new();
    ARMED.call_once(|| {
        let points = [
            "catalog",
            "provision",
            "update",
            "deprovision",
            "instance",
            "instance_poll",
            "bind",
            "unbind",
            "binding",
            "binding_poll",
            "livez",
            "readyz",
            "status",
            "boots",
            "admin_catalog",
            "reload",
            "jobs",
            "job",
            "log",
            "retry",
            "discard",
            "cancel",
            "clear",
        ];
        let rules: Vec<_> = points
            .iter()
            .map(|point| format!("server.{point}~boom=panic"))
            .collect();
        #[expect(
            unsafe_code,
            reason = "the fault points read their rules from the environment"
        )]
        // SAFETY: tests run in processes of their own (nextest), and this one has only begun.
        unsafe {
            std::env::set_var("EVENKEEL_FAULTS", rules.join(";"));
        }
    });
}

/// A request. Right in every way until something is changed.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    admin: bool,
    method: String,
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Call {
    /// To the OSB API.
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let call = Self {
            admin: false,
            method: method.to_owned(),
            path: path.to_owned(),
            headers: HeaderMap::new(),
            body: Vec::new(),
        };
        call.header("authorization", BASIC)
            .header("x-broker-api-version", "2.17")
            .header("x-broker-api-request-identity", IDENTITY)
    }

    /// To the admin API.
    pub(crate) fn admin(method: &str, path: &str) -> Self {
        let call = Self::new(method, path).without("x-broker-api-version");
        Self {
            admin: true,
            ..call
        }
        .header("authorization", TOKEN)
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    /// As the other user.
    pub(crate) fn of_other(self) -> Self {
        self.header("authorization", OTHER_BASIC)
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header("content-type", "application/json")
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.body(body.to_string())
    }

    /// `accepts_incomplete=true`, after whatever query there is.
    pub(crate) fn later(mut self) -> Self {
        self.path
            .push(if self.path.contains('?') { '&' } else { '?' });
        self.path.push_str("accepts_incomplete=true");
        self
    }

    pub(crate) async fn send(self, router: Router) -> Answer {
        let what = format!("{} {}", self.method, self.path);
        let mut request = Request::builder()
            .method(self.method.as_str())
            .uri(&self.path)
            .body(Body::from(self.body));
        *request.as_mut().unwrap().headers_mut() = self.headers.clone();
        let response = router.oneshot(request.unwrap()).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let sent = self.headers.get("x-broker-api-request-identity");
        assert_eq!(headers.get("x-broker-api-request-identity"), sent, "{what}");
        if status == 304 {
            assert!(bytes.is_empty(), "{what}");
            return Answer {
                status,
                headers,
                body: Value::Null,
            };
        }
        assert_eq!(headers["content-type"], "application/json", "{what}");
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        assert!(body.is_object(), "{what}: {body}");
        if status >= 400 {
            let description = body["description"].as_str().unwrap_or_default();
            assert!(!description.trim().is_empty(), "{what}: {body}");
        }
        Answer {
            status,
            headers,
            body,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self, field: &str) -> String {
        self.body[field].as_str().unwrap_or_default().to_owned()
    }
}
