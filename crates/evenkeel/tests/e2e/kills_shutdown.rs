//! SIGTERM: runs go on without the broker, or are waited for; in either way nothing is charged and
//! nothing is lost (I8).

use std::time::Duration;

use rustix::process::{Signal, kill_process};

use crate::harness::{eventually, pid};
use crate::stage::Stage;

const DETACH: &str = "[shutdown]\non_shutdown = \"detach\"";

#[tokio::test]
async fn a_detached_run_goes_on_and_is_adopted_at_no_charge() {
    let mut stage = Stage::new(DETACH).await;
    let of = stage.offer("ok").await;
    let scene = stage.scene("i");
    let order = stage.provision(&scene, &of, "provision").await;
    scene.started("provision", 1).await;
    let runs = stage.broker.run_processes();
    assert_eq!(
        stage.broker.terminate().code(),
        Some(0),
        "{}",
        stage.broker.log()
    );
    let left = stage.broker.run_processes();
    assert!(
        runs.iter().any(|run| left.contains(run)),
        "the run goes on: {runs:?}, {left:?}"
    );
    stage.boot("").await;
    scene.open_gate();
    stage.succeeded(&order).await;
    let attempts = stage.attempts(&order).await;
    assert_eq!(attempts.len(), 1, "{attempts:?}");
    assert_eq!(attempts[0]["charge"], "none", "{attempts:?}");
    assert_eq!((scene.starts("provision"), scene.ends("provision")), (1, 1));
    stage.broker.nothing_left().await;
}

#[tokio::test]
async fn what_waits_at_a_shutdown_is_started_by_the_next_boot() {
    let mut stage = Stage::new(&format!("{DETACH}\n[jobs]\nconcurrency = 1")).await;
    let of = stage.offer("ok").await;
    let (first, second) = (stage.scene("first"), stage.scene("second"));
    let running = stage.provision(&first, &of, "provision").await;
    first.started("provision", 1).await;
    let queued = stage.provision(&second, &of, "provision").await;
    assert!(stage.broker.terminate().success());
    first.open_gate();
    second.open_gate();
    stage.broker.nothing_left().await;
    assert_eq!(second.starts("provision"), 0);
    stage.boot("").await;
    for (scene, order) in [(&first, &running), (&second, &queued)] {
        stage.succeeded(order).await;
        assert_eq!(scene.starts("provision"), 1);
        assert_eq!(stage.attempts(order).await[0]["charge"], "none");
    }
}

#[tokio::test]
async fn a_drain_waits_for_what_runs_and_starts_nothing_more() {
    let mut stage = Stage::new(
        "[shutdown]\non_shutdown = \"drain\"\ndrain_limit = \"5m\"\n[jobs]\nconcurrency = 1",
    )
    .await;
    let of = stage.offer("ok").await;
    let (first, second) = (stage.scene("first"), stage.scene("second"));
    let running = stage.provision(&first, &of, "provision").await;
    first.started("provision", 1).await;
    let queued = stage.provision(&second, &of, "provision").await;
    second.open_gate();
    kill_process(pid(stage.broker.pid()), Signal::TERM).unwrap();
    eventually("the broker drains", || async {
        stage
            .broker
            .log()
            .contains("a second signal ends at once")
            .then_some(())
    })
    .await;
    // Polls are answered as long as anything runs.
    assert_eq!(stage.broker.job(&running.job).await["state"], "running");
    first.open_gate();
    assert_eq!(
        stage.broker.died().await.code(),
        Some(0),
        "{}",
        stage.broker.log()
    );
    assert_eq!(
        (first.ends("provision"), second.starts("provision")),
        (1, 0)
    );
    stage.boot("").await;
    for (scene, order) in [(&first, &running), (&second, &queued)] {
        stage.succeeded(order).await;
        assert_eq!(scene.starts("provision"), 1);
        assert_eq!(stage.attempts(order).await.len(), 1);
    }
}

#[tokio::test]
async fn a_drain_stops_what_takes_too_long_at_no_charge_and_it_runs_again() {
    let mut stage =
        Stage::new("[shutdown]\non_shutdown = \"drain\"\ndrain_limit = \"500ms\"").await;
    let of = stage.offer("ok").await;
    let scene = stage.scene("i");
    let order = stage.provision(&scene, &of, "provision").await;
    scene.started("provision", 1).await;
    let began = std::time::Instant::now();
    assert_eq!(
        stage.broker.terminate().code(),
        Some(0),
        "{}",
        stage.broker.log()
    );
    assert!(
        began.elapsed() >= Duration::from_millis(500),
        "it was waited for"
    );
    assert_eq!(stage.broker.run_processes(), [0; 0]);
    scene.open_gate();
    stage.boot("").await;
    stage.succeeded(&order).await;
    let attempts = stage.attempts(&order).await;
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    assert_eq!(attempts[0]["end"], "disrupted", "{attempts:?}");
    assert_eq!(attempts[0]["charge"], "disruption", "{attempts:?}");
    assert_eq!((scene.starts("provision"), scene.ends("provision")), (2, 1));
}
