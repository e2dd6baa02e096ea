//! When a broker that starts is held, and for how long.

use std::time::Duration;

use evenkeel_core::hold::{
    BootEnd, Cause, Hold, MAX_REASON_CHARS, MOST_QUIETS, deaths_in_a_row, is_due, remaining,
};
use evenkeel_core::time::Timestamp;
use proptest::prelude::*;

const QUIET: Duration = Duration::from_secs(600);

/// A broker that was killed before anything came of it.
const DEATH: BootEnd = BootEnd {
    orderly: false,
    named: false,
    concluded: false,
    served: Duration::from_secs(3),
    forgiven: false,
};

#[test]
fn as_many_deaths_in_a_row_as_the_limit_hold_the_next_broker() {
    assert!(!is_due(&[], 3, QUIET));
    assert!(!is_due(&[DEATH; 2], 3, QUIET));
    assert!(is_due(&[DEATH; 3], 3, QUIET));
    assert!(is_due(&[DEATH; 9], 3, QUIET));
    assert!(is_due(&[DEATH], 1, QUIET));
    assert!(!is_due(&[], 0, QUIET), "no limit is below 1");
}

#[test]
fn an_end_in_order_or_with_a_name_or_forgiven_is_no_part_of_a_row() {
    for broken in [
        BootEnd {
            orderly: true,
            ..DEATH
        },
        BootEnd {
            named: true,
            ..DEATH
        },
        BootEnd {
            forgiven: true,
            ..DEATH
        },
    ] {
        for place in 0..3 {
            let mut ends = [DEATH; 5];
            ends[place] = broken;
            assert_eq!(deaths_in_a_row(&ends, QUIET), u32::try_from(place).unwrap());
            assert!(!is_due(&ends, 3, QUIET), "{broken:?} at {place}");
        }
    }
}

#[test]
fn the_death_of_a_broker_that_got_something_done_begins_a_row() {
    let concluded = BootEnd {
        concluded: true,
        ..DEATH
    };
    let served = BootEnd {
        served: QUIET,
        ..DEATH
    };
    for useful in [concluded, served] {
        assert_eq!(deaths_in_a_row(&[useful; 9], QUIET), 1);
        assert!(!is_due(&[DEATH, useful, DEATH, DEATH], 3, QUIET));
        assert!(
            is_due(&[DEATH, DEATH, useful], 3, QUIET),
            "its own death is the first of three"
        );
    }
    let short = BootEnd {
        served: QUIET - Duration::from_millis(1),
        ..DEATH
    };
    assert!(is_due(&[short; 3], 3, QUIET));
}

#[test]
fn a_hold_lasts_a_quiet_period_and_deaths_under_it_do_not_make_it_endless() {
    let since = Timestamp(1_000_000);
    assert_eq!(remaining(since, since, QUIET), QUIET);
    // A process that begins under it waits a whole quiet period, up to the bound.
    let (most, early) = (QUIET * MOST_QUIETS, QUIET * (MOST_QUIETS - 1));
    assert_eq!(remaining(since, since.plus(early), QUIET), QUIET);
    let late = most - Duration::from_secs(7);
    assert_eq!(
        remaining(since, since.plus(late), QUIET),
        Duration::from_secs(7)
    );
    assert_eq!(remaining(since, since.plus(most), QUIET), Duration::ZERO);
    assert_eq!(
        remaining(since, since.plus(most * 9), QUIET),
        Duration::ZERO
    );
    // A clock that was set back costs no more than one quiet period.
    assert_eq!(remaining(since, Timestamp(0), QUIET), QUIET);
}

#[test]
fn a_hold_says_why_within_bounds() {
    let long = "x".repeat(MAX_REASON_CHARS + 1);
    let hold = |cause, reason| Hold::new(cause, reason, "operator", Timestamp(0));
    assert_eq!(hold(Cause::Hand, "").line(), "held by the operator");
    assert_eq!(
        hold(Cause::Hand, "move").line(),
        "held by the operator: move"
    );
    assert_eq!(hold(Cause::Panics, "panics").line(), "panics");
    assert_eq!(
        hold(Cause::Deaths, &long).reason.chars().count(),
        MAX_REASON_CHARS
    );
    for cause in Cause::ALL {
        let word = serde_json::to_value(cause).unwrap();
        assert_eq!(word, cause.as_str(), "one word on every surface");
    }
}

fn ends() -> impl Strategy<Value = Vec<BootEnd>> {
    let flag = || prop::bool::weighted(0.15);
    let end = (flag(), flag(), flag(), flag(), 0_u64..700).prop_map(
        |(orderly, named, concluded, forgiven, served)| BootEnd {
            orderly,
            named,
            concluded,
            forgiven,
            served: Duration::from_secs(served),
        },
    );
    prop::collection::vec(end, 0..12)
}

proptest! {
    /// The rule said another way: the newest `limit` ends are unexplained deaths, and of all but the
    /// oldest of them nothing came.
    #[test]
    fn held_exactly_after_a_row_of_deaths_with_nothing_in_between(ends in ends(), limit in 1_usize..5) {
        let row = &ends[..limit.min(ends.len())];
        let deaths = row.iter().all(|end| !end.orderly && !end.named && !end.forgiven);
        let barren = row.iter().take(limit - 1).all(|end| !end.concluded && end.served < QUIET);
        let due = row.len() == limit && deaths && barren;
        prop_assert_eq!(is_due(&ends, u32::try_from(limit).unwrap(), QUIET), due);
    }

    /// What came before does not matter to a row that is long enough: so few rows have to be read.
    #[test]
    fn older_ends_than_the_limit_never_matter(ends in ends(), limit in 1_usize..5) {
        let newest = &ends[..limit.min(ends.len())];
        let limit = u32::try_from(limit).unwrap();
        prop_assert_eq!(is_due(&ends, limit, QUIET), is_due(newest, limit, QUIET));
    }

    /// However brokers die under a hold, it is over when its bound is.
    #[test]
    fn brokers_that_die_under_a_hold_cannot_make_it_longer_than_its_bound(
        lives in prop::collection::vec(1_u64..400, 0..60),
    ) {
        let since = Timestamp(0);
        let mut now = since;
        for life in lives {
            let life = Duration::from_secs(life);
            let left = remaining(since, now, QUIET);
            prop_assert!(now.plus(left) <= since.plus(QUIET * MOST_QUIETS) || left.is_zero());
            if left <= life {
                return Ok(());
            }
            now = now.plus(life);
        }
        prop_assert!(now < since.plus(QUIET * MOST_QUIETS));
    }
}
