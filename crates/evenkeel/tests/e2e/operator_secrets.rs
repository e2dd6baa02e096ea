//! Invariant I16: what is secret is in no log, no argument, no environment, no admin answer, not
//! in the database and, once a run is concluded, not in the run root.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use reqwest::Method;
use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::cluster::{ADMIN_PASSWORD, ADMIN_PASSWORD_IN_URI, Cluster, Login};
use crate::harness::{Broker, Setup, eventually, pid, root};

fn contains(bytes: &[u8], secret: &str) -> bool {
    bytes
        .windows(secret.len())
        .any(|window| window == secret.as_bytes())
}

/// Every regular file below.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    // Runs come and go meanwhile.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(about) = path.symlink_metadata() else {
            continue;
        };
        if about.is_dir() {
            found.extend(files(&path));
        } else if about.is_file() {
            found.push(path);
        }
    }
    found
}

/// Files below that hold the secret.
fn holding(folder: &Path, secret: &str) -> Vec<PathBuf> {
    let mut found = files(folder);
    found.retain(|path| fs::read(path).is_ok_and(|bytes| contains(&bytes, secret)));
    found
}

/// Arguments and environments of every process.
fn processes() -> Vec<u8> {
    let mut seen = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        for name in ["cmdline", "environ"] {
            // Not only of runs: no process at all.
            seen.extend(fs::read(entry.path().join(name)).unwrap_or_default());
            seen.push(b'\n');
        }
    }
    seen
}

