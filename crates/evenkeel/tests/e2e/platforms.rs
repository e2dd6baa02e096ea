//! Three platforms as small state machines: Cloud Controller, the Kubernetes service catalog and
//! Korifi. Each drives random lives of service instances against a broker that is killed again and
//! again, with answers that it does not wait for, connections that break, requests that come
//! twice and requests that cross. Afterwards the platform, the broker and the world that the
//! actions left behind (a folder of the test's own) agree on every name; nothing is orphaned, no
//! job is unfinished, and no attempt was started twice.
//!
//! What happens follows from a seed, which is printed; when kills hit, and who wins a race, does
//! not. `EVENKEEL_LIVES` (60) says how many lives each platform gets, `EVENKEEL_SEED` where to
//! begin:
//!
//! ```sh
//! EVENKEEL_LIVES=500 cargo test -p evenkeel --features faults --test e2e platforms:: -- --nocapture
//! ```
//!
//! What no platform can be protected from is left out: a PUT that is still on its way when the
//! DELETE that cleans up after it has been answered. Real platforms wait for minutes before they
//! clean up, these for [`desk::ARRIVED`].

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::{Broker, Setup};

pub(crate) mod audit;
pub(crate) mod client;
pub(crate) mod cloud_controller;
pub(crate) mod desk;
pub(crate) mod dice;
pub(crate) mod korifi;
pub(crate) mod kubernetes;
pub(crate) mod life;
pub(crate) mod world;

use client::{Client, Dialect, Line};
use desk::{Change, Desk, Instance, Offer};
use dice::Dice;
use world::{OFFERINGS, PLANS, World};

/// Lives that go on at the same time.
const SIDE_BY_SIDE: usize = 10;
/// Before something is asked for once more.
const PAUSE: Duration = Duration::from_millis(40);

/// What a platform learned from an update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Updated {
    Done,
    /// The action failed, and nothing has changed.
    Failed,
    /// Refused, or without an answer: it is asked for again.
    Unknown,
}

/// A platform: what it sends, and how it takes each answer. Deletes are the same for all of them
/// ([`Desk::delete`]): asked for until it is gone, by users or by controllers.
pub(crate) trait Platform: Send + Sync + 'static {
    const NAME: &'static str;
    const DELETED_AS: &'static str;
    const DIALECT: Dialect;

    /// Makes an instance. `false`: the platform (or its user) wants it deleted.
    fn create(desk: &mut Desk, instance: &Instance) -> impl Future<Output = bool> + Send;

    /// The body of an update, as far as this platform sends what changes.
    fn patch(instance: &Instance, change: &Change) -> Value;

    /// Makes a binding and gives its credentials; `None` if there is none, and nothing left of it.
    fn bind(
        desk: &mut Desk,
        instance: &Instance,
        binding: &str,
    ) -> impl Future<Output = Option<Value>> + Send;

    /// What the platform does with an instance that is ready, by itself.
    fn look_again(desk: &mut Desk, instance: &Instance) -> impl Future<Output = ()> + Send {
        let _ = (desk, instance);
        std::future::ready(())
    }
}

