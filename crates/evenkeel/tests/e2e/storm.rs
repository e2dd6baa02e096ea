//! The kill storm: three simulated platforms order, poisons of every kind go among them, and
//! whatever can be killed is killed at random: the broker, its warden, shims, actions, with orderly
//! restarts in between. At the end nothing is lost or doubled, no innocent is condemned or has failed
//! without being told to, nothing is left over, each death of a broker has its cause and is on
//! record, the store is whole, and no connection was refused while a warden lived.
//!
//! What is ordered and struck follows from a seed, which is printed; when a strike hits does not.
//! The suite storms for seconds, `scripts/prove storm` for half an hour:
//!
//! ```sh
//! EVENKEEL_STORM_MINUTES=30 EVENKEEL_STORM_SEED=7 \
//!     cargo test -p evenkeel --features faults --test e2e storm:: -- --nocapture
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::{Broker, Setup};
use crate::platforms::client::{Client, Line};
use crate::platforms::cloud_controller::CloudController;
use crate::platforms::desk::{Desk, Instance};
use crate::platforms::dice::Dice;
use crate::platforms::korifi::Korifi;
use crate::platforms::kubernetes::Kubernetes;
use crate::platforms::world::World;
use crate::platforms::{self, Platform, life};

mod audit;
mod deaths;
mod kinds;
mod poisons;
mod shims;
mod strikes;

use poisons::Poisoned;
use shims::Hits;
use strikes::Struck;

/// The storm of the suite.
const SHORT: Duration = Duration::from_secs(12);
/// Lives of each platform at once, and poisons.
const SIDE_BY_SIDE: usize = 3;
const POISONS_AT_ONCE: usize = 3;
/// Suspects run alone and dead brokers answer nobody: what is ordered in a storm takes longer.
const PATIENCE: Duration = Duration::from_secs(240);

/// Quick retries and restarts; `sweep`, so that actions can reach their shim and their broker; and
/// no hold, for which this many deaths in a row would be reason enough.
const TOML: &str = "[osb]\nlisten = \"127.0.0.1:0\"\nsync_limit = \"20s\"\n\
     [jobs]\nconcurrency = 16\nper_service = 12\n\
     [process]\ncontainment = \"sweep\"\ngrace = \"500ms\"\n\
     [recovery]\nbackoff_min = \"20ms\"\nbackoff_max = \"200ms\"\nhold_after = 100000\n\
     [serve]\nrestart_pause = \"20ms\"\n\
     [shutdown]\non_shutdown = \"detach\"\n";

/// What everybody in the storm shares.
#[derive(Debug)]
struct Storm {
    seed: u64,
    world: Arc<World>,
    line: Line,
    /// Over: nothing new is begun.
    over: AtomicBool,
    hits: Hits,
}

impl Storm {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn client<P: Platform>(&self) -> Client {
        let mut client = Client::new(self.line.clone(), P::DIALECT);
        client.patience = PATIENCE;
        // A request that nobody waits for stands in the listen queue until there is a broker
        // again; it must not come after the DELETE of a platform that cleans up.
        client.hasty = 0;
        client
    }
}

/// All that was seen, for people.
struct Figures {
    seed: u64,
    struck: Struck,
    shims: usize,
    actions: usize,
    by_poison: usize,
    connections: u64,
    jobs: BTreeMap<String, usize>,
    attempts: u64,
    poisons: BTreeMap<String, usize>,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let struck = &self.struck;
        let jobs: usize = self.jobs.values().sum();
        write!(
            f,
            "storm: seed {} in {:.1?}: {} broker deaths ({} by kill, {} with their warden, {} by poison), \
             {} hand-overs from a dead warden, {} orderly restarts, {} brokers killed before they were on \
             record, {} strikes spared, {} shims and {} actions killed; {jobs} jobs {:?}, {} retries; \
             poisons {:?}; 0 of {} connections refused; to the next answer {}",
            self.seed,
            struck.lasted,
            struck.brokers + struck.both + self.by_poison,
            struck.brokers,
            struck.both,
            self.by_poison,
            struck.handed_over,
            struck.restarts,
            struck.early,
            struck.spared,
            self.shims,
            self.actions,
            self.jobs,
            self.attempts.saturating_sub(jobs as u64),
            self.poisons,
            self.connections,
            struck.gaps(),
        )
    }
}

fn desk<P: Platform>(storm: &Storm, names: &Desk, dice: Dice) -> Desk {
    Desk {
        client: storm.client::<P>(),
        dice,
        ..names.clone()
    }
}

