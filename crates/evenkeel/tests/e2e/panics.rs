//! Panics of driving steps: paid for by the rules, felt by nobody else, nothing left running.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Broker, Setup, eventually, marks};
use crate::stage::copy_faults;

mod elsewhere;
mod handlers;
mod recovery;

/// The steps of an attempt in the order in which a job comes by them.
const STEPS: [&str; 6] = [
    "engine.prepare",
    "engine.start",
    "engine.started",
    "engine.watch",
    "engine.ended",
    "engine.conclude",
];

/// With a timeout that no gate outlasts; the bundle is copied to `folder`.
fn patient(folder: &Path) -> Setup {
    let bundle = folder.join("faults");
    copy_faults(&bundle, "5m");
    Setup {
        bundles: vec![bundle],
        ..Setup::default()
    }
}

/// An instance that is there, for bindings.
async fn instance(broker: &Broker, of: &(String, String), id: &str) {
    let made = broker.provision(id, of, json!({})).await;
    broker.succeeded(id, None, &made.operation()).await;
}

/// Attempts as the admin API shows them.
fn history(job: &Value) -> &Vec<Value> {
    job["history"].as_array().unwrap()
}

/// Whether an attempt is charged as a crash that a panic in crates/engine/src is the proof of.
fn is_charged_panic(attempt: &Value) -> bool {
    let reason = attempt["reason"].as_str().unwrap_or_default();
    attempt["end"] == "crashed"
        && attempt["charge"] == "crash"
        && reason.contains("panicked at crates/engine/src/")
}

