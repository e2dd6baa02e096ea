//! No-op jobs end to end, against the bare rate of spawning the same program under a parent with
//! the same containment.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::json;

use crate::bundle;
use crate::harness::{Broker, Setup, eventually};

const JOBS: usize = 1_000;
const SIDE_BY_SIDE: usize = 32;

pub(crate) async fn run() {
    for (containment, parent) in [
        (
            "pidns",
            vec![
                "unshare",
                "--pid",
                "--mount-proc",
                "--fork",
                "--kill-child",
                "true",
            ],
        ),
        ("sweep", vec!["sh", "-c", "true; exit $?"]),
    ] {
        let floor = floor(&parent);
        let rate = jobs(containment).await;
        println!(
            "jobs      {rate:8.0}/s end to end, containment {containment}, {SIDE_BY_SIDE} at once"
        );
        println!(
            "floor     {floor:8.0}/s `{}`, {SIDE_BY_SIDE} at once",
            parent.join(" ")
        );
        println!("ratio     {:8.2}\n", rate / floor);
    }
}

async fn jobs(containment: &str) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup {
        bundles: vec![bundle::write(folder.path(), &["true"])],
        toml: format!(
            "[jobs]\nconcurrency = {SIDE_BY_SIDE}\nper_service = {SIDE_BY_SIDE}\n[process]\ncontainment = {containment:?}\n"
        ),
        ..Setup::default()
    };
    let broker = Arc::new(Broker::start(setup).await);
    let ids = Arc::new(broker.ids("bench", "only").await);
    let since = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for share in 0..SIDE_BY_SIDE {
        let (broker, ids) = (Arc::clone(&broker), Arc::clone(&ids));
        tasks.spawn(async move {
            for nth in (share..JOBS).step_by(SIDE_BY_SIDE) {
                let answer = broker.provision(&format!("i-{nth}"), &ids, json!({})).await;
                assert_eq!(answer.status, 202, "{answer:?}");
            }
        });
    }
    tasks.join_all().await;
    let broker = &broker;
    eventually("all jobs succeed", || async move {
        let status = broker
            .admin(reqwest::Method::GET, "/admin/v1/status")
            .await
            .body;
        (status["counts"]["succeeded"] == JOBS).then_some(())
    })
    .await;
    JOBS as f64 / since.elapsed().as_secs_f64()
}

fn floor(parent: &[&str]) -> f64 {
    let left = AtomicUsize::new(JOBS);
    let since = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                let take = |left: usize| left.checked_sub(1);
                while left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
                    .is_ok()
                {
                    #[expect(clippy::disallowed_methods, reason = "the floor is a bare spawn")]
                    let mut command = Command::new(parent[0]);
                    let status = command.args(&parent[1..]).stdin(Stdio::null()).status();
                    assert!(status.expect("it starts").success());
                }
            });
        }
    });
    JOBS as f64 / since.elapsed().as_secs_f64()
}
