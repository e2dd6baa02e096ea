//! Which points are reached, one after the other, if a broker or a shim dies at each: what a death
//! leaves, and what is passed from there. This is the rule by which `long.rs` knows the pairs that
//! cannot both be reached.
//!
//! It is about a provision beside jobs that wait at their gates. What it leaves open (`Run::Either`)
//! it does not count.

use super::{BROKER, SHIM};

/// Points of a boot that comes after a death, as far as they have to do with the job that it left.
pub(super) const RECOVERY: [&str; 10] = [
    "recovery.deaths",
    "store.expose.before",
    "store.expose.after",
    "recovery.look",
    "recovery.action",
    "store.adopt.before",
    "store.adopt.after",
    "engine.exited",
    "store.close_boot.before",
    "store.close_boot.after",
];
/// Where the tree of a shim that died is ended.
pub(super) const SWEEP: [&str; 2] = ["run.sweep.before", "run.sweep.after"];

/// What there is of a run when the next broker comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Run {
    /// It has not begun, and never will.
    None,
    /// Its shim was killed before it could write how it ended.
    Lost,
    /// It goes on.
    Alive,
    /// It has ended, and its exit record says how.
    Ended,
    /// It goes on or has ended, as it happens.
    Either,
}

/// What there is of a run's folder when its attempt is over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Folder {
    Whole,
    /// It has its tombstone, which is written once.
    Buried,
    /// What said whose run it was is gone, so that no rule about a provision applies any more.
    Gone,
}

/// What a death leaves of the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// The order was not written.
    Nothing,
    /// It waits to be claimed.
    Queued,
    /// Its attempt is under way by the store. `named`: the black box of who died has it.
    Held { named: bool, run: Run },
    /// It is done.
    Final(Folder),
}

impl Left {
    /// What no later boot does about it.
    pub(super) const fn never(self) -> &'static str {
        match self {
            Self::Nothing => "nothing is on record: there is nothing to recover",
            Self::Queued => "it was not claimed: it is not ordered again, nor recovered",
            Self::Held {
                run: Run::None,
                named: false,
            } => "no run has begun, and nobody is named: none is exposed or taken over",
            Self::Held {
                run: Run::None | Run::Lost,
                ..
            } => "no run is left: none is taken over",
            Self::Held { .. } => {
                "its run is there: it is taken over, and neither started nor swept"
            }
            Self::Final(_) => "it is done: what is left of its folder is cleared, and no more",
        }
    }
}

