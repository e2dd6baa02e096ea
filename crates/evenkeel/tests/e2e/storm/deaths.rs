//! What the broker has on record of its own deaths, against what was done to it: whoever was killed
//! by us died, and whoever died was killed by us or by a poison.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use super::kinds;
use super::poisons::Poisoned;
use super::strikes::Struck;
use crate::harness::{Broker, PATIENCE};

/// A life of a broker, as its store keeps it.
#[derive(Debug)]
pub(super) struct Boot {
    id: String,
    pid: u32,
    /// From its start to its verdict, in milliseconds since 1970.
    from: i64,
    to: Option<i64>,
    verdict: Option<String>,
    /// Jobs in whose step it died, by its black box.
    named: Vec<String>,
}

/// The store, beside the broker that may be at work on it.
pub(super) fn store(broker: &Broker) -> Connection {
    let path = broker.data().join("evenkeel.db");
    let store = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    store.busy_timeout(PATIENCE).unwrap();
    store
}

/// Which boot is the newest on record.
pub(super) fn newest(broker: &Broker) -> i64 {
    let query = "SELECT coalesce(max(nth), 0) FROM boots";
    store(broker)
        .query_row(query, [], |row| row.get(0))
        .unwrap()
}

/// The boot of a broker that is dead, if it had put itself on record. Process ids are used again:
/// `from` was the newest boot before it was killed.
pub(super) fn on_record(broker: &Broker, pid: u32, from: i64) -> Option<String> {
    let query = "SELECT max(id) FROM boots WHERE pid = ?1 AND nth >= ?2";
    let found = store(broker).query_row(query, [i64::from(pid), from], |row| row.get(0));
    found.unwrap()
}

fn boots(broker: &Broker) -> Vec<Boot> {
    let store = store(broker);
    let query =
        "SELECT id, pid, started_at, closed_at, verdict, coalesce(culprits, '[]') FROM boots
                 ORDER BY nth";
    let mut rows = store.prepare(query).unwrap();
    let boots = rows.query_map([], |row| {
        Ok(Boot {
            id: row.get(0)?,
            pid: row.get(1)?,
            from: row.get(2)?,
            to: row.get(3)?,
            verdict: row.get(4)?,
            named: serde_json::from_str(&row.get::<_, String>(5)?).unwrap(),
        })
    });
    boots.unwrap().map(Result::unwrap).collect()
}

/// What boots cost jobs, and whether another run was lost beside each.
struct Costs {
    /// Deaths that were charged as losses: boot and job.
    losses: BTreeSet<(String, String)>,
    /// Runs that were lost: job, claim, end.
    lost: Vec<(String, i64, i64)>,
    /// Boots of which the log says that they died in an exclusive step, while other runs may have
    /// vanished with them. A broker that is killed takes its last lines along.
    told: BTreeSet<String>,
}

impl Costs {
    fn read(broker: &Broker) -> Self {
        let store = store(broker);
        let mut rows = store
            .prepare(
                "SELECT json_extract(d.value, '$.boot'), a.job_id
                     FROM attempts a, json_each(a.deaths) d
                     WHERE json_extract(d.value, '$.charge') = 'loss'
                 UNION SELECT boot_id, job_id FROM attempts WHERE charge = 'loss'",
            )
            .unwrap();
        let losses = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        let losses = losses.unwrap().map(Result::unwrap).collect();
        let mut rows = store
            .prepare(
                "SELECT job_id, claimed_at, ended_at FROM attempts
                 WHERE started_at IS NOT NULL AND evidence IS NULL
                     AND charge IN ('crash', 'exposure', 'loss', 'disruption')",
            )
            .unwrap();
        let lost = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        let lost = lost.unwrap().map(Result::unwrap).collect();
        let log = broker.log();
        let told = log
            .lines()
            .filter(|line| line.contains("other runs may have vanished with it"));
        // Whoever is killed may be cut short.
        let whole = told.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let told = whole
            .filter_map(|line| Some(line["boot"].as_str()?.to_owned()))
            .collect();
        Self { losses, lost, told }
    }

    fn is_loss(&self, boot: &Boot, is_its: impl Fn(&str) -> bool) -> bool {
        let of_boot = self.losses.iter().filter(|(of, _)| *of == boot.id);
        of_boot.into_iter().any(|(_, job)| is_its(job))
    }

