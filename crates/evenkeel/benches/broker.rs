//! The whole broker, measured from outside: real binary, real processes, real disk.
//!
//! `cargo bench -p evenkeel --bench broker [-- accepts|convictions|deaths|jobs|memory|recovery|requests]`;
//! `convictions` takes further words.
//! Figures are printed beside a floor that is taken in the same run; what counts is the ratio.

#![expect(clippy::print_stdout, reason = "figures are what a bench is for")]
#![expect(clippy::unwrap_used, reason = "the harness of the tests")]

#[path = "../tests/e2e/harness.rs"]
#[expect(dead_code, reason = "a part of what the tests need")]
mod harness;

#[path = "../tests/e2e/stage.rs"]
#[expect(dead_code, reason = "a part of what the tests need")]
mod stage;

#[path = "broker/accepts.rs"]
mod accepts;
#[path = "broker/bundle.rs"]
mod bundle;
#[path = "broker/convictions.rs"]
mod convictions;
#[path = "broker/deaths.rs"]
mod deaths;
#[path = "broker/jobs.rs"]
mod jobs;
#[path = "broker/memory.rs"]
mod memory;
#[path = "broker/recovery.rs"]
mod recovery;
#[path = "broker/requests.rs"]
mod requests;

const BENCHES: [&str; 7] = [
    "accepts",
    "convictions",
    "deaths",
    "jobs",
    "memory",
    "recovery",
    "requests",
];

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|want| want == name);
    let (_, words): (Vec<_>, Vec<_>) = wanted
        .iter()
        .partition(|want| BENCHES.contains(&want.as_str()));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        requests::be_the_floor().await;
        if wants("accepts") {
            accepts::run().await;
        }
        if wants("deaths") {
            deaths::run().await;
        }
        if wants("convictions") {
            convictions::run(&words).await;
        }
        if wants("jobs") {
            jobs::run().await;
        }
        if wants("memory") {
            memory::run().await;
        }
        if wants("recovery") {
            recovery::run().await;
        }
        if wants("requests") {
            requests::run().await;
        }
    });
}
