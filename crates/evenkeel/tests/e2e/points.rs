//! The broker, or a shim, killed before and after each durable step (`crates/run/src/faults.rs`
//! says how points are named and armed). After each the broker is started again, the operation
//! ends as it should, and the world is looked at (`world.rs`).
//!
//! What is promised, and asserted: whoever kills the *broker*, the action is started exactly once
//! and ends well, and no attempt is charged more than an exposure. Where a *shim* is killed the
//! attempt is free if its action was never let go, else a charged crash, and the action is started
//! again unless its exit record was written ([`Shim`]).
//!
//! Here: every point once. `kept.rs`: files and folders beside the store and the runs. `warden.rs`:
//! the warden, killed at its own steps. `full.rs`: a full disk at each write of the store. `long.rs`,
//! for `./scripts/prove points`: every point at every action, all pairs along the provision path and
//! with recovery, a sample of triples; `reach.rs` says which of them can be reached at all.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::root;
use crate::stage::ACTIONS;
pub(crate) use life::Life;

mod full;
mod kept;
mod life;
mod long;
mod reach;
mod rest;
mod warden;
mod world;

/// Where a broker dies on a job's way, in the order of that way.
const BROKER: [&str; 36] = [
    "store.submit.before",
    "store.submit.after",
    "store.claim_due.before",
    "store.claim_due.after",
    "engine.claimed",
    "engine.prepare",
    "engine.bundle",
    "engine.secrets",
    "engine.start",
    "run.folder.before",
    "run.folder.after",
    "run.lock.after",
    "run.room.before",
    "run.room.after",
    "run.spec.before",
    "run.spec.after",
    "run.spawn.before",
    "run.spawn.after",
    "run.handed_over.after",
    "engine.started",
    "store.started.before",
    "store.started.after",
    "engine.watch",
    "engine.ended",
    "engine.conclude",
    "store.finish_attempt.before",
    "store.finish_attempt.after",
    "engine.written",
    "run.conclude.before",
    "run.tombstone.before",
    "run.tombstone.after",
    "run.secrets_gone.after",
    "run.log_kept.after",
    "run.emptied.after",
    "run.conclude.after",
    "engine.concluded",
];

/// What the death of a shim at a point costs.
#[derive(Clone, Copy, Debug)]
struct Shim {
    point: &'static str,
    /// How often the action is started over all attempts.
    starts: (usize, usize),
    /// The charge of the attempt that was lost; none is lost once the record is written.
    charge: Option<&'static str>,
}

const fn shim(point: &'static str, starts: (usize, usize), charge: Option<&'static str>) -> Shim {
    Shim {
        point,
        starts,
        charge,
    }
}

/// Where a shim dies, in the order of its life.
const SHIM: [Shim; 14] = [
    // The action was never let go: free.
    shim("shim.taken_up.before", (1, 1), Some("disruption")),
    shim("shim.taken_up.after", (1, 1), Some("disruption")),
    shim("shim.beat.before", (1, 1), Some("disruption")),
    shim("shim.beat.after", (1, 1), Some("disruption")),
    shim("shim.contained.before", (1, 1), Some("disruption")),
    shim("shim.contained.after", (1, 1), Some("disruption")),
    shim("shim.started.before", (1, 1), Some("disruption")),
    // On record as started, and dead before it was: nobody can tell.
    shim("shim.started.after", (1, 1), Some("crash")),
    // It may have come to its first line.
    shim("shim.go.after", (1, 2), Some("crash")),
    shim("shim.ended.before", (2, 2), Some("crash")),
    shim("shim.ended.after", (2, 2), Some("crash")),
    shim("shim.exit.before", (2, 2), Some("crash")),
    shim("shim.exit.written", (1, 1), None),
    shim("shim.exit.after", (1, 1), None),
];

/// One kill of a broker or a shim at a point, once, while it works on an action.
fn kill(point: &str, action: &str) -> String {
    format!("{point}~^{action}=kill@1")
}

/// A life of an instance with a kill at a point of each action; `points` begins with that of
/// provision.
async fn killed_at(points: Vec<&'static str>) {
    let rules = points
        .iter()
        .zip(ACTIONS)
        .map(|(point, action)| kill(point, action));
    let mut life = Life::begin(rules.collect(), "").await;
    for (number, action) in ACTIONS.into_iter().enumerate() {
        life.does(action).await;
        let point = points.get(number).copied().unwrap_or_default();
        let shim = SHIM.iter().find(|shim| shim.point == point);
        let (least, most) = shim.map_or((1, 1), |shim| shim.starts);
        let starts = life.victim.starts(action);
        assert!(
            (least..=most).contains(&starts),
            "{action} was started {starts} times, killed at {point}"
        );
    }
    let end = life.end().await;
    end.all_succeeded();
    for (point, action) in points.iter().zip(ACTIONS) {
        let (all, own) = (end.charges(action), end.own_charges(action));
        let lost = SHIM
            .iter()
            .find(|shim| shim.point == *point)
            .and_then(|shim| shim.charge);
        match lost {
            Some("crash") => assert_eq!(own, ["crash", "none"], "{action} at {point}: {all:?}"),
            Some(free) => assert!(
                own == ["none"] && all.iter().any(|charge| charge == free),
                "{action} at {point}: {all:?}"
            ),
            None => assert_eq!(own, ["none"], "{action} at {point}: {all:?}"),
        }
    }
}

/// Every point of a job's way, five in a life; `turn` decides which action each is for.
fn singles(turn: usize) -> Vec<Vec<&'static str>> {
    let all: Vec<_> = BROKER
        .into_iter()
        .chain(SHIM.iter().map(|shim| shim.point))
        .collect();
    let mut lives: Vec<_> = all.chunks(ACTIONS.len()).map(<[_]>::to_vec).collect();
    for life in &mut lives {
        // The last life is short: what it lacks, others have.
        while life.len() < ACTIONS.len() {
            life.push(all[life.len()]);
        }
        life.rotate_left(turn % ACTIONS.len());
    }
    lives
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i1_i3_a_broker_or_shim_killed_once_at_each_step_of_a_job_changes_nothing_but_the_time() {
    life::side_by_side(singles(0).into_iter().map(killed_at)).await;
}

/// Names in the sources, as they are hit; a write of the store has two.
fn names_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names_in(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text: String = fs::read_to_string(&path)
                .unwrap()
                .split_whitespace()
                .collect();
            for (call, ends) in [
                ("hit(\"", [""].as_slice()),
                ("hit_about(\"", &[""]),
                ("hit_with(\"", &[""]),
                ("self.write(\"", &[".before", ".after"]),
            ] {
                for rest in text.split(call).skip(1) {
                    let name = rest.split('"').next().unwrap();
                    found.extend(ends.iter().map(|end| format!("{name}{end}")));
                }
            }
        }
    }
}

#[test]
fn every_point_in_the_sources_is_in_the_matrix() {
    let mut named = BTreeSet::new();
    for name in ["run", "executor", "store", "engine", "server", "evenkeel"] {
        let sources: PathBuf = root().join("crates").join(name).join("src");
        names_in(&sources, &mut named);
    }
    let matrix: BTreeSet<String> = BROKER
        .into_iter()
        .chain(SHIM.iter().map(|shim| shim.point))
        .chain(rest::POINTS)
        .chain(kept::points())
        .chain(warden::points())
        .map(str::to_owned)
        .collect();
    assert_eq!(named, matrix);
}
