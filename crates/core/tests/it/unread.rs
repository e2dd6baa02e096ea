//! Whose run is ended without anybody looking at what it left.

use evenkeel_core::budget::Budget;
use evenkeel_core::ids::Token;
use evenkeel_core::job::Job;
use evenkeel_core::policy::Policy;
use evenkeel_core::recovery::{ENDINGS, Hands, cannot_be_ended, is_to_end_unread};
use evenkeel_core::time::Timestamp;

use crate::fixtures::{DEADLINE, NOON, running};

const BEFORE: Timestamp = Timestamp(DEADLINE.0 - 1);

/// A running job, claimed once, whose owner changed so often since.
fn taken_over(times: u32) -> Job {
    let claimed = running(None);
    Job {
        token: Token(claimed.token.0 + u64::from(times)),
        ..claimed
    }
}

/// I7: reading what a condemned run left may be what kills.
#[test]
fn a_condemned_run_is_ended_unread_at_any_time() {
    let policy = Policy::default();
    for (crashes, losses, ends) in [(0, 0, false), (2, 2, false), (3, 0, true), (0, 3, true)] {
        let job = Job {
            budget: Budget {
                crashes,
                losses,
                ..Budget::default()
            },
            ..running(None)
        };
        let answer = is_to_end_unread(&job, Hands::default(), NOON, &policy);
        assert_eq!(answer, ends);
    }
}

/// I7: writing its end may be what kills.
#[test]
fn a_condemned_job_cannot_be_ended_once_two_more_brokers_died_of_it() {
    let policy = Policy::default();
    let limit = policy.loss_limit;
    for (losses, cannot) in [
        (limit, false),
        (limit + ENDINGS - 1, false),
        (limit + ENDINGS, true),
        (limit + ENDINGS + 1, true),
    ] {
        let job = Job {
            budget: Budget {
                losses,
                ..Budget::default()
            },
            ..running(None)
        };
        let answer = cannot_be_ended(&job, Hands::default(), NOON, &policy);
        assert_eq!(answer, cannot, "{losses}");
    }
    assert_eq!(ENDINGS, 2);
}

/// I1: brokers that end in order, each when it looks at one run, come to an end with its deadline.
/// Whether each wrote down that it took the run over, or came to no such thing.
#[test]
fn a_run_that_nobody_gets_past_is_ended_unread_once_its_deadline_is_there() {
    let policy = Policy::default();
    let most = policy.suspect_disruptions;
    for (rounds, now, ends) in [
        (0, DEADLINE, false),
        (most - 1, DEADLINE, false),
        (most, DEADLINE, true),
        (most + 1, DEADLINE, true),
        (most, BEFORE, false),
        (most + 1, BEFORE, false),
    ] {
        for passed in 0..=rounds {
            let job = taken_over(rounds - passed);
            let hands = Hands {
                passed,
                late: false,
            };
            let answer = is_to_end_unread(&job, hands, now, &policy);
            assert_eq!(answer, ends, "{rounds} at {now}, {passed} in passing");
        }
    }
}

/// I1: as above, where each ends when it writes the end. An operator who deployed often while the
/// job ran does not set it aside by deploying once more at its deadline.
#[test]
fn an_end_that_nobody_gets_written_past_the_deadline_is_left_to_the_row() {
    let policy = Policy::default();
    let most = policy.suspect_disruptions + ENDINGS;
    for (rounds, late, now, cannot) in [
        (most - 1, true, DEADLINE, false),
        (most, true, DEADLINE, true),
        (most + 1, true, DEADLINE, true),
        (most, false, DEADLINE, false),
        (most + 40, false, DEADLINE, false),
        (most, true, BEFORE, false),
    ] {
        for passed in 0..=rounds {
            let job = taken_over(rounds - passed);
            let answer = cannot_be_ended(&job, Hands { passed, late }, now, &policy);
            assert_eq!(answer, cannot, "{rounds} at {now}, late: {late}");
        }
    }
}

/// Claims take tokens too, and are no sign of going round.
#[test]
fn attempts_of_its_own_do_not_count_as_take_overs() {
    let policy = Policy::default();
    let many = Job {
        attempts: 40,
        token: Token(40),
        ..running(None)
    };
    let late = Hands {
        passed: 0,
        late: true,
    };
    assert!(!is_to_end_unread(&many, late, DEADLINE, &policy));
    assert!(!cannot_be_ended(&many, late, DEADLINE, &policy));
}
