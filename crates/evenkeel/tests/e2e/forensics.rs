//! `evenkeel jobs explain` tells what happened, what it proves and cost, and what can be done: for
//! every kind of poison, for what died with its broker, and for a step of the broker's own.

use std::fs;
use std::path::Path;

use reqwest::Method;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Broker, Setup, eventually, pid};
use crate::operator::{ONE_CRASH, done, fails, talker};
use crate::stage::{Order, Scene, Stage, copy_faults};

const SWEEP: &str = "[process]\ncontainment = \"sweep\"\n";

/// The story of a job, by the real command.
fn explained(broker: &Broker, job: &str) -> String {
    done(broker, &["jobs", "explain", job]).out
}

fn told(story: &str, words: &[&str]) {
    for word in words {
        assert!(story.contains(word), "`{word}` is missing in\n{story}");
    }
}

/// The fault bundle with a lower limit of memory.
fn limited(folder: &Path, toml: &str) -> Setup {
    let bundle = folder.join("faults");
    copy_faults(&bundle, "5m");
    let file = bundle.join("bundle.yml");
    let text = fs::read_to_string(&file).unwrap();
    let other = text.replace("memory: 128Mi", "memory: 64Mi");
    assert_ne!(text, other, "the bundle limits memory otherwise");
    fs::write(&file, other).unwrap();
    let setup = Setup {
        bundles: vec![bundle],
        ..Setup::default()
    };
    setup.with_toml(toml)
}

async fn provision(broker: &Broker, plan: &str) -> String {
    let of = broker.ids("faults", plan).await;
    let answer = broker
        .provision(&format!("of-{plan}"), &of, json!({}))
        .await;
    answer.operation()
}

#[tokio::test]
async fn every_poison_is_explained_with_its_proof_its_price_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(limited(folder.path(), ONE_CRASH)).await;
    let core = "no core was written, since runs may not write any";
    let own = "Charged as a crash: it was the run's own doing.";
    let set_aside = ["jobs retry", "jobs discard", "jobs logs"];
    let cases: [(&str, &str, &[&str]); 8] = [
        (
            "abort",
            "quarantined",
            &[
                "Crashed: it brought signal 6 (SIGABRT) on itself.",
                core,
                own,
            ],
        ),
        (
            "segfault",
            "quarantined",
            &["signal 11 (SIGSEGV)", core, own, "of 64 MiB allowed"],
        ),
        (
            // In company first, which proves nothing; then alone.
            "kill-self",
            "quarantined",
            &[
                "Its main process was ended by signal 9 (SIGKILL).",
                "nothing proves why",
                "Charged as an exposure only",
                "alone, because the job was a suspect",
                "though nothing proves that it was its own doing",
                "A target may have 1 crash at most.",
            ],
        ),
        (
            "memory-tree",
            "failed",
            &[
                "exit code 137",
                "A shell says so of a command that was ended by signal 9 (SIGKILL).",
                "A child was hit, not the main process.",
                "Memory: the kernel ended a process of it for the limit of its own cgroup.",
                "jobs retry",
            ],
        ),
        (
            "memory",
            "failed",
            &[
                "Memory: it had used nearly all that it was allowed",
                "of 64 MiB allowed",
            ],
        ),
        (
            "exit139",
            "failed",
            &[
                "exit code 139",
                "A shell says so of a command that was ended by signal 11 (SIGSEGV).",
            ],
        ),
        (
            "exit1-message",
            "failed",
            &[
                "the action says: Out of teapots.",
                "The end of the log of attempt 1",
                "standard error:\n    Out of teapots.",
                "Its log is there: `evenkeel jobs logs ",
            ],
        ),
        ("output-array", "failed", &["what it wrote cannot be used"]),
    ];
    let mut jobs = Vec::new();
    for (plan, state, words) in cases {
        jobs.push((provision(&broker, plan).await, plan, state, words));
    }
    for (job, plan, state, words) in &jobs {
        broker.job_is(job, state).await;
        let story = explained(&broker, job);
        told(&story, words);
        assert!(
            ["s ago)", "(just now)"]
                .iter()
                .any(|when| story.contains(when)),
            "{story}"
        );
        told(
            &story,
            &[
                &format!("The provision of instance of-{plan} (faults)"),
                "Platform \"platform\" asked for it; it was accepted.",
                "Attempt 1 began, in company, held by a PID namespace of its own.",
                "of processor time.",
                &format!("Its last line of progress: \"fault {plan}\""),
                "What you can do",
            ],
        );
        if *state == "quarantined" {
            told(&story, &set_aside);
            told(
                &story,
                &["The job was quarantined: set aside, with nothing deleted."],
            );
        }
    }
    let (first, ..) = &jobs[0];
    as_data(&broker, first).await;
    // What an operator did is a part of the story.
    done(&broker, &["jobs", "discard", first]);
    let story = explained(&broker, first);
    told(&story, &["An operator marked it as dealt with."]);
    assert!(!story.contains("jobs retry"), "{story}");
    let nobody = "019c0000-0000-7000-8000-000000000000";
    fails(&broker, &["jobs", "explain", nobody], 3, "there is no job");
}

