//! Ends that were asked for, and the warden's own.

use std::fs;
use std::path::Path;

use reqwest::Method;
use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::harness::{Broker, Setup, children, eventually, pid};
use crate::stage::{copy_faults, reached};
use crate::warden::record;

/// A warden whose actions may take five minutes.
pub(crate) fn patient(toml: &str) -> Broker {
    let mut broker = Broker::new(Setup::default().with_toml(toml).with_warden());
    let bundle = broker.dir.path().join("bundles/faults");
    copy_faults(&bundle, "5m");
    broker.setup.bundles = vec![bundle];
    broker
}

/// Orders an instance whose run waits at the gate, and waits until it does.
pub(crate) async fn at_the_gate(broker: &Broker) -> String {
    let of = broker.ids("faults", "ok").await;
    let marks = broker.dir.path().join("marks");
    fs::create_dir(&marks).unwrap();
    let parameters = json!({"gate": broker.dir.path().join("gate"), "marks": marks});
    let operation = broker.provision("i", &of, parameters).await.operation();
    eventually("the run is at the gate", || async {
        let job = broker.job(&operation).await;
        (job["progress"] == "at the gate").then_some(())
    })
    .await;
    operation
}

/// The run's only start ends well, and costs nothing.
pub(crate) async fn ends_well(broker: &Broker, operation: &str) {
    fs::write(broker.dir.path().join("gate"), "").unwrap();
    broker.succeeded("i", None, operation).await;
    let job = broker.job(operation).await;
    let attempts = job["history"].as_array().unwrap();
    assert_eq!(attempts.len(), 1, "{job:#}");
    assert_eq!(attempts[0]["charge"], "none", "{job:#}");
    let starts = fs::read_to_string(broker.dir.path().join("marks/starts")).unwrap();
    assert_eq!(starts.lines().count(), 1, "{starts}");
    broker.nothing_left().await;
}

const DETACH: &str = "[shutdown]\non_shutdown = \"detach\"";