/// One life after the other until it is over; gives what its platform keeps.
async fn lives<P: Platform>(storm: Arc<Storm>, mut desk: Desk) -> Vec<Instance> {
    let room = Arc::new(Semaphore::new(SIDE_BY_SIDE));
    let mut lives = JoinSet::new();
    let mut kept = Vec::new();
    while !storm.is_over() {
        let place = Arc::clone(&room).acquire_owned().await.unwrap();
        let life = desk.fork();
        let life = Desk { calm: true, ..life };
        lives.spawn(async move {
            let _place = place;
            life::live::<P>(life).await
        });
        while let Some(ended) = lives.try_join_next() {
            kept.extend(ended.unwrap());
        }
    }
    while let Some(ended) = lives.join_next().await {
        kept.extend(ended.unwrap());
    }
    kept
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_kill_storm_nothing_is_lost_nothing_doubled_and_no_innocent_condemned() {
    let lasts = platforms::given("EVENKEEL_STORM_MINUTES")
        .map_or(SHORT, |minutes| Duration::from_secs(60 * minutes));
    let seed = platforms::given("EVENKEEL_STORM_SEED").unwrap_or(2_026_113_004);
    println!("storm: seed {seed}");
    let world = Arc::new(World::new());
    let mut broker = Broker::new(Setup::default().with_toml(TOML).with_warden());
    let stage = broker.dir.path().join("poisons");
    broker.setup.bundles = world.bundles();
    broker.setup.bundles.extend(poisons::write(&stage));
    broker.setup.faults = kinds::faults();
    broker.boot().await;
    poisons::tell_warden(&stage, broker.pid());

    let storm = Arc::new(Storm {
        seed,
        world: Arc::clone(&world),
        line: Line::default(),
        over: AtomicBool::new(false),
        hits: Hits::default(),
    });
    storm.line.up(broker.url("osb-url"), broker.password());
    let mut dice = Dice::new(seed);
    let names = Desk {
        client: storm.client::<CloudController>(),
        world,
        offers: Arc::new(platforms::offers(&broker).await),
        names: Default::default(),
        dice: dice.fork(),
        seed,
        calm: true,
    };
    let mut platforms = JoinSet::new();
    let cloud = desk::<CloudController>(&storm, &names, dice.fork());
    platforms.spawn(lives::<CloudController>(Arc::clone(&storm), cloud));
    let catalog = desk::<Kubernetes>(&storm, &names, dice.fork());
    platforms.spawn(lives::<Kubernetes>(Arc::clone(&storm), catalog));
    let korifi = desk::<Korifi>(&storm, &names, dice.fork());
    platforms.spawn(lives::<Korifi>(Arc::clone(&storm), korifi));
    let offers = poisons::offers(&broker).await;
    let mut bad = JoinSet::new();
    let bad_runs = desk::<CloudController>(&storm, &names, dice.fork());
    bad.spawn(poisons::feed(
        Arc::clone(&storm),
        bad_runs,
        Arc::clone(&offers),
    ));
    let killers = desk::<CloudController>(&storm, &names, dice.fork());
    bad.spawn(poisons::feed_killers(Arc::clone(&storm), killers, offers));
    let mut beside = JoinSet::new();
    let (hitter, hit_dice, data) = (Arc::clone(&storm), dice.fork(), broker.data());
    beside.spawn(async move { shims::strike(&hitter, hit_dice, &data).await });

    let began = Instant::now();
    let mut struck = strikes::strike(&storm, &mut broker, &stage, dice.fork(), lasts).await;
    storm.over.store(true, Ordering::SeqCst);
    println!(
        "storm: over after {:.1?}; what is under way comes to its end",
        began.elapsed()
    );
    let mut kept = Vec::new();
    while let Some(ended) = platforms.join_next().await {
        kept.extend(ended.unwrap_or_else(|panic| fail(&broker, seed, panic)));
    }
    let mut poisoned: Vec<Poisoned> = Vec::new();
    while let Some(ended) = bad.join_next().await {
        poisoned.extend(ended.unwrap_or_else(|panic| fail(&broker, seed, panic)));
    }
    beside.shutdown().await;
    struck.lasted = began.elapsed();
    let log = strikes::keep_log(&broker, seed);
    audit::audit(&storm, &mut broker, names, &kept, &poisoned, struck).await;
    std::fs::remove_file(log).unwrap();
}

/// The log of a storm that fails outlives its folder.
fn fail<T>(broker: &Broker, seed: u64, panic: tokio::task::JoinError) -> T {
    strikes::keep_log(broker, seed);
    std::panic::resume_unwind(panic.into_panic());
}
