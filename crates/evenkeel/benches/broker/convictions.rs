//! From the order of each kind of poison to the end of its job, with the settings that nobody has
//! changed but those of addresses: mostly backoffs, pauses of a warden whose broker dies, and the
//! watchdog. `convictions KIND…` takes those alone whose name has one of the words in it.
//!
//! What a broker does wrong for a job is injected: `--features faults`. Two kinds have no row. The
//! loss of the host: it takes mostly what the host takes to boot, five times. A broker whose control
//! group has no memory left: its runs would be in that group too, and the kernel takes them first;
//! where they are not (`deaths/limits.rs` of the tests) it is one of those that die at once.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Broker, Setup, eventually};
use crate::stage::copy_faults;

/// Kinds of the bundle of faults.
const BAD: [&str; 4] = ["segv-signal", "abort", "kill-self", "kill-parent"];
/// What the broker does over the job: where, and how it ends.
#[cfg(feature = "faults")]
const INJECTED: [&str; 12] = [
    "engine.prepare~^provision=segv",
    "engine.watch~^provision=segv",
    "engine.watch~^provision=overflow",
    "engine.watch~^provision=alloc",
    "engine.watch~^provision=abort",
    "engine.watch~^provision=exit",
    "engine.watch~^provision=double-panic",
    // Nobody looks before a broker has died.
    "engine.watch~^provision=segv;recovery.look~^provision=segv",
    // Its exit is read by the one that watches, then by those that find it.
    "engine.ended~^provision=segv;engine.exited~^provision=segv",
    "engine.conclude~^provision=segv",
    "engine.watch~^provision=wedge",
    "engine.watch~^provision=panic",
];
/// Words before the broker's command line that leave it less memory than the fault `alloc` asks for.
#[cfg(feature = "faults")]
const LITTLE_MEMORY: [&str; 2] = ["prlimit", "--data=536870912"];

/// The one child of the warden that serves, the run's shim and itself.
const KILLS_ITS_BROKER: &str = r#"#!/bin/sh
[ "$EVENKEEL_ACTION" = provision ] || exit 0
read -r warden <"$STAGE/warden"
for pid in $(cat "/proc/$warden/task/$warden/children"); do
    if tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q ' serve '; then
        kill -s KILL "$pid"
    fi
done
kill -s KILL "$PPID" $$
"#;
const PLAN: &str = "kills-its-broker";

/// `words`: see the module.
pub(crate) async fn run(words: &[&String]) {
    let wants = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(*word));
    println!("convictions  seconds  attempts  broker deaths  end           kind");
    for plan in BAD.into_iter().chain([PLAN]).filter(|kind| wants(kind)) {
        one(plan, plan, "", &[]).await;
    }
    #[cfg(feature = "faults")]
    for rule in INJECTED.into_iter().filter(|kind| wants(kind)) {
        let little = rule.ends_with("alloc");
        one(rule, "ok", rule, if little { &LITTLE_MEMORY } else { &[] }).await;
    }
    println!();
}

async fn one(name: &str, plan: &str, faults: &str, before: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let (service, bundle) = if plan == PLAN {
        ("killer", killer(folder.path()))
    } else {
        // A run at its gate outlives five watchdogs.
        let bundle = folder.path().join("faults");
        copy_faults(&bundle, "1h");
        ("faults", bundle)
    };
    let setup = Setup {
        bundles: vec![bundle],
        // The table itself, so that the harness leaves it as it is.
        toml: "[recovery]\n[process]\ncontainment = \"sweep\"\n".into(),
        faults: faults.into(),
        warden: true,
        before: before.iter().map(ToString::to_string).collect(),
        ..Setup::default()
    };
    let broker = Broker::start(setup).await;
    let warden = format!("{}\n", broker.pid());
    fs::write(folder.path().join("warden"), warden).expect("a file");
    let of = broker.ids(service, plan).await;
    let since = Instant::now();
    // A run that is to be watched must not have ended when the next broker looks.
    let parameters = if faults.starts_with("engine.watch") {
        json!({ "gate": folder.path().join("gate") })
    } else {
        json!({})
    };
    let job = broker.provision("i", &of, parameters).await.operation();
    let ended = eventually_ended(&broker, &job, since).await;
    let lasted = since.elapsed();
    eventually("the broker is ready", || broker.boot_id()).await;
    let boots = broker.admin(Method::GET, "/admin/v1/boots?limit=500").await;
    let deaths = boots.body["boots"].as_array().expect("a list").len() - 1;
    println!(
        "             {:7.1}  {:8}  {deaths:13}  {:12}  {name}",
        lasted.as_secs_f64(),
        ended["attempts"],
        ended["state"].as_str().unwrap_or_default(),
    );
}

/// The job when it is final; brokers die meanwhile.
async fn eventually_ended(broker: &Broker, job: &str, since: Instant) -> Value {
    loop {
        let url = fs::read_to_string(broker.data().join("admin-url")).unwrap_or_default();
        let token = fs::read_to_string(broker.data().join("admin-token")).unwrap_or_default();
        let asked = broker
            .http
            .get(format!("{}/admin/v1/jobs/{job}", url.trim()))
            .bearer_auth(token.trim());
        if let Ok(answer) = asked.send().await
            && let Ok(job) = answer.json::<Value>().await
            && ["succeeded", "failed", "cancelled", "quarantined"]
                .iter()
                .any(|state| job["state"] == *state)
        {
            return job;
        }
        assert!(
            since.elapsed() < Duration::from_secs(1_800),
            "{}",
            broker.log()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn killer(folder: &std::path::Path) -> std::path::PathBuf {
    let bundle = folder.join("killer");
    fs::create_dir_all(&bundle).expect("a folder");
    let text = format!(
        "bundle: 1
service: {{name: killer, description: For measuring}}
plans:
  - {{name: {PLAN}, description: The only one}}
actions:
  provision: {{command: [./action]}}
  deprovision: {{command: [./action]}}
env: {{STAGE: {:?}}}
",
        folder.display().to_string()
    );
    fs::write(bundle.join("bundle.yml"), text).expect("a file");
    fs::write(bundle.join("action"), KILLS_ITS_BROKER).expect("a file");
    fs::set_permissions(bundle.join("action"), fs::Permissions::from_mode(0o755)).expect("a mode");
    bundle
}
