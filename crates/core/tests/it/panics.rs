//! Whose fault a panic is.

use evenkeel_core::panics::{
    MAX_LOCATION_BYTES, MAX_LOCATIONS, OUR_BUG_JOBS, OUR_BUG_WINDOW, PanicLedger, PanicVerdict,
};
use evenkeel_core::time::Timestamp;
use proptest::prelude::*;

use crate::fixtures::{NOON, job_id};

fn minute(n: i64) -> Timestamp {
    Timestamp(NOON.0 + n * 60_000)
}

/// Panics of these jobs at these minutes, all at one place.
fn verdicts(panics: &[(u64, i64)]) -> Vec<PanicVerdict> {
    let mut ledger = PanicLedger::default();
    panics
        .iter()
        .map(|(job, at)| ledger.observe("engine.rs:1:1", job_id(*job), minute(*at)))
        .collect()
}

use PanicVerdict::{Charge, OurBug};

#[test]
fn the_third_job_at_one_place_makes_it_our_bug_and_those_that_follow() {
    let panics = [(1, 0), (2, 1), (3, 9), (1, 9), (4, 9)];
    assert_eq!(verdicts(&panics), [Charge, Charge, OurBug, OurBug, OurBug]);
}

#[test]
fn one_job_may_panic_as_often_as_it_likes_and_is_charged() {
    assert_eq!(
        verdicts(&[(1, 0), (1, 1), (2, 2), (1, 3), (2, 4)]),
        [Charge; 5]
    );
}

#[test]
fn the_window_ends() {
    assert_eq!(verdicts(&[(1, 0), (2, 5), (3, 10)]), [Charge; 3]);
    let panics = [(1, 0), (2, 1), (3, 2), (3, 11), (2, 12), (1, 13)];
    assert_eq!(
        verdicts(&panics),
        [Charge, Charge, OurBug, Charge, Charge, OurBug]
    );
}

#[test]
fn a_clock_that_was_set_back_brings_no_old_panics_near() {
    assert_eq!(verdicts(&[(1, 100), (2, 100), (3, 0)]), [Charge; 3]);
    assert_eq!(
        verdicts(&[(1, 5), (2, 5), (3, 0)]),
        [Charge, Charge, OurBug]
    );
}

#[test]
fn places_are_apart() {
    let mut ledger = PanicLedger::default();
    for job in 0..10 {
        let place = format!("engine.rs:{job}:1");
        assert_eq!(ledger.observe(&place, job_id(job), NOON), Charge);
    }
}

#[test]
fn a_long_path_still_tells_its_lines_apart() {
    let path = "é".repeat(MAX_LOCATION_BYTES);
    let mut ledger = PanicLedger::default();
    for job in 0..3 {
        let place = format!("{path}:{job}:1");
        assert_eq!(ledger.observe(&place, job_id(job), NOON), Charge);
    }
    assert_eq!(ledger.locations(), 3);
}

#[test]
fn the_place_that_was_silent_longest_is_forgotten_first() {
    let mut ledger = PanicLedger::default();
    ledger.observe("kept", job_id(1), NOON);
    ledger.observe("lost", job_id(1), NOON);
    ledger.observe("kept", job_id(2), NOON);
    for n in 1..MAX_LOCATIONS {
        ledger.observe(&format!("other:{n}"), job_id(1), NOON);
    }
    assert_eq!(ledger.locations(), MAX_LOCATIONS);
    assert_eq!(ledger.observe("kept", job_id(3), NOON), OurBug);
    ledger.observe("lost", job_id(2), NOON);
    assert_eq!(ledger.observe("lost", job_id(3), NOON), Charge);
}

#[test]
fn no_more_jobs_are_remembered_than_a_verdict_takes() {
    let mut ledger = PanicLedger::default();
    for job in 0..100 {
        ledger.observe("engine.rs:1:1", job_id(job), NOON);
    }
    assert_eq!(
        format!("{ledger:?}").matches("JobId(").count(),
        OUR_BUG_JOBS
    );
}

proptest! {
    /// The bounded ledger against one that remembers everything, while the clock goes forward.
    #[test]
    fn forgetting_changes_no_verdict(
        panics in prop::collection::vec((0u64..6, 0usize..3, 0i64..200_000), 1..80),
    ) {
        let mut ledger = PanicLedger::default();
        let mut all: Vec<(u64, usize, Timestamp)> = Vec::new();
        let mut now = NOON;
        for (job, place, passed) in panics {
            now = Timestamp(now.0 + passed);
            all.push((job, place, now));
            let mut near: Vec<u64> = all
                .iter()
                .filter(|(_, there, at)| *there == place && now.since(*at) < OUR_BUG_WINDOW)
                .map(|(who, _, _)| *who)
                .collect();
            near.sort_unstable();
            near.dedup();
            let expected = if near.len() >= 3 { OurBug } else { Charge };
            prop_assert_eq!(ledger.observe(&place.to_string(), job_id(job), now), expected);
        }
    }
}
