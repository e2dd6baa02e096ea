//! What an operator does to jobs: retry, discard, cancel, clear.

use std::fs;

use serde_json::json;

use crate::harness::{Broker, Setup, eventually};
use crate::operator::{ONE_CRASH, done, ended, fails, gate, ordered, start, talker};

#[tokio::test]
async fn a_quarantined_job_is_retried_or_discarded_on_record() {
    let broker = start(ONE_CRASH).await;
    let first = ended(&broker, "worse", "abort", "quarantined").await;
    let status = done(&broker, &["status"]).out;
    assert!(status.contains("quarantined 1"), "{status}");

    let retry = done(&broker, &["jobs", "retry", &first]);
    let second = retry.out.trim().to_owned();
    assert_ne!(second, first);
    assert!(retry.err.contains(&first), "{retry:?}");
    let job = broker.job_is(&second, "quarantined").await;
    assert_eq!(job["retry_of"], first);
    assert_eq!(
        job["budget"]["crashes"], 1,
        "the account was cleared, and charged anew"
    );
    let shown = done(&broker, &["jobs", "show", &first]).out;
    assert!(
        shown.contains("operator") && shown.contains("retry"),
        "on record: {shown}"
    );
    // The operation that the platform knows stays what it was.
    let end = broker.finished("worse", None, &first).await;
    assert_eq!(end["state"], "failed", "{end}");
    assert!(
        end["description"].as_str().unwrap().contains(&first),
        "{end}"
    );

    let discard = done(&broker, &["jobs", "discard", &second, "--json"]).json();
    assert_eq!(discard["outcome"], "done", "{discard}");
    let again = done(&broker, &["jobs", "discard", &second, "--json"]).json();
    assert_eq!(again["outcome"], "already", "{again}");
    fails(&broker, &["jobs", "retry", &second], 6, "discarded");
    let list = done(&broker, &["jobs", "list"]).out;
    assert!(list.contains("discarded"), "{list}");
    // What it may have left outside is on a register.
    let status = done(&broker, &["status", "--json"]).json();
    assert_eq!(status["counts"]["leaks"], 1, "{status}");

    // An ended job that did its work is left alone.
    let good = ended(&broker, "good", "ok", "succeeded").await;
    for verb in ["retry", "discard", "cancel"] {
        fails(&broker, &["jobs", verb, &good], 6, &good);
    }
}

#[tokio::test]
async fn a_job_that_failed_is_retried_by_a_new_job_that_can_succeed() {
    let mut broker = Broker::new(Setup::default());
    let gate = gate(&broker);
    broker.setup.bundles = vec![talker(
        &broker,
        &format!("[ -e {} ] || exit 1", gate.display()),
    )];
    broker.boot().await;
    let ids = broker.ids("talker", "only").await;
    let first = broker.provision("i", &ids, json!({})).await.operation();
    broker.job_is(&first, "failed").await;
    fs::write(&gate, "").unwrap();
    let retry = done(&broker, &["jobs", "retry", &first, "--json"]).json();
    assert_eq!(retry["outcome"], "queued", "{retry}");
    let second = retry["job"].as_str().unwrap();
    broker.succeeded("i", None, second).await;
    let again = broker.provision("i", &ids, json!({})).await;
    assert_eq!(again.status, 200, "the instance is there: {again:?}");
    fails(&broker, &["jobs", "retry", &first], 6, &first);
}

#[tokio::test]
async fn a_running_job_is_cancelled_and_its_run_ended() {
    let broker = start("[process]\ngrace = \"1s\"").await;
    let parameters = json!({"gate": gate(&broker)});
    let job = ordered(&broker, "slow", "ok", parameters).await;
    broker.job_is(&job, "running").await;
    let progress = eventually("its progress is shown", || async {
        let list = done(&broker, &["jobs", "list", "--state", "running"]).out;
        list.contains("at the gate").then_some(list)
    })
    .await;
    assert!(progress.contains("slow"));
    let status = done(&broker, &["status"]).out;
    assert!(status.contains("runs       1 of 32"), "{status}");
    assert!(
        status.contains("0 queued, 1 running, 0 in backoff"),
        "{status}"
    );
    for verb in ["retry", "discard"] {
        fails(&broker, &["jobs", verb, &job], 6, &job);
    }
    assert!(!broker.run_processes().is_empty());

    let cancel = done(&broker, &["jobs", "cancel", &job[..23]]);
    assert_eq!(cancel.out, format!("{job}\n"));
    assert!(cancel.err.contains("asked to stop"), "{cancel:?}");
    broker.job_is(&job, "cancelled").await;
    broker.nothing_left().await;
    let end = broker.finished("slow", None, &job).await;
    assert_eq!(end["state"], "failed", "{end}");
    fails(&broker, &["jobs", "cancel", &job], 6, "cancelled");
}

#[tokio::test]
async fn a_suspect_is_cleared_and_a_waiting_job_is_cancelled_at_once() {
    let recovery = "crash_limit = 2\nbackoff_min = \"1h\"\nbackoff_max = \"1h\"";
    let broker = start(&format!("[recovery]\n{recovery}")).await;
    // Without evidence of its own: the next death would count only in isolation.
    let job = ended(&broker, "odd", "kill-self", "backoff").await;
    let shown = done(&broker, &["jobs", "show", &job]).out;
    assert!(shown.contains("suspect      yes"), "{shown}");
    let clear = done(&broker, &["jobs", "clear", &job, "--json"]).json();
    assert_eq!(clear["outcome"], "done", "{clear}");
    let shown = done(&broker, &["jobs", "show", &job]).out;
    assert!(!shown.contains("suspect  "), "{shown}");
    assert!(shown.contains("clear"), "on record: {shown}");
    let again = done(&broker, &["jobs", "clear", &job, "--json"]).json();
    assert_eq!(again["outcome"], "already", "{again}");
    let cancel = done(&broker, &["jobs", "cancel", &job, "--json"]).json();
    assert_eq!(cancel["outcome"], "done", "{cancel}");
    assert_eq!(broker.job(&job).await["state"], "cancelled");
}
