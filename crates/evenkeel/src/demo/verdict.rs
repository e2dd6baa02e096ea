//! Promises and what became of them: pure, from what was counted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_server::admin::types::{Boot, JobState, JobSummary};
use serde::Serialize;

use super::ledger::{Counts, Told};
use super::stage::{CRASH_LIMIT, LOSS_LIMIT};

/// Deaths of brokers that one job may cause: two make it a suspect, the others convict it.
const DEATHS_LIMIT: u32 = 2 + LOSS_LIMIT;
/// Named in full; there may be many more.
const MOST_NAMED: usize = 20;

/// All that the demo has to go by when the last operation is over.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// What customers saw.
    pub(super) counts: Counts,
    /// Every job that the broker knows, by id.
    pub(super) jobs: BTreeMap<String, JobSummary>,
    /// Every life of a broker.
    pub(super) boots: Vec<Boot>,
    /// The jobs that are bad on purpose.
    pub(super) poison: String,
    pub(super) killer: String,
    /// `JOB ACTION attempt N` of every start.
    pub(super) starts: Vec<String>,
    /// The same, of whoever was not alone.
    pub(super) doubles: Vec<String>,
    /// `ATTEMPT PID…` of each time that the killer struck.
    pub(super) kills: Vec<String>,
}

/// What it came to. The fields are what `--json` prints.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Report {
    pub(super) kept: bool,
    pub(super) connections: u64,
    pub(super) connections_refused: u64,
    pub(super) operations_accepted: usize,
    pub(super) operations_lost: usize,
    pub(super) operations_failed: usize,
    pub(super) operations_doubled: usize,
    pub(super) innocents_condemned: usize,
    pub(super) poison_attempts: usize,
    pub(super) poison_attempts_limit: u32,
    pub(super) poison_set_aside: bool,
    pub(super) killer_deaths: usize,
    pub(super) killer_deaths_limit: u32,
    pub(super) killer_set_aside: bool,
    pub(super) broker_deaths: usize,
    pub(super) broker_deaths_by_demo: usize,
    pub(super) broker_deaths_unexplained: usize,
    pub(super) requests_broken_off: u64,
    pub(super) median_ms: Option<u128>,
    pub(super) p99_ms: Option<u128>,
    /// Which promises broke, and by what.
    pub(super) broken: Vec<String>,
}

/// Judges.
pub(super) fn judge(facts: &Facts) -> Report {
    let counts = &facts.counts;
    let bad = [facts.poison.as_str(), facts.killer.as_str()];
    let innocent = |id: &str| !bad.contains(&id);
    let mut broken = Vec::new();

    let mut lost = 0;
    let mut failed = 0;
    for (id, accepted) in counts.operations.iter().filter(|(id, _)| innocent(id)) {
        let (what, state) = (&accepted.what, facts.jobs.get(id).map(|job| job.state));
        match (state, &accepted.told) {
            (None, _) => broken.push(format!("lost: {what} ({id}) is unknown to the broker")),
            (Some(state), Told::Nothing) => {
                broken.push(format!("lost: {what} ({id}) came to no end; it is {state}"));
            }
            (Some(state), Told::Succeeded) if !state.is_final() => {
                broken.push(format!(
                    "lost: {what} ({id}) was told as done; it is {state}"
                ));
            }
            (Some(JobState::Quarantined), _) | (Some(_), Told::Succeeded) => continue,
            (Some(_), Told::Failed(why)) => {
                failed += 1;
                broken.push(format!("failed: {what} ({id}): {why}"));
                continue;
            }
        }
        lost += 1;
    }
    let condemned: Vec<_> = facts
        .jobs
        .iter()
        .filter(|(id, job)| innocent(id) && job.state == JobState::Quarantined)
        .map(|(id, job)| format!("condemned: {} of {} ({id})", job.action, job.instance))
        .collect();
    let doubled = doubled(facts, innocent);
    broken.extend(condemned.iter().cloned());
    broken.extend(doubled.iter().map(|what| format!("doubled: {what}")));
    broken.extend(counts.wrong.iter().map(|what| format!("refused: {what}")));
    if counts.refused > 0 {
        broken.push(format!("{} connections were refused", counts.refused));
    }

    let starts_of = |id: &str| {
        let of = |line: &&String| line.split(' ').next() == Some(id);
        facts.starts.iter().filter(of).count()
    };
    let set_aside = |id: &str| {
        facts
            .jobs
            .get(id)
            .is_some_and(|job| job.state == JobState::Quarantined)
    };
    let poison_attempts = starts_of(&facts.poison);
    let poison_set_aside = set_aside(&facts.poison);
    // Fewer, where kills of the demo that hit it alone have convicted it sooner.
    if !poison_set_aside || !(1..=CRASH_LIMIT as usize).contains(&poison_attempts) {
        broken.push(format!(
            "the job that crashes was started {poison_attempts} times (limit {CRASH_LIMIT}) and {}",
            aside(poison_set_aside)
        ));
    }

    let deaths = Deaths::of(facts);
    let killer_set_aside = set_aside(&facts.killer);
    if !killer_set_aside || deaths.by_killer > DEATHS_LIMIT as usize || facts.kills.is_empty() {
        broken.push(format!(
            "the job that kills its broker killed {} (at most {DEATHS_LIMIT}, at least 1 try) and {}",
            deaths.by_killer,
            aside(killer_set_aside)
        ));
    }
    if deaths.unexplained > 0 {
        broken.push(format!(
            "{} brokers died that nobody had killed",
            deaths.unexplained
        ));
    }
    if counts.operations.is_empty() || deaths.by_demo == 0 {
        broken
            .push("nothing was shown: no operation, or no death, was there to survive".to_owned());
    }

    let more = broken.len().saturating_sub(MOST_NAMED);
    broken.truncate(MOST_NAMED);
    if more > 0 {
        broken.push(format!("and {more} more"));
    }
    Report {
        kept: broken.is_empty(),
        connections: counts.connections,
        connections_refused: counts.refused,
        operations_accepted: counts.operations.len(),
        operations_lost: lost,
        operations_failed: failed + counts.wrong.len(),
        operations_doubled: doubled.len(),
        innocents_condemned: condemned.len(),
        poison_attempts,
        poison_attempts_limit: CRASH_LIMIT,
        poison_set_aside,
        killer_deaths: deaths.by_killer,
        killer_deaths_limit: DEATHS_LIMIT,
        killer_set_aside,
        broker_deaths: deaths.all,
        broker_deaths_by_demo: deaths.by_demo,
        broker_deaths_unexplained: deaths.unexplained,
        requests_broken_off: counts.broken_off,
        median_ms: percentile(&counts.gaps, 50),
        p99_ms: percentile(&counts.gaps, 99),
        broken,
    }
}