#[tokio::test(flavor = "multi_thread")]
async fn a_warden_that_is_asked_ends_with_its_broker_and_what_that_left_is_no_death() {
    let mut broker = patient(DETACH);
    broker.boot().await;
    let operation = at_the_gate(&broker).await;
    for signal in [Signal::TERM, Signal::INT] {
        let boot = broker.boot_id().await.expect("it is ready");
        let one = broker.under_warden(broker.pid()).await;
        kill_process(pid(broker.pid()), signal).unwrap();
        let end = broker.died().await;
        assert_eq!(end.code(), Some(0), "{}", broker.log());
        assert!(!Path::new(&format!("/proc/{one}")).exists());
        let end = record(&broker, &boot);
        assert_eq!(end["asked_to_end"], true, "{end}");
        assert_eq!(end["exit_code"], 0, "{end}");
        broker.boot().await;
        let listed = broker.boot_in_list(&boot).await;
        assert_eq!(listed["verdict"], "ended in order", "{listed}");
    }
    assert!(!broker.log().contains("another starts"), "{}", broker.log());
    ends_well(&broker, &operation).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_to_read_the_bundles_again_is_passed_on_and_ends_nobody() {
    let broker = Broker::start(Setup::faults_bundle().with_warden()).await;
    let boot = broker.boot_id().await;
    let read = || broker.log().matches("catalog read").count();
    let before = read();
    kill_process(pid(broker.pid()), Signal::HUP).unwrap();
    eventually("the bundles are read again", || {
        std::future::ready((read() > before).then_some(()))
    })
    .await;
    assert_eq!(broker.boot_id().await, boot);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_wish_to_end_is_passed_on_and_ends_at_once() {
    let mut broker = patient("[shutdown]\non_shutdown = \"drain\"\ndrain_limit = \"5m\"");
    broker.boot().await;
    at_the_gate(&broker).await;
    let warden = pid(broker.pid());
    // The first of them asks for a drain that takes five minutes; those within a second are the
    // same wish.
    let end = eventually("it ends at once", || {
        kill_process(warden, Signal::TERM).ok();
        let over = broker.log().contains("ended at once by a second signal");
        std::future::ready(over.then_some(()))
    });
    end.await;
    assert_eq!(broker.died().await.code(), Some(1), "{}", broker.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_whose_warden_is_killed_hands_over_and_the_next_one_adopts_its_run() {
    let mut broker = patient(DETACH);
    broker.boot().await;
    let operation = at_the_gate(&broker).await;
    let boot = broker.boot_id().await.expect("it is ready");
    let one = broker.under_warden(broker.pid()).await;
    broker.kill();
    // At once: it waits for the data folder as long as the old broker takes.
    broker.boot().await;
    assert!(!Path::new(&format!("/proc/{one}/fd/0")).exists());
    let listed = broker.boot_in_list(&boot).await;
    assert_eq!(listed["verdict"], "ended in order", "{listed}");
    assert_eq!(listed.get("death"), None, "nobody saw it: {listed}");
    ends_well(&broker, &operation).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_was_asked_for_counts_as_drained_though_the_store_could_not_be_told() {
    let mut broker = patient(DETACH);
    broker.boot().await;
    let operation = at_the_gate(&broker).await;
    let boot = broker.boot_id().await.expect("it is ready");
    // As if the disk hung: nobody else can write.
    let other = rusqlite::Connection::open(broker.data().join("evenkeel.db")).unwrap();
    eventually("the store is down", || {
        std::future::ready(other.execute_batch("BEGIN IMMEDIATE").ok())
    })
    .await;
    kill_process(pid(broker.pid()), Signal::TERM).unwrap();
    assert_eq!(broker.died().await.code(), Some(0), "{}", broker.log());
    assert!(
        broker.log().contains("the drain mark could not be left"),
        "{}",
        broker.log()
    );
    assert_eq!(record(&broker, &boot)["asked_to_end"], true);
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    broker.boot().await;
    let listed = broker.boot_in_list(&boot).await;
    assert_eq!(listed["verdict"], "ended in order", "{listed}");
    assert!(listed["drained_at"].is_string(), "{listed}");
    ends_well(&broker, &operation).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_does_not_wait_for_a_store_that_hangs() {
    let mut broker = patient(DETACH);
    let hold = broker.dir.path().join("hold");
    fs::write(&hold, "").unwrap();
    broker.setup.faults = format!("store.commit.before=hold:{}", hold.display());
    broker.boot().await;
    let operation = at_the_gate(&broker).await;
    let boot = broker.boot_id().await.expect("it is ready");
    // From now on each commit waits for what never comes.
    fs::remove_file(&hold).unwrap();
    kill_process(pid(broker.pid()), Signal::TERM).unwrap();
    assert_eq!(broker.died().await.code(), Some(0), "{}", broker.log());
    assert!(broker.log().contains("the store hangs"), "{}", broker.log());
    assert_eq!(record(&broker, &boot)["asked_to_end"], true);
    broker.setup.faults.clear();
    broker.boot().await;
    let listed = broker.boot_in_list(&boot).await;
    assert_eq!(listed["verdict"], "ended in order", "{listed}");
    ends_well(&broker, &operation).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_only_a_change_would_help_is_not_started_again() {
    let mut broker = Broker::start(Setup::faults_bundle().with_warden()).await;
    let one = broker.under_warden(broker.pid()).await;
    fs::rename(broker.data(), broker.dir.path().join("aside")).unwrap();
    fs::write(broker.data(), "no folder").unwrap();
    kill_process(pid(one), Signal::KILL).unwrap();
    assert_eq!(broker.died().await.code(), Some(11), "{}", broker.log());
    let log = broker.log();
    assert_eq!(
        log.matches("cannot use the data folder").count(),
        1,
        "{log}"
    );
    assert_eq!(log.matches("another starts").count(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_the_configuration_waits_for_the_next_serve_however_many_brokers_die() {
    let mut broker = Broker::start(Setup::faults_bundle().with_warden()).await;
    let mut boot = broker.boot_id().await.expect("it is ready");
    let before = fs::read_to_string(broker.config()).unwrap();
    // Half saved, then gone.
    fs::write(broker.config(), &before[..before.len() / 2]).unwrap();
    for _ in 0..2 {
        let one = broker.under_warden(broker.pid()).await;
        kill_process(pid(one), Signal::KILL).unwrap();
        boot = broker.next_boot(&boot).await;
        fs::remove_file(broker.config()).ok();
    }
    let offered = broker.osb(Method::GET, "/v2/catalog", None).await.body;
    assert_eq!(offered["services"][0]["name"], "faults", "{offered}");
    assert_eq!(broker.terminate().code(), Some(0), "{}", broker.log());
    fs::write(broker.config(), "colour = \"blue\"\n").unwrap();
    let told = broker.cli(&["config", "check"]);
    assert_eq!(told.status.code(), Some(2), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_file_that_is_away_for_a_moment_ends_no_service() {
    let mut broker = Broker::new(Setup::faults_bundle().with_warden());
    let password = broker.dir.path().join("password");
    fs::write(&password, "first\n").unwrap();
    broker.setup.toml.push_str(&format!(
        "[[osb.users]]\nname = \"platform\"\npassword_file = {:?}\n",
        password.display().to_string()
    ));
    broker.boot().await;
    let boot = broker.boot_id().await.expect("it is ready");
    let one = broker.under_warden(broker.pid()).await;
    fs::remove_file(&password).unwrap();
    kill_process(pid(one), Signal::KILL).unwrap();
    eventually("the next broker says why it is not ready", || async {
        let url = format!("{}/readyz", broker.url("admin-url"));
        let answer = broker.http.get(url).send().await.ok()?;
        let unready = answer.status() == 503;
        let said = answer.text().await.ok()?;
        (unready && said.contains("password file")).then_some(())
    })
    .await;
    fs::write(&password, "second\n").unwrap();
    broker.next_boot(&boot).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_on_the_way_out_is_a_crash_though_the_end_was_asked_for() {
    let mut broker = patient("[shutdown]\non_shutdown = \"drain\"\ndrain_limit = \"5m\"");
    broker.boot().await;
    at_the_gate(&broker).await;
    let boot = broker.boot_id().await.expect("it is ready");
    let one = broker.under_warden(broker.pid()).await;
    kill_process(pid(broker.pid()), Signal::TERM).unwrap();
    eventually("the drain has begun", || {
        let ending = broker.log().contains("a second signal ends at once");
        std::future::ready(ending.then_some(()))
    })
    .await;
    kill_process(pid(one), Signal::ABORT).unwrap();
    assert_eq!(
        broker.died().await.code(),
        Some(128 + 6),
        "{}",
        broker.log()
    );
    let end = record(&broker, &boot);
    assert_eq!(end["asked_to_end"], false, "{end}");
    assert_eq!(end["signal"], 6, "{end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_is_asked_of_a_dead_broker_did_not_end_it_and_ends_the_warden() {
    let mut broker = Broker::start(Setup::faults_bundle().with_warden()).await;
    let boot = broker.boot_id().await.expect("it is ready");
    let warden = pid(broker.pid());
    let one = broker.under_warden(broker.pid()).await;
    // The warden sees both at once.
    kill_process(warden, Signal::STOP).unwrap();
    kill_process(pid(one), Signal::KILL).unwrap();
    eventually("the broker is dead and not reaped", || {
        let stat = fs::read_to_string(format!("/proc/{one}/stat")).unwrap();
        // Its first thread may be dead before the others are.
        let threads = fs::read_dir(format!("/proc/{one}/task")).unwrap().count();
        std::future::ready((stat.contains(") Z ") && threads == 1).then_some(()))
    })
    .await;
    kill_process(warden, Signal::TERM).unwrap();
    kill_process(warden, Signal::CONT).unwrap();
    assert_eq!(broker.died().await.code(), Some(0), "{}", broker.log());
    let end = record(&broker, &boot);
    assert_eq!(end["asked_to_end"], false, "{end}");
    assert_eq!(end["signal"], 9, "{end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warden_that_has_no_broker_just_now_ends_when_it_is_asked() {
    let mut setup = Setup::faults_bundle().with_toml("[serve]\nrestart_pause = \"5s\"");
    setup.warden = true;
    let mut broker = Broker::new(setup);
    broker.spawn();
    let pauses = [
        "at once",
        "in 50 ms",
        "in 100 ms",
        "in 200 ms",
        "in 400 ms",
        "in 800 ms",
    ];
    for pause in pauses.into_iter().chain(["in 1600 ms", "in 3200 ms"]) {
        let one = broker.under_warden(broker.pid()).await;
        kill_process(pid(one), Signal::KILL).unwrap();
        eventually(pause, || {
            let told = broker.log().contains(&format!("another starts {pause}"));
            std::future::ready(told.then_some(()))
        })
        .await;
    }
    kill_process(pid(broker.pid()), Signal::TERM).unwrap();
    assert_eq!(broker.died().await.code(), Some(0), "{}", broker.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warden_that_is_process_1_reaps_what_nobody_waits_for_and_says_that_runs_are_waited_for()
{
    let mut broker = patient("");
    let unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    broker.setup.before = unshare.map(str::to_owned).to_vec();
    broker.boot().await;
    let warden = children(broker.pid())[0];
    let ready = broker.admin(Method::GET, "/readyz").await.body.to_string();
    assert!(ready.contains("the warden is process 1"), "{ready}");
    let operation = at_the_gate(&broker).await;
    let boot = broker.boot_id().await.expect("it is ready");
    let one = broker.under_warden(warden).await;
    kill_process(pid(one), Signal::KILL).unwrap();
    broker.next_boot(&boot).await;
    let next = broker.under_warden(warden).await;
    // The run's supervisor is the warden's child now, which it never started.
    let orphans: Vec<_> = children(warden)
        .into_iter()
        .filter(|one| *one != next)
        .collect();
    assert!(!orphans.is_empty());
    ends_well(&broker, &operation).await;
    eventually("the dead are reaped", || {
        let zombies = orphans
            .iter()
            .filter(|one| Path::new(&format!("/proc/{one}")).exists());
        std::future::ready((zombies.count() == 0).then_some(()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_whose_end_is_asked_for_when_its_boot_is_registered_ends_in_order() {
    let mut broker = Broker::new(Setup::faults_bundle());
    let hold = broker.dir.path().join("hold");
    broker.setup.faults = format!("store.open_boot.after=hold:{}", hold.display());
    broker.spawn();
    reached(&hold).await;
    kill_process(pid(broker.pid()), Signal::TERM).unwrap();
    fs::write(&hold, "").unwrap();
    assert_eq!(broker.died().await.code(), Some(0), "{}", broker.log());
    broker.setup.faults.clear();
    broker.boot().await;
    let list = broker.admin(Method::GET, "/admin/v1/boots").await.body;
    let boots = list["boots"].as_array().unwrap();
    assert_eq!(boots.len(), 2, "{list}");
    assert_eq!(boots[1]["verdict"], "ended in order", "{list}");
}
