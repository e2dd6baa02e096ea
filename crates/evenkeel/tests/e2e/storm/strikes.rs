//! Deaths of the broker and of its warden, and what is seen from outside meanwhile.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{Storm, deaths, kinds, poisons};
use crate::harness::{Broker, children, eventually, pid};
use crate::platforms::dice::Dice;

/// From one strike to the next: up to this many milliseconds after the broker answers again.
const PAUSE_MILLIS: u64 = 800;
/// However short the storm is.
const FEWEST: usize = 3;

/// A death in an exclusive step is charged to whoever it belongs to, rightly: nothing else was at
/// work. A strike that could be the third of them is not made, so that an innocent that is condemned
/// all the same is condemned for what it had no part in.
const LOSSES_SPARED: i64 = 2;

/// Who was struck how often.
#[derive(Debug, Default)]
pub(super) struct Struck {
    /// Brokers that were killed under a living warden.
    pub(super) brokers: usize,
    /// Brokers that were killed with their warden.
    pub(super) both: usize,
    /// Wardens that were killed alone: their brokers ended in order.
    pub(super) handed_over: usize,
    pub(super) restarts: usize,
    /// Brokers that were killed before they had put themselves on record. They count as no deaths:
    /// they had done nothing.
    pub(super) early: usize,
    /// Strikes that were not made (see [`LOSSES_SPARED`]).
    pub(super) spared: usize,
    /// Boots of the brokers that were killed by name.
    pub(super) boots: BTreeSet<String>,
    /// From a broker's death under a living warden to the next answer.
    gaps: Vec<Duration>,
    pub(super) connections: u64,
    /// From the first order to the end of the last job.
    pub(super) lasted: Duration,
}

impl Struck {
    /// Takes down a broker that was killed; how many deaths that makes.
    fn killed(&mut self, boot: Option<String>) -> usize {
        match boot {
            Some(boot) => usize::from(self.boots.insert(boot)),
            None => {
                self.early += 1;
                0
            }
        }
    }

    /// Median and p99, nearest rank.
    pub(super) fn gaps(&self) -> String {
        let mut sorted = self.gaps.clone();
        sorted.sort();
        let mut text = String::new();
        for (name, percent) in [("median", 50), ("p99", 99)] {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            let gap = sorted.get(rank - 1).copied().unwrap_or_default();
            write!(text, "{name} {gap:.0?} ").unwrap();
        }
        text
    }
}

/// How a warden says that its broker died, as the poisons have it: 128 + SIGKILL, SIGSEGV, SIGABRT.
const DIED: [i32; 3] = [137, 139, 134];

/// Somebody who connects all the time; only while a warden lives does a refusal count.
#[derive(Debug, Default)]
struct Prober {
    warden_lives: AtomicBool,
    connections: AtomicU64,
    refused: AtomicU64,
}

