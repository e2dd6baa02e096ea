//! A disk that is full at each write: nothing lost, nothing run twice, and over when there is room.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use reqwest::Method;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::harness::{Broker, Setup, eventually, was_killed};

mod recovery;

/// A tmpfs for the data folder. It is filled by being made as small as what it holds: the broker
/// starts no run with less than 256 MiB of room, and a file of that size would take real memory.
struct Disk {
    folder: TempDir,
}

impl Disk {
    fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("evenkeel-disk-")
            .tempdir()
            .unwrap();
        mount(
            "tmpfs",
            folder.path(),
            "tmpfs",
            MountFlags::empty(),
            Some(c"size=1g,mode=0755"),
        )
        .expect("tests of full disks mount a tmpfs, as root");
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn resize(&self, size: &str) -> rustix::io::Result<()> {
        let options = std::ffi::CString::new(format!("size={size}")).unwrap();
        mount_remount(self.path(), MountFlags::empty(), &*options)
    }

    /// Takes all the room that is left; what is written meanwhile makes another try necessary.
    async fn fill(&self) {
        eventually("the disk is full", || {
            let room = rustix::fs::statvfs(self.path()).unwrap();
            let used = (room.f_blocks - room.f_bfree) * room.f_frsize;
            std::future::ready(self.resize(&used.to_string()).ok())
        })
        .await;
    }

    /// Leaves this many bytes of room, more or less.
    fn leave(&self, bytes: u64) {
        let room = rustix::fs::statvfs(self.path()).unwrap();
        let used = (room.f_blocks - room.f_bfree) * room.f_frsize;
        self.resize(&(used + bytes).to_string()).unwrap();
    }

    fn make_room(&self) {
        self.resize("1g").unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(self.path(), UnmountFlags::DETACH).unwrap();
    }
}

/// Folders off the small disk: the bundle, what its actions tell, and holds of the broker.
struct Stage {
    folder: TempDir,
}

/// Writes nothing but to `TOLD`, so that it is the broker that meets the full disk.
const ACTION: &str = r#"#!/bin/sh
set -eu
echo "$EVENKEEL_ACTION $EVENKEEL_INSTANCE_ID $EVENKEEL_ATTEMPT" >>"$TOLD/starts"
while [ -e "$TOLD/closed" ]; do sleep 0.02; done
echo "$EVENKEEL_ACTION $EVENKEEL_INSTANCE_ID $EVENKEEL_ATTEMPT" >>"$TOLD/ends"
"#;

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        fs::create_dir(&told).unwrap();
        let bundle = folder.path().join("bundle");
        fs::create_dir(&bundle).unwrap();
        let yaml = format!(
            "bundle: 1\n\
             service: {{name: quiet, description: Writes nothing}}\n\
             plans: [{{name: plain, description: The one plan}}]\n\
             actions:\n  \
               provision: {{command: [./action], timeout: 5m}}\n  \
               deprovision: {{command: [./action], timeout: 5m}}\n\
             env: {{TOLD: {:?}}}\n",
            told.display().to_string(),
        );
        fs::write(bundle.join("bundle.yml"), yaml).unwrap();
        let action = bundle.join("action");
        fs::write(&action, ACTION).unwrap();
        fs::set_permissions(&action, fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder }
    }

    fn setup(&self, disk: &Disk) -> Setup {
        Setup {
            bundles: vec![self.folder.path().join("bundle")],
            data: Some(disk.path().join("data")),
            ..Setup::default()
        }
    }

    fn told(&self, name: &str) -> PathBuf {
        self.folder.path().join("told").join(name)
    }

    /// Lines about an instance's provision in `starts` or `ends`.
    fn provisions(&self, of: &str, name: &str) -> usize {
        let text = fs::read_to_string(self.told(name)).unwrap_or_default();
        let about = format!("provision {of} ");
        text.lines().filter(|line| line.starts_with(&about)).count()
    }
}

