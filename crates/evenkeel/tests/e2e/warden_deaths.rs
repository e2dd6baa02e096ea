//! Death records: each kind of end is written down as what it was, with the last words.

use std::fs;

use reqwest::Method;
use rustix::process::{Signal, kill_process};
use tokio::task::JoinSet;

use crate::harness::{Broker, Setup, eventually, pid};
use crate::warden::{end_by, record};

/// The first broker of a warden, and its boot.
async fn started(setup: Setup) -> (Broker, String) {
    let broker = Broker::start(setup.with_warden()).await;
    let boot = broker.boot_id().await.expect("it is ready");
    (broker, boot)
}

/// Asks for something that ends whoever is asked, and waits for no answer.
pub(crate) fn ask_the_end(broker: &Broker) -> JoinSet<()> {
    let (http, url) = (broker.http.clone(), broker.url("admin-url"));
    let token = fs::read_to_string(broker.data().join("admin-token")).unwrap();
    let mut asked = JoinSet::new();
    asked.spawn(async move {
        let url = format!("{url}/admin/v1/catalog");
        drop(http.get(url).bearer_auth(token.trim()).send().await);
    });
    asked
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_recorded_by_its_number_with_memory_and_time_used() {
    let (broker, mut boot) = started(Setup::faults_bundle()).await;
    for signal in [Signal::KILL, Signal::SEGV, Signal::ABORT] {
        let one = broker.under_warden(broker.pid()).await;
        end_by(one, signal).await;
        let next = broker.next_boot(&boot).await;
        let end = record(&broker, &boot);
        assert_eq!(end["signal"], signal.as_raw(), "{end}");
        assert_eq!(end.get("exit_code"), None, "{end}");
        for flag in ["asked_to_end", "killed_by_watchdog", "own_oom", "host_oom"] {
            assert_eq!(end[flag], false, "{flag}: {end}");
        }
        assert!(end["peak_memory"].as_u64().unwrap() > 1 << 20, "{end}");
        assert!(end["cpu_millis"].as_u64().unwrap() > 0, "{end}");
        let listed = broker.boot_in_list(&boot).await;
        assert_eq!(listed["death"]["signal"], signal.as_raw(), "{listed}");
        assert_eq!(listed["verdict"], "died", "{listed}");
        boot = next;
    }
    let told = broker.log();
    assert_eq!(
        told.matches("another starts").count(),
        3,
        "one line each: {told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_words_of_an_abort_are_in_its_record_and_on_standard_error_but_in_no_answer() {
    let setup = Setup::faults_bundle().with_faults("server.admin_catalog=abort");
    let (broker, boot) = started(setup).await;
    let mut asked = ask_the_end(&broker);
    broker.next_boot(&boot).await;
    asked.join_next().await.unwrap().unwrap();
    let end = record(&broker, &boot);
    assert_eq!(end["signal"], 6, "{end}");
    let words = "aborted at server.admin_catalog";
    assert!(end["last_words"].as_str().unwrap().contains(words), "{end}");
    assert!(broker.log().contains(words), "{}", broker.log());
    let raw = broker.data().join(format!("warden/{boot}.stderr"));
    assert!(fs::read_to_string(raw).unwrap().contains(words));
    let listed = broker.admin(Method::GET, "/admin/v1/boots").await.body;
    assert!(!listed.to_string().contains(words), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_told_in_the_log_and_kept_with_the_boot_and_the_log_is_no_last_word() {
    let setup = Setup::faults_bundle().with_faults("server.admin_catalog=panic");
    let (broker, boot) = started(setup).await;
    let answer = broker.admin(Method::GET, "/admin/v1/catalog").await;
    assert_eq!(answer.status, 500, "{answer:?}");
    let words = "fault injected at server.admin_catalog";
    let raw = broker.data().join(format!("warden/{boot}.stderr"));
    let raw = fs::read_to_string(raw).unwrap();
    assert!(raw.contains(words), "{raw}");
    assert!(
        !raw.contains("\"listening\""),
        "the log is elsewhere: {raw}"
    );
    // The log is written beside the answer.
    eventually("the log tells of the panic", || {
        let told = broker.log().contains("a request handler panicked");
        std::future::ready(told.then_some(()))
    })
    .await;
    let log = broker.log();
    assert!(log.contains("listening"), "{log}");
    // I16: of what a panic says, the log has literals only.
    assert!(
        log.contains("' panicked at ") && !log.contains(words),
        "{log}"
    );
    assert_eq!(
        broker.boot_id().await,
        Some(boot),
        "a handler's panic ends nobody"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_ends_a_stopped_broker_and_one_whose_runtime_is_wedged() {
    let setup = Setup::faults_bundle()
        .with_toml("[serve]\nwatchdog = \"3s\"\nrestart_pause = \"20ms\"")
        .with_faults("server.admin_catalog=wedge");
    let (broker, stopped) = started(setup).await;
    let one = broker.under_warden(broker.pid()).await;
    kill_process(pid(one), Signal::STOP).unwrap();
    // A stopped broker accepts nothing, and answers nobody.
    eventually("the stopped broker is ended", || {
        let gone = !std::path::Path::new(&format!("/proc/{one}")).exists();
        std::future::ready(gone.then_some(()))
    })
    .await;
    let wedged = broker.next_boot(&stopped).await;
    let end = record(&broker, &stopped);
    assert_eq!(end["killed_by_watchdog"], true, "{end}");
    assert_eq!(end["signal"], 9, "no other signal reaches it: {end}");

    let one = broker.under_warden(broker.pid()).await;
    let mut asked = ask_the_end(&broker);
    eventually("the wedged broker is ended", || {
        let gone = !std::path::Path::new(&format!("/proc/{one}")).exists();
        std::future::ready(gone.then_some(()))
    })
    .await;
    broker.next_boot(&wedged).await;
    asked.join_next().await.unwrap().unwrap();
    let end = record(&broker, &wedged);
    assert_eq!(end["killed_by_watchdog"], true, "{end}");
    assert_eq!(end["signal"], 6, "{end}");
    let listed = broker.boot_in_list(&wedged).await;
    let text = listed["death"]["text"].as_str().unwrap();
    assert!(text.contains("watchdog"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_stops_neither_the_broker_nor_its_jobs_nor_its_end() {
    for warden in [true, false] {
        let setup = Setup::faults_bundle().with_toml("[serve]\nwatchdog = \"3s\"");
        let mut broker = Broker::new(if warden { setup.with_warden() } else { setup });
        // A pipe that is full before the first line.
        let path = broker.dir.path().join("full");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
        let pipe = fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        rustix::io::ioctl_fionbio(&pipe, true).unwrap();
        while rustix::io::write(&pipe, b"x").is_ok() {}
        let script = format!("exec \"$@\" >{0} 2>{0}", path.display());
        broker.setup.before = ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
        broker.boot().await;
        let boot = broker.boot_id().await;
        let of = broker.ids("faults", "ok").await;
        // As long as the watchdog would need to see that nothing turns.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
        let mut orders = 0;
        while orders == 0 || std::time::Instant::now() < until {
            let id = format!("i{orders}");
            let asked = broker.provision(&id, &of, serde_json::json!({})).await;
            broker.succeeded(&id, None, &asked.operation()).await;
            orders += 1;
        }
        assert_eq!(broker.boot_id().await, boot, "after {orders} orders");
        assert_eq!(broker.terminate().code(), Some(0));
        drop(pipe);
    }
}
