//! What kinds of bad jobs there are, what becomes of each, and what it may cost.
//!
//! Most are bad by what their run does. Some kill the broker that works on them, in a step of its
//! own: each of these has an offering to itself, by whose id a fault point knows it.

use serde_json::Value;

/// How a kind may end, and what it may cost.
#[derive(Debug)]
pub(super) struct Kind {
    /// The name of its plan.
    pub(super) name: &'static str,
    /// States of the job.
    pub(super) ends: &'static [&'static str],
    /// Starts of one job, but for one more where a run of it was hit by us.
    pub(super) most_starts: usize,
    /// Brokers that its jobs for one target may kill in isolation (I7), after [`EXPOSURES`] and those
    /// beside which another run was lost.
    pub(super) most_losses: usize,
    /// Points at which its broker dies, and how.
    steps: &'static [(&'static str, &'static str)],
}

const CRASH_LIMIT: usize = 3;
const LOSS_LIMIT: usize = 3;
/// Two exposures make a suspect.
pub(super) const EXPOSURES: usize = 2;
/// An end without evidence of its own may be charged to any of the three accounts.
const UNPROVEN: usize = EXPOSURES + CRASH_LIMIT + LOSS_LIMIT;
/// More, where writing the end kills: then its row is set aside.
const ENDINGS: usize = 2;
pub(super) const RETRIES: usize = 3;

/// The offering of those that are bad by what their run does.
const BAD_RUNS: &str = "poisons";

/// A kind that is bad by what its run does, and kills no broker.
const fn run(name: &'static str, ends: &'static [&'static str], most_starts: usize) -> Kind {
    Kind {
        name,
        ends,
        most_starts,
        most_losses: 0,
        steps: &[],
    }
}

/// Whoever crashes with evidence is set aside after three starts, and whoever has an outcome gets it
/// at once.
pub(super) const KINDS: [Kind; 10] = [
    run("segv", &["quarantined"], CRASH_LIMIT),
    run("later", &["failed"], RETRIES + 1),
    run("abort", &["quarantined"], CRASH_LIMIT),
    run("hang", &["failed"], 1),
    run("flood", &["succeeded"], 1),
    run("kill-self", &["quarantined"], UNPROVEN),
    run("unreadable", &["failed"], 1),
    run("kill-shim", &["quarantined"], UNPROVEN),
    // Where the kernel's limit strikes the action sees it, where the shim's does it does not.
    run("memory", &["failed", "quarantined"], CRASH_LIMIT),
    run("forks", &["failed"], 1),
];

/// Those that kill brokers, who takes longest first. Each way to die is another one.
pub(super) const KILLERS: [Kind; 5] = [
    Kind {
        name: "kills-its-broker",
        ends: &["quarantined"],
        most_starts: UNPROVEN,
        most_losses: LOSS_LIMIT,
        steps: &[],
    },
    Kind {
        name: "dies-prepared",
        ends: &["quarantined"],
        most_starts: 0,
        most_losses: LOSS_LIMIT,
        steps: &[("engine.prepare", "abort")],
    },
    Kind {
        name: "dies-watched",
        ends: &["quarantined"],
        most_starts: 1,
        most_losses: LOSS_LIMIT,
        steps: &[("engine.watch", "segv")],
    },
    // The first to die is the one that has started it, unless one died of something else before.
    Kind {
        name: "dies-looked-at",
        ends: &["quarantined"],
        most_starts: 1,
        most_losses: LOSS_LIMIT,
        steps: &[("engine.started", "kill"), ("recovery.look", "kill")],
    },
    Kind {
        name: "dies-concluded",
        ends: &["quarantined"],
        most_starts: 1,
        most_losses: LOSS_LIMIT + ENDINGS,
        steps: &[("engine.conclude", "overflow")],
    },
];

pub(super) fn all() -> impl Iterator<Item = &'static Kind> {
    KILLERS.iter().chain(&KINDS)
}

pub(super) fn named(name: &str) -> &'static Kind {
    all().find(|kind| kind.name == name).unwrap()
}

impl Kind {
    /// Name and id of its offering.
    pub(super) fn service(&self) -> &'static str {
        if self.dies_in_a_step() {
            self.name
        } else {
            BAD_RUNS
        }
    }

    /// Whether its broker dies in a step of its own, and not of what its run does.
    pub(super) fn dies_in_a_step(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Whether it is ever started: whoever is never prepared is not.
    pub(super) fn starts(&self) -> bool {
        self.most_starts > 0
    }

    /// Whether looking for its run kills, also where there is none: a broker that died of something
    /// else before it had started it is enough to begin with.
    pub(super) fn dies_when_looked_at(&self) -> bool {
        self.steps
            .iter()
            .any(|(point, _)| *point == "recovery.look")
    }
}

/// Names and ids of the offerings, each once.
pub(super) fn services() -> impl Iterator<Item = &'static str> {
    let steps = all().filter(|kind| kind.dies_in_a_step());
    std::iter::once(BAD_RUNS).chain(steps.map(Kind::service))
}

/// The rules by which brokers die in steps for these jobs, and for no other.
pub(super) fn faults() -> String {
    let rules = all().flat_map(|kind| {
        kind.steps.iter().map(|(point, what)| {
            let service = kind.service();
            format!("{point}~^provision {service} ={what}")
        })
    });
    rules.collect::<Vec<_>>().join(";")
}

/// Whether a job is one of the bad ones; what gives their instances back is not.
pub(super) fn is_poison(job: &Value) -> bool {
    job["action"] == "provision" && services().any(|service| job["service"] == service)
}