/// The action is a Rust program: this very binary, which panics in a destructor while another panic
/// unwinds, and so aborts.
#[tokio::test]
async fn a_double_panic_of_an_action_is_an_abort_with_what_it_said_and_charged_as_a_crash() {
    let mut broker = Broker::new(Setup::default().with_toml(ONE_CRASH));
    let script = format!(
        "EVENKEEL_FAULTS=shim.first=double-panic exec {} shim",
        env!("CARGO_BIN_EXE_evenkeel")
    );
    broker.setup.bundles = vec![talker(&broker, &script)];
    broker.boot().await;
    let of = broker.ids("talker", "only").await;
    let job = broker.provision("i", &of, json!({})).await.operation();
    let shown = broker.job_is(&job, "quarantined").await;
    let attempts = shown["history"].as_array().unwrap();
    assert_eq!(attempts.len(), 1, "{shown:#}");
    assert_eq!(attempts[0]["end"], "crashed", "{shown:#}");
    assert_eq!(attempts[0]["charge"], "crash", "{shown:#}");
    assert_eq!(attempts[0]["forensics"]["signal"], 6, "{shown:#}");
    let story = explained(&broker, &job);
    told(
        &story,
        &[
            "Crashed: it brought signal 6 (SIGABRT) on itself.",
            "Charged as a crash: it was the run's own doing.",
            "The end of the log of attempt 1",
            "panic in a destructor during cleanup",
            "thread caused non-unwinding panic. aborting.",
        ],
    );
    let log = done(&broker, &["jobs", "logs", &job]).out;
    told(
        &log,
        &[
            "shim.first, the first of two",
            "shim.first, in a destructor",
        ],
    );
    broker.nothing_left().await;
}

/// `--json` has the same as data, and so has the admin API.
async fn as_data(broker: &Broker, job: &str) {
    let told = done(broker, &["jobs", "explain", job, "--json"]).json();
    let path = format!("/admin/v1/jobs/{job}/explanation");
    let answer = broker.admin(Method::GET, &path).await;
    assert_eq!(answer.status, 200);
    let stable = ["headline", "events", "standing", "advice", "job"];
    for part in stable {
        assert_eq!(told[part], answer.body[part], "{part}");
    }
    let known = &told["job"]["history"][0]["forensics"];
    assert_eq!(known["signal"], 6, "{told:#}");
    assert_eq!(known["memory_limit_bytes"], 64 << 20, "{told:#}");
    assert_eq!(known["progress"], "fault abort", "{told:#}");
}

/// The shim of the one run under way.
fn shim(broker: &Broker) -> u32 {
    let shims: Vec<u32> = broker
        .run_processes()
        .into_iter()
        .filter(|id| {
            fs::read_to_string(format!("/proc/{id}/comm"))
                .is_ok_and(|name| name.trim() == "evenkeel-shim")
        })
        .collect();
    assert_eq!(shims.len(), 1, "one run, one shim");
    shims[0]
}

#[tokio::test]
async fn a_run_that_takes_its_shim_along_is_told_by_what_is_left_of_it() {
    let stage = Stage::new(&format!("{SWEEP}{ONE_CRASH}")).await;
    let scene = stage.scene("poison");
    scene.open_gate();
    let of = stage.offer("kill-parent").await;
    let order = stage.provision(&scene, &of, "provision").await;
    stage.broker.job_is(&order.job, "quarantined").await;
    let story = explained(&stage.broker, &order.job);
    told(
        &story,
        &[
            "Attempt 1 began, in company, held by an inherited lock.",
            "nothing proves why",
            "Its shim vanished without a record: what remained of its tree was ended.",
            "Its last sign of life came",
            "Attempt 2 began, alone, because the job was a suspect",
        ],
    );
    stage.broker.nothing_left().await;
}

#[tokio::test]
async fn whoever_stops_a_run_from_outside_is_named() {
    let stage = Stage::new("").await;
    let scene = stage.scene("stopped");
    let of = stage.offer("ok").await;
    let order = stage.provision(&scene, &of, "provision").await;
    scene.started("provision", 1).await;
    eventually("its progress is noted", || async {
        let job = stage.broker.job(&order.job).await;
        (job["progress"] == "at the gate").then_some(())
    })
    .await;
    kill_process(pid(shim(&stage.broker)), Signal::TERM).unwrap();
    scene.started("provision", 2).await;
    scene.open_gate();
    stage.succeeded(&order).await;
    let own = fs::read_to_string("/proc/self/comm").unwrap();
    let sender = format!(
        "process {} (\"{}\") of user",
        std::process::id(),
        own.trim()
    );
    let story = explained(&stage.broker, &order.job);
    told(
        &story,
        &[
            "Interrupted: its run was asked to stop from outside.",
            &format!("The signal to stop came from {sender}"),
            "Its last line of progress: \"at the gate\"",
            "Nothing charged: it was disrupted.",
            "The job succeeded.",
        ],
    );
}

