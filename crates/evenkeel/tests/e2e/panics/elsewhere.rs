//! Panics of work that a step hands to another thread, which are the step's: on its run's folder,
//! and over the bundle and the secrets that its run needs.

use std::fs;
use std::path::{Path, PathBuf};

use reqwest::Method;
use serde_json::{Value, json};

use super::{held, history};
use crate::harness::{Broker, Setup, marks};
use crate::operator::{ONE_CRASH, done};
use crate::stage::{Stage, copy_faults};

/// Where work on a run's folder is done.
const ON_FOLDER: &str = "crates/executor/src/process.rs:";

/// Whether an attempt is charged as a crash for a panic at a place, with the way that it came.
fn is_charged(attempt: &Value, place: &str) -> bool {
    let reason = attempt["reason"].as_str().unwrap_or_default();
    let panic = &attempt["forensics"]["panic"];
    let way = panic["backtrace"].as_str().unwrap_or_default();
    attempt["end"] == "crashed"
        && attempt["charge"] == "crash"
        && reason.contains(&format!("panicked at {place}"))
        && panic["location"].as_str().unwrap().starts_with(place)
        && panic["thread"].is_string()
        && way.contains(&format!(" at {place}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_work_on_a_run_is_charged_with_its_own_place_and_the_way_that_it_came() {
    let setup = Setup::faults_bundle().with_faults("run.spawn.before~unbind=panic");
    let broker = Broker::start(setup).await;
    let of = broker.ids("faults", "ok").await;
    super::instance(&broker, &of, "i").await;
    let bound = broker.bind("i", "b", &of, json!({})).await.operation();
    broker.succeeded("i", Some("b"), &bound).await;
    let operation = broker.unbind("i", "b", &of).await.operation();
    let beside = broker.provision("beside", &of, json!({})).await.operation();
    let job = broker.job_is(&operation, "quarantined").await;
    assert_eq!(history(&job).len(), 3, "{job:#}");
    for attempt in history(&job) {
        assert!(is_charged(attempt, ON_FOLDER), "{job:#}");
        let way = attempt["forensics"]["panic"]["backtrace"].as_str().unwrap();
        let first = way.lines().next().unwrap();
        assert!(first.contains(" at crates/"), "ours first: {way}");
        for carrier in ["guard.rs", "panics.rs", "blocking.rs", "blackbox"] {
            assert!(!way.contains(carrier), "{carrier} says nothing: {way}");
        }
    }
    let story = done(&broker, &["jobs", "explain", &operation]).out;
    for told in [
        &format!("Crashed: the broker's step for it panicked at {ON_FOLDER}"),
        "The panic came in thread ",
        &format!(" at {ON_FOLDER}"),
    ] {
        assert!(story.contains(told), "`{told}` is missing in\n{story}");
    }
    broker.succeeded("beside", None, &beside).await;
    assert_eq!(held(&broker).await, None, "one job is no proof against us");
    broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_once_a_run_is_handed_over_ends_it_before_the_next_attempt() {
    let scratch = tempfile::tempdir().unwrap();
    let bundle = scratch.path().join("faults");
    copy_faults(&bundle, "5m");
    let setup = Setup {
        bundles: vec![bundle],
        ..Setup::default()
    };
    let toml = "[recovery]\nbackoff_min = \"20ms\"\nbackoff_max = \"100ms\"";
    let setup = setup
        .with_toml(toml)
        .with_faults("run.handed_over.after~provision=panic@2");
    let broker = Broker::start(setup).await;
    let of = broker.ids("faults", "ok").await;
    let path = |name: &str| scratch.path().join(name).display().to_string();
    fs::create_dir(path("marks")).unwrap();
    let parameters = json!({"gate": path("gate"), "lock": path("lock"), "marks": path("marks")});
    let operation = broker.provision("i", &of, parameters).await.operation();
    crate::harness::eventually("the third attempt is at the gate", || async {
        let job = broker.job(&operation).await;
        (job["attempts"] == 3 && job["progress"] == "at the gate").then_some(())
    })
    .await;
    fs::write(path("gate"), "").unwrap();
    broker.succeeded("i", None, &operation).await;
    let job = broker.job(&operation).await;
    assert!(is_charged(&history(&job)[0], ON_FOLDER), "{job:#}");
    assert!(is_charged(&history(&job)[1], ON_FOLDER), "{job:#}");
    let lines = marks(&scratch.path().join("marks"));
    assert!(!fs::exists(path("marks/DOUBLE")).unwrap(), "{lines:?}");
    let ends = fs::read_to_string(path("marks/ends")).unwrap();
    assert_eq!(ends.lines().count(), 1, "two were cut off: {ends}");
    broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_three_jobs_that_panic_at_one_place_of_work_on_runs_hold_and_the_third_pays_nothing() {
    // So long a backoff that each job panics once.
    let setup = Setup::faults_bundle()
        .with_toml("[recovery]\nbackoff_min = \"1h\"\nbackoff_max = \"1h\"")
        .with_faults("run.spawn.before~provision=panic");
    let broker = Broker::start(setup).await;
    let of = broker.ids("faults", "ok").await;
    let mut jobs = Vec::new();
    for id in ["first", "second", "third"] {
        assert_eq!(held(&broker).await, None, "two jobs are no proof");
        let operation = broker.provision(id, &of, json!({})).await.operation();
        jobs.push(broker.job_is(&operation, "backoff").await);
    }
    assert!(
        is_charged(&history(&jobs[0])[0], ON_FOLDER),
        "{:#}",
        jobs[0]
    );
    assert!(
        is_charged(&history(&jobs[1])[0], ON_FOLDER),
        "{:#}",
        jobs[1]
    );
    let third = &history(&jobs[2])[0];
    assert_eq!(third["end"], "our_bug", "{third:#}");
    assert_eq!(third["charge"], "none", "{third:#}");
    let why = held(&broker).await.expect("the broker is held");
    assert!(why.contains(ON_FOLDER), "{why}");
    let waiting = broker.provision("fourth", &of, json!({})).await.operation();
    assert_eq!(broker.job(&waiting).await["state"], "queued");
    broker.nothing_left().await;
}

/// What is left of the run is for the story only.
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_over_what_is_left_of_a_run_does_not_keep_its_attempt_from_ending() {
    let mut stage = Stage::new(ONE_CRASH).await;
    let of = stage.offer("ok").await;
    let scene = stage.scene("i");
    stage.prepare(&scene, &of, "bind").await;
    stage
        .reboot("run.spawn.before~bind=panic;run.remains=panic")
        .await;
    let order = stage.order(&scene, &of, "bind").await;
    let job = stage.broker.job_is(&order.job, "quarantined").await;
    assert!(is_charged(&history(&job)[0], ON_FOLDER), "{job:#}");
    let log = stage.broker.log();
    let told = "a look at what is left of its run panicked";
    assert!(log.contains(told), "{log}");
}

/// Every regular file below that holds the words.
fn holding(folder: &Path, words: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(about) = path.symlink_metadata() else {
            continue;
        };
        if about.is_dir() {
            holding(&path, words, found);
        } else if about.is_file() {
            let bytes = fs::read(&path).unwrap_or_default();
            let mut windows = bytes.windows(words.len());
            if windows.any(|window| window == words.as_bytes()) {
                found.push(path);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i16_a_panic_over_a_bundle_or_a_secret_is_its_steps_and_its_words_are_kept_nowhere() {
    for point in ["engine.bundle", "engine.secrets"] {
        let setup = Setup::faults_bundle()
            .with_toml(ONE_CRASH)
            .with_warden()
            .with_faults(&format!("{point}~provision=panic"));
        let broker = Broker::start(setup).await;
        let of = broker.ids("faults", "ok").await;
        let operation = broker.provision("i", &of, json!({})).await.operation();
        let job = broker.job_is(&operation, "quarantined").await;
        let place = "crates/engine/src/attempt/prepare.rs:";
        assert_eq!(history(&job).len(), 1, "{job:#}");
        assert!(is_charged(&history(&job)[0], place), "{job:#}");
        assert!(history(&job)[0]["forensics"]["panic"]["said"].is_null());

        // The point puts its words together at run time, as a panic does that quotes a request.
        let words = format!("fault injected at {point}");
        let mut told = vec![job.to_string()];
        for path in [
            format!("/admin/v1/jobs/{operation}/explanation"),
            "/admin/v1/jobs".to_owned(),
            "/admin/v1/status".to_owned(),
            "/readyz".to_owned(),
        ] {
            told.push(broker.admin(Method::GET, &path).await.body.to_string());
        }
        told.push(broker.finished("i", None, &operation).await.to_string());
        told.push(done(&broker, &["jobs", "explain", &operation]).out);
        for told in &told {
            assert!(!told.contains(&words), "{told}");
        }
        assert!(broker.log().contains(place), "the log has the place");
        let mut found = Vec::new();
        holding(broker.dir.path(), &words, &mut found);
        let secret = broker.data().join("warden");
        let (raw, other): (Vec<_>, Vec<_>) =
            found.iter().partition(|path| path.starts_with(&secret));
        assert!(!raw.is_empty(), "they were said, on raw standard error");
        assert!(other.is_empty(), "{other:?}");
        broker.nothing_left().await;
    }
}
