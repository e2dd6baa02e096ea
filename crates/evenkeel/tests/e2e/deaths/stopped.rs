//! A broker that is stopped (SIGSTOP) in a step for a job, while everything around it goes on.

use reqwest::Method;
use rustix::process::{Signal, kill_process};

use super::SIGABRT;
use crate::casualties::{QUICK, charged, charges};
use crate::harness::{eventually, pid};
use crate::stage::{Order, Scene, Stage};

/// What the kernel says of a process in `/proc/PID/status`.
fn status(id: u32, what: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(name, _)| *name == what).unwrap();
    value.trim().to_owned()
}

async fn is_stopped(broker: u32) {
    eventually("the broker is stopped", || {
        std::future::ready(status(broker, "State").starts_with('T').then_some(()))
    })
    .await;
}

/// A provision whose run has started, and the first broker that watched it, stopped in that step.
async fn stopped(toml: &str, warden: bool) -> (Stage, Scene, Order, u32) {
    let mut stage = Stage::new(&format!("{QUICK}\n{toml}")).await;
    let of = stage.offer("ok").await;
    let scene = stage.scene("i");
    let once = stage.file("once");
    std::fs::create_dir(&once).unwrap();
    stage.broker.setup.warden = warden;
    stage
        .reboot(&format!("once={};engine.watch=stop@1", once.display()))
        .await;
    let mut broker = stage.broker.pid();
    if warden {
        broker = stage.broker.under_warden(broker).await;
    }
    let order = stage.provision(&scene, &of, "provision").await;
    is_stopped(broker).await;
    scene.started("provision", 1).await;
    (stage, scene, order, broker)
}

async fn run_ends(stage: &Stage) {
    eventually("the run is over", || {
        std::future::ready(stage.broker.run_processes().is_empty().then_some(()))
    })
    .await;
}

/// It was started once, its one attempt cost nothing, and nothing is left.
async fn as_if_nothing_had_been(stage: &Stage, scene: &Scene, order: &Order) {
    assert_eq!(scene.starts("provision"), 1);
    let job = stage.broker.job(&order.job).await;
    assert_eq!(charges(&job), ["none"], "{job:#}");
    stage.broker.nothing_left().await;
}

#[tokio::test]
async fn a_broker_that_was_stopped_and_goes_on_finds_everything_as_it_should_be() {
    let (stage, scene, order, broker) = stopped("", false).await;
    scene.open_gate();
    run_ends(&stage).await;
    kill_process(pid(broker), Signal::CONT).unwrap();
    stage.succeeded(&order).await;
    as_if_nothing_had_been(&stage, &scene, &order).await;
    assert_eq!(charged(&stage, &order, "exposure").await, 0);
}

/// The run's shim keeps the deadline, whoever sleeps.
#[tokio::test]
async fn i1_a_broker_that_was_stopped_past_its_jobs_deadline_and_goes_on_ends_the_job_once() {
    let deadline = "[jobs]\ntimeout = \"6s\"\ndeadline = \"6s\"";
    let (stage, scene, order, broker) = stopped(deadline, false).await;
    run_ends(&stage).await;
    is_stopped(broker).await;
    kill_process(pid(broker), Signal::CONT).unwrap();
    let told = stage.failed(&order).await;
    assert!(told.contains("deadline"), "{told}");
    // Whatever were started again would come to its end now.
    scene.open_gate();
    as_if_nothing_had_been(&stage, &scene, &order).await;
    assert_eq!(scene.ends("provision"), 0);
    let job = stage.broker.job(&order.job).await;
    let audit = job["audit"].as_array().unwrap().iter();
    let charges: Vec<_> = audit.filter(|line| line["what"] == "charge").collect();
    assert!(charges.is_empty(), "{charges:?}");
    assert_eq!(stage.failed(&order).await, told, "it stays so (I11)");
}

/// SIGABRT waits for it; SIGKILL does not. Its job goes on under the next broker, which may have
/// counted that death, but as one that convicts nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_was_stopped_past_the_watchdog_gets_no_second_life_if_it_goes_on() {
    for goes_on in [true, false] {
        let toml = "[serve]\nwatchdog = \"3s\"\nrestart_pause = \"20ms\"";
        let (stage, scene, order, broker) = stopped(toml, true).await;
        if goes_on {
            eventually("SIGABRT waits for it", || {
                let pending = u64::from_str_radix(&status(broker, "ShdPnd"), 16).unwrap();
                let waits = pending & 1 << (SIGABRT - 1) != 0;
                std::future::ready(waits.then_some(()))
            })
            .await;
            kill_process(pid(broker), Signal::CONT).unwrap();
        }
        eventually("it is gone", || {
            let folder = format!("/proc/{broker}");
            let gone = !std::path::Path::new(&folder).exists();
            std::future::ready(gone.then_some(()))
        })
        .await;
        eventually("another broker is ready", || stage.broker.boot_id()).await;
        scene.open_gate();
        stage.succeeded(&order).await;
        as_if_nothing_had_been(&stage, &scene, &order).await;
        assert_eq!(charged(&stage, &order, "loss").await, 0);
        let boots = stage.broker.admin(Method::GET, "/admin/v1/boots");
        let boots = boots.await.body;
        let boots = boots["boots"].as_array().unwrap().iter();
        let dead: Vec<_> = boots.filter(|boot| !boot["death"].is_null()).collect();
        assert_eq!(dead.len(), 1, "{dead:#?}");
        let death = &dead[0]["death"];
        assert_eq!(death["killed_by_watchdog"], true, "{death:#}");
        let signal = if goes_on { SIGABRT } else { 9 };
        assert_eq!(death["signal"], signal, "{death:#}");
        // In the moment before SIGABRT ends all threads one of them may leave its step.
        let exposed = charged(&stage, &order, "exposure").await;
        let named = dead[0]["named"].as_array().map_or(0, Vec::len);
        assert_eq!(exposed, named, "{:#}", dead[0]);
        assert!(exposed == 1 || goes_on, "{:#}", dead[0]);
    }
}
