//! When what waits is due, how long it waits, and what an end without a wait leaves behind.

use std::time::Duration;

use evenkeel_core::attempt::{End, Evidence, ExposureCause, FailReason};
use evenkeel_core::job::{Job, State};
use evenkeel_core::policy::Policy;
use evenkeel_core::time::Timestamp;
use evenkeel_core::transition::{Event, IllegalTransition, is_due, transition};

use crate::fixtures::{NOON, attempt_id, boot_id, claim, end, job, policy, run_root, running};

const RAN: Duration = Duration::from_secs(1);

#[test]
fn a_wait_is_over_at_its_instant_and_where_the_clock_cannot_have_chosen_it() {
    let policy = Policy::default();
    let max = i64::try_from(policy.backoff_max.as_millis()).expect("minutes");
    for (wait, due) in [
        (-1, true),
        (0, true),
        (1, false),
        (max - 1, false),
        // The longest wait that there is.
        (max, false),
        (max + 1, true),
    ] {
        let next_at = Timestamp(NOON.0 + wait);
        assert_eq!(is_due(next_at, NOON, &policy), due, "{wait} ms");
        let waiting = Job {
            state: State::Backoff { next_at },
            ..job()
        };
        let event = Event::Claim {
            attempt: attempt_id(1),
            boot: boot_id(1),
            run_root: run_root(),
        };
        let claimed = transition(waiting, event, NOON, &policy);
        if due {
            assert!(claimed.is_ok_and(|(job, _)| job.attempt().is_some()));
        } else {
            assert_eq!(claimed.err(), Some(IllegalTransition::NotDue(next_at)));
        }
    }
}

/// Every kind of charge counts: a job that is charged now this, now that is no less of a loop.
#[test]
fn each_setback_doubles_the_wait_whatever_it_was_charged_as() {
    let policy = policy(9, 9);
    let crashed = || End::Crashed {
        evidence: Some(Evidence::OutOfMemory),
    };
    let exposed = || End::Exposed {
        cause: ExposureCause::VanishedWithBroker,
    };
    let mut present = job();
    // The fourth and fifth are losses: a suspect is alone.
    for (how, wait) in [
        (crashed(), 5),
        (exposed(), 10),
        (exposed(), 20),
        (exposed(), 40),
        (exposed(), 80),
        (crashed(), 160),
    ] {
        present = end(claim(present, &policy), how, RAN, &policy).0;
        let next_at = NOON.plus(Duration::from_secs(wait));
        assert_eq!(present.state, State::Backoff { next_at });
    }
    let account = &present.budget;
    assert_eq!(
        (account.crashes, account.exposures, account.losses),
        (2, 2, 2)
    );
}

#[test]
fn an_orderly_failure_is_final_at_once_with_what_the_action_has_to_say() {
    let (reason, message) = (FailReason::ExitCode { code: 3 }, Some("full".to_owned()));
    let failed = End::Failed {
        reason: reason.clone(),
        message: message.clone(),
    };
    let (after, _) = end(running(None), failed, RAN, &Policy::default());
    assert_eq!(after.state, State::Failed { reason, message });
}
