//! Where one life is worked on: the wire, chance, what is to happen to the actions, and the steps
//! that all platforms have in common (polls, deletes that are repeated until it is gone).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Clock};

use reqwest::Method;
use serde_json::{Map, Value, json};

use super::Updated;
use super::client::{Client, Reply, Request};
use super::dice::Dice;
use super::world::{PLANS, World};

/// What is sent on a connection that was then dropped is handled by then, or never. Platforms
/// wait for minutes before they clean up: a DELETE that overtakes its PUT would find nothing.
pub(crate) const ARRIVED: Duration = Duration::from_millis(400);

/// A service offering with its plans' ids by name.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) id: String,
    pub(crate) plans: BTreeMap<String, String>,
}

/// A service instance as its platform believes it to be.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) offer: Arc<Offer>,
    pub(crate) plan: String,
    pub(crate) parameters: Map<String, Value>,
    /// Credentials by binding.
    pub(crate) bindings: BTreeMap<String, Value>,
}

impl Instance {
    pub(crate) fn plan_id(&self) -> &str {
        &self.offer.plans[&self.plan]
    }

    pub(crate) fn path(&self) -> String {
        format!("/v2/service_instances/{}", self.id)
    }

    pub(crate) fn binding_path(&self, binding: &str) -> String {
        format!("{}/service_bindings/{binding}", self.path())
    }

    pub(crate) fn binding_target(&self, binding: &str) -> String {
        format!("{}.{binding}", self.id)
    }

    /// In Cloud Controller's order.
    pub(crate) fn ids(&self) -> String {
        format!("plan_id={}&service_id={}", self.plan_id(), self.offer.id)
    }
}

/// What a user wants changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    pub(crate) plan: Option<String>,
    /// Only what changes.
    pub(crate) parameters: Map<String, Value>,
}

impl Change {
    /// The instance as it is wanted.
    pub(crate) fn of(&self, instance: &Instance) -> Instance {
        let mut wanted = instance.clone();
        self.apply(&mut wanted);
        wanted
    }

    pub(crate) fn apply(&self, instance: &mut Instance) {
        if let Some(plan) = &self.plan {
            instance.plan.clone_from(plan);
        }
        instance.parameters.extend(self.parameters.clone());
    }
}

/// How an operation ended for the platform that polled it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Polled {
    Succeeded,
    Failed,
}

/// Every name that was ever used, as instances and their bindings.
pub(crate) type Names = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

#[derive(Clone, Debug)]
pub(crate) struct Desk {
    pub(crate) client: Client,
    pub(crate) world: Arc<World>,
    pub(crate) offers: Arc<Vec<Arc<Offer>>>,
    pub(crate) names: Names,
    pub(crate) dice: Dice,
    /// Names the life in failures.
    pub(crate) seed: u64,
    /// Whether nothing else goes on for the instance, so that nothing may be refused.
    pub(crate) calm: bool,
}

impl Desk {
    /// For what goes on at the same time as something else.
    pub(crate) fn fork(&mut self) -> Self {
        Self {
            dice: self.dice.fork(),
            calm: false,
            ..self.clone()
        }
    }

    pub(crate) fn new_instance(&mut self) -> Instance {
        let instance = Instance {
            id: self.dice.guid(),
            offer: Arc::clone(self.dice.pick(&self.offers)),
            plan: (*self.dice.pick(&PLANS)).to_owned(),
            parameters: json!({ "size": self.dice.below(10) })
                .as_object()
                .unwrap()
                .clone(),
            bindings: BTreeMap::new(),
        };
        self.names
            .lock()
            .unwrap()
            .insert(instance.id.clone(), BTreeSet::new());
        instance
    }

    pub(crate) fn new_binding(&mut self, instance: &Instance) -> String {
        let binding = self.dice.guid();
        let mut names = self.names.lock().unwrap();
        names.get_mut(&instance.id).unwrap().insert(binding.clone());
        binding
    }

