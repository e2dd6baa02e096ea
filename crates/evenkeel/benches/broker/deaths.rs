//! From the death of a broker to what comes next, and what becomes of the requests that were under
//! way: under its warden, and with sockets that a service manager holds (`RestartSec=` comes on
//! top of that).
//!
//! The clock starts when the process is dead, not when it is sent SIGKILL. Two instants count, each
//! on a connection of its own: the *first answer*, which may be the 503 of a broker that is still
//! opening its store, and the first request that is *served*: the catalog, with authentication.
//! Connections ask for the catalog, poll and order all the while. The floor is the same broker's
//! way from `exec` to each of the two, with nobody else asking.

use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::{Client, RequestBuilder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::bundle;
use crate::harness::processes::free_addresses;
use crate::harness::{Broker, PATIENCE, Setup, eventually, pid};

#[path = "deaths/asking.rs"]
mod asking;

use asking::{Asking, Counts, Platform};

const DEATHS: usize = 100;
const STARTS: usize = 20;
/// How long connections ask before each death; a little more with each, so that it does not meet
/// them at the same point every time.
const BEFORE: Duration = Duration::from_millis(50);
/// Between two looks at a broker that starts.
const LOOK_EVERY: Duration = Duration::from_millis(1);

pub(crate) async fn run() {
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup {
        // One job runs in the only slot: there is something to poll and to adopt, and what is
        // ordered waits.
        bundles: vec![bundle::write(folder.path(), &["sleep", "3600"])],
        toml: "[jobs]\nconcurrency = 1\nper_service = 1\ntimeout = \"2h\"\n\
               [shutdown]\non_shutdown = \"detach\"\n"
            .into(),
        ..Setup::default()
    };
    println!("deaths      from               number        median      p99    worst  (ms)");
    let floor = starts(setup.clone()).await;
    floor.print("a start", None);
    for (name, seen) in [
        ("warden", by_warden(setup.clone()).await),
        ("activation", by_activation(setup).await),
    ] {
        seen.gaps.print(name, Some(&floor));
        seen.counts.print();
    }
    println!();
}

/// From a death or a start to what comes next.
#[derive(Default)]
struct Gaps {
    answered: Vec<Duration>,
    served: Vec<Duration>,
}

impl Gaps {
    fn push(&mut self, (answered, served): (Duration, Duration)) {
        self.answered.push(answered);
        self.served.push(served);
    }

    fn print(&self, name: &str, floor: Option<&Self>) {
        let both = [
            (
                &self.answered,
                "first answer",
                floor.map(|floor| &floor.answered),
            ),
            (
                &self.served,
                "first served",
                floor.map(|floor| &floor.served),
            ),
        ];
        for (gaps, what, floor) in both {
            let ratio = floor.map_or(String::new(), |floor| {
                format!("  {:.2} of a start", at(gaps, 50) / at(floor, 50))
            });
            println!(
                "            {name:10} {what:12} {:4}  {:9.1}  {:7.1}  {:7.1}{ratio}",
                gaps.len(),
                at(gaps, 50),
                at(gaps, 99),
                at(gaps, 100),
            );
        }
    }
}

/// A percentile by nearest rank, in milliseconds.
fn at(gaps: &[Duration], percent: usize) -> f64 {
    let mut sorted = gaps.to_vec();
    sorted.sort();
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted[rank - 1].as_secs_f64() * 1e3
}

#[derive(Default)]
struct Seen {
    gaps: Gaps,
    counts: Counts,
}

impl Seen {
    async fn until_served(&mut self, look: &Look, death: Death, asking: Asking) {
        let gaps = look.until_served(death.dead).await;
        self.gaps.push(gaps);
        let all = asking.end().await;
        self.counts.add(&all, &death, death.dead + gaps.1);
    }
}

/// From `exec`, on a data folder that exists.
async fn starts(mut setup: Setup) -> Gaps {
    // Known before it has told them.
    let [osb, admin] = free_addresses();
    let listen = format!("[osb]\nlisten = \"{osb}\"\n[admin]\nlisten = \"{admin}\"\n");
    setup.toml.push_str(&listen);
    let mut broker = Broker::start(setup).await;
    let look = Look::of(&Platform::of(&broker).await);
    let mut gaps = Gaps::default();
    for _ in 0..STARTS {
        broker.ready().await;
        broker.kill();
        let began = Instant::now();
        broker.spawn();
        gaps.push(look.until_served(began).await);
    }
    gaps
}

async fn by_warden(mut setup: Setup) -> Seen {
    setup.warden = true;
    // Brokers that die once a second are not what the pauses are for.
    setup.toml.push_str("[serve]\nrestart_pause = \"1ms\"\n");
    let broker = Broker::start(setup).await;
    let platform = Arc::new(Platform::of(&broker).await);
    let look = Look::of(&platform);
    let mut seen = Seen::default();
    for nth in 0..DEATHS {
        let boot = eventually("the broker is ready", || broker.boot_id()).await;
        let one = broker.under_warden(broker.pid()).await;
        let asking = Asking::begin(&platform, nth);
        ask_a_while(nth).await;
        let death = Death::of(one);
        seen.until_served(&look, death, asking).await;
        broker.next_boot(&boot).await;
    }
    seen
}

/// This process in the place of systemd: it holds the sockets, and starts what has ended.
async fn by_activation(mut setup: Setup) -> Seen {
    let sockets: Vec<_> = (0..2)
        .map(|_| TcpListener::bind("127.0.0.1:0").expect("a socket"))
        .collect();
    let osb = sockets[0].local_addr().expect("an address");
    // High enough to be in nobody's way, and left open over exec.
    let passed: Vec<_> = sockets
        .iter()
        .map(|socket| {
            let copy = fcntl_dupfd_cloexec(socket, 100).expect("a descriptor");
            fcntl_setfd(&copy, FdFlags::empty()).expect("a descriptor");
            copy
        })
        .collect();
    let script = format!(
        "export LISTEN_FDS=2 LISTEN_FDNAMES=osb:admin LISTEN_PID=$$; \
         exec 3<&{} 4<&{}; exec \"$@\"",
        passed[0].as_raw_fd(),
        passed[1].as_raw_fd()
    );
    setup.warden = true;
    setup.before = ["bash", "-c", &script, "bash"].map(str::to_owned).to_vec();
    let mut broker = Broker::start(setup).await;
    assert_eq!(broker.url("osb-url"), format!("http://{osb}"));
    let platform = Arc::new(Platform::of(&broker).await);
    let look = Look::of(&platform);
    let mut seen = Seen::default();
    for nth in 0..DEATHS {
        broker.ready().await;
        let asking = Asking::begin(&platform, nth);
        ask_a_while(nth).await;
        let death = Death::of(broker.pid());
        // It is dead: this takes it off the kernel's list.
        broker.kill();
        broker.spawn();
        seen.until_served(&look, death, asking).await;
    }
    seen
}

async fn ask_a_while(nth: usize) {
    let more = u64::try_from(nth % 10).expect("it is small");
    tokio::time::sleep(BEFORE + Duration::from_millis(more)).await;
}

/// A broker's.
struct Death {
    /// SIGKILL is about to be sent.
    killed: Instant,
    dead: Instant,
}

impl Death {
    fn of(process: u32) -> Self {
        let fd = pidfd_open(pid(process), PidfdFlags::empty()).expect("it lives");
        let patience = Timespec::try_from(PATIENCE).expect("it is short");
        let mut dead = [PollFd::new(&fd, PollFlags::IN)];
        let killed = Instant::now();
        pidfd_send_signal(&fd, Signal::KILL).expect("it lives");
        assert_eq!(poll(&mut dead, Some(&patience)), Ok(1), "it does not die");
        Self {
            killed,
            dead: Instant::now(),
        }
    }
}

/// Somebody who looks for the next broker, each time on a new connection.
struct Look(RequestBuilder);

impl Look {
    fn of(platform: &Platform) -> Self {
        let client = Client::builder().pool_max_idle_per_host(0).build();
        Self(platform.catalog(&client.expect("a client")))
    }

    /// From then to the first answer, and to the first that serves.
    async fn until_served(&self, since: Instant) -> (Duration, Duration) {
        let mut answered = None;
        loop {
            let request = self.0.try_clone().expect("it has no body");
            let answer = request.send().await;
            let now = since.elapsed();
            if let Ok(answer) = answer {
                let first = *answered.get_or_insert(now);
                match answer.status().as_u16() {
                    200 => return (first, now),
                    503 => {}
                    other => panic!("{other} is no answer of a broker that starts"),
                }
            }
            assert!(now < PATIENCE, "nobody serves");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
