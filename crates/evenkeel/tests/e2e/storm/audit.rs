//! When the storm is over: who was accepted came to the end that it had to come to, and nothing
//! else is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde_json::Value;

use super::poisons::Poisoned;
use super::strikes::Struck;
use super::{Figures, Storm, deaths, kinds};
use crate::harness::{Broker, eventually};
use crate::platforms::audit as platforms;
use crate::platforms::desk::{Desk, Instance};

#[expect(clippy::print_stdout, reason = "the figures of the proof")]
pub(super) async fn audit(
    storm: &Storm,
    broker: &mut Broker,
    mut desk: Desk,
    kept: &[Instance],
    poisoned: &[Poisoned],
    struck: Struck,
) {
    platforms::jobs_are_final(broker).await;
    broker.nothing_left().await;
    // By then the verdict is given on every boot but the one that lives.
    nothing_is_left_over(broker, kept).await;
    let jobs = platforms::jobs(broker).await;
    let stage = broker.dir.path().join("poisons");
    let kills = marks(&stage, "kills");
    let causes = || deaths::each_has_its_cause(broker, &struck, &jobs, poisoned, &kills);
    let by_poison = catch_unwind(AssertUnwindSafe(causes));
    let (shims, actions) = storm.hits.count();
    let mut figures = Figures {
        seed: storm.seed,
        shims,
        actions,
        by_poison: by_poison.as_ref().copied().unwrap_or_default(),
        connections: struck.connections,
        struck,
        jobs: BTreeMap::new(),
        attempts: 0,
        poisons: BTreeMap::new(),
    };
    for poison in poisoned {
        *figures.poisons.entry(poison.kind.to_owned()).or_default() += 1;
    }
    for job in jobs.values() {
        figures.attempts += job["attempts"].as_u64().unwrap();
        let state = job["state"].as_str().unwrap().to_owned();
        *figures.jobs.entry(state).or_default() += 1;
    }
    println!("{figures}");
    // Half an hour has more to tell than the first thing that is wrong.
    let questions: [&dyn Fn(); 6] = [
        &|| assert!(by_poison.is_ok(), "deaths without a cause, or too many"),
        &|| poisons_got_their_due(storm, &stage, &jobs, poisoned),
        &|| no_innocent_was_condemned_or_failed(storm, &jobs),
        &|| platforms::cancels_were_asked_for(&jobs),
        &|| storm.world.unbinds_came_first(),
        &|| nothing_was_doubled(storm, &stage, &jobs),
    ];
    let wrong = questions.map(|asked| catch_unwind(AssertUnwindSafe(asked)).is_err());
    assert_eq!(wrong, [false; 6], "which of them, by its place");
    platforms::what_is_known_exists(&mut desk, kept).await;
    let mut seen = Default::default();
    platforms::nothing_else_exists(broker, &mut desk, kept, &mut seen).await;
    the_store_is_whole(broker);
    // What was not met proves nothing.
    let met = [
        figures.struck.brokers,
        figures.by_poison,
        shims + actions,
        figures.jobs.get("succeeded").copied().unwrap_or(0),
    ];
    assert!(met.iter().all(|count| *count > 0), "{figures}");
    assert_eq!(figures.poisons.len(), kinds::all().count(), "{figures}");
}

