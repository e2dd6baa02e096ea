//! Random kills of shims and actions. Each target is hit once at most, so that no hits of ours can
//! add up to what condemns: an innocent that is quarantined was condemned by the broker. Updates are
//! left alone, because those of the simulated platforms may crash by themselves twice in a row.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use super::Storm;
use super::strikes::kill_if;
use crate::platforms::dice::Dice;

/// From one strike to the next, in milliseconds.
const PAUSE_MILLIS: u64 = 500;

/// The jobs whose runs were hit, by `ACTION INSTANCE[.BINDING]`.
#[derive(Debug, Default)]
pub(super) struct Hits {
    shims: Mutex<BTreeMap<String, String>>,
    actions: Mutex<BTreeMap<String, String>>,
}

impl Hits {
    /// Shims and actions that were killed.
    pub(super) fn count(&self) -> (usize, usize) {
        (
            self.shims.lock().unwrap().len(),
            self.actions.lock().unwrap().len(),
        )
    }

    fn has(&self, target: &str) -> bool {
        let kinds = [&self.shims, &self.actions];
        kinds
            .iter()
            .any(|hit| hit.lock().unwrap().contains_key(target))
    }

    /// How often runs of this job were hit.
    pub(super) fn of(&self, job: &str) -> usize {
        let kinds = [&self.shims, &self.actions].into_iter();
        let of_kind = kinds.map(|hit| {
            hit.lock()
                .unwrap()
                .values()
                .filter(|hit| *hit == job)
                .count()
        });
        of_kind.sum()
    }
}

/// An action's first process, and the shim above it.
struct Run {
    action: u32,
    shim: u32,
    target: String,
    job: String,
}

/// Strikes until it is over.
pub(super) async fn strike(storm: &Storm, mut dice: Dice, data: &Path) {
    while !storm.is_over() {
        tokio::time::sleep(dice.millis(PAUSE_MILLIS)).await;
        let runs: Vec<_> = runs(data)
            .into_iter()
            .filter(|run| !storm.hits.has(&run.target) && !run.target.starts_with("update "))
            .collect();
        if runs.is_empty() {
            continue;
        }
        let run = dice.pick(&runs);
        let (victim, hits) = if dice.chance(50) {
            (run.shim, &storm.hits.shims)
        } else {
            (run.action, &storm.hits.actions)
        };
        let is_still = || action_of(run.action, data).is_some_and(|again| again.job == run.job);
        if kill_if(victim, is_still) {
            let mut hits = hits.lock().unwrap();
            hits.insert(run.target.clone(), run.job.clone());
        }
    }
}

fn runs(data: &Path) -> Vec<Run> {
    let processes = fs::read_dir("/proc").unwrap();
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|id| action_of(id, data))
        .collect()
}

/// The run whose first process this is.
fn action_of(id: u32, data: &Path) -> Option<Run> {
    let environment = fs::read(format!("/proc/{id}/environ")).ok()?;
    let environment = String::from_utf8_lossy(&environment);
    let value = |name: &str| {
        environment
            .split('\0')
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    };
    let ours = value("EVENKEEL_REQUEST")?.starts_with(&data.display().to_string());
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let shim = stat
        .rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()?;
    let name = fs::read_to_string(format!("/proc/{shim}/comm")).ok()?;
    let binding = value("EVENKEEL_BINDING_ID").map_or(String::new(), |id| format!(".{id}"));
    let target = format!(
        "{} {}{binding}",
        value("EVENKEEL_ACTION")?,
        value("EVENKEEL_INSTANCE_ID")?
    );
    (ours && name.trim() == "evenkeel-shim").then_some(Run {
        action: id,
        shim,
        target,
        job: value("EVENKEEL_JOB_ID")?.to_owned(),
    })
}