fn aside(is_set_aside: bool) -> &'static str {
    if is_set_aside {
        "was set aside"
    } else {
        "was not set aside"
    }
}

/// Jobs that were not alone, and innocents that were started more than once: nothing ever ended
/// their runs.
fn doubled(facts: &Facts, innocent: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut doubled: BTreeSet<String> = facts.doubles.iter().cloned().collect();
    let mut seen = BTreeSet::new();
    for line in &facts.starts {
        let job = line.split(' ').next().unwrap_or_default();
        if !seen.insert(job) && innocent(job) {
            doubled.insert(line.clone());
        }
    }
    doubled
}

/// Who killed how many brokers.
#[derive(Debug)]
struct Deaths {
    all: usize,
    by_demo: usize,
    by_killer: usize,
    unexplained: usize,
}

impl Deaths {
    fn of(facts: &Facts) -> Self {
        let by_killer: BTreeSet<u32> = facts
            .kills
            .iter()
            .flat_map(|line| line.split(' ').skip(1))
            .filter_map(|pid| pid.parse().ok())
            .collect();
        let mut deaths = Self {
            all: 0,
            by_demo: 0,
            by_killer: 0,
            unexplained: 0,
        };
        for boot in facts.boots.iter().filter(|boot| !boot.present) {
            deaths.all += 1;
            if facts.counts.killed.contains(&boot.pid) {
                deaths.by_demo += 1;
            } else if by_killer.contains(&boot.pid) {
                deaths.by_killer += 1;
            } else {
                deaths.unexplained += 1;
            }
        }
        deaths
    }
}

/// Rows for people: what was promised, what was seen, whether that is as promised.
pub(super) fn rows(report: &Report) -> Vec<Vec<String>> {
    let row = |promise: &str, seen: String, kept: Option<bool>| {
        let word = match kept {
            None => "",
            Some(true) => "kept",
            Some(false) => "BROKEN",
        };
        vec![promise.to_owned(), seen, word.to_owned()]
    };
    let zero = |promise: &str, count: usize| row(promise, count.to_string(), Some(count == 0));
    let time =
        |millis: Option<u128>| millis.map_or("-".to_owned(), |millis| format!("{millis} ms"));
    let aside = |is_set_aside: bool| if is_set_aside { "" } else { ", not set aside" };
    vec![
        row(
            "connections refused",
            format!("{} of {}", report.connections_refused, report.connections),
            Some(report.connections_refused == 0),
        ),
        row(
            "operations accepted",
            report.operations_accepted.to_string(),
            None,
        ),
        zero("operations lost", report.operations_lost),
        zero("operations failed", report.operations_failed),
        zero("operations doubled", report.operations_doubled),
        zero("innocents condemned", report.innocents_condemned),
        row(
            "attempts of the job that crashes",
            format!(
                "{} (limit {}){}",
                report.poison_attempts,
                report.poison_attempts_limit,
                aside(report.poison_set_aside)
            ),
            Some(
                report.poison_set_aside
                    && (1..=report.poison_attempts_limit as usize)
                        .contains(&report.poison_attempts),
            ),
        ),
        row(
            "brokers killed by the job that kills its broker",
            format!(
                "{} (at most {}){}",
                report.killer_deaths,
                report.killer_deaths_limit,
                aside(report.killer_set_aside)
            ),
            Some(
                report.killer_set_aside
                    && report.killer_deaths <= report.killer_deaths_limit as usize,
            ),
        ),
        row(
            "broker deaths survived",
            format!(
                "{} ({} by the demo)",
                report.broker_deaths, report.broker_deaths_by_demo
            ),
            Some(report.broker_deaths_unexplained == 0),
        ),
        row(
            "from a death to the next answer",
            format!(
                "median {}, p99 {}",
                time(report.median_ms),
                time(report.p99_ms)
            ),
            None,
        ),
        row(
            "requests that broke off and were sent again",
            report.requests_broken_off.to_string(),
            None,
        ),
    ]
}

/// In milliseconds; nearest rank.
fn percentile(of: &[Duration], percent: usize) -> Option<u128> {
    let mut sorted = of.to_vec();
    sorted.sort();
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map(Duration::as_millis)
}

#[cfg(test)]
mod tests;
