//! The warden: a broker that dies is followed by another, and nobody who connects is refused.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use reqwest::Method;
use rustix::process::{Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::harness::{Broker, Setup, eventually, pid};
use crate::warden_ends::{at_the_gate, patient};

/// What a client that connects all the time has met.
#[derive(Debug, Default)]
struct Met {
    over: AtomicBool,
    answers: AtomicU32,
    refused: AtomicU32,
    cut_off: AtomicU32,
}

/// Connects and asks, one connection after the other, until it is over.
async fn connect_all_the_time(address: String, met: Arc<Met>) {
    let ask = async || -> std::io::Result<usize> {
        let mut stream = TcpStream::connect(&address).await?;
        stream
            .write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .await?;
        stream.read_to_end(&mut Vec::new()).await
    };
    while !met.over.load(Ordering::SeqCst) {
        let counter = match ask().await {
            Ok(1..) => &met.answers,
            Ok(0) => &met.cut_off,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => &met.refused,
            Err(_) => &met.cut_off,
        };
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

const CLIENTS: u32 = 4;
const KILLS: u32 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn no_connection_is_refused_over_twenty_kills_and_every_boot_is_another() {
    let mut broker = patient("");
    broker.boot().await;
    let operation = at_the_gate(&broker).await;
    let address = broker.url("admin-url").replace("http://", "");
    let met = Arc::new(Met::default());
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(connect_all_the_time(address.clone(), Arc::clone(&met)));
    }
    let warden = broker.pid();
    let mut boot = broker.boot_id().await.expect("it is ready");
    let mut boots = BTreeSet::from([boot.clone()]);
    for _ in 0..KILLS {
        let before = met.answers.load(Ordering::SeqCst);
        let one = broker.under_warden(warden).await;
        kill_process(pid(one), Signal::KILL).unwrap();
        // What was accepted is known as soon as anything is.
        let state = polled(&broker, &operation).await;
        assert_eq!(state, "in progress");
        boot = broker.next_boot(&boot).await;
        assert!(boots.insert(boot.clone()), "{boots:?}");
        eventually("a client has an answer of this broker", || {
            let answers = met.answers.load(Ordering::SeqCst);
            std::future::ready((answers > before).then_some(()))
        })
        .await;
    }
    met.over.store(true, Ordering::SeqCst);
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    assert_eq!(met.refused.load(Ordering::SeqCst), 0, "{met:?}");
    // A kill takes along the one connection that each client has, and no other.
    let cut_off = met.cut_off.load(Ordering::SeqCst);
    assert!(cut_off <= CLIENTS * KILLS, "{met:?}");
    fs::write(broker.dir.path().join("gate"), "").unwrap();
    broker.succeeded("i", None, &operation).await;
    assert_eq!(broker.pid(), warden);
    let list = broker.cli(&["boots", "--limit", "500", "--json"]);
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    let list = list["boots"].as_array().unwrap();
    assert_eq!(list.len(), boots.len());
    assert_eq!(list[0]["present"], true);
    for boot in &list[1..] {
        assert_eq!(boot["death"]["signal"], 9, "{boot}");
        assert_eq!(boot["verdict"], "died", "{boot}");
    }
}

/// What a poll of the operation says, as soon as a broker has an answer: none but 503 and a
/// connection that was cut may come before.
async fn polled(broker: &Broker, operation: &str) -> String {
    let path = format!("/v2/service_instances/i/last_operation?operation={operation}");
    let url = format!("{}{path}", broker.url("osb-url"));
    eventually("the operation is known", || async {
        let asked = broker.http.get(&url);
        let asked = asked.basic_auth("platform", Some(broker.password()));
        let asked = asked.header("X-Broker-API-Version", "2.17").send().await;
        let answer = asked.ok()?;
        if answer.status() == 503 {
            return None;
        }
        assert_eq!(answer.status(), 200, "{answer:?}");
        let body: serde_json::Value = answer.json().await.ok()?;
        Some(body["state"].as_str().unwrap().to_owned())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_over_deaths_of_the_broker_and_holds_nothing_of_warden_or_broker() {
    let mut broker = Broker::new(Setup::default().with_warden());
    let bundle = broker.dir.path().join("bundles/faults");
    crate::stage::copy_faults(&bundle, "5m");
    broker.setup.bundles = vec![bundle];
    broker.boot().await;
    let of = broker.ids("faults", "ok").await;
    let gate = broker.dir.path().join("gate");
    let marks = broker.dir.path().join("marks");
    fs::create_dir(&marks).unwrap();
    let parameters = json!({"gate": gate, "marks": marks});
    let operation = broker.provision("i", &of, parameters).await.operation();
    eventually("the run is at the gate", || async {
        let job = broker.job(&operation).await;
        (job["progress"] == "at the gate").then_some(())
    })
    .await;

    // What the warden holds, the broker has from it: sockets, line, raw standard error.
    let warden = broker.pid();
    let ours = |pid: u32| -> BTreeSet<String> {
        let open = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten();
        open.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
            .map(|target| target.display().to_string())
            .filter(|target| target.starts_with("socket:") || target.contains("/warden/"))
            .collect()
    };
    let held = ours(warden);
    assert!(held.len() >= 4, "two sockets, a line, a file: {held:?}");
    let one = broker.under_warden(warden).await;
    assert!(ours(one).len() >= 4, "{:?}", ours(one));
    let runs = broker.run_processes();
    assert!(runs.len() >= 2, "a shim and its action: {runs:?}");
    for run in runs {
        assert_eq!(ours(run), BTreeSet::new(), "of process {run}");
    }

    let mut boot = broker.boot_id().await.expect("it is ready");
    for _ in 0..3 {
        let one = broker.under_warden(warden).await;
        kill_process(pid(one), Signal::KILL).unwrap();
        boot = broker.next_boot(&boot).await;
    }
    fs::write(&gate, "").unwrap();
    broker.succeeded("i", None, &operation).await;
    let job = broker.job(&operation).await;
    assert_eq!(job["history"].as_array().unwrap().len(), 1, "{job:#}");
    let starts = fs::read_to_string(marks.join("starts")).unwrap();
    assert_eq!(starts.lines().count(), 1, "{starts}");
    broker.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claimer_that_always_panics_is_started_cleanly_again_and_again_and_the_api_stays() {
    let setup = Setup::faults_bundle()
        .with_faults("engine.claim=panic")
        .with_warden();
    let broker = Broker::start(setup).await;
    let of = broker.ids("faults", "ok").await;
    let first = broker.boot_id().await.expect("it is ready");
    let operation = broker.provision("i", &of, json!({})).await.operation();
    // Each broker panics at its first claim.
    eventually("two brokers have handed over", || {
        let ends = broker.log().matches("exited with code 15").count();
        std::future::ready((ends >= 2).then_some(()))
    })
    .await;
    let end = record(&broker, &first);
    assert_eq!(end["exit_code"], 15, "{end}");
    assert_eq!(end["asked_to_end"], false, "{end}");
    let waiting = eventually("the API answers between two ends", || async {
        let poll = format!("/v2/service_instances/i/last_operation?operation={operation}");
        let url = format!("{}{poll}", broker.url("osb-url"));
        let asked = broker
            .http
            .get(url)
            .basic_auth("platform", Some(broker.password()))
            .header("X-Broker-API-Version", "2.17")
            .send()
            .await;
        let answer = asked.ok()?;
        (answer.status() == 200).then_some(())?;
        answer.json::<serde_json::Value>().await.ok()
    })
    .await;
    assert_eq!(waiting["state"], "in progress", "{waiting}");
}

/// A boot's death record, as its warden wrote it.
pub(crate) fn record(broker: &Broker, boot: &str) -> serde_json::Value {
    let path = broker.data().join(format!("warden/{boot}.json"));
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}\n{}", path.display(), broker.log()));
    serde_json::from_str(&text).unwrap()
}

/// Sends a signal until the process is gone: Rust's own handler of SIGSEGV takes the first one for
/// a fault that will come again.
pub(crate) async fn end_by(process: u32, signal: Signal) {
    eventually("the process is gone", || {
        let gone = kill_process(pid(process), signal).is_err();
        std::future::ready(gone.then_some(()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_unclean_end_is_told_by_status_and_readyz_and_boots_is_a_table() {
    let broker = Broker::start(Setup::faults_bundle().with_warden()).await;
    let first = broker.boot_id().await.expect("it is ready");
    let ready = broker.admin(Method::GET, "/readyz").await.body.to_string();
    assert!(!ready.contains("nobody asked for"), "{ready}");
    let one = broker.under_warden(broker.pid()).await;
    end_by(one, Signal::SEGV).await;
    broker.next_boot(&first).await;
    let told = format!("boot {first} was killed by SIGSEGV");
    let ready = broker.admin(Method::GET, "/readyz").await.body.to_string();
    assert!(ready.contains(&told), "{ready}");
    let status = String::from_utf8(broker.cli(&["status"]).stdout).unwrap();
    assert!(status.contains(&told), "{status}");
    let table = String::from_utf8(broker.cli(&["boots"]).stdout).unwrap();
    let row = table.lines().find(|line| line.starts_with(&first));
    let row = row.unwrap_or_else(|| panic!("{table}"));
    assert!(
        row.contains("was killed by SIGSEGV") && row.contains("  died  "),
        "{table}"
    );
    assert!(
        table.lines().any(|line| line.contains("this one")),
        "{table}"
    );
    // Somebody asks the broker's own process to end, and not its warden: in order all the same.
    let second = broker.boot_id().await.expect("it is ready");
    let one = broker.under_warden(broker.pid()).await;
    kill_process(pid(one), Signal::TERM).unwrap();
    broker.next_boot(&second).await;
    let listed = broker.boot_in_list(&second).await;
    assert_eq!(listed["verdict"], "ended in order", "{listed}");
    assert_eq!(listed["death"]["asked_to_end"], false, "{listed}");
    let status = String::from_utf8(broker.cli(&["status"]).stdout).unwrap();
    assert!(status.contains(&told), "still the first: {status}");
}