    pub(crate) fn new_change(&mut self, instance: &Instance) -> Change {
        let plan = *self.dice.pick(&PLANS);
        let parameters = match self.dice.below(3) {
            0 => json!({}),
            1 => json!({ "size": 10 + self.dice.below(1000) }),
            _ => json!({ "label": self.dice.guid() }),
        };
        Change {
            plan: (plan != instance.plan).then(|| plan.to_owned()),
            parameters: parameters.as_object().unwrap().clone(),
        }
    }

    /// Says how the next run for this target goes. Whoever tries for the third time succeeds.
    pub(crate) fn decree(&mut self, action: &str, target: &str, tries: u32) {
        let wait = self.dice.below(300);
        let makes = matches!(action, "provision" | "bind");
        let deletes = matches!(action, "deprovision" | "unbind");
        let fate = match self.dice.below(100) {
            _ if tries > 1 => "ok".to_owned(),
            0..20 => format!("slow-0.{wait:03}"),
            20..28 => "again ok".to_owned(),
            28..32 if !deletes => "crash ok".to_owned(),
            32..40 => "fail".to_owned(),
            40..44 if makes || deletes => "half".to_owned(),
            // Longer than a synchronous answer may take.
            44..46 => "slow-2.3".to_owned(),
            46..54 if !deletes => "stubborn".to_owned(),
            _ => "ok".to_owned(),
        };
        self.world.decree(action, target, &fate);
    }