    /// Whether another run was lost with this boot, or may have been: then its death convicts nobody
    /// (I5).
    fn is_excused(&self, boot: &Boot, is_its: impl Fn(&str) -> bool) -> bool {
        let mut beside = self.lost.iter().filter(|(job, ..)| !is_its(job));
        let meets = |(_, claim, end): &(String, i64, i64)| {
            boot.to.is_none_or(|to| *claim <= to) && boot.from <= *end
        };
        self.told.contains(&boot.id) || beside.any(meets)
    }
}

/// A kill by the run of a poison, as its mark says it: `JOB MILLISECONDS PID…`.
struct Kill<'a> {
    job: &'a str,
    at: i64,
    pids: BTreeSet<u32>,
}

impl<'a> Kill<'a> {
    fn of(mark: &'a str) -> Self {
        let mut words = mark.split_whitespace();
        Self {
            job: words.next().unwrap(),
            at: words.next().unwrap().parse().unwrap(),
            pids: words.map(|pid| pid.parse().unwrap()).collect(),
        }
    }

    /// Process ids are used again, but not so soon. A broker that it saw may have put itself on
    /// record between the mark and the kill.
    fn met(&self, boot: &Boot) -> bool {
        let soon = 10_000;
        let lived = boot.from - soon <= self.at && boot.to.is_none_or(|to| self.at <= to);
        lived && self.pids.contains(&boot.pid)
    }
}

/// Every death has its cause, every kill of ours is on record, and no target of a poison killed
/// more brokers than it may (I7). Gives how many were killed by poisons. `kills` are the marks of
/// those that kill their broker by their run.
pub(super) fn each_has_its_cause(
    broker: &Broker,
    struck: &Struck,
    jobs: &BTreeMap<String, Value>,
    poisoned: &[Poisoned],
    kills: &[String],
) -> usize {
    let boots = boots(broker);
    let costs = Costs::read(broker);
    for boot in &boots {
        let verdict = boot.verdict.as_deref();
        // The last one is the one that lives.
        let known = matches!(verdict, None | Some("died" | "ended in order"));
        assert!(known, "{boot:?}");
        let dead = verdict == Some("died") || !struck.boots.contains(&boot.id);
        assert!(
            dead,
            "it was killed, and is told to have ended otherwise: {boot:?}"
        );
    }
    let of_nobody =
        |boot: &&Boot| boot.verdict.as_deref() == Some("died") && !struck.boots.contains(&boot.id);
    let mut unexplained: BTreeMap<&str, &Boot> = boots
        .iter()
        .filter(of_nobody)
        .map(|boot| (boot.id.as_str(), boot))
        .collect();
    let mut by_poison = 0;
    for poison in poisoned {
        let kind = kinds::named(poison.kind);
        let is_its = |job: &str| {
            let job = &jobs[job];
            kinds::is_poison(job) && job["instance"] == poison.instance
        };
        let in_its_step = |boot: &Boot| boot.named.iter().any(|job| is_its(job));
        let by_its_run = |boot: &Boot| {
            let kills = kills.iter().map(|mark| Kill::of(mark));
            kills
                .filter(|kill| is_its(kill.job))
                .any(|kill| kill.met(boot))
        };
        let killed = |boot: &Boot| by_its_run(boot) || (kind.dies_in_a_step() && in_its_step(boot));
        let killed: Vec<&Boot> = unexplained
            .values()
            .copied()
            .filter(|boot| killed(boot))
            .collect();
        let (losses, exposures): (Vec<_>, Vec<_>) = killed
            .iter()
            .copied()
            .partition(|boot| costs.is_loss(boot, is_its));
        let excused = exposures
            .iter()
            .filter(|boot| costs.is_excused(boot, is_its))
            .count();
        assert!(
            losses.len() <= kind.most_losses && exposures.len() <= kinds::EXPOSURES + excused,
            "{poison:?} killed {losses:#?}, and not alone {exposures:#?}"
        );
        by_poison += killed.len();
        for boot in killed {
            unexplained.remove(boot.id.as_str());
        }
    }
    assert!(
        unexplained.is_empty(),
        "died of nothing that was done: {:#?}",
        unexplained.values()
    );
    by_poison
}