/// All that the admin API and the commands over it say.
async fn told(broker: &Broker) -> String {
    let mut told = String::new();
    let list = broker
        .admin(Method::GET, "/admin/v1/jobs?limit=500")
        .await
        .body;
    let jobs: Vec<String> = list["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["id"].as_str().unwrap().to_owned())
        .collect();
    told.push_str(&list.to_string());
    let mut paths = ["status", "catalog"]
        .map(|name| format!("/admin/v1/{name}"))
        .to_vec();
    paths.push("/readyz".to_owned());
    for id in &jobs {
        paths.push(format!("/admin/v1/jobs/{id}"));
        paths.push(format!("/admin/v1/jobs/{id}/log"));
        paths.push(format!("/admin/v1/jobs/{id}/explanation"));
    }
    for path in paths {
        told.push_str(&broker.admin(Method::GET, &path).await.body.to_string());
    }
    for arguments in [
        &["jobs", "list"][..],
        &["jobs", "show", &jobs[0]],
        &["status"],
    ] {
        let output = broker.cli(arguments);
        assert!(output.status.success(), "{output:?}");
        told.push_str(&String::from_utf8_lossy(&output.stdout));
    }
    assert!(told.contains(&jobs[0]));
    told
}

/// Holds at any time, whatever runs.
async fn assert_kept(broker: &Broker, secret: &str) {
    assert!(
        !contains(&processes(), secret),
        "in an argument or an environment"
    );
    assert!(!broker.log().contains(secret), "in the broker's log");
    assert!(!told(broker).await.contains(secret), "in an admin answer");
    let data = broker.data();
    let open: Vec<_> = holding(&data, secret)
        .into_iter()
        .filter(|path| !path.starts_with(data.join("run")))
        .filter(|path| !path.starts_with(data.join("secrets")))
        .collect();
    assert_eq!(
        open,
        Vec::<PathBuf>::new(),
        "in a file, open to who reads the disk"
    );
}

/// Holds when every run is concluded.
async fn assert_forgotten(broker: &Broker, secret: &str) {
    eventually("the run root forgets", || {
        let left = holding(&broker.data().join("run"), secret);
        std::future::ready(left.is_empty().then_some(()))
    })
    .await;
}

const PARAMETER: &str = "parameter-MARKER-5b1f";
const CONTEXT: &str = "context-MARKER-77aa";
const IDENTITY: &str = "identity-MARKER-c0de";

/// Orders with a secret wherever a platform can put one; gives the operation.
async fn ordered(broker: &Broker, id: &str, plan: &str) -> String {
    let of = broker.ids("faults", plan).await;
    let gate = broker.dir.path().join("gate");
    let body = json!({
        "service_id": of.0, "plan_id": of.1, "organization_guid": "org", "space_guid": "space",
        "parameters": {"gate": gate, "secret": PARAMETER, "nested": {"list": [PARAMETER]}},
        "context": {"platform": "test", "secret": CONTEXT},
    });
    let path = format!("/v2/service_instances/{id}?accepts_incomplete=true");
    // {"user": "identity-MARKER-c0de"}
    let identity = "test eyJ1c2VyIjogImlkZW50aXR5LU1BUktFUi1jMGRlIn0=";
    let url = format!("{}{path}", broker.url("osb-url"));
    let answer = broker
        .http
        .put(url)
        .basic_auth("platform", Some(broker.password()))
        .header("X-Broker-API-Version", "2.17")
        .header("X-Broker-API-Originating-Identity", identity)
        .json(&body)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 202);
    let answer: serde_json::Value = answer.json().await.unwrap();
    answer["operation"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_a_platform_entrusts_is_kept_and_forgotten_however_the_run_ends() {
    let recovery = "[recovery]\ncrash_limit = 1\nbackoff_min = \"20ms\"\nbackoff_max = \"200ms\"";
    let mut broker = Broker::patient(recovery).await;
    let mut jobs = Vec::new();
    for plan in ["ok", "exit1-message", "abort", "output-broken", "hang"] {
        jobs.push(ordered(&broker, plan, plan).await);
    }
    for job in &jobs {
        eventually("the action waits at the gate", || async {
            let job = broker.job(job).await;
            (job["progress"] == "at the gate").then_some(())
        })
        .await;
    }
    // The request is there for the action, and for nobody else.
    let requests = holding(&broker.data().join("run"), PARAMETER);
    assert_eq!(requests.len(), jobs.len(), "{requests:?}");
    for request in requests {
        assert_eq!(request.metadata().unwrap().mode() & 0o077, 0, "{request:?}");
    }
    let secrets = [
        PARAMETER,
        CONTEXT,
        IDENTITY,
        &broker.password(),
        &broker.url("admin-token"),
    ]
    .map(str::to_owned);
    let own = |path: &PathBuf| path.ends_with("osb-password") || path.ends_with("admin-token");
    for secret in &secrets[..3] {
        assert_kept(&broker, secret).await;
    }
    for secret in &secrets[3..] {
        assert!(!contains(&processes(), secret));
        assert!(!broker.log().contains(secret.as_str()));
        assert!(!told(&broker).await.contains(secret.as_str()));
        let mut found = holding(&broker.data(), secret);
        found.retain(|path| !own(path));
        assert_eq!(found, Vec::<PathBuf>::new());
    }

    // One run ends beside a dead broker; the others as they do.
    let runs = broker.run_processes();
    broker.kill();
    for id in runs {
        kill_process(pid(id), Signal::KILL).ok();
    }
    fs::write(broker.dir.path().join("gate"), "").unwrap();
    broker.boot().await;
    broker.succeeded("ok", None, &jobs[0]).await;
    broker.job_is(&jobs[1], "failed").await;
    broker.job_is(&jobs[2], "quarantined").await;
    broker.job_is(&jobs[3], "failed").await;
    broker.job_is(&jobs[4], "running").await;
    assert!(broker.cli(&["jobs", "cancel", &jobs[4]]).status.success());
    broker.job_is(&jobs[4], "cancelled").await;
    for secret in &secrets[..3] {
        assert_kept(&broker, secret).await;
        assert_forgotten(&broker, secret).await;
    }
    // The search finds what is there: the platform gets back what it gave.
    let fetched = broker
        .osb(Method::GET, "/v2/service_instances/ok", None)
        .await;
    assert!(contains(fetched.body.to_string().as_bytes(), PARAMETER));
    assert_eq!(holding(&broker.data(), &broker.password()).len(), 1);
}

#[tokio::test]
async fn credentials_and_the_admin_url_of_postgres_are_kept_and_forgotten() {
    let cluster = Cluster::start();
    let broker = Broker::start(Setup {
        bundles: vec![root().join("examples/bundles/postgres")],
        ..Setup::default()
    })
    .await;
    cluster.introduce_to(&broker);
    let small = broker.ids("postgres", "small").await;
    let mut seen = Vec::new();
    let waits = || std::future::ready((cluster.waiting_actions() == 1).then_some(()));

    let held = cluster.hold_roles();
    let asked = broker.provision("i", &small, json!({})).await;
    eventually("provision waits at the server", waits).await;
    seen.extend(processes());
    for secret in [ADMIN_PASSWORD, ADMIN_PASSWORD_IN_URI] {
        assert_kept(&broker, secret).await;
    }
    drop(held);
    broker.succeeded("i", None, &asked.operation()).await;

    let held = cluster.hold_roles();
    let operation = broker.bind("i", "b", &small, json!({})).await.operation();
    eventually("bind waits at the server", waits).await;
    seen.extend(processes());
    drop(held);
    broker.succeeded("i", Some("b"), &operation).await;
    let path = "/v2/service_instances/i/service_bindings/b";
    let fetched = broker.osb(Method::GET, path, None).await;
    let password = Login::of(&fetched.body["credentials"]).password;
    assert_eq!(password.len(), 48);

    assert!(
        contains(&seen, "PGSERVICE=evenkeel"),
        "the look saw the actions"
    );
    for secret in [ADMIN_PASSWORD, ADMIN_PASSWORD_IN_URI, &password] {
        assert!(!contains(&seen, secret), "in an argument or an environment");
        assert_kept(&broker, secret).await;
        assert_forgotten(&broker, secret).await;
        assert!(!cluster.log().contains(secret), "in the server's log");
    }
    let secrets = holding(&broker.data(), ADMIN_PASSWORD_IN_URI);
    assert_eq!(secrets, [broker.data().join("secrets/postgres-admin-url")]);
}