    /// Whether the user does not want it any more, some time after it was begun.
    pub(crate) async fn is_unwanted(&mut self) -> bool {
        let unwanted = self.dice.chance(20);
        if unwanted {
            tokio::time::sleep(self.dice.millis(400)).await;
        }
        unwanted
    }

    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: String,
        body: Option<Value>,
    ) -> Reply {
        let request = Request {
            method,
            path,
            body,
            for_user: true,
        };
        self.client.send(&mut self.dice, &request).await
    }

    /// The platform's own tidying up: no user is behind it.
    pub(crate) async fn send_unasked(&mut self, method: Method, path: String) -> Reply {
        let request = Request {
            method,
            path,
            body: None,
            for_user: false,
        };
        self.client.send(&mut self.dice, &request).await
    }

    /// The end of a life that no platform knows.
    pub(crate) fn shock(&self, what: &str, reply: &Reply) -> ! {
        panic!("seed {}: {what}: {reply:?}", self.seed);
    }

    /// Polls an operation that was accepted until it is final. Whatever is accepted is known as
    /// long as anybody may ask: 404 is never an answer, 410 only to a delete.
    pub(crate) async fn poll(
        &mut self,
        path: &str,
        ids: &str,
        operation: &str,
        deletes: bool,
    ) -> Polled {
        let path = format!("{path}/last_operation?{ids}&operation={operation}");
        let since = Clock::now();
        loop {
            let reply = self.send_unasked(Method::GET, path.clone()).await;
            let ended = match reply.status() {
                Some(200) => self.state(&reply),
                Some(410) if deletes => Some(Polled::Succeeded),
                Some(503) | None => None,
                Some(_) => self.shock(&format!("poll of {path}"), &reply),
            };
            if let Some(ended) = ended {
                if self.dice.chance(10) {
                    self.same_again(&path, ended).await;
                }
                return ended;
            }
            assert!(
                since.elapsed() < self.client.patience,
                "seed {}: {path} does not end: {reply:?}",
                self.seed
            );
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    fn state(&self, reply: &Reply) -> Option<Polled> {
        match reply.body()["state"].as_str() {
            Some("succeeded") => Some(Polled::Succeeded),
            Some("failed") => Some(Polled::Failed),
            Some("in progress") => {
                let answer = reply.answer().expect("an answer");
                let seconds = answer.headers.get("Retry-After");
                let seconds = seconds.and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
                assert!(seconds.is_some(), "{reply:?}");
                None
            }
            _ => self.shock("no such state", reply),
        }
    }

    /// A final state stays final (I11).
    async fn same_again(&mut self, path: &str, ended: Polled) {
        let reply = self.send_unasked(Method::GET, path.to_owned()).await;
        match reply.status() {
            Some(200) => assert_eq!(self.state(&reply), Some(ended), "{path}: {reply:?}"),
            Some(410) => assert_eq!(ended, Polled::Succeeded, "{path}: {reply:?}"),
            Some(503) | None => {}
            Some(_) => self.shock("second poll", &reply),
        }
    }

    /// DELETE until it is gone: users ask again, controllers by themselves. A delete is accepted
    /// in every state (D2), so that only trouble is a reason to repeat it.
    pub(crate) async fn delete(&mut self, action: &str, target: &str, path: &str, ids: &str) {
        let url = format!("{path}?accepts_incomplete=true&{ids}");
        let since = Clock::now();
        for tries in 0.. {
            self.decree(action, target, tries);
            let reply = self.send(Method::DELETE, url.clone(), None).await;
            match reply.status() {
                Some(200 | 410) => return,
                Some(202) => {
                    let operation = reply.operation();
                    if self.poll(path, ids, &operation, true).await == Polled::Succeeded {
                        return;
                    }
                }
                _ if reply.is_trouble() => {}
                _ => self.shock(&format!("DELETE {url}"), &reply),
            }
            assert!(
                since.elapsed() < self.client.patience,
                "{url} cannot be deleted: {reply:?}"
            );
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    pub(crate) async fn delete_instance(&mut self, instance: &Instance) {
        let ids = instance.ids();
        self.delete("deprovision", &instance.id, &instance.path(), &ids)
            .await;
    }

    pub(crate) async fn delete_binding(&mut self, instance: &Instance, binding: &str) {
        let (target, path) = (
            instance.binding_target(binding),
            instance.binding_path(binding),
        );
        self.delete("unbind", &target, &path, &instance.ids()).await;
    }

    /// One PATCH, and the polls of its operation.
    pub(crate) async fn update(&mut self, instance: &Instance, body: Value, tries: u32) -> Updated {
        self.decree("update", &instance.id, tries);
        let (path, ids) = (instance.path(), instance.ids());
        let url = format!("{path}?accepts_incomplete=true");
        let reply = self.send(Method::PATCH, url, Some(body)).await;
        match reply.status() {
            Some(200) => Updated::Done,
            Some(202) => {
                let operation = reply.operation();
                match self.poll(&path, &ids, &operation, false).await {
                    Polled::Succeeded => Updated::Done,
                    Polled::Failed => Updated::Failed,
                }
            }
            // Busy with an unbind, perhaps, that Cloud Controller did not wait for.
            _ if reply.is_trouble() || reply.is_busy() || !self.calm => Updated::Unknown,
            _ => self.shock("an update was refused", &reply),
        }
    }

    /// What the broker says of an instance, once it can be asked.
    pub(crate) async fn fetch(&mut self, path: &str, ids: &str) -> Reply {
        let since = Clock::now();
        loop {
            let reply = self
                .send_unasked(Method::GET, format!("{path}?{ids}"))
                .await;
            if !reply.is_trouble() {
                return reply;
            }
            assert!(since.elapsed() < self.client.patience, "{path}: {reply:?}");
        }
    }

    /// The broker says of the instance what the platform believes.
    pub(crate) async fn agrees(&mut self, instance: &Instance) {
        let reply = self.fetch(&instance.path(), &instance.ids()).await;
        if !self.calm && reply.is_busy() {
            return;
        }
        let Some(answer) = reply.answer().filter(|answer| answer.status == 200) else {
            self.shock(&format!("GET of {instance:?}"), &reply);
        };
        let body = &answer.body;
        assert_eq!(body["plan_id"], instance.plan_id(), "seed {}", self.seed);
        assert_eq!(body["service_id"], instance.offer.id, "seed {}", self.seed);
        assert_eq!(
            body["parameters"],
            Value::Object(instance.parameters.clone()),
            "seed {}: {instance:?}",
            self.seed
        );
        let dashboard = format!("https://things.example/{}", instance.id);
        assert_eq!(body["dashboard_url"], dashboard);
    }
}
