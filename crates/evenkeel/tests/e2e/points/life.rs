//! The life of one instance, from provision to deprovision, beside two jobs that wait at their
//! gates, with a platform that asks again for as long as nobody answers.

use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use reqwest::Method;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::world::World;
use crate::harness::{Answer, PATIENCE, eventually, was_killed};
use crate::stage::{Offer, Order, Scene, Stage};

/// Lives at once: each is a broker and its runs, and there are two processors.
const AT_ONCE: usize = 3;
/// Kills of shims are crashes of jobs that are none: more than any test makes.
const RECOVERY: &str = "[recovery]\nbackoff_min = \"5ms\"\nbackoff_max = \"20ms\"\ncrash_limit = 9\nloss_limit = 9\n\
     hold_after = 1000";

/// See the module.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) stage: Stage,
    pub(crate) victim: Scene,
    pub(crate) of: Offer,
    /// Where rules that are used up leave a file.
    once: PathBuf,
    rules: Vec<String>,
    /// One more rule, from the first death of a broker on.
    pub(crate) later: Option<String>,
    /// Whether the victim's run has to have ended before another broker follows the first that dies.
    pub(crate) run_ends_first: bool,
    others: Vec<(Scene, Order)>,
    /// Polls that have said a final word, and which.
    finals: Vec<(String, String)>,
    pub(crate) deaths: usize,
    /// Requests that were told to come again later.
    pub(crate) put_off: usize,
    /// After so many uses of rules within one order the others need not wait any longer: a suspect
    /// runs alone, and could not.
    pub(crate) company_ends_after: usize,
    /// The one that was killed before the life began.
    first_boot: String,
}

impl Life {
    /// The others wait at their gates; then a broker with these rules takes over.
    pub(crate) async fn begin(rules: Vec<String>, toml: &str) -> Self {
        Self::begin_after(rules, toml, |_| {}).await
    }

    /// Like [`Self::begin`]; `change` is done to the stage before the last boot.
    pub(crate) async fn begin_after(
        rules: Vec<String>,
        toml: &str,
        change: impl FnOnce(&mut Stage),
    ) -> Self {
        let mut stage = Stage::new(&format!("{RECOVERY}\n{toml}")).await;
        let of = stage.offer("ok").await;
        let mut others = Vec::new();
        for number in 0..2 {
            let scene = stage.scene(&format!("beside-{number}"));
            stage.prepare(&scene, &of, "bind").await;
            let order = stage.order(&scene, &of, "bind").await;
            others.push((scene, order));
        }
        for (scene, _) in &others {
            scene.started("bind", 1).await;
        }
        let once = stage.file("once");
        fs::create_dir(&once).unwrap();
        let victim = stage.scene("victim");
        victim.open_gate();
        change(&mut stage);
        let first_boot = stage.broker.boot_id().await.expect("it is ready");
        stage.broker.kill();
        stage.broker.setup.faults = format!("once={};{}", once.display(), rules.join(";"));
        stage.broker.spawn();
        Self {
            stage,
            victim,
            of,
            once,
            rules,
            later: None,
            run_ends_first: false,
            others,
            finals: Vec::new(),
            deaths: 0,
            put_off: 0,
            company_ends_after: 2,
            first_boot,
        }
    }

    /// How many of the rules have been used up.
    pub(crate) fn used_up(&self) -> usize {
        fs::read_dir(&self.once).unwrap().count()
    }

    /// Starts the broker again if it has died.
    pub(crate) async fn keep_up(&mut self) {
        if self.stage.broker.is_alive() {
            return;
        }
        let status = self.stage.broker.died().await;
        assert!(
            was_killed(status),
            "{status}: {:?}\n{}",
            self.rules,
            self.stage.broker.log()
        );
        self.deaths += 1;
        assert!(self.deaths <= self.used_up(), "each rule kills once");
        if self.run_ends_first && self.deaths == 1 {
            self.run_has_ended().await;
        }
        self.comes_back();
    }

    /// Keeps the broker up until it has died, and another one has come.
    pub(crate) async fn has_died_once(&mut self) {
        if self.deaths == 0 {
            self.goes_down().await;
            self.comes_back();
        }
    }