/// Waits until the broker has met the full disk, and says so. Runs that end give room back.
async fn complains(broker: &Broker, disk: &Disk) {
    eventually("the broker says that there is no room", || async {
        disk.fill().await;
        let ready = broker.admin(Method::GET, "/readyz").await;
        let text = ready.body.to_string();
        (ready.status == 503 && text.contains("full") && text.contains("make room")).then_some(())
    })
    .await;
    assert_eq!(broker.admin(Method::GET, "/livez").await.status, 200);
    assert_eq!(
        broker.osb(Method::GET, "/v2/catalog", None).await.status,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_without_room_is_refused_whole_and_accepted_when_there_is_room() {
    let (disk, stage) = (Disk::new(), Stage::new());
    let mut broker = Broker::start(stage.setup(&disk)).await;
    let of = broker.ids("quiet", "plain").await;
    let made = broker.provision("before", &of, json!({})).await;
    broker.succeeded("before", None, &made.operation()).await;
    let pid = broker.pid();

    disk.fill().await;
    complains(&broker, &disk).await;
    // As much as fits may still be accepted; the first that does not is refused.
    let mut accepted = Vec::new();
    let mut refused = None;
    for n in 0..200 {
        let id = format!("i-{n}");
        let answer = broker.provision(&id, &of, json!({})).await;
        match answer.status {
            202 => accepted.push((id, answer.operation())),
            503 => {
                assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
                refused = Some(id);
                break;
            }
            _ => panic!("{answer:?}"),
        }
    }
    let refused = refused.expect("a full disk takes no 200 orders");
    let path = format!("/v2/service_instances/{refused}");
    assert_eq!(broker.osb(Method::GET, &path, None).await.status, 404);
    let gone = broker.deprovision("before", &of).await;
    assert!([202, 503].contains(&gone.status), "{gone:?}");

    disk.make_room();
    broker.ready().await;
    let again = broker.provision(&refused, &of, json!({})).await;
    accepted.push((refused, again.operation()));
    for (id, operation) in accepted {
        broker.succeeded(&id, None, &operation).await;
        assert_eq!(stage.provisions(&id, "starts"), 1, "{id}");
        assert_eq!(stage.provisions(&id, "ends"), 1, "{id}");
    }
    let gone = broker.deprovision("before", &of).await;
    broker.succeeded("before", None, &gone.operation()).await;
    assert_eq!(broker.pid(), pid);
    assert!(broker.is_alive());
    broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_at_any_step_loses_nothing_and_doubles_nothing() {
    let mut brokers = JoinSet::new();
    for point in [
        "engine.claim",
        "engine.prepare~provision",
        "engine.start~provision",
        "engine.started~provision",
        "store.started.before~^provision",
        "engine.watch~provision",
        "engine.ended~provision",
        "engine.conclude~provision",
        "store.finish_attempt.before~^provision",
        "engine.start~deprovision",
        "engine.conclude~deprovision",
    ] {
        brokers.spawn(a_full_disk_at(point));
    }
    while let Some(done) = brokers.join_next().await {
        done.unwrap();
    }
}

async fn a_full_disk_at(point: &str) {
    let (disk, stage) = (Disk::new(), Stage::new());
    let hold = stage.folder.path().join("hold");
    let mut setup = stage.setup(&disk);
    setup.faults = format!("{point}=hold:{}@1", hold.display());
    let mut broker = Broker::start(setup).await;
    let pid = broker.pid();
    let of = broker.ids("quiet", "plain").await;
    let mut operation = broker.provision("i", &of, json!({})).await.operation();
    if point.ends_with("deprovision") {
        broker.succeeded("i", None, &operation).await;
        operation = broker.deprovision("i", &of).await.operation();
    }
    let reached = stage.folder.path().join("hold.reached");
    eventually(&format!("{point} is reached"), || {
        std::future::ready(reached.exists().then_some(()))
    })
    .await;
    disk.fill().await;
    fs::write(&hold, "").unwrap();
    complains(&broker, &disk).await;
    if point.starts_with("store.") {
        eventually(&format!("{point} itself meets it"), || {
            let log = broker.log();
            let met = |line: &str| line.contains("trying again") && line.contains("make room");
            std::future::ready(log.lines().any(met).then_some(()))
        })
        .await;
    }
    let path = format!("/v2/service_instances/i/last_operation?operation={operation}");
    let poll = broker.osb(Method::GET, &path, None).await;
    assert!([200, 503].contains(&poll.status), "{point}: {poll:?}");
    if poll.status == 200 {
        assert_ne!(poll.body["state"], "failed", "{point}: {poll:?}");
    }
    disk.make_room();
    broker.succeeded("i", None, &operation).await;
    let job = broker.job(&operation).await;
    for attempt in job["history"].as_array().unwrap() {
        assert_ne!(
            attempt["charge"], "crash",
            "{point}: nobody is to blame: {job:#}"
        );
    }
    assert_eq!(stage.provisions("i", "starts"), 1, "{point}: {job:#}");
    assert_eq!(stage.provisions("i", "ends"), 1, "{point}: {job:#}");
    let more = broker.provision("more", &of, json!({})).await.operation();
    broker.succeeded("more", None, &more).await;
    assert_eq!(broker.pid(), pid);
    assert!(broker.is_alive());
    broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_end_while_the_disk_is_full_keep_their_end() {
    let (disk, stage) = (Disk::new(), Stage::new());
    let broker = Broker::start(stage.setup(&disk)).await;
    let of = broker.ids("quiet", "plain").await;
    fs::write(stage.told("closed"), "").unwrap();
    let mut jobs = Vec::new();
    for n in 0..8 {
        let id = format!("i-{n}");
        jobs.push((
            id.clone(),
            broker.provision(&id, &of, json!({})).await.operation(),
        ));
    }
    for (id, operation) in &jobs {
        eventually(&format!("{id} runs"), || async {
            let job = broker.job(operation).await;
            let noted = job["history"][0]["started_at"].is_string();
            (noted && stage.provisions(id, "starts") == 1).then_some(())
        })
        .await;
    }
    disk.fill().await;
    fs::remove_file(stage.told("closed")).unwrap();
    for (id, _) in &jobs {
        eventually(&format!("{id} ends"), || {
            std::future::ready((stage.provisions(id, "ends") == 1).then_some(()))
        })
        .await;
    }
    complains(&broker, &disk).await;
    disk.make_room();
    for (id, operation) in &jobs {
        broker.succeeded(id, None, operation).await;
        let job = broker.job(operation).await;
        assert_eq!(job["attempts"], 1, "{job:#}");
        assert_eq!(stage.provisions(id, "starts"), 1, "{job:#}");
    }
    broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_nearly_full_starts_no_run_and_says_so_while_orders_are_kept() {
    let (disk, stage) = (Disk::new(), Stage::new());
    let broker = Broker::start(stage.setup(&disk)).await;
    let of = broker.ids("quiet", "plain").await;
    disk.leave(64 << 20);
    let operation = broker.provision("i", &of, json!({})).await.operation();
    eventually("the broker says why nothing starts", || async {
        let ready = broker.admin(Method::GET, "/readyz").await;
        assert_eq!(ready.status, 200, "requests are served: {ready:?}");
        let reasons = ready.body["reasons"].as_array().unwrap().clone();
        let held = reasons
            .into_iter()
            .find(|reason| reason["about"] == "held")?;
        let text = held["message"].as_str().unwrap().to_owned();
        (text.contains("nearly full") && text.contains("make room")).then_some(())
    })
    .await;
    assert_eq!(broker.job(&operation).await["state"], "queued");
    assert_eq!(stage.provisions("i", "starts"), 0);
    disk.make_room();
    broker.succeeded("i", None, &operation).await;
    let told = broker.log().matches("nearly full").count();
    assert_eq!(told, 1, "said once, not twice a second:\n{}", broker.log());
}

/// An address on which nobody listens.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_starts_on_a_full_disk_says_so_and_goes_on_when_there_is_room() {
    let (disk, stage) = (Disk::new(), Stage::new());
    let admin = free_port();
    let mut setup = stage.setup(&disk);
    // Its own address, for a full disk takes no note of one.
    setup.toml = format!("[admin]\nlisten = \"127.0.0.1:{admin}\"\n");
    setup.faults = "engine.conclude~provision=kill@1".to_owned();
    let mut broker = Broker::start(setup).await;
    let of = broker.ids("quiet", "plain").await;
    fs::write(stage.told("closed"), "").unwrap();
    let operation = broker.provision("i", &of, json!({})).await.operation();
    eventually("the run is under way", || {
        std::future::ready((stage.provisions("i", "starts") == 1).then_some(()))
    })
    .await;
    disk.fill().await;
    fs::remove_file(stage.told("closed")).unwrap();
    assert!(was_killed(broker.died().await));

    broker.setup.faults.clear();
    broker.spawn();
    let ready = format!("http://127.0.0.1:{admin}/readyz");
    eventually("the broker says that there is no room", || async {
        let answer = broker.http.get(&ready).send().await.ok()?;
        // What the database has of its own may do for a while: then it is ready, and says so too.
        let text = answer.text().await.ok()?;
        text.contains("room").then_some(())
    })
    .await;
    let pid = broker.pid();
    disk.make_room();
    broker.ready().await;
    assert_eq!(broker.pid(), pid, "without a restart");
    broker.succeeded("i", None, &operation).await;
    assert_eq!(broker.job(&operation).await["attempts"], 1);
    assert_eq!(stage.provisions("i", "starts"), 1);
    broker.nothing_left().await;
}

/// The run root on a file system of its own, the database on another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_root_without_room_starts_nothing_ends_what_runs_and_keeps_orders() {
    let (disk, stage) = (Disk::new(), Stage::new());
    let outside = tempfile::tempdir().unwrap();
    let data = outside.path().join("data");
    fs::create_dir(&data).unwrap();
    std::os::unix::fs::symlink(disk.path().join("run"), data.join("run")).unwrap();
    fs::create_dir(disk.path().join("run")).unwrap();
    let mut setup = stage.setup(&disk);
    setup.data = Some(data);
    let mut broker = Broker::start(setup).await;
    let pid = broker.pid();
    let of = broker.ids("quiet", "plain").await;
    fs::write(stage.told("closed"), "").unwrap();
    let running = broker.provision("running", &of, json!({})).await;
    eventually("the run is under way", || {
        std::future::ready((stage.provisions("running", "starts") == 1).then_some(()))
    })
    .await;
    disk.fill().await;
    let waiting = broker.provision("waiting", &of, json!({})).await;
    eventually("the broker says why nothing starts", || async {
        let ready = broker.admin(Method::GET, "/readyz").await;
        assert_eq!(ready.status, 200, "requests are served: {ready:?}");
        let text = ready.body.to_string();
        (text.contains("disk of the run root") && text.contains("make room")).then_some(())
    })
    .await;
    fs::remove_file(stage.told("closed")).unwrap();
    broker
        .succeeded("running", None, &running.operation())
        .await;
    let job = broker.job(&waiting.operation()).await;
    assert_eq!(job["state"], "queued", "{job:#}");
    let reason = job["reason"].as_str().unwrap();
    assert!(reason.contains("disk of the run root"), "{reason}");
    disk.make_room();
    broker
        .succeeded("waiting", None, &waiting.operation())
        .await;
    for id in ["running", "waiting"] {
        assert_eq!(stage.provisions(id, "starts"), 1, "{id}");
    }
    assert!(broker.is_alive());
    assert_eq!(broker.pid(), pid);
    broker.nothing_left().await;
}
