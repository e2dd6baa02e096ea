//! A real broker in a folder of its own, and what tests do with it.

use std::fs;
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

// With their paths: benchmarks take this file in from elsewhere.
#[path = "harness/boots.rs"]
mod boots;
#[path = "harness/processes.rs"]
pub(crate) mod processes;

pub(crate) use processes::children;
use processes::processes;

/// No wait of a test is longer: machines are slow, shared and noisy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// How a broker is to be set up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    /// Bundle folders.
    pub(crate) bundles: Vec<PathBuf>,
    /// Lines of `evenkeel.toml` beside those of the harness, as whole tables.
    pub(crate) toml: String,
    /// `EVENKEEL_FAULTS` of the next start.
    pub(crate) faults: String,
    /// The data folder, where the test needs one of its own (a small disk, say).
    pub(crate) data: Option<PathBuf>,
    /// Whether a warden restarts it. Without one a death is the test's to see.
    pub(crate) warden: bool,
    /// Words in front of the command line of `serve`.
    pub(crate) before: Vec<String>,
}

impl Setup {
    /// With the fault bundle, short backoffs and the weakest containment that tests may force.
    pub(crate) fn faults_bundle() -> Self {
        Self {
            bundles: vec![root().join("tests/bundles/faults")],
            ..Self::default()
        }
    }

    /// With a warden, whose pauses no test has to wait for.
    pub(crate) fn with_warden(mut self) -> Self {
        self.warden = true;
        if !self.toml.contains("[serve]") {
            self.toml.push_str("[serve]\nrestart_pause = \"20ms\"\n");
        }
        self
    }

    pub(crate) fn with_toml(mut self, toml: &str) -> Self {
        self.toml.push_str(toml);
        self.toml.push('\n');
        self
    }

    pub(crate) fn with_faults(mut self, faults: &str) -> Self {
        faults.clone_into(&mut self.faults);
        self
    }
}

/// An answer, read whole.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) headers: reqwest::header::HeaderMap,
}

impl Answer {
    /// The `operation` of a 202.
    pub(crate) fn operation(&self) -> String {
        assert_eq!(self.status, 202, "{self:?}");
        self.body["operation"]
            .as_str()
            .expect("a 202 names its operation")
            .to_owned()
    }
}

/// A broker that a test started.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) dir: TempDir,
    pub(crate) setup: Setup,
    child: Option<Child>,
    pub(crate) http: reqwest::Client,
}

impl Broker {
    /// Starts a broker in a new folder and waits until it is ready.
    pub(crate) async fn start(setup: Setup) -> Self {
        let mut broker = Self::new(setup);
        broker.boot().await;
        broker
    }

    /// Starts a broker with a fault bundle whose actions may take five minutes, as at a gate.
    pub(crate) async fn patient(toml: &str) -> Self {
        let mut broker = Self::new(Setup::default().with_toml(toml));
        let bundle = broker.dir.path().join("bundles/faults");
        crate::stage::copy_faults(&bundle, "5m");
        broker.setup.bundles = vec![bundle];
        broker.boot().await;
        broker
    }