async fn at_gates(stage: &Stage, names: [&str; 2]) -> Vec<(Scene, Order)> {
    let of = stage.offer("ok").await;
    let mut all = Vec::new();
    for name in names {
        let scene = stage.scene(name);
        let order = stage.provision(&scene, &of, "provision").await;
        eventually("its progress is noted", || async {
            let job = stage.broker.job(&order.job).await;
            (job["progress"] == "at the gate").then_some(())
        })
        .await;
        all.push((scene, order));
    }
    all
}

#[tokio::test]
async fn what_died_with_the_broker_is_told_with_who_died_beside_it() {
    let mut stage = Stage::new(SWEEP).await;
    let both = at_gates(&stage, ["one", "two"]).await;
    let boot = stage.attempts(&both[0].1).await[0]["boot"].clone();
    stage.broker.kill();
    for id in stage.broker.run_processes() {
        kill_process(pid(id), Signal::KILL).ok();
    }
    stage.boot("").await;
    for (scene, order) in &both {
        scene.open_gate();
        stage.succeeded(order).await;
    }
    eventually("the verdict on the boot is given", || async {
        let story = explained(&stage.broker, &both[0].1.job);
        story.contains(") died.").then_some(())
    })
    .await;
    for (nth, (_, order)) in both.iter().enumerate() {
        let other = &both[1 - nth];
        let story = explained(&stage.broker, &order.job);
        told(
            &story,
            &[
                "Lost: its run vanished when the broker died.",
                "Its shim vanished without a record",
                "Its last line of progress: \"at the gate\"",
                "Charged as an exposure: makes a suspect, never convicts.",
                &format!(
                    "Beside it, job {} (provision of instance {}) was lost with the same broker",
                    other.1.job, other.0.instance
                ),
                &format!("The broker (boot {}) died.", boot.as_str().unwrap()),
            ],
        );
        let data = done(&stage.broker, &["jobs", "explain", &order.job, "--json"]).json();
        assert_eq!(data["broker_deaths"][0]["boot"], boot, "{data:#}");
        assert_eq!(data["broker_deaths"][0]["named"], false, "{data:#}");
        assert_eq!(data["beside"][0]["job"], other.1.job.as_str(), "{data:#}");
        assert_eq!(data["beside"][0]["same_broker"], true, "{data:#}");
    }
}

/// The broker dies after the spawn and before it has noted it; the run ends before the next boot.
#[tokio::test]
async fn a_start_that_nobody_noted_is_known_from_the_runs_own_record() {
    let mut stage = Stage::new("").await;
    stage.reboot("engine.started~provision=kill@1").await;
    let scene = stage.scene("unnoted");
    let of = stage.offer("exit1").await;
    scene.open_gate();
    let order = stage.provision(&scene, &of, "provision").await;
    stage.broker.died().await;
    stage.broker.nothing_left().await;
    stage.boot("").await;
    let job: Value = stage.broker.job_is(&order.job, "failed").await;
    let attempt = &job["history"][0];
    assert_eq!(attempt["containment"], "pidns", "{job:#}");
    assert!(attempt["started_at"].is_string(), "{job:#}");
    let story = explained(&stage.broker, &order.job);
    told(
        &story,
        &["held by a PID namespace of its own", "Its run ended"],
    );
}

#[tokio::test]
async fn a_panic_of_the_brokers_own_step_is_told_with_the_way_that_it_came() {
    let setup = Setup::faults_bundle()
        .with_toml(ONE_CRASH)
        .with_faults("engine.conclude~provision=panic");
    let broker = Broker::start(setup).await;
    let of = broker.ids("faults", "ok").await;
    let secret = json!({"admin_password": "parameter-secret"});
    let job = broker.provision("i", &of, secret).await.operation();
    broker.job_is(&job, "quarantined").await;
    let story = explained(&broker, &job);
    told(
        &story,
        &[
            "Crashed: the broker's step for it panicked at crates/engine/src/",
            "The panic came in thread ",
            "\n        in evenkeel_engine::faults",
            " at crates/engine/src/attempt.rs:",
            // What the run had to tell all the same.
            "of processor time.",
            "held by a PID namespace of its own",
        ],
    );
    let data = done(&broker, &["jobs", "explain", &job, "--json"]).json();
    let panic = &data["job"]["history"][0]["forensics"]["panic"];
    let trace = panic["backtrace"].as_str().unwrap();
    let first = trace.lines().next().unwrap();
    // The fault itself strikes in the crate that has all of them.
    assert!(first.contains(" at crates/"), "ours first: {trace}");
    assert!(!trace.contains("guard.rs"), "{trace}");
    assert!(trace.len() <= 8 << 10);
    // I16.
    let text = data.to_string();
    for secret in ["parameter-secret", "admin_password"] {
        assert!(!text.contains(secret) && !story.contains(secret));
    }
}
