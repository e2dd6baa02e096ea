//! Each promise is told as broken when it is, and only then.

use serde_json::{Value, json};

use super::super::ledger::Accepted;
use super::*;

const GOOD: &str = "00000000-0000-7000-8000-000000000001";
const POISON: &str = "00000000-0000-7000-8000-000000000002";
const KILLER: &str = "00000000-0000-7000-8000-000000000003";

fn job(id: &str, state: &str) -> Value {
    json!({
        "id": id, "action": "provision", "state": state, "instance": "i", "service": "s",
        "platform": "platform", "attempts": 1, "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z", "deadline_at": "2026-01-01T00:00:00Z",
    })
}

fn boot(pid: u32, present: bool) -> Boot {
    serde_json::from_value(json!({
        "id": format!("00000000-0000-7000-8000-00000000{pid:04}"), "present": present,
        "started_at": "2026-01-01T00:00:00Z", "seen_at": "2026-01-01T00:00:00Z", "pid": pid,
        "version": "0",
    }))
    .unwrap()
}

fn with_state(mut facts: Facts, id: &str, state: &str) -> Facts {
    let job = serde_json::from_value(job(id, state)).unwrap();
    facts.jobs.insert(id.to_owned(), job);
    facts
}

fn told(mut facts: Facts, told: Told) -> Facts {
    let accepted = Accepted {
        what: "provision of i".to_owned(),
        told,
    };
    facts.counts.operations.insert(GOOD.to_owned(), accepted);
    facts
}

/// All is well.
fn facts() -> Facts {
    let start = |id: &str, attempt| format!("{id} provision attempt {attempt}");
    let mut starts = vec![start(GOOD, 1)];
    starts.extend((1..=3).map(|attempt| start(POISON, attempt)));
    starts.extend((1..=5).map(|attempt| start(KILLER, attempt)));
    let counts = Counts {
        connections: 10,
        killed: vec![1],
        gaps: vec![
            Duration::from_millis(3),
            Duration::from_millis(1),
            Duration::from_millis(2),
        ],
        ..Counts::default()
    };
    let facts = Facts {
        counts,
        jobs: BTreeMap::new(),
        boots: (1..=6)
            .map(|pid| boot(pid, false))
            .chain([boot(7, true)])
            .collect(),
        poison: POISON.to_owned(),
        killer: KILLER.to_owned(),
        starts,
        doubles: Vec::new(),
        kills: (2..=6).map(|pid| format!("{} {pid}", pid - 1)).collect(),
    };
    let facts = with_state(facts, POISON, "quarantined");
    let facts = with_state(facts, KILLER, "quarantined");
    told(with_state(facts, GOOD, "succeeded"), Told::Succeeded)
}

/// Breaks with a text that says so.
fn breaks(facts: &Facts, text: &str) {
    let report = judge(facts);
    assert!(!report.kept);
    assert!(
        report.broken.iter().any(|line| line.contains(text)),
        "{:?}",
        report.broken
    );
    let rows = rows(&report);
    assert!(rows.iter().any(|row| row[2] == "BROKEN"), "{rows:?}");
}

#[test]
fn what_went_well_is_told_with_its_figures() {
    let report = judge(&facts());
    assert_eq!(report.broken, Vec::<String>::new());
    assert!(report.kept && rows(&report).iter().all(|row| row[2] != "BROKEN"));
    assert_eq!((report.broker_deaths, report.broker_deaths_by_demo), (6, 1));
    assert_eq!((report.killer_deaths, report.poison_attempts), (5, 3));
    assert_eq!((report.median_ms, report.p99_ms), (Some(2), Some(3)));
}

#[test]
fn an_operation_without_an_end_or_unknown_to_the_broker_is_lost() {
    breaks(
        &told(with_state(facts(), GOOD, "running"), Told::Nothing),
        "lost",
    );
    breaks(&told(facts(), Told::Nothing), "lost");
    breaks(&with_state(facts(), GOOD, "queued"), "lost");
    let mut unknown = facts();
    unknown.jobs.remove(GOOD);
    breaks(&unknown, "unknown to the broker");
    assert_eq!(judge(&unknown).operations_lost, 1);
}

#[test]
fn an_innocent_that_fails_is_condemned_or_refused_breaks_a_promise() {
    let why = || Told::Failed("out of teapots".to_owned());
    breaks(
        &told(with_state(facts(), GOOD, "failed"), why()),
        "out of teapots",
    );
    let condemned = told(with_state(facts(), GOOD, "quarantined"), why());
    breaks(&condemned, "condemned");
    assert_eq!(judge(&condemned).operations_failed, 0, "told once");
    let mut refused = facts();
    refused.counts.wrong.push("bind of i: 400".to_owned());
    breaks(&refused, "bind of i: 400");
}

#[test]
fn a_second_start_of_an_innocent_is_a_double_and_so_is_a_lock_that_is_taken() {
    let mut twice = facts();
    twice.starts.push(format!("{GOOD} provision attempt 2"));
    breaks(&twice, "doubled");
    let mut locked = facts();
    locked.doubles.push(format!("{GOOD} bind attempt 1"));
    breaks(&locked, "doubled");
}

#[test]
fn a_refused_connection_and_a_death_that_nobody_caused_break_a_promise() {
    let mut refused = facts();
    refused.counts.refused = 1;
    breaks(&refused, "refused");
    let mut fell = facts();
    fell.boots.push(boot(9, false));
    breaks(&fell, "nobody had killed");
}

#[test]
fn bad_jobs_get_their_limits_and_no_more_and_are_set_aside() {
    let mut again = facts();
    again.starts.push(format!("{POISON} provision attempt 4"));
    breaks(&again, "started 4 times");
    breaks(&with_state(facts(), POISON, "backoff"), "not set aside");
    breaks(&with_state(facts(), KILLER, "backoff"), "not set aside");
    let mut sixth = facts();
    sixth.boots.push(boot(8, false));
    sixth.kills.push("6 8".to_owned());
    breaks(&sixth, "killed 6");
}

#[test]
fn a_demo_that_showed_nothing_is_no_success() {
    let mut idle = facts();
    idle.counts.killed.clear();
    idle.boots.retain(|boot| boot.present);
    assert!(!judge(&idle).kept);
    let mut empty = facts();
    empty.counts.operations.clear();
    assert!(!judge(&empty).kept);
}