    /// A folder for a broker that is yet to be started.
    pub(crate) fn new(setup: Setup) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("evenkeel-e2e-")
            .tempdir()
            .unwrap();
        // Actions that run as another user have to find their way in.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let http = reqwest::Client::builder()
            .timeout(PATIENCE)
            .build()
            .unwrap();
        Self {
            dir,
            setup,
            child: None,
            http,
        }
    }

    pub(crate) fn data(&self) -> PathBuf {
        let own = || self.dir.path().join("data");
        self.setup.data.clone().unwrap_or_else(own)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("evenkeel.toml")
    }

    /// Where the broker's standard error goes, over all its lives.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("broker.log")).unwrap_or_default()
    }

    /// Starts the process again on the same folder and waits until it is ready.
    pub(crate) async fn boot(&mut self) {
        self.spawn();
        self.ready().await;
    }

    /// Starts the process and waits for nothing.
    pub(crate) fn spawn(&mut self) {
        assert!(self.child.is_none(), "one broker at a time");
        for name in ["osb-url", "admin-url"] {
            drop(fs::remove_file(self.data().join(name)));
        }
        let bundles: Vec<_> = self
            .setup
            .bundles
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let toml = format!(
            "data_dir = {:?}\nbundles = {bundles:?}\n{}\n",
            self.data().display().to_string(),
            self.whole_toml(),
        );
        fs::write(self.config(), toml).unwrap();
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("broker.log"))
            .unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test starts the real binary")]
        let mut command = match self.setup.before.split_first() {
            None => Command::new(env!("CARGO_BIN_EXE_evenkeel")),
            Some((program, words)) => {
                let mut command = Command::new(program);
                command.args(words).arg(env!("CARGO_BIN_EXE_evenkeel"));
                command
            }
        };
        command
            .arg("serve")
            .arg("--config")
            .arg(self.config())
            .args((!self.setup.warden).then_some("--no-warden"))
            .env("EVENKEEL_FAULTS", &self.setup.faults)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.child = Some(command.spawn().unwrap());
    }

    /// The harness's own settings, unless the test sets the same table.
    fn whole_toml(&self) -> String {
        let own = [
            ("[osb]", "listen = \"127.0.0.1:0\""),
            ("[admin]", "listen = \"127.0.0.1:0\""),
            (
                "[recovery]",
                "backoff_min = \"20ms\"\nbackoff_max = \"200ms\"",
            ),
        ];
        let mut toml = String::new();
        for (table, settings) in own {
            if self.setup.toml.contains(table) {
                assert!(
                    table == "[recovery]" || self.setup.toml.contains("listen"),
                    "a test that sets {table} sets listen too"
                );
                continue;
            }
            toml.push_str(&format!("{table}\n{settings}\n"));
        }
        toml + &self.setup.toml
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("the broker runs").id()
    }

    /// Waits until `/readyz` says 200.
    pub(crate) async fn ready(&mut self) {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.as_mut().unwrap().try_wait().unwrap() {
                panic!("the broker ended with {status}:\n{}", self.log());
            }
            if let Ok(url) = fs::read_to_string(self.data().join("admin-url"))
                && let Ok(answer) = self.http.get(format!("{}/readyz", url.trim())).send().await
                && answer.status() == 200
            {
                return;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "the broker does not become ready:\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until `/livez` answers; gives the instant of the answer.
    pub(crate) async fn listening(&self) -> Instant {
        eventually("the listener answers", || async {
            let url = fs::read_to_string(self.data().join("admin-url")).ok()?;
            let live = self.http.get(format!("{}/livez", url.trim())).send().await;
            live.is_ok_and(|answer| answer.status() == 200)
                .then(Instant::now)
        })
        .await
    }

    /// Ends the broker as a power cut would, its runs not.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("the broker runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Asks the broker to end, and waits until it has.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("the broker runs");
        kill_process(pid(child.id()), Signal::TERM).unwrap();
        child.wait().unwrap()
    }

    /// Waits until the broker has died by itself (of a fault point, say).
    pub(crate) async fn died(&mut self) -> ExitStatus {
        let status = eventually("the broker dies", || {
            let status = self.child.as_mut().unwrap().try_wait().unwrap();
            std::future::ready(status)
        })
        .await;
        self.child = None;
        status
    }

    /// Whether the process still lives.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child
            .as_mut()
            .is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    pub(crate) fn url(&self, name: &str) -> String {
        fs::read_to_string(self.data().join(name))
            .unwrap()
            .trim()
            .to_owned()
    }

    pub(crate) fn password(&self) -> String {
        fs::read_to_string(self.data().join("osb-password"))
            .unwrap()
            .trim()
            .to_owned()
    }

    /// A request to the OSB API, as platforms send it. `path` begins with `/v2`.
    pub(crate) async fn osb(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.url("osb-url")))
            .basic_auth("platform", Some(self.password()))
            .header("X-Broker-API-Version", "2.17");
        if let Some(body) = body {
            request = request.json(&body);
        }
        read(request.send().await.unwrap()).await
    }

    /// A request to the admin API. `path` begins with `/`.
    pub(crate) async fn admin(&self, method: Method, path: &str) -> Answer {
        let token = fs::read_to_string(self.data().join("admin-token")).unwrap();
        let url = format!("{}{path}", self.url("admin-url"));
        read(
            self.http
                .request(method, url)
                .bearer_auth(token.trim())
                .send()
                .await
                .unwrap(),
        )
        .await
    }

    /// The ids of a service and one of its plans, by name.
    pub(crate) async fn ids(&self, service: &str, plan: &str) -> (String, String) {
        let catalog = self.osb(Method::GET, "/v2/catalog", None).await.body;
        let named = |list: &Value, name: &str| {
            list.as_array()
                .and_then(|list| list.iter().find(|entry| entry["name"] == name))
                .unwrap_or_else(|| panic!("{name} is not in {list}"))
                .clone()
        };
        let service = named(&catalog["services"], service);
        let plan = named(&service["plans"], plan);
        (
            service["id"].as_str().unwrap().to_owned(),
            plan["id"].as_str().unwrap().to_owned(),
        )
    }

    /// PUT of an instance, asynchronous.
    pub(crate) async fn provision(
        &self,
        id: &str,
        of: &(String, String),
        parameters: Value,
    ) -> Answer {
        let body = json!({
            "service_id": of.0, "plan_id": of.1, "organization_guid": "org", "space_guid": "space",
            "parameters": parameters,
        });
        let path = format!("/v2/service_instances/{id}?accepts_incomplete=true");
        self.osb(Method::PUT, &path, Some(body)).await
    }

    /// PATCH of an instance, asynchronous.
    pub(crate) async fn update(
        &self,
        id: &str,
        of: &(String, String),
        parameters: Value,
    ) -> Answer {
        let body = json!({ "service_id": of.0, "plan_id": of.1, "parameters": parameters });
        let path = format!("/v2/service_instances/{id}?accepts_incomplete=true");
        self.osb(Method::PATCH, &path, Some(body)).await
    }

    /// DELETE of an instance, asynchronous.
    pub(crate) async fn deprovision(&self, id: &str, of: &(String, String)) -> Answer {
        let path = format!(
            "/v2/service_instances/{id}?accepts_incomplete=true&service_id={}&plan_id={}",
            of.0, of.1
        );
        self.osb(Method::DELETE, &path, None).await
    }

    /// PUT of a binding, asynchronous.
    pub(crate) async fn bind(
        &self,
        id: &str,
        binding: &str,
        of: &(String, String),
        parameters: Value,
    ) -> Answer {
        let body = json!({ "service_id": of.0, "plan_id": of.1, "parameters": parameters });
        let path = format!(
            "/v2/service_instances/{id}/service_bindings/{binding}?accepts_incomplete=true"
        );
        self.osb(Method::PUT, &path, Some(body)).await
    }

    /// DELETE of a binding, asynchronous.
    pub(crate) async fn unbind(&self, id: &str, binding: &str, of: &(String, String)) -> Answer {
        let path = format!(
            "/v2/service_instances/{id}/service_bindings/{binding}?accepts_incomplete=true&service_id={}&plan_id={}",
            of.0, of.1
        );
        self.osb(Method::DELETE, &path, None).await
    }

    /// Polls `operation` until it is final; gives the last poll's body.
    pub(crate) async fn finished(&self, id: &str, binding: Option<&str>, operation: &str) -> Value {
        let binding = binding.map_or(String::new(), |id| format!("/service_bindings/{id}"));
        let path =
            format!("/v2/service_instances/{id}{binding}/last_operation?operation={operation}");
        eventually(&format!("operation {operation} ends"), || async {
            let poll = self.osb(Method::GET, &path, None).await;
            assert_eq!(poll.status, 200, "{poll:?}");
            (poll.body["state"] != "in progress").then_some(poll.body)
        })
        .await
    }

    /// Like [`Self::finished`], and it succeeded.
    pub(crate) async fn succeeded(&self, id: &str, binding: Option<&str>, operation: &str) {
        let end = self.finished(id, binding, operation).await;
        assert_eq!(end["state"], "succeeded", "{end}\n{}", self.log());
    }

    /// A job as the admin API shows it.
    pub(crate) async fn job(&self, id: &str) -> Value {
        let answer = self
            .admin(Method::GET, &format!("/admin/v1/jobs/{id}"))
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    /// Waits until the job is in this state; gives it as the admin API shows it.
    pub(crate) async fn job_is(&self, id: &str, state: &str) -> Value {
        eventually(&format!("job {id} is {state}"), || async {
            let job = self.job(id).await;
            (job["state"] == state).then_some(job)
        })
        .await
    }

    /// Processes that belong to runs of this broker: shims and what actions started, zombies
    /// aside.
    pub(crate) fn run_processes(&self) -> Vec<u32> {
        let runs = self.data().display().to_string();
        processes()
            .filter(|(pid, _)| Some(*pid) != self.child.as_ref().map(Child::id))
            .filter(|(_, folder)| {
                let mentions = |name: &str| {
                    fs::read(folder.join(name))
                        .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(&runs))
                };
                let broker = fs::read(folder.join("cmdline"))
                    .is_ok_and(|line| line.split(|byte| *byte == 0).any(|arg| arg == b"serve"));
                !broker && (mentions("environ") || mentions("cmdline"))
            })
            .map(|(pid, _)| pid)
            .collect()
    }

    /// Waits until nothing of any run is left.
    pub(crate) async fn nothing_left(&self) {
        eventually("no process of a run is left", || {
            std::future::ready(self.run_processes().is_empty().then_some(()))
        })
        .await;
    }

    /// Runs a command of the same binary on this broker's data folder.
    pub(crate) fn cli(&self, arguments: &[&str]) -> std::process::Output {
        #[expect(clippy::disallowed_methods, reason = "a test runs the real binary")]
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        command
            .args(arguments)
            .arg("--config")
            .arg(self.config())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let brokers = children(child.id());
            drop(child.kill());
            drop(child.wait());
            // Without its warden a broker hands over; here there is nobody to whom.
            for id in brokers.into_iter().filter(|_| self.setup.warden) {
                kill_process(pid(id), Signal::KILL).ok();
            }
        }
        // A failed test may leave runs; they are ours, and known by their folder.
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            let left = self.run_processes();
            if left.is_empty() {
                break;
            }
            for id in left {
                kill_process(pid(id), Signal::KILL).ok();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

async fn read(response: reqwest::Response) -> Answer {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let bytes = response.bytes().await.unwrap();
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|error| panic!("{status}: {error}: {:?}", String::from_utf8_lossy(&bytes)));
    Answer {
        status,
        body,
        headers,
    }
}

/// Looks again and again until there is something; fails loudly after [`PATIENCE`].
pub(crate) async fn eventually<T, F>(what: &str, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let started = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
}

/// Lines that actions of the fault bundle left in a marks folder.
pub(crate) fn marks(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        lines.extend(text.lines().map(str::to_owned));
    }
    lines.sort();
    lines
}

/// Whether a process was ended by SIGKILL.
pub(crate) fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(9)
}