/// Whether the broker says that it is held, on both surfaces; for which reason.
async fn held(broker: &Broker) -> Option<String> {
    let ready = broker.admin(Method::GET, "/readyz").await;
    assert_eq!(
        ready.status, 200,
        "held is no reason not to be served: {ready:?}"
    );
    let reasons = ready.body["reasons"].as_array().unwrap().clone();
    let held = reasons
        .into_iter()
        .find(|reason| reason["about"] == "held")?;
    Some(held["message"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_at_any_step_is_a_crash_at_that_place_and_the_run_is_ended_before_the_next() {
    let rules: Vec<_> = STEPS
        .iter()
        .map(|step| format!("{step}~bind=panic@1"))
        .collect();
    let scratch = tempfile::tempdir().unwrap();
    let setup = patient(scratch.path())
        .with_toml("[recovery]\nbackoff_min = \"20ms\"\nbackoff_max = \"100ms\"\ncrash_limit = 100")
        .with_faults(&rules.join(";"));
    let broker = Broker::start(setup).await;
    let of = broker.ids("faults", "ok").await;
    instance(&broker, &of, "victim").await;
    let path = |name: &str| scratch.path().join(name).display().to_string();
    std::fs::create_dir(path("marks")).unwrap();

    // Neighbours are under way all the time.
    let mut neighbours = Vec::new();
    for n in 0..5 {
        let id = format!("neighbour-{n}");
        let parameters = json!({"gate": path("neighbours-gate")});
        let asked = broker.provision(&id, &of, parameters).await;
        neighbours.push((id, asked.operation()));
    }
    let parameters = json!({
        "when": "bind", "gate": path("gate"), "lock": path("lock"), "marks": path("marks"),
    });
    let operation = broker
        .bind("victim", "b", &of, parameters)
        .await
        .operation();

    // The runs of attempts 3 and 4 hang at the gate when their driver panics; that of attempt 5
    // has to end by itself.
    eventually(
        "four attempts have panicked and the fifth is at the gate",
        || async {
            let job = broker.job(&operation).await;
            let at_gate = marks(&scratch.path().join("marks"))
                .iter()
                .any(|mark| mark.starts_with("bind 5 "));
            (history(&job).len() == 5 && at_gate).then_some(())
        },
    )
    .await;
    std::fs::write(path("gate"), "").unwrap();
    broker.succeeded("victim", Some("b"), &operation).await;

    let job = broker.job(&operation).await;
    let (last, panicked) = history(&job).split_last().unwrap();
    assert_eq!(panicked.len(), STEPS.len(), "{job:#}");
    assert!(panicked.iter().all(is_charged_panic), "{job:#}");
    let mut places: Vec<_> = panicked.iter().map(|attempt| &attempt["reason"]).collect();
    places.dedup();
    assert_eq!(
        places.len(),
        STEPS.len(),
        "every step is a place of its own: {job:#}"
    );
    assert_eq!(last["end"], "succeeded", "{job:#}");
    let lines = marks(&scratch.path().join("marks"));
    let doubles = std::fs::exists(path("marks/DOUBLE")).unwrap();
    assert!(!doubles, "a run met an earlier one alive: {lines:?}");
    // 5, 6 and 7 ended in order; those before were cut off.
    let ordinals = |file: &str| -> Vec<String> {
        let text = std::fs::read_to_string(scratch.path().join("marks").join(file)).unwrap();
        let words = text
            .lines()
            .map(|line| line.split(' ').nth(1).unwrap().to_owned());
        words.collect()
    };
    assert_eq!(ordinals("ends"), ["5", "6", "7"]);
    let mut started = ordinals("starts");
    started.dedup();
    assert_eq!(
        started.len(),
        ordinals("starts").len(),
        "one start for each attempt: {lines:?}"
    );

    std::fs::write(path("neighbours-gate"), "").unwrap();
    for (id, operation) in neighbours {
        broker.succeeded(&id, None, &operation).await;
        let job = broker.job(&operation).await;
        assert_eq!(history(&job).len(), 1, "{job:#}");
    }
    assert_eq!(held(&broker).await, None);
    broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_step_panics_every_time_is_quarantined_at_the_limit_and_no_other_pays() {
    let setup = Setup::faults_bundle().with_faults("engine.watch~unbind=panic");
    let mut broker = Broker::start(setup).await;
    let of = broker.ids("faults", "ok").await;
    instance(&broker, &of, "i").await;
    for binding in ["poisoned", "sound"] {
        let asked = broker.bind("i", binding, &of, json!({})).await;
        broker
            .succeeded("i", Some(binding), &asked.operation())
            .await;
    }
    let before = broker.pid();
    let operation = broker.unbind("i", "poisoned", &of).await.operation();
    let mut beside = Vec::new();
    for n in 0..10 {
        let id = format!("beside-{n}");
        let asked = broker.provision(&id, &of, json!({})).await;
        beside.push((id, asked.operation()));
    }
    let end = broker.finished("i", Some("poisoned"), &operation).await;
    assert_eq!(end["state"], "failed", "{end}");
    assert!(
        end["description"].as_str().unwrap().contains(&operation),
        "{end}"
    );
    let job = broker.job_is(&operation, "quarantined").await;
    assert_eq!(history(&job).len(), 3, "{job:#}");
    assert!(history(&job).iter().all(is_charged_panic), "{job:#}");
    for (id, operation) in beside {
        broker.succeeded(&id, None, &operation).await;
        assert_eq!(history(&broker.job(&operation).await).len(), 1);
    }
    assert!(broker.is_alive());
    assert_eq!(broker.pid(), before);
    assert_eq!(
        held(&broker).await,
        None,
        "one job is no proof against the broker"
    );
    broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_jobs_that_panic_at_one_place_hold_the_broker_and_charge_nobody_more() {
    // So long a backoff that each job panics once.
    let setup = Setup::faults_bundle()
        .with_toml("[recovery]\nbackoff_min = \"1h\"\nbackoff_max = \"1h\"")
        .with_faults("engine.start~provision=panic");
    let mut broker = Broker::start(setup).await;
    let of = broker.ids("faults", "ok").await;
    let mut jobs = Vec::new();
    for id in ["first", "second", "third"] {
        assert_eq!(
            held(&broker).await,
            None,
            "two jobs are no proof against the broker"
        );
        let operation = broker.provision(id, &of, json!({})).await.operation();
        jobs.push((
            id,
            operation.clone(),
            broker.job_is(&operation, "backoff").await,
        ));
    }
    let charges: Vec<_> = jobs
        .iter()
        .map(|(_, _, job)| &history(job)[0]["charge"])
        .collect();
    assert_eq!(charges, ["crash", "crash", "none"]);
    assert!(is_charged_panic(&history(&jobs[0].2)[0]), "{:#}", jobs[0].2);
    assert_eq!(history(&jobs[2].2)[0]["end"], "our_bug", "{:#}", jobs[2].2);

    // Said everywhere, with the place; everything but new runs is served.
    let why = held(&broker).await.expect("the broker is held");
    assert!(why.contains("crates/engine/src/attempt.rs:"), "{why}");
    let status = broker.cli(&["status"]);
    let text = String::from_utf8(status.stdout).unwrap();
    assert!(
        status.status.success() && text.contains(&format!("held: {why}")),
        "{text}"
    );
    let waiting = broker.provision("fourth", &of, json!({})).await.operation();
    let poll = format!("/v2/service_instances/fourth/last_operation?operation={waiting}");
    assert_eq!(
        broker.osb(Method::GET, &poll, None).await.body["state"],
        "in progress"
    );
    assert_eq!(
        broker.osb(Method::GET, "/v2/catalog", None).await.status,
        200
    );
    assert_eq!(broker.job(&waiting).await["state"], "queued");

    // A mended broker starts afresh, and finds all four. What waits longer than any backoff can
    // be is due at once.
    assert!(broker.terminate().success());
    broker.setup.faults.clear();
    broker.setup.toml = "[recovery]\nbackoff_min = \"20ms\"\nbackoff_max = \"100ms\"".to_owned();
    broker.boot().await;
    assert_eq!(held(&broker).await, None);
    for (id, operation, _) in jobs {
        broker.succeeded(id, None, &operation).await;
    }
    broker.succeeded("fourth", None, &waiting).await;
    broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_after_the_end_was_written_changes_nothing() {
    let setup = Setup::faults_bundle().with_faults("engine.concluded~provision=panic@1");
    let broker = Broker::start(setup).await;
    let of = broker.ids("faults", "ok").await;
    let operation = broker.provision("i", &of, json!({})).await.operation();
    broker.succeeded("i", None, &operation).await;
    eventually("the panic is told", || async {
        broker
            .log()
            .contains("a driving step panicked")
            .then_some(())
    })
    .await;
    let after = broker.deprovision("i", &of).await.operation();
    broker.succeeded("i", None, &after).await;
    let job = broker.job(&operation).await;
    assert_eq!(job["state"], "succeeded", "{job:#}");
    assert_eq!(history(&job).len(), 1, "{job:#}");
    assert_eq!(job["budget"]["crashes"], 0, "{job:#}");
    broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claimer_that_panics_hands_over_and_what_it_had_claimed_runs_once() {
    for point in ["engine.claim", "engine.claimed"] {
        let setup = Setup::faults_bundle().with_faults(&format!("{point}=panic@1"));
        let mut broker = Broker::start(setup).await;
        let of = broker.ids("faults", "ok").await;
        let scratch = tempfile::tempdir().unwrap();
        let asked = broker
            .provision("i", &of, json!({"marks": scratch.path()}))
            .await;
        let operation = asked.operation();
        let end = broker.died().await;
        assert_eq!(end.code(), Some(15), "{}", broker.log());
        assert!(
            broker.log().contains("a task that all jobs share panicked"),
            "{}",
            broker.log()
        );
        broker.setup.faults.clear();
        broker.boot().await;
        broker.succeeded("i", None, &operation).await;
        let job = broker.job(&operation).await;
        for attempt in history(&job) {
            assert_ne!(attempt["charge"], "crash", "no job is to blame: {job:#}");
            assert_ne!(attempt["end"], "exposed", "it was handed over: {job:#}");
        }
        let starts = std::fs::read_to_string(scratch.path().join("starts")).unwrap();
        assert_eq!(starts.lines().count(), 1, "{starts}");
        broker.nothing_left().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_any_task_that_all_jobs_share_hands_over() {
    let loops = ["deadlines", "signs of life", "unclaimed runs", "retention"];
    let rules = loops
        .map(|name| format!("engine.housekeeping~{name}=panic"))
        .into_iter()
        .chain(["recovery.deaths=panic".to_owned()]);
    let mut broker = Broker::new(Setup::faults_bundle());
    for (handed_over, rule) in rules.enumerate() {
        broker.setup.faults = rule.clone();
        broker.spawn();
        let end = broker.died().await;
        assert_eq!(end.code(), Some(15), "{rule}:\n{}", broker.log());
        let told = broker.log().matches("handing over: ").count();
        assert_eq!(told, handed_over + 1, "{rule}:\n{}", broker.log());
    }
    broker.setup.faults.clear();
    broker.boot().await;
    let list = broker.admin(Method::GET, "/admin/v1/boots").await.body;
    let boots = list["boots"].as_array().unwrap();
    assert_eq!(boots.len(), 6, "{list}");
    for boot in &boots[1..] {
        let verdict = boot["verdict"].as_str().unwrap();
        assert!(verdict.ends_with(" had panicked"), "{list}");
        let broke = boot["broke"].as_str().unwrap();
        assert!(verdict.contains(broke), "{list}");
    }
    // Nobody saw these ends, and they count all the same.
    eventually(
        "the last of them is told, and new runs are held",
        || async {
            let status = broker.admin(Method::GET, "/admin/v1/status").await.body;
            let last = status["last_death"].as_str()?;
            let told = last.contains("recovery had panicked");
            (told && status["holds"][0]["cause"] == "deaths").then_some(())
        },
    )
    .await;
}