fn marks(stage: &Path, name: &str) -> Vec<String> {
    let text = fs::read_to_string(stage.join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The job of each line of a poison's marks.
fn job_of(line: &str) -> &str {
    line.split(' ').next().unwrap()
}

/// Each accepted poison has the end of its kind, and was started no more often than it may be; nor
/// less often, unless it can be condemned without a start. Some of its kind were started even so.
fn poisons_got_their_due(
    storm: &Storm,
    stage: &Path,
    jobs: &BTreeMap<String, Value>,
    poisoned: &[Poisoned],
) {
    let starts = marks(stage, "starts");
    let mut of_kind = BTreeMap::<_, usize>::new();
    for poison in poisoned {
        let kind = kinds::named(poison.kind);
        let of_target = |job: &&Value| kinds::is_poison(job) && job["instance"] == poison.instance;
        let of_target: Vec<_> = jobs.values().filter(of_target).collect();
        assert!(!of_target.is_empty(), "lost: {poison:?}");
        let mut started = 0;
        for job in of_target {
            let state = job["state"].as_str().unwrap();
            assert!(kind.ends.contains(&state), "{poison:?}: {job:#}");
            let id = job["id"].as_str().unwrap();
            let of_job = starts.iter().filter(|line| job_of(line) == id).count();
            assert!(
                of_job <= kind.most_starts + storm.hits.of(id),
                "{of_job} starts of {poison:?}: {job:#}"
            );
            started += of_job;
        }
        let has_to = kind.starts() && !kind.dies_when_looked_at();
        assert!(started > 0 || !has_to, "never started: {poison:?}");
        *of_kind.entry(poison.kind).or_default() += started;
    }
    for (name, started) in of_kind {
        let may = kinds::named(name).starts();
        assert_eq!(started > 0, may, "{started} starts of all of {name}");
    }
}

/// Whoever is set aside is poison, or has crashed by itself: each target was hit by us once. And a
/// run that is killed is tried again: whoever has failed was to.
fn no_innocent_was_condemned_or_failed(storm: &Storm, jobs: &BTreeMap<String, Value>) {
    let innocents = || jobs.values().filter(|job| !kinds::is_poison(job));
    for job in innocents() {
        assert_ne!(job["state"], "quarantined", "condemned: {job:#}");
    }
    storm.world.failures_were_decreed(innocents());
}

/// Nobody met another run of the same job, no attempt was started twice, and no second one was but
/// where the first had asked for it or was killed by us.
fn nothing_was_doubled(storm: &Storm, stage: &Path, jobs: &BTreeMap<String, Value>) {
    let mut starts = storm.world.starts(|job| storm.hits.of(job));
    assert_eq!(marks(stage, "doubles"), Vec::<String>::new());
    let mut seen = BTreeSet::new();
    for line in marks(stage, "starts") {
        assert!(seen.insert(line.clone()), "started twice: {line}");
        let job = job_of(&line);
        let times = starts.entry(job.to_owned()).or_default();
        *times += 1;
        // How often a poison may be started goes by its kind.
        assert!(
            kinds::is_poison(&jobs[job]) || *times <= 1 + storm.hits.of(job),
            "{times} starts: {:#}",
            jobs[job]
        );
    }
    for (job, count) in starts {
        let known = jobs
            .get(&job)
            .unwrap_or_else(|| panic!("a run of no job: {job}"));
        let attempts = known["attempts"].as_u64().unwrap();
        assert!(count as u64 <= attempts, "{count} starts: {known:#}");
    }
    let succeeded = jobs.values().filter(|job| job["state"] == "succeeded");
    for job in succeeded {
        assert_ne!(job["attempts"], 0, "never ran: {job:#}");
    }
}

/// No run's folder, no state of an instance that is gone, no file of a boot that is over.
async fn nothing_is_left_over(broker: &Broker, kept: &[Instance]) {
    let entries = |name: &str| {
        let folder = fs::read_dir(broker.data().join(name)).into_iter().flatten();
        folder
            .map(|entry| entry.unwrap().file_name())
            .collect::<Vec<_>>()
    };
    eventually("no run's folder is left", || {
        std::future::ready(entries("run/runs").is_empty().then_some(()))
    })
    .await;
    eventually("boots that are over have left no files", || {
        // A lock and a box of the one that lives.
        std::future::ready((entries("run/boots").len() == 2).then_some(()))
    })
    .await;
    // After the end is written, as the run's folder is.
    eventually("no state is left of an instance that is gone", || {
        std::future::ready((entries("state").len() <= kept.len()).then_some(()))
    })
    .await;
}

/// The broker is gone when its store is looked at.
fn the_store_is_whole(broker: &mut Broker) {
    let status = broker.terminate();
    assert!(status.success(), "{status}: {}", broker.log());
    let store = rusqlite::Connection::open(broker.data().join("evenkeel.db")).unwrap();
    let whole: String = store
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(whole, "ok");
    let dangling: i64 = store
        .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(dangling, 0);
}