    /// Waits until no run is alive but those that wait at their gates: a shim holds the run's lock
    /// for life.
    async fn run_has_ended(&self) {
        let runs = self.stage.broker.data().join("run/runs");
        eventually("the victim's run has ended", || {
            let locks = fs::read_dir(&runs).unwrap().filter_map(|run| {
                let lock = run.unwrap().path().join("lock");
                fs::File::open(lock).ok()
            });
            let held =
                |lock: &fs::File| flock(lock, FlockOperation::NonBlockingLockShared).is_err();
            let alive = locks.filter(held).count();
            std::future::ready((alive <= self.others.len()).then_some(()))
        })
        .await;
    }

    /// Asks until there is an answer other than "later".
    pub(crate) async fn ask(
        &mut self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let until = Instant::now() + PATIENCE;
        loop {
            self.keep_up().await;
            if let Some(answer) = self.try_ask(method, path, body).await {
                if answer.status != 503 {
                    return answer;
                }
                let told_when = answer.headers.contains_key("retry-after");
                assert!(told_when || path == "/readyz", "{path}: {answer:?}");
                self.put_off += usize::from(path != "/readyz");
            }
            assert!(
                Instant::now() < until,
                "no answer to {method} {path}: {:?}\n{}",
                self.rules,
                self.stage.broker.log()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn try_ask(&self, method: &Method, path: &str, body: Option<&Value>) -> Option<Answer> {
        let read = |name: &str| fs::read_to_string(self.stage.broker.data().join(name)).ok();
        let admin = path.starts_with("/admin") || path == "/readyz";
        let url = read(if admin { "admin-url" } else { "osb-url" })?;
        let mut request = self
            .stage
            .broker
            .http
            .request(method.clone(), format!("{}{path}", url.trim()));
        request = if admin {
            request.bearer_auth(read("admin-token")?.trim())
        } else {
            request
                .basic_auth("platform", Some(read("osb-password")?.trim()))
                .header("X-Broker-API-Version", "2.17")
        };
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.ok()?;
        Some(Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.json().await.ok()?,
        })
    }

    /// Orders an action of the victim, again and again if need be, and polls it to its good end.
    pub(crate) async fn does(&mut self, action: &str) {
        let used_up = self.used_up();
        if let Some(poll) = self.order(action).await {
            let gates = used_up + self.company_ends_after;
            self.succeeds(&poll, gates).await;
        }
    }

    /// Polls an order to its good end. After so many uses of rules the others wait no longer.
    pub(crate) async fn succeeds(&mut self, poll: &str, gates: usize) {
        let state = self.polled(poll, gates).await;
        assert_eq!(
            state,
            "succeeded",
            "{poll}, {:?}\n{}",
            self.rules,
            self.stage.broker.log()
        );
        self.finals.push((poll.to_owned(), state));
    }

    /// Opens the gate of a provision that was started once and has lived through it all, and ends
    /// the instance's life.
    pub(crate) async fn ends_well(mut self, poll: &str) -> World {
        self.victim.open_gate();
        self.succeeds(poll, 0).await;
        assert_eq!(self.victim.starts("provision"), 1);
        self.does("deprovision").await;
        let end = self.end().await;
        end.all_succeeded();
        assert_eq!(end.charges("provision"), ["none"]);
        end
    }

    /// Waits for the next death, and leaves the broker down.
    pub(crate) async fn goes_down(&mut self) {
        let status = self.stage.broker.died().await;
        assert!(was_killed(status), "{status}");
        self.deaths += 1;
    }

    /// Starts a broker that went down.
    pub(crate) fn comes_back(&mut self) {
        if let Some(later) = self.later.take() {
            let faults = &mut self.stage.broker.setup.faults;
            *faults = format!("{faults};{later}");
            self.rules.push(later);
        }
        self.stage.broker.spawn();
    }

    /// Orders an action once, whether or not there is an answer.
    pub(crate) async fn order_once(&mut self, action: &str) {
        let (method, path, body, _) = self.request(action);
        drop(self.try_ask(&method, &path, body.as_ref()).await);
    }

    /// Orders an action of the victim; where to poll it, unless it is done.
    pub(crate) async fn order(&mut self, action: &str) -> Option<String> {
        let (method, path, body, target) = self.request(action);
        let answer = self.ask(&method, &path, body.as_ref()).await;
        // What was asked before the broker died may be done by now.
        let done = [200, 201].contains(&answer.status)
            || (answer.status == 410 && method == Method::DELETE);
        if done && self.unsure() {
            return None;
        }
        let operation = answer.operation();
        Some(format!("{target}/last_operation?operation={operation}"))
    }

    /// Whether an earlier request may have been heard although nobody was told.
    fn unsure(&self) -> bool {
        self.used_up() > 0
    }

    /// Method, path, body and target of an order.
    fn request(&self, action: &str) -> (Method, String, Option<Value>, String) {
        let (service, plan) = self.of.clone();
        let instance = "/v2/service_instances/victim";
        let binding = format!("{instance}/service_bindings/b");
        let which = format!("service_id={service}&plan_id={plan}");
        let (method, target, body) = match action {
            "provision" => {
                let body = json!({
                    "service_id": service, "plan_id": plan,
                    "organization_guid": "org", "space_guid": "space",
                    "parameters": self.victim.parameters(action),
                });
                (Method::PUT, instance, Some(body))
            }
            "update" => {
                let body = json!({"service_id": service, "parameters": {"size": 2}});
                (Method::PATCH, instance, Some(body))
            }
            "bind" => {
                let body = json!({"service_id": service, "plan_id": plan});
                (Method::PUT, binding.as_str(), Some(body))
            }
            "unbind" => (Method::DELETE, binding.as_str(), None),
            "deprovision" => (Method::DELETE, instance, None),
            other => panic!("{other} is no action"),
        };
        let path = if body.is_some() {
            format!("{target}?accepts_incomplete=true")
        } else {
            format!("{target}?accepts_incomplete=true&{which}")
        };
        let target = target.to_owned();
        (method, path, body, target)
    }

    /// Waits until so many rules have been used up.
    pub(crate) async fn dies(&mut self, times: usize) {
        let until = Instant::now() + PATIENCE;
        while self.used_up() < times {
            self.keep_up().await;
            assert!(
                Instant::now() < until,
                "not every point was reached: {:?}, {:?}\n{}",
                self.rules,
                fs::read_dir(&self.once).unwrap().collect::<Vec<_>>(),
                self.stage.broker.log()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Polls until the word is final.
    pub(crate) async fn polled(&mut self, poll: &str, gates: usize) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask(&Method::GET, poll, None).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let state = answer.body["state"].as_str().unwrap().to_owned();
            if state != "in progress" {
                return state;
            }
            assert!(
                Instant::now() < until,
                "{poll} does not end: {:?}\n{}",
                self.rules,
                self.stage.broker.log()
            );
            if self.used_up() >= gates {
                self.open_gates();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn open_gates(&self) {
        self.others.iter().for_each(|(scene, _)| scene.open_gate());
    }

    /// Waits until the broker is ready, however often it still dies.
    pub(crate) async fn settled(&mut self) {
        let answer = self.ask(&Method::GET, "/readyz", None).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// Every rule has been used up; the others end well; what was final stays so, in this boot and
    /// the next; and then nothing is left.
    pub(crate) async fn end(mut self) -> World {
        self.dies(self.rules.len()).await;
        self.end_as_far_as_it_came().await
    }

    /// Like [`Self::end`], whether or not all points were reached.
    pub(crate) async fn end_as_far_as_it_came(mut self) -> World {
        self.open_gates();
        for (scene, order) in self.others.clone() {
            let binding = order.binding.unwrap();
            let poll = format!(
                "/v2/service_instances/{}/service_bindings/{binding}/last_operation?operation={}",
                order.instance, order.job
            );
            self.succeeds(&poll, 0).await;
            assert_eq!(scene.starts("bind"), 1, "{}", scene.instance);
        }
        self.settled().await;
        self.keep_up().await;
        self.stage.reboot("").await;
        for (poll, state) in std::mem::take(&mut self.finals) {
            let answer = self.ask(&Method::GET, &poll, None).await;
            assert_eq!(answer.body["state"], state, "{poll}: {answer:?}");
        }
        World::left_by(&mut self.stage, self.first_boot).await
    }
}

/// Runs lives, some at once; the first that fails, fails the test. What they gave, in the order in
/// which they ended.
pub(crate) async fn side_by_side<F, T>(lives: impl IntoIterator<Item = F>) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let (mut running, mut given) = (JoinSet::new(), Vec::new());
    for life in lives {
        if running.len() >= AT_ONCE {
            given.push(running.join_next().await.unwrap().unwrap());
        }
        running.spawn(life);
    }
    while let Some(done) = running.join_next().await {
        given.push(done.unwrap());
    }
    given
}
