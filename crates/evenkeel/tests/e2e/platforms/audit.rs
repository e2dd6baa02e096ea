//! When all lives are over: the platform, the broker and the world agree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use reqwest::Method;
use serde_json::Value;

use super::desk::{Desk, Instance};
use super::world::World;
use crate::harness::{Broker, eventually};

/// What there was to see, for people who read the output.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Jobs by their final state.
    pub(crate) states: BTreeMap<String, usize>,
    starts: usize,
    attempts: u64,
    kept: usize,
    bindings: usize,
    names: usize,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "jobs {:?}, {} attempts of which {} began; {} names used, {} instances and {} bindings kept",
            self.states, self.attempts, self.starts, self.names, self.kept, self.bindings
        )
    }
}

pub(crate) async fn audit(broker: &Broker, mut desk: Desk, kept: &[Instance]) -> Figures {
    let mut figures = Figures {
        kept: kept.len(),
        bindings: kept.iter().map(|instance| instance.bindings.len()).sum(),
        ..Figures::default()
    };
    jobs_are_final(broker).await;
    broker.nothing_left().await;
    jobs_match_starts(broker, &desk.world, &mut figures).await;
    what_is_known_exists(&mut desk, kept).await;
    nothing_else_exists(broker, &mut desk, kept, &mut figures).await;
    figures
}

/// What a platform does not wait for (a mitigation's 202) ends all the same.
pub(crate) async fn jobs_are_final(broker: &Broker) {
    eventually("every job is final", || async {
        let status = broker.admin(Method::GET, "/admin/v1/status").await.body;
        let unfinished = ["queued", "running", "backoff"]
            .map(|state| status["counts"][state].as_u64().unwrap_or(0));
        (unfinished == [0, 0, 0]).then_some(())
    })
    .await;
}

/// Every job, by id.
pub(crate) async fn jobs(broker: &Broker) -> BTreeMap<String, Value> {
    let mut jobs = BTreeMap::new();
    let mut before = String::new();
    loop {
        let path = format!("/admin/v1/jobs?limit=500{before}");
        let page = broker.admin(Method::GET, &path).await.body;
        for job in page["jobs"].as_array().unwrap() {
            jobs.insert(job["id"].as_str().unwrap().to_owned(), job.clone());
        }
        match page["next"].as_str() {
            Some(next) => before = format!("&before={next}"),
            None => return jobs,
        }
    }
}

async fn jobs_match_starts(broker: &Broker, world: &World, figures: &mut Figures) {
    let jobs = jobs(broker).await;
    let starts = world.starts(|_| 0);
    world.unbinds_came_first();
    world.failures_were_decreed(jobs.values());
    cancels_were_asked_for(&jobs);
    for (id, job) in &jobs {
        let state = job["state"].as_str().unwrap();
        let started = starts.get(id).copied().unwrap_or(0);
        // Nobody's crashes, kills or neighbours condemn these (I5).
        assert_ne!(state, "quarantined", "{job}");
        assert!(state != "succeeded" || started > 0, "never ran: {job}");
        let attempts = job["attempts"].as_u64().unwrap();
        assert!(started as u64 <= attempts, "{started} starts: {job}");
        figures.attempts += attempts;
        *figures.states.entry(state.to_owned()).or_default() += 1;
    }
    let unknown: Vec<_> = starts.keys().filter(|id| !jobs.contains_key(*id)).collect();
    assert!(unknown.is_empty(), "runs of no job: {unknown:?}");
    figures.starts = starts.values().sum();
}

/// Nobody is cancelled but for the delete that comes after it, or because a request that waits for
/// its end cannot wait any longer.
pub(crate) fn cancels_were_asked_for(jobs: &BTreeMap<String, Value>) {
    for job in jobs.values().filter(|job| job["state"] == "cancelled") {
        let reason = job["reason"].as_str().unwrap();
        let by = reason
            .strip_prefix("cancelled: superseded by delete, job ")
            .map(|id| jobs.get(id).map(|by| &by["action"]));
        let deletes = |action: &Value| *action == "deprovision" || *action == "unbind";
        assert!(
            by.flatten().is_some_and(deletes)
                || (by.is_none() && reason.contains("a synchronous answer")),
            "cancelled for nothing: {job:#}"
        );
    }
}