/// A number from the environment.
pub(crate) fn given(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// How a run is repeated.
fn seed() -> u64 {
    given("EVENKEEL_SEED").unwrap_or(2_026_113_001)
}

pub(crate) async fn offers(broker: &Broker) -> Vec<Arc<Offer>> {
    let mut offers = Vec::new();
    for (name, ..) in OFFERINGS {
        let mut plans = BTreeMap::new();
        let mut id = String::new();
        for plan in PLANS {
            let (service, plan_id) = broker.ids(name, plan).await;
            id = service;
            plans.insert(plan.to_owned(), plan_id);
        }
        offers.push(Arc::new(Offer { id, plans }));
    }
    offers
}

/// All lives of one platform with one broker; gives a line of figures.
async fn lives<P: Platform>(seed: u64) -> String {
    let number = given("EVENKEEL_LIVES").unwrap_or(60);
    let world = Arc::new(World::new());
    let toml = format!(
        "[osb]\nlisten = \"127.0.0.1:0\"\nsync_limit = \"2s\"\ndeleted_as = {:?}\n\
         [shutdown]\non_shutdown = \"detach\"\n",
        P::DELETED_AS
    );
    let setup = Setup {
        bundles: world.bundles(),
        ..Setup::default()
    };
    let mut broker = Broker::start(setup.with_toml(&toml)).await;
    let line = Line::default();
    let mut dice = Dice::new(seed);
    let desk = Desk {
        client: Client::new(line.clone(), P::DIALECT),
        world: Arc::clone(&world),
        offers: Arc::new(offers(&broker).await),
        names: Default::default(),
        dice: dice.fork(),
        seed,
        calm: true,
    };
    line.up(broker.url("osb-url"), broker.password());

    let since = Clock::now();
    let room = Arc::new(Semaphore::new(SIDE_BY_SIDE));
    let mut tasks = JoinSet::new();
    for nth in 0..number {
        let (room, mut desk) = (Arc::clone(&room), desk.clone());
        desk.seed = seed + nth;
        desk.dice = Dice::new(desk.seed);
        tasks.spawn(async move {
            let _place = room.acquire_owned().await.unwrap();
            life::live::<P>(desk).await
        });
    }
    let mut kept = Vec::new();
    let mut kills = 0;
    while !tasks.is_empty() {
        let next_kill = tokio::time::sleep(Duration::from_millis(500 + dice.below(2500)));
        tokio::pin!(next_kill);
        loop {
            tokio::select! {
                ended = tasks.join_next() => match ended {
                    None => break,
                    Some(Ok(life)) => kept.extend(life),
                    Some(Err(panic)) => {
                        keep_log(&broker, seed);
                        std::panic::resume_unwind(panic.into_panic());
                    }
                },
                () = &mut next_kill => {
                    strike(&mut broker, &line, &mut dice).await;
                    kills += 1;
                    break;
                }
            }
        }
    }
    let lasted = since.elapsed();
    let tally = desk.client.tally();
    let log = keep_log(&broker, seed);
    let figures = audit::audit(&broker, desk, &kept).await;
    std::fs::remove_file(log).unwrap();
    // What is not met proves nothing.
    if number >= 60 {
        for met in [
            "PUT TimedOut",
            "PUT 202",
            "PATCH 200",
            "PATCH 202",
            "DELETE 202",
            "DELETE 410",
        ] {
            assert!(tally.contains_key(met), "{met} was not met: {tally:?}");
        }
        assert!(
            kills > 0 && figures.states.contains_key("cancelled"),
            "{figures:?}"
        );
    }
    format!(
        "{}: {number} lives from seed {seed} in {lasted:.1?} with {kills} broker deaths: {figures}; {tally:?}",
        P::NAME
    )
}

/// The log of a broker whose test fails outlives its folder.
fn keep_log(broker: &Broker, seed: u64) -> std::path::PathBuf {
    let name = broker.dir.path().file_name().unwrap().display();
    let kept = std::env::temp_dir().join(format!("platforms-{seed}-{name}.log"));
    std::fs::write(&kept, broker.log()).unwrap();
    kept
}

/// The broker dies, mostly as in a power cut, and the next one starts. Platforms reach it as soon
/// as it listens, before it is ready.
async fn strike(broker: &mut Broker, line: &Line, dice: &mut Dice) {
    if dice.chance(20) {
        let status = broker.terminate();
        assert!(status.success(), "{status}: {}", broker.log());
    } else {
        broker.kill();
    }
    line.down();
    broker.spawn();
    broker.listening().await;
    line.up(broker.url("osb-url"), broker.password());
    broker.ready().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cloud_controller_and_broker_agree_whatever_dies_and_crosses() {
    let seed = seed();
    println!("cloud_controller: seed {seed}");
    println!("{}", lives::<cloud_controller::CloudController>(seed).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kubernetes_catalog_and_broker_agree_whatever_dies_and_crosses() {
    let seed = seed();
    println!("kubernetes: seed {seed}");
    println!("{}", lives::<kubernetes::Kubernetes>(seed).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn korifi_and_broker_agree_whatever_dies_and_crosses() {
    let seed = seed();
    println!("korifi: seed {seed}");
    println!("{}", lives::<korifi::Korifi>(seed).await);
}
