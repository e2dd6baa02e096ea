//! Recovery with many unfinished jobs: half of them queued, half recorded as running under a boot
//! that died between claim and start; and with a thousand runs that live on and are taken over.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use evenkeel_core::action::Action;
use evenkeel_core::ids::{AttemptId, BootId, InstanceUid, JobId, RunRootId};
use evenkeel_core::request::{InstanceInput, JobBody, Named, Object, PlanInput};
use evenkeel_core::time::Timestamp;
use evenkeel_server::admin::types::{CatalogReport, Service};
use evenkeel_store::seam::{ClaimDue, NewBoot, Store, Submission, Submitted};
use evenkeel_store::{SqliteStore, StoreOptions};
use uuid::Uuid;

use crate::bundle;
use crate::harness::{Broker, Setup};

pub(crate) async fn run() {
    println!("recovery  unfinished  listener ms  planned ms  us/job  peak MiB");
    one(1_000).await;
    one(10_000).await;
    living(10_000, 1_000).await;
    one(100_000).await;
    println!();
}

/// The broker is killed over so many unfinished jobs, some of which are runs that live.
async fn living(number: u32, runs: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup {
        bundles: vec![bundle::write(folder.path(), &["sleep", "1800"])],
        toml: format!("[jobs]\nconcurrency = {runs}\nper_service = {runs}\n"),
        ..Setup::default()
    };
    let (mut broker, service) = start(setup).await;
    broker.kill();
    fill_queue(&broker.data(), &service, number).await;
    broker.boot().await;
    let since = Instant::now();
    while driving(&broker).await != runs
        || broker.run_processes().len() < 2 * usize::try_from(runs).expect("few")
    {
        assert!(
            since.elapsed() < Duration::from_secs(600),
            "{}",
            broker.log()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    broker.kill();
    println!("          of which {runs} runs live:");
    again(&mut broker, number).await;
    assert_eq!(driving(&broker).await, runs, "all were taken over");
}

async fn one(number: u32) {
    let folder = tempfile::tempdir().expect("a folder");
    let setup = Setup {
        bundles: vec![bundle::write(folder.path(), &["sleep", "600"])],
        toml: "[jobs]\nconcurrency = 1\nper_service = 1\n[shutdown]\non_shutdown = \"detach\"\n"
            .into(),
        ..Setup::default()
    };
    let (mut broker, service) = start(setup).await;
    broker.terminate();
    fill(&broker.data(), &service, number).await;
    again(&mut broker, number).await;
}

async fn start(setup: Setup) -> (Broker, Service) {
    let broker = Broker::start(setup).await;
    let report = broker
        .admin(reqwest::Method::GET, "/admin/v1/catalog")
        .await
        .body;
    let report: CatalogReport = serde_json::from_value(report).expect("a catalog");
    let service = report.services.into_iter().next().expect("a service");
    (broker, service)
}

async fn driving(broker: &Broker) -> u64 {
    let path = "/admin/v1/status";
    let status = broker.admin(reqwest::Method::GET, path).await.body;
    status["driving"].as_u64().unwrap_or(0)
}

/// Starts the broker and takes the time until it is ready, which it is when every job has been
/// looked at.
async fn again(broker: &mut Broker, number: u32) {
    let since = Instant::now();
    broker.spawn();
    let listener = broker.listening().await - since;
    let mut peak = 0;
    while broker.admin(reqwest::Method::GET, "/readyz").await.status != 200 {
        peak = peak.max(peak_kib(broker.pid()));
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(
            since.elapsed() < Duration::from_secs(600),
            "{}",
            broker.log()
        );
    }
    let planned = since.elapsed();
    peak = peak.max(peak_kib(broker.pid()));
    println!(
        "          {number:10}  {:11.1}  {:10.0}  {:6.1}  {:8.1}",
        listener.as_secs_f64() * 1e3,
        planned.as_secs_f64() * 1e3,
        planned.as_secs_f64() * 1e6 / f64::from(number),
        f64::from(u32::try_from(peak).unwrap_or(u32::MAX)) / 1024.0,
    );
}

/// Peak resident memory.
fn peak_kib(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or(0)
}

fn open(data: &Path) -> SqliteStore {
    let opened = SqliteStore::open(StoreOptions::new(data));
    opened.expect("the store").store
}

/// When all were ordered: long ago, so that they are due.
const AT: Timestamp = Timestamp(1_700_000_000_000);

async fn fill_queue(data: &Path, service: &Service, number: u32) {
    let store = open(data);
    let mut nth = 0;
    while nth < number {
        let some =
            (nth..number.min(nth + 500)).map(|nth| store.submit(order(service, nth, AT, &store)));
        for submitted in join_all(some).await {
            assert!(
                matches!(submitted, Ok(Submitted::Accepted { .. })),
                "{submitted:?}"
            );
        }
        nth += 500;
    }
}

/// Half of them are claimed by a boot that is no more.
async fn fill(data: &Path, service: &Service, number: u32) {
    fill_queue(data, service, number).await;
    let store = open(data);
    let run_root = fs::read_to_string(data.join("run/id")).expect("a run root");
    let run_root = RunRootId(run_root.trim().parse().expect("an id"));
    let boot = BootId(fresh());
    store
        .open_boot(&NewBoot {
            id: boot,
            run_root,
            at: AT,
            pid: 1,
            host_boot: fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .expect("a boot id")
                .trim()
                .to_owned(),
            version: "bench".into(),
        })
        .await
        .expect("a boot");
    let running = number / 2;
    let mut claimed = 0;
    while claimed < running {
        let attempts = (0..500.min(running - claimed))
            .map(|_| AttemptId(fresh()))
            .collect();
        let claim = ClaimDue {
            boot,
            run_root,
            at: AT,
            attempts,
            per_service: u32::MAX,
            solo: false,
        };
        claimed += u32::try_from(store.claim_due(claim).await.expect("claims").len()).expect("few");
    }
}

async fn join_all<T>(tasks: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut tasks: Vec<_> = tasks.map(|task| Some(Box::pin(task))).collect();
    let mut done: Vec<Option<T>> = tasks.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut waiting = false;
        for (task, done) in tasks.iter_mut().zip(&mut done) {
            let Some(running) = task else { continue };
            match running.as_mut().poll(context) {
                std::task::Poll::Ready(value) => {
                    *done = Some(value);
                    *task = None;
                }
                std::task::Poll::Pending => waiting = true,
            }
        }
        if waiting {
            std::task::Poll::Pending
        } else {
            std::task::Poll::Ready(())
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

fn fresh() -> Uuid {
    #[expect(clippy::disallowed_methods, reason = "a bench makes its own ids")]
    Uuid::now_v7()
}

fn order(service: &Service, nth: u32, at: Timestamp, store: &SqliteStore) -> Submission {
    let id = format!("instance-{nth}");
    let plan = &service.plans[0];
    Submission {
        job: JobId(fresh()),
        action: Action::Provision,
        platform: "platform".parse().expect("a platform"),
        instance: id.parse().expect("an id"),
        new_instance_uid: InstanceUid(fresh()),
        binding: None,
        service: service.id.clone(),
        plan: plan.id.clone(),
        bundle: service.bundle,
        digest: store.digest(id.as_bytes()),
        base: None,
        becomes: None,
        isolated: false,
        body: JobBody {
            action: Action::Provision,
            service: Named {
                id: service.id.clone(),
                name: service.name.clone(),
            },
            plan: PlanInput {
                id: plan.id.clone(),
                name: plan.name.clone(),
                values: Object::new(),
                maintenance_version: None,
            },
            instance: InstanceInput {
                id,
                parameters: Object::new(),
                context: Object::new(),
                organization_guid: None,
                space_guid: None,
            },
            binding: None,
            previous: None,
            identity: None,
        },
        retries: 0,
        at,
        deadline_at: at.plus(Duration::from_secs(10 * 365 * 86_400)),
        cascade: Vec::new(),
        cascade_without_jobs: true,
    }
}