pub(crate) async fn what_is_known_exists(desk: &mut Desk, kept: &[Instance]) {
    let (instances, bindings) = (
        desk.world.things("instances"),
        desk.world.things("bindings"),
    );
    for instance in kept {
        desk.agrees(instance).await;
        let thing = instances
            .get(&instance.id)
            .unwrap_or_else(|| panic!("not in the world: {instance:?}"));
        let request = &thing.request;
        assert_eq!(request["plan"]["name"], *instance.plan, "{instance:?}");
        assert_eq!(
            request["instance"]["parameters"],
            Value::Object(instance.parameters.clone()),
            "{instance:?}"
        );
        for (binding, credentials) in &instance.bindings {
            let path = instance.binding_path(binding);
            let reply = desk.fetch(&path, &instance.ids()).await;
            let told = reply.answer().map(|answer| &answer.body["credentials"]);
            assert_eq!(told, Some(credentials), "{path}: {reply:?}");
            let thing = bindings
                .get(&instance.binding_target(binding))
                .unwrap_or_else(|| panic!("not in the world: {path}"));
            assert_eq!(thing.output["credentials"], *credentials, "{path}");
        }
    }
}

/// What exists is what is known. What is not comes with the history of its instance.
async fn agree(broker: &Broker, what: &str, exist: &BTreeSet<String>, known: &BTreeSet<String>) {
    if let Some(name) = exist.symmetric_difference(known).next() {
        let instance = name.split('.').next().unwrap();
        let path = format!("/admin/v1/jobs?limit=500&instance={instance}");
        let jobs = broker.admin(Method::GET, &path).await.body;
        panic!("of {what}, {name} is in one place only; the jobs of its instance: {jobs:#}");
    }
}

/// Every other name that was ever used is unknown to the broker and to the world.
pub(crate) async fn nothing_else_exists(
    broker: &Broker,
    desk: &mut Desk,
    kept: &[Instance],
    figures: &mut Figures,
) {
    let known: BTreeSet<_> = kept.iter().map(|instance| instance.id.clone()).collect();
    let bound: BTreeSet<_> = kept
        .iter()
        .flat_map(|instance| {
            let target = |binding: &String| instance.binding_target(binding);
            instance.bindings.keys().map(target)
        })
        .collect();
    let folder = Arc::clone(&desk.world);
    let world = |kind| folder.things(kind).into_keys().collect::<BTreeSet<_>>();
    agree(broker, "instances", &world("instances"), &known).await;
    agree(broker, "bindings", &world("bindings"), &bound).await;

    let names = desk.names.lock().unwrap().clone();
    let offer = &desk.offers[0].clone();
    let ids = format!(
        "service_id={}&plan_id={}",
        offer.id,
        offer.plans.values().next().unwrap()
    );
    for (instance, bindings) in names {
        let path = format!("/v2/service_instances/{instance}");
        let mut unknown: Vec<_> = bindings
            .iter()
            .filter(|binding| !bound.contains(&format!("{instance}.{binding}")))
            .map(|binding| format!("{path}/service_bindings/{binding}"))
            .collect();
        figures.names += 1 + bindings.len();
        if !known.contains(&instance) {
            unknown.push(path);
        }
        for path in unknown {
            let reply = desk.fetch(&path, &ids).await;
            assert_eq!(reply.status(), Some(404), "{path}: {reply:?}");
            let url = format!("{path}?accepts_incomplete=true&{ids}");
            let reply = desk.send_unasked(Method::DELETE, url.clone()).await;
            assert!(
                reply.status() == Some(410) || reply.status().is_none(),
                "{path}: {reply:?}"
            );
        }
    }
    // A delete of what nobody knows is no job: nothing has come to life by asking.
    assert_eq!(world("instances"), known);
}
