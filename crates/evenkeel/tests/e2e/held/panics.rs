//! Held because one place of the broker panics for several jobs.

use super::*;

/// Each job panics once at most.
const ONCE: &str = "[recovery]\nbackoff_min = \"1h\"\nbackoff_max = \"1h\"";

/// Orders three instances whose first step panics; gives their jobs.
async fn three_panics(broker: &Broker, of: &Offer) -> Vec<String> {
    let mut jobs = Vec::new();
    for id in ["first", "second", "third"] {
        let operation = order(broker, of, id).await;
        broker.job_is(&operation, "backoff").await;
        jobs.push(operation);
    }
    jobs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_for_panics_ends_by_itself_when_nothing_panics_any_more() {
    let setup = Setup::faults_bundle()
        .with_toml(&format!("{ONCE}\nhold_quiet = \"3s\""))
        .with_faults("engine.start~provision=panic@3");
    let broker = Broker::start(setup).await;
    let of = broker.ids("faults", "ok").await;
    three_panics(&broker, &of).await;
    let hold = held_for(&broker, "panics").await;
    let why = hold["reason"].as_str().unwrap();
    assert!(why.contains("crates/engine/src/attempt.rs:"), "{why}");
    let operation = order(&broker, &of, "fourth").await;
    broker.succeeded("fourth", None, &operation).await;
    not_held(&broker).await;
    let ends = hold["ends_at"].as_str().unwrap().parse::<jiff::Timestamp>();
    let job = broker.job(&operation).await;
    let claimed = job["history"][0]["claimed_at"].as_str().unwrap();
    assert!(
        claimed.parse::<jiff::Timestamp>().unwrap() >= ends.unwrap(),
        "not before it had ended: {job:#}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_broker_that_panics_there_again_is_held_again_and_charges_nobody() {
    let setup = Setup::faults_bundle()
        .with_toml(ONCE)
        .with_faults("engine.start~provision=panic");
    let broker = Broker::start(setup).await;
    let of = broker.ids("faults", "ok").await;
    three_panics(&broker, &of).await;
    let first = held_for(&broker, "panics").await;
    let operation = order(&broker, &of, "fourth").await;
    waits(&broker, "fourth", &operation, "panics at").await;
    said(&broker, &["release"]);
    let job = broker.job_is(&operation, "backoff").await;
    assert_eq!(job["history"][0]["end"], "our_bug", "{job:#}");
    assert_eq!(job["history"][0]["charge"], "none", "{job:#}");
    let again = held_for(&broker, "panics").await;
    assert!(
        again["since"].as_str() > first["since"].as_str(),
        "{first} {again}"
    );
    let fifth = order(&broker, &of, "fifth").await;
    waits(&broker, "fifth", &fifth, "panics at").await;
}
