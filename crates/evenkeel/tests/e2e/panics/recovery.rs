//! Panics of recovery: the job pays and goes on, or the broker holds and leaves the runs alone.

use serde_json::json;

use super::{held, history, instance, is_charged_panic, patient};
use crate::harness::{Broker, eventually};

/// Waits until a job's run is at its gate.
async fn at_the_gate(broker: &Broker, job: &str) {
    eventually(&format!("the run of {job} is at the gate"), || async {
        let job = broker.job(job).await;
        (job["progress"] == "at the gate").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_recovery_is_charged_to_its_job_whose_run_is_ended_first() {
    let scratch = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(patient(scratch.path())).await;
    let of = broker.ids("faults", "ok").await;
    std::fs::create_dir(scratch.path().join("marks")).unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    instance(&broker, &of, "there").await;
    let parameters = json!({"gate": path("gate"), "lock": path("lock"), "marks": path("marks")});
    let victim = broker
        .provision("victim", &of, parameters)
        .await
        .operation();
    let parameters = json!({"when": "bind", "gate": path("gate")});
    let beside = broker.bind("there", "b", &of, parameters).await.operation();
    for operation in [&victim, &beside] {
        at_the_gate(&broker, operation).await;
    }
    broker.kill();
    broker.setup.faults = "recovery.action~provision=panic".to_owned();
    broker.boot().await;
    eventually("the second attempt is under way", || async {
        let job = broker.job(&victim).await;
        (job["attempts"] == 2 && job["state"] == "running").then_some(())
    })
    .await;
    std::fs::write(path("gate"), "").unwrap();
    broker.succeeded("victim", None, &victim).await;
    broker.succeeded("there", Some("b"), &beside).await;
    let job = broker.job(&victim).await;
    assert_eq!(history(&job).len(), 2, "{job:#}");
    assert!(is_charged_panic(&history(&job)[0]), "{job:#}");
    assert!(!std::fs::exists(path("marks/DOUBLE")).unwrap());
    let job = broker.job(&beside).await;
    assert_eq!(history(&job).len(), 1, "its run went on: {job:#}");
    broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recovery_that_panics_over_three_jobs_holds_the_broker_and_leaves_the_third_its_run() {
    let scratch = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(patient(scratch.path())).await;
    let of = broker.ids("faults", "ok").await;
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let mut jobs = Vec::new();
    for id in ["one", "two", "three"] {
        std::fs::create_dir(path(id)).unwrap();
        let parameters = json!({
            "gate": path("gate"), "lock": path(&format!("{id}/lock")), "marks": path(id),
        });
        let job = broker.provision(id, &of, parameters).await.operation();
        at_the_gate(&broker, &job).await;
        jobs.push((id, job));
    }
    broker.kill();
    broker.setup.faults = "recovery.action~provision=panic".to_owned();
    broker.spawn();
    broker.listening().await;
    eventually("the broker is held", || async {
        let ready = broker.admin(reqwest::Method::GET, "/readyz").await;
        ready.body.to_string().contains("panics at").then_some(())
    })
    .await;
    eventually("two are charged and one goes on", || {
        let (broker, jobs) = (&broker, &jobs);
        async move {
            let (mut charged, mut untouched) = (0, 0);
            for (_, job) in jobs {
                let job = broker.job(job).await;
                let first = &history(&job)[0];
                charged += usize::from(is_charged_panic(first));
                untouched += usize::from(job["state"] == "running" && first["end"].is_null());
            }
            ((charged, untouched) == (2, 1)).then_some(())
        }
    })
    .await;

    // A mended broker finds all of them, and the one run that was left alone.
    broker.kill();
    broker.setup.faults.clear();
    broker.boot().await;
    assert_eq!(held(&broker).await, None);
    std::fs::write(path("gate"), "").unwrap();
    let mut attempts = 0;
    for (id, job) in &jobs {
        broker.succeeded(id, None, job).await;
        attempts += history(&broker.job(job).await).len();
        assert!(
            !std::fs::exists(path(&format!("{id}/DOUBLE"))).unwrap(),
            "{id}"
        );
    }
    assert_eq!(attempts, 5, "two second attempts");
    broker.nothing_left().await;
}