async fn probe(prober: Arc<Prober>, data: PathBuf) {
    loop {
        // The time of a strike at the warden is not asked about, neither before nor after.
        let lived = prober.warden_lives.load(Ordering::SeqCst);
        let url = std::fs::read_to_string(data.join("osb-url")).unwrap_or_default();
        let address = url.trim().trim_start_matches("http://").to_owned();
        if lived && !address.is_empty() {
            let tried = TcpStream::connect(&address).await;
            let refused = tried.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
            if prober.warden_lives.load(Ordering::SeqCst) {
                prober.connections.fetch_add(1, Ordering::SeqCst);
                prober
                    .refused
                    .fetch_add(u64::from(refused), Ordering::SeqCst);
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Strikes for so long.
pub(super) async fn strike(
    storm: &Storm,
    broker: &mut Broker,
    stage: &Path,
    mut dice: Dice,
    lasts: Duration,
) -> Struck {
    let prober = Arc::new(Prober::default());
    prober.warden_lives.store(true, Ordering::SeqCst);
    let mut beside = JoinSet::new();
    beside.spawn(probe(Arc::clone(&prober), broker.data()));
    let mut struck = Struck::default();
    let began = Instant::now();
    let mut unbooked = 0;
    while began.elapsed() < lasts || struck.brokers < FEWEST {
        tokio::time::sleep(dice.millis(PAUSE_MILLIS)).await;
        let at = began.elapsed();
        if broker.boot_id().await.is_some() {
            unbooked = 0;
        }
        if most_losses(broker) + unbooked >= LOSSES_SPARED {
            struck.spared += 1;
            continue;
        }
        match dice.below(100) {
            0..4 => {
                prober.warden_lives.store(false, Ordering::SeqCst);
                storm.line.down();
                poisons::forget_warden(stage);
                let status = broker.terminate();
                // While it ends in order it may be killed by the poison whose turn it is.
                let died = |code| DIED.contains(&code);
                let ended = status.success() || status.code().is_some_and(died);
                assert!(ended, "{status}: {}", broker.log());
                again(storm, broker, stage).await;
                prober.warden_lives.store(true, Ordering::SeqCst);
                struck.restarts += 1;
                told(at, began, "an orderly restart");
            }
            4..9 => {
                prober.warden_lives.store(false, Ordering::SeqCst);
                storm.line.down();
                poisons::forget_warden(stage);
                // One after the other, so that each is met however short the storm is.
                let what = if struck.both <= struck.handed_over {
                    let before = deaths::newest(broker);
                    for one in kill_both(broker).await {
                        struck.both += struck.killed(deaths::on_record(broker, one, before));
                    }
                    "warden and broker killed"
                } else {
                    kill_warden(broker).await;
                    struck.handed_over += 1;
                    "warden killed"
                };
                again(storm, broker, stage).await;
                prober.warden_lives.store(true, Ordering::SeqCst);
                told(at, began, what);
            }
            kind => {
                let signal = match kind {
                    9..14 => Signal::ABORT,
                    14..18 => Signal::SEGV,
                    _ => Signal::KILL,
                };
                let before = deaths::newest(broker);
                if let Some(one) = kill_broker(broker, signal).await {
                    struck.brokers += struck.killed(deaths::on_record(broker, one, before));
                    unbooked += 1;
                    struck.gaps.push(next_answer(broker).await);
                    told(at, began, "broker killed");
                }
            }
        }
    }
    beside.shutdown().await;
    struck.connections = prober.connections.load(Ordering::SeqCst);
    let refused = prober.refused.load(Ordering::SeqCst);
    if refused > 0 {
        keep_log(broker, storm.seed);
    }
    assert_eq!(refused, 0, "of {} connections", struck.connections);
    struck
}

/// The most losses that an innocent has that is not over. Those of deaths that recovery has not dealt
/// with yet are not among them.
fn most_losses(broker: &Broker) -> i64 {
    let poisons: Vec<_> = kinds::services().map(|name| format!("'{name}'")).collect();
    let query = format!(
        "SELECT coalesce(max(b.losses), 0) FROM budgets b JOIN jobs j
         ON j.instance_uid = b.instance_uid AND j.action = b.action
             AND coalesce(j.binding_id, '') = b.binding_id
         WHERE j.state IN ('queued', 'running', 'backoff')
             AND NOT (j.action = 'provision' AND j.service_id IN ({}))",
        poisons.join(", ")
    );
    let store = deaths::store(broker);
    store.query_row(&query, [], |row| row.get(0)).unwrap()
}

#[expect(clippy::print_stdout, reason = "a long storm is watched")]
fn told(at: Duration, began: Instant, what: &str) {
    let lasted = began.elapsed().saturating_sub(at);
    println!("storm: {at:6.1?} {what}, {lasted:.1?} to the next answer");
}

/// Another warden on the same folder.
async fn again(storm: &Storm, broker: &mut Broker, stage: &Path) {
    broker.spawn();
    poisons::tell_warden(stage, broker.pid());
    broker.listening().await;
    storm.line.up(broker.url("osb-url"), broker.password());
    broker.ready().await;
}

/// The warden is killed; its broker hands over to nobody and ends.
async fn kill_warden(broker: &mut Broker) {
    let brokers = children(broker.pid());
    broker.kill();
    gone(&brokers).await;
}

/// Both are killed, as when all of a host's memory is used up. Gives the broker's process id, where
/// there was one.
async fn kill_both(broker: &mut Broker) -> Vec<u32> {
    let warden = broker.pid();
    // So that it starts no other.
    kill_process(pid(warden), Signal::STOP).unwrap();
    eventually("the warden is stopped", || {
        std::future::ready((state_of(warden) == Some('T')).then_some(()))
    })
    .await;
    let brokers = children(warden);
    for one in &brokers {
        // Nobody reaps it, so that its number is its own.
        kill_process(pid(*one), Signal::KILL).unwrap();
    }
    broker.kill();
    gone(&brokers).await;
    brokers
}

async fn gone(brokers: &[u32]) {
    eventually("the broker of the dead warden has ended", || {
        let gone = |id: &u32| matches!(state_of(*id), None | Some('Z'));
        std::future::ready(brokers.iter().all(gone).then_some(()))
    })
    .await;
}

/// As proc(5) has it; `None` where there is no such process.
fn state_of(id: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Ends the broker and waits until it is gone; `None` if somebody else was faster.
async fn kill_broker(broker: &Broker, signal: Signal) -> Option<u32> {
    let one = broker.under_warden(broker.pid()).await;
    let handle = pidfd_open(pid(one), PidfdFlags::empty()).ok()?;
    // What the handle is of is still the broker: its number was not given to another meanwhile.
    if !children(broker.pid()).contains(&one) {
        return None;
    }
    pidfd_send_signal(&handle, signal).ok()?;
    // Rust's own handler of SIGSEGV takes the first for a fault that will come again.
    let sent_again = signal == Signal::SEGV;
    eventually("the broker is gone", || {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(&handle, PollFlags::IN)];
        let gone = poll(&mut fds, Some(&now)).unwrap() == 1;
        if !gone && sent_again {
            pidfd_send_signal(&handle, signal).ok();
        }
        std::future::ready(gone.then_some(()))
    })
    .await;
    Some(one)
}

/// How long it takes until somebody answers a platform.
async fn next_answer(broker: &Broker) -> Duration {
    let died = Instant::now();
    // Without a connection from before.
    let http = reqwest::Client::builder()
        .timeout(crate::harness::PATIENCE)
        .build()
        .unwrap();
    let url = format!("{}/v2/catalog", broker.url("osb-url"));
    let password = broker.password();
    eventually("a broker answers", || async {
        let asked = http
            .get(&url)
            .basic_auth("platform", Some(&password))
            .header("X-Broker-API-Version", "2.17")
            .send()
            .await;
        asked
            .is_ok_and(|answer| answer.status() == 200)
            .then(|| died.elapsed())
    })
    .await
}

/// Where the log of a storm that fails is kept.
#[expect(
    clippy::print_stdout,
    reason = "whoever reads of the failure has to find it"
)]
pub(super) fn keep_log(broker: &Broker, seed: u64) -> PathBuf {
    let name = broker.dir.path().file_name().unwrap().display();
    let kept = std::env::temp_dir().join(format!("storm-{seed}-{name}.log"));
    std::fs::write(&kept, broker.log()).unwrap();
    println!("storm: the broker's log is {}", kept.display());
    kept
}

/// Ends a process that is still what it was when it was looked at.
pub(super) fn kill_if(id: u32, is_still: impl Fn() -> bool) -> bool {
    let Ok(handle) = pidfd_open(pid(id), PidfdFlags::empty()) else {
        return false;
    };
    is_still() && pidfd_send_signal(&handle, Signal::KILL).is_ok()
}
