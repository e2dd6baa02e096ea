//! systemd in the warden's place: the sockets are its, and so is the watching.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;

use serde_json::json;

use crate::harness::processes::free_addresses;
use crate::harness::{Broker, PATIENCE, Setup, children, eventually, root};

/// Reads notifications until one says this.
fn told(systemd: &UnixDatagram, what: &str) {
    let mut message = [0; 4096];
    let mut heard = Vec::new();
    loop {
        let length = systemd
            .recv(&mut message)
            .unwrap_or_else(|error| panic!("{what} was waited for: {error}: {heard:?}"));
        let text = String::from_utf8_lossy(&message[..length]).into_owned();
        if text.lines().any(|line| line == what) {
            return;
        }
        heard.push(text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_sockets_from_systemd_the_broker_serves_them_itself_and_says_how_it_stands() {
    let [osb, admin] = free_addresses();
    let mut broker = Broker::new(Setup::faults_bundle().with_warden());
    let notify = broker.dir.path().join("notify");
    let systemd = UnixDatagram::bind(&notify).unwrap();
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    // systemd names whom it means; every exec keeps the shell's id.
    let script = format!(
        "exec systemd-socket-activate --listen={osb} --listen={admin} --fdname=osb:admin \
             --setenv=NOTIFY_SOCKET={} --setenv=WATCHDOG_USEC=1000000 --setenv=WATCHDOG_PID=$$ \
             \"$@\"",
        notify.display()
    );
    broker.setup.before = ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
    broker.spawn();
    is_started_by_a_connection(&mut broker, osb).await;
    assert_eq!(broker.url("admin-url"), format!("http://{admin}"));
    assert_eq!(
        children(broker.pid()),
        [0_u32; 0],
        "it is the broker itself"
    );
    told(&systemd, "READY=1");
    told(&systemd, "STATUS=ready");
    told(&systemd, "WATCHDOG=1");
    let of = broker.ids("faults", "ok").await;
    let asked = broker.provision("i", &of, json!({})).await;
    broker.succeeded("i", None, &asked.operation()).await;
    broker.nothing_left().await;
    assert_eq!(broker.terminate().code(), Some(0), "{}", broker.log());
    told(&systemd, "STOPPING=1");
    assert!(!broker.data().join("warden").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_without_names_are_taken_in_order_and_what_is_not_passed_is_bound() {
    let [osb, _] = free_addresses();
    let mut broker = Broker::new(Setup::faults_bundle().with_warden());
    let listen = format!("--listen={osb}");
    broker.setup.before = vec!["systemd-socket-activate".to_owned(), listen];
    broker.spawn();
    is_started_by_a_connection(&mut broker, osb).await;
    assert_ne!(broker.url("admin-url"), broker.url("osb-url"));
    broker.ids("faults", "ok").await;
}

#[test]
fn each_documented_service_has_what_keeps_it_going() {
    let text = std::fs::read_to_string(root().join("docs/config.md")).unwrap();
    let units = text.split("```ini\n").skip(1);
    let units = units.map(|rest| rest.split("```").next().unwrap());
    let services: Vec<_> = units.filter(|unit| unit.contains("[Service]")).collect();
    assert_eq!(services.len(), 2);
    for unit in services {
        for line in [
            "StartLimitIntervalSec=0",
            "Type=notify",
            "Restart=always",
            "TimeoutStartSec=infinity",
            "OOMPolicy=continue",
            "KillMode=process",
        ] {
            assert!(
                unit.lines().any(|one| one == line),
                "{line} is not in {unit}"
            );
        }
    }
}

/// The first connection starts it, and waits until it is there.
async fn is_started_by_a_connection(broker: &mut Broker, osb: SocketAddr) {
    let first = eventually("systemd listens", || {
        std::future::ready(TcpStream::connect(osb).ok())
    })
    .await;
    broker.ready().await;
    drop(first);
    assert_eq!(broker.url("osb-url"), format!("http://{osb}"));
}