/// Points at which somebody is still to be killed.
#[derive(Clone, Debug)]
struct Armed(Vec<&'static str>);

impl Armed {
    /// The first of these points at which somebody is killed.
    fn meets(&mut self, path: &[&'static str]) -> Option<&'static str> {
        let point = path.iter().find(|point| self.0.contains(point))?;
        let at = self.0.iter().position(|armed| armed == point)?;
        Some(self.0.remove(at))
    }
}

/// A part of the broker's way, both ends included.
fn way(from: &str, to: &str) -> &'static [&'static str] {
    let at = |name| BROKER.iter().position(|point| *point == name).unwrap();
    static WAY: [&str; BROKER.len()] = BROKER;
    &WAY[at(from)..=at(to)]
}

/// How many of the points are reached. `later` are those that are armed from the first death on;
/// `run`: what becomes of a run that the death of a broker leaves alive.
pub(super) fn reached(points: &[&'static str], later: &[&'static str], run: Run) -> usize {
    let mut armed = Armed(points.to_vec());
    let mut left = Left::Nothing;
    let mut more = later;
    while let Some(next) = life(left, &mut armed, run) {
        left = next;
        armed.0.extend(std::mem::take(&mut more));
    }
    // Without a death of a broker nothing was armed later.
    let missed = armed.0.len() + more.len();
    points.len() + later.len() - missed
}

/// What is left by the death of a broker at this point, the first one.
pub(super) fn left_at(point: &'static str, run: Run) -> Option<Left> {
    life(Left::Nothing, &mut Armed(vec![point]), run)
}

/// One life of a broker, from what the last one left to the first point that it dies at; none if it
/// dies no more.
fn life(left: Left, armed: &mut Armed, run: Run) -> Option<Left> {
    if armed.meets(&["recovery.deaths"]).is_some() {
        return Some(left);
    }
    let recovered = match left {
        Left::Held { named, run } => recover(named, run, armed),
        Left::Nothing | Left::Queued | Left::Final(_) => Ok(left),
    };
    let at = match recovered {
        Ok(at) => at,
        Err(died) => return Some(died),
    };
    if armed
        .meets(&["store.close_boot.before", "store.close_boot.after"])
        .is_some()
    {
        return Some(at);
    }
    match at {
        Left::Nothing => match armed.meets(way("store.submit.before", "store.submit.after")) {
            Some("store.submit.before") => Some(Left::Nothing),
            Some(_) => Some(Left::Queued),
            None => attempts(armed, run),
        },
        Left::Queued => attempts(armed, run),
        Left::Held { run, .. } => {
            // Taken over.
            let point = match run {
                Run::Alive => armed.meets(&["engine.watch", "engine.ended"]),
                Run::Ended => armed.meets(&["engine.exited"]),
                Run::None | Run::Lost | Run::Either => None,
            };
            let run = match point {
                Some("engine.watch") => Run::Alive,
                _ => Run::Ended,
            };
            match point {
                Some(_) => Some(Left::Held { named: true, run }),
                None => end(armed, false),
            }
        }
        Left::Final(folder) => clear(folder, armed),
    }
}

/// What recovery makes of a job whose owner has died; the error is what its own death leaves.
fn recover(named: bool, run: Run, armed: &mut Armed) -> Result<Left, Left> {
    // Until the death is written it is still to be counted.
    if named && let Some(point) = armed.meets(&["store.expose.before", "store.expose.after"]) {
        let named = point == "store.expose.before";
        return Err(Left::Held { named, run });
    }
    let held = Left::Held { named: true, run };
    if armed.meets(&["recovery.look", "recovery.action"]).is_some() {
        return Err(held);
    }
    match run {
        Run::None | Run::Lost => {
            if armed.meets(&["store.finish_attempt.before"]).is_some() {
                return Err(held);
            }
            let rest: &[_] = match run {
                // There may be no folder, or none that says whose it is.
                Run::None => way("store.finish_attempt.after", "engine.written"),
                Run::Lost | Run::Alive | Run::Ended | Run::Either => {
                    way("store.finish_attempt.after", "run.conclude.after")
                }
            };
            match armed.meets(rest) {
                Some(_) => Err(Left::Queued),
                None => Ok(Left::Queued),
            }
        }
        Run::Alive | Run::Ended | Run::Either => {
            match armed.meets(&["store.adopt.before", "store.adopt.after"]) {
                Some(_) => Err(held),
                None => Ok(held),
            }
        }
    }
}

/// Attempts, until one ends well.
fn attempts(armed: &mut Armed, run: Run) -> Option<Left> {
    loop {
        if let Some(point) = armed.meets(way("store.claim_due.before", "run.spawn.before")) {
            return Some(match point {
                "store.claim_due.before" => Left::Queued,
                // By the claimer, for whoever it claims.
                "store.claim_due.after" | "engine.claimed" => Left::Held {
                    named: false,
                    run: Run::None,
                },
                _ => Left::Held {
                    named: true,
                    run: Run::None,
                },
            });
        }
        // From here on there are two processes, and either dies without the other.
        let shim = SHIM
            .iter()
            .find(|shim| armed.meets(&[shim.point]).is_some());
        let lost = shim.is_some_and(|shim| shim.charge.is_some());
        if armed
            .meets(way("run.spawn.after", "engine.watch"))
            .is_some()
        {
            let run = if lost { Run::Lost } else { run };
            return Some(Left::Held { named: true, run });
        }
        let run = if lost { Run::Lost } else { Run::Ended };
        let action_ran = shim.is_some_and(|shim| shim.point == "shim.go.after");
        let swept: &[_] = if action_ran { &SWEEP } else { &[] };
        if armed.meets(swept).is_some() || armed.meets(&["engine.ended"]).is_some() {
            return Some(Left::Held { named: true, run });
        }
        match end(armed, lost) {
            None if lost => {}
            died => return died,
        }
    }
}

/// The end of an attempt is written, and its folder cleared.
fn end(armed: &mut Armed, lost: bool) -> Option<Left> {
    let run = if lost { Run::Lost } else { Run::Ended };
    if armed
        .meets(way("engine.conclude", "store.finish_attempt.before"))
        .is_some()
    {
        return Some(Left::Held { named: true, run });
    }
    let point = armed.meets(way("store.finish_attempt.after", "engine.concluded"))?;
    Some(if lost {
        Left::Queued
    } else {
        Left::Final(folder_at(point))
    })
}

fn folder_at(point: &str) -> Folder {
    let before = |last| way("store.finish_attempt.after", last).contains(&point);
    if before("run.tombstone.before") {
        Folder::Whole
    } else if before("run.log_kept.after") {
        Folder::Buried
    } else {
        Folder::Gone
    }
}

/// What no job claims is cleared by housekeeping.
fn clear(folder: Folder, armed: &mut Armed) -> Option<Left> {
    let way = way("run.conclude.before", "run.conclude.after").iter();
    let passed: Vec<_> = match folder {
        Folder::Whole => way.copied().collect(),
        Folder::Buried => way
            .copied()
            .filter(|point| *point != "run.tombstone.after")
            .collect(),
        Folder::Gone => Vec::new(),
    };
    let point = armed.meets(&passed)?;
    Some(Left::Final(folder.max(folder_at(point))))
}

#[test]
fn a_death_at_each_step_leaves_this() {
    let left = |point| left_at(point, Run::Either).unwrap();
    let held = |named, run| Left::Held { named, run };
    for (from, to, what) in [
        ("store.submit.before", "store.submit.before", Left::Nothing),
        ("store.submit.after", "store.claim_due.before", Left::Queued),
        (
            "store.claim_due.after",
            "engine.claimed",
            held(false, Run::None),
        ),
        ("engine.prepare", "run.spawn.before", held(true, Run::None)),
        ("run.spawn.after", "engine.watch", held(true, Run::Either)),
        (
            "engine.ended",
            "store.finish_attempt.before",
            held(true, Run::Ended),
        ),
        (
            "store.finish_attempt.after",
            "run.tombstone.before",
            Left::Final(Folder::Whole),
        ),
        (
            "run.tombstone.after",
            "run.log_kept.after",
            Left::Final(Folder::Buried),
        ),
        (
            "run.emptied.after",
            "engine.concluded",
            Left::Final(Folder::Gone),
        ),
    ] {
        for point in way(from, to) {
            assert_eq!(left(point), what, "{point}");
        }
    }
    assert!(
        SHIM.iter()
            .all(|shim| left_at(shim.point, Run::Either).is_none())
    );
}
