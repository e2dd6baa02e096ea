//! Who is charged what, and who is condemned (DESIGN §4).

use std::time::Duration;

use evenkeel_core::attempt::{Charge, DisruptionCause, End, Evidence, ExposureCause, FailReason};
use evenkeel_core::budget::SOLO_MIN;
use evenkeel_core::job::{Job, QuarantineReason, State};
use evenkeel_core::policy::{Chance, Policy};
use evenkeel_core::transition::{Event, never_started, transition};
use proptest::prelude::*;

use crate::fixtures::{NOON, attempt_id, boot_id, claim, end, job, policy, run_root, running};

const SHORT: Duration = Duration::from_millis(20);

fn segfault() -> End {
    End::Crashed {
        evidence: Some(Evidence::FatalSignal { signal: 11 }),
    }
}

fn killed() -> End {
    End::Crashed { evidence: None }
}

fn exposed(cause: ExposureCause) -> End {
    End::Exposed { cause }
}

/// Claims and ends attempts in this way until the job is final.
fn repeat(mut present: Job, how: &End, ran: Duration, policy: &Policy) -> (Job, Vec<Charge>) {
    let mut charges = Vec::new();
    while !present.state.is_final() {
        assert!(charges.len() < 100, "no end in sight: {present:?}");
        let (next, charge) = end(claim(present, policy), how.clone(), ran, policy);
        present = next;
        charges.push(charge);
    }
    (present, charges)
}

/// As long as it takes to have outlived the attempt's isolation.
fn in_company(job: &Job, more: Duration) -> Duration {
    let window = job.attempt().and_then(|attempt| attempt.solo);
    window.unwrap_or_default() + more
}

#[test]
fn crashes_with_evidence_condemn_after_exactly_the_limit() {
    for limit in 1..6 {
        let policy = policy(limit, 3);
        let (job, charges) = repeat(job(), &segfault(), SHORT, &policy);
        assert_eq!(charges, vec![Charge::Crash; limit as usize]);
        assert_eq!(job.attempts, limit);
        let reason = QuarantineReason::Crashes { count: limit };
        assert_eq!(job.state, State::Quarantined { reason });
    }
}

#[test]
fn a_limit_of_one_means_never_again_after_the_first_crash() {
    let (job, charges) = repeat(job(), &segfault(), SHORT, &policy(1, 1));
    assert_eq!((job.attempts, charges), (1, vec![Charge::Crash]));
}

#[test]
fn a_job_that_kills_its_supervisor_each_time_gets_exactly_the_limit_and_is_alone_at_last() {
    for limit in 2..6 {
        let policy = policy(limit, 3);
        let mut present = job();
        let mut solos = Vec::new();
        while !present.state.is_final() {
            assert!(solos.len() < 100, "no end in sight: {present:?}");
            let claimed = claim(present, &policy);
            solos.push(claimed.attempt().expect("claimed").solo.is_some());
            present = end(claimed, killed(), SHORT, &policy).0;
        }
        let mut expected = vec![false; limit as usize];
        expected[limit as usize - 1] = true;
        assert_eq!(solos, expected);
        let reason = QuarantineReason::Crashes { count: limit };
        assert_eq!(present.state, State::Quarantined { reason });
    }
}

/// The first unexplained death in company would already reach the limit: it counts for nothing,
/// and the next, alone, for all.
#[test]
fn with_a_limit_of_one_an_unexplained_death_condemns_only_alone() {
    let (job, charges) = repeat(job(), &killed(), SHORT, &policy(1, 3));
    assert_eq!(charges, [Charge::Exposure, Charge::Crash]);
    assert_eq!(job.budget.crashes, 1);
}

#[test]
fn deaths_of_the_broker_make_a_suspect_and_only_alone_condemn_it() {
    for limit in 1..5 {
        let policy = policy(3, limit);
        let how = exposed(ExposureCause::VanishedWithBroker);
        let (job, charges) = repeat(job(), &how, SHORT, &policy);
        let mut expected = vec![Charge::Exposure; 2];
        expected.extend(vec![Charge::Loss; limit as usize]);
        assert_eq!(charges, expected, "I7: at most 2 + loss_limit deaths");
        let reason = QuarantineReason::Losses { count: limit };
        assert_eq!(job.state, State::Quarantined { reason });
    }
}

#[test]
fn isolation_lasts_for_twice_the_longest_lost_attempt() {
    let policy = Policy::default();
    let minutes = |n: u64| Duration::from_secs(60 * n);
    let how = || exposed(ExposureCause::VanishedWithBroker);
    let (job, _) = end(claim(job(), &policy), how(), minutes(5), &policy);
    let (job, _) = end(claim(job, &policy), how(), minutes(2), &policy);
    let job = claim(job, &policy);
    assert_eq!(job.attempt().expect("claimed").solo, Some(minutes(10)));
    // It has shared the replica again: an exposure, whatever it is called.
    let (job, charge) = end(job, how(), minutes(10), &policy);
    assert_eq!(charge, Charge::Exposure);
    let (job, charge) = end(claim(job, &policy), killed(), minutes(20), &policy);
    assert_eq!(
        charge,
        Charge::Crash,
        "the first two may come in any company"
    );
    assert_eq!(job.budget.solo_window(), Some(minutes(40)));
}

#[test]
fn isolation_lasts_for_two_minutes_at_least() {
    let policy = Policy::default();
    let mut present = job();
    for _ in 0..policy.suspect_exposures {
        let how = exposed(ExposureCause::HostLost);
        present = end(claim(present, &policy), how, SHORT, &policy).0;
    }
    let present = claim(present, &policy);
    assert_eq!(present.attempt().expect("claimed").solo, Some(SOLO_MIN));
}

#[test]
fn five_disruptions_make_a_suspect_and_no_loop() {
    let policy = Policy::default();
    let mut present = job();
    for nth in 1..=7 {
        let (next, charge) = end(
            claim(present, &policy),
            never_started(),
            Duration::ZERO,
            &policy,
        );
        assert_eq!(charge, Charge::Disruption);
        assert_eq!(next.budget.suspect, nth >= 5);
        let wait = if let State::Backoff { next_at } = next.state {
            Some(next_at.since(NOON).as_secs())
        } else {
            assert_eq!(next.state, State::Queued);
            None
        };
        let expected = [None, None, None, None, Some(5), Some(10), Some(20)];
        assert_eq!(wait, expected[nth - 1], "disruption {nth}");
        present = next;
    }
}

#[test]
fn an_attempt_that_finishes_ends_a_row_of_disruptions() {
    let policy = Policy::default();
    let mut present = Job {
        retries: 9,
        ..job()
    };
    for nth in 0..12 {
        let how = if nth % 4 == 3 {
            End::TryLater
        } else {
            never_started()
        };
        present = end(claim(present, &policy), how, SHORT, &policy).0;
    }
    assert!(!present.budget.suspect);
}

#[test]
fn our_own_bug_and_a_stop_cost_nothing() {
    let bug = End::OurBug {
        location: "engine.rs:1:1".to_owned(),
    };
    for how in [bug, End::Stopped] {
        let (after, charge) = end(running(None), how, SHORT, &Policy::default());
        assert_eq!(charge, Charge::None);
        assert_eq!(after.budget, job().budget);
        assert!(matches!(after.state, State::Backoff { .. }));
    }
}

#[test]
fn an_unreadable_body_is_set_aside_at_no_charge() {
    let how = End::Unreadable {
        message: "EOF".to_owned(),
    };
    let (after, charge) = end(running(None), how, SHORT, &Policy::default());
    assert_eq!((charge, after.budget), (Charge::None, job().budget));
    let reason = QuarantineReason::Unreadable {
        message: "EOF".to_owned(),
    };
    assert_eq!(after.state, State::Quarantined { reason });
}

#[test]
fn an_action_may_ask_for_as_many_tries_as_it_has() {
    let policy = Policy::default();
    for retries in 0..4 {
        let start = Job { retries, ..job() };
        let (after, charges) = repeat(start, &End::TryLater, SHORT, &policy);
        assert_eq!(charges, vec![Charge::None; retries as usize + 1]);
        let reason = FailReason::RetriesSpent;
        let failed = State::Failed {
            reason,
            message: None,
        };
        assert_eq!(after.state, failed);
    }
}

#[test]
fn success_clears_the_account_and_an_orderly_failure_does_not() {
    let policy = Policy::default();
    let (after, _) = end(claim(job(), &policy), segfault(), SHORT, &policy);
    let failed = End::Failed {
        reason: FailReason::ExitCode { code: 139 },
        message: None,
    };
    let (kept, charge) = end(claim(after.clone(), &policy), failed, SHORT, &policy);
    assert_eq!((charge, kept.budget.crashes), (Charge::None, 1));
    let (cleared, _) = end(claim(after, &policy), End::Succeeded, SHORT, &policy);
    assert_eq!(cleared.budget, job().budget);
}

#[test]
fn a_new_job_inherits_the_account_of_its_target() {
    let policy = Policy::default();
    let (spent, _) = repeat(job(), &segfault(), SHORT, &policy);
    let reason = QuarantineReason::BudgetSpent;
    let quarantined = State::Quarantined { reason };
    assert_eq!(Job::first_state(&spent.budget, &policy), quarantined);

    let (once, _) = end(claim(job(), &policy), segfault(), SHORT, &policy);
    assert_eq!(Job::first_state(&once.budget, &policy), State::Queued);
    let heir = Job {
        budget: once.budget,
        ..job()
    };
    assert_eq!(repeat(heir, &segfault(), SHORT, &policy).0.attempts, 2);
}

#[test]
fn a_limit_that_was_lowered_condemns_at_the_next_claim_without_a_run() {
    let (job, _) = end(
        claim(job(), &policy(3, 3)),
        segfault(),
        SHORT,
        &policy(3, 3),
    );
    let set_aside = claim(job, &policy(1, 3));
    assert_eq!(set_aside.attempts, 1);
    let reason = QuarantineReason::Crashes { count: 1 };
    assert_eq!(set_aside.state, State::Quarantined { reason });
}

#[test]
fn clearing_lifts_suspicion_and_isolation_but_keeps_what_condemns() {
    let policy = Policy::default();
    let (job, _) = end(claim(job(), &policy), killed(), SHORT, &policy);
    let (job, _) = end(claim(job, &policy), killed(), SHORT, &policy);
    let job = claim(job, &policy);
    assert!(job.attempt().expect("claimed").solo.is_some());
    let (job, _) = transition(job, Event::Clear, NOON, &policy).expect("not final");
    assert_eq!(job.attempt().expect("goes on").solo, None);
    assert!(!job.budget.suspect);
    assert_eq!(job.budget.crashes, 2);
    // It shares the replica now: the death that would reach the limit does not count.
    let (job, charge) = end(job, killed(), SHORT, &policy);
    assert_eq!((charge, job.budget.crashes), (Charge::Exposure, 2));
    assert!(job.budget.suspect);
}

#[test]
fn the_deadline_ends_what_would_be_tried_again() {
    let policy = Policy::default();
    let late = Job {
        deadline_at: NOON,
        ..running(None)
    };
    let deadline = State::Failed {
        reason: FailReason::Deadline,
        message: None,
    };
    for how in [killed(), never_started(), End::Stopped] {
        let (after, _) = end(late.clone(), how, SHORT, &policy);
        assert_eq!(after.state, deadline);
    }
    // What is done is done, and a culprit stays one.
    let (after, _) = end(late.clone(), End::Succeeded, SHORT, &policy);
    assert_eq!(after.state, State::Succeeded);
    let condemned = crate::fixtures::policy(1, 1);
    let (after, _) = end(late, segfault(), SHORT, &condemned);
    assert!(matches!(after.state, State::Quarantined { .. }));

    let waiting = Job {
        deadline_at: NOON,
        ..job()
    };
    assert_eq!(claim(waiting, &policy).state, deadline);
}

proptest! {
    /// I5: exposures in company and disruptions, however many, condemn nobody.
    #[test]
    fn whoever_only_stood_near_is_never_condemned(
        limits in (1u32..4, 1u32..4),
        ends in prop::collection::vec((0..5, 0u64..200_000), 1..60),
    ) {
        let policy = policy(limits.0, limits.1);
        let mut present = job();
        for (kind, more) in ends {
            let claimed = claim(present, &policy);
            let ran = in_company(&claimed, Duration::from_millis(more));
            let how = match kind {
                0 => exposed(ExposureCause::VanishedWithBroker),
                1 => exposed(ExposureCause::NamedByBlackBox),
                2 => exposed(ExposureCause::HostLost),
                3 => End::Disrupted { cause: DisruptionCause::Drain },
                _ => never_started(),
            };
            present = end(claimed, how, ran, &policy).0;
            prop_assert!(!present.state.is_final());
            prop_assert_eq!((present.budget.crashes, present.budget.losses), (0, 0));
        }
    }

    /// I5: a killer of processes at random may kill the same run for ever.
    #[test]
    fn deaths_without_evidence_in_company_never_condemn(
        limit in 1u32..5,
        ends in prop::collection::vec(0u64..200_000, 1..40),
    ) {
        let policy = policy(limit, 3);
        let mut present = job();
        for more in ends {
            let claimed = claim(present, &policy);
            let ran = in_company(&claimed, Duration::from_millis(more));
            present = end(claimed, killed(), ran, &policy).0;
            prop_assert!(!present.state.is_final());
            prop_assert!(present.budget.crashes < limit);
        }
        prop_assert!(limit > 3 || present.attempts < limit || present.budget.suspect);
    }

    /// I6 and promise 3, for any mixture of proofs.
    #[test]
    fn a_job_that_always_crashes_ends_in_quarantine_whatever_the_proof(
        limit in 1u32..5,
        proofs in prop::collection::vec(any::<bool>(), 20),
    ) {
        let policy = policy(limit, 3);
        let mut present = job();
        let mut attempts = proofs.into_iter();
        while !present.state.is_final() {
            let proven = attempts.next();
            prop_assert!(proven.is_some(), "still not condemned: {:?}", present);
            let how = if proven == Some(true) { segfault() } else { killed() };
            present = end(claim(present, &policy), how, SHORT, &policy).0;
        }
        prop_assert!(present.attempts >= limit && present.attempts <= limit + 1);
        prop_assert_eq!(present.budget.crashes, limit);
    }

    #[test]
    fn chance_spreads_but_never_changes_the_decision(chance in any::<u16>()) {
        let event = Event::End {
            attempt: attempt_id(1),
            end: killed(),
            ran: SHORT,
            chance: Chance(chance),
        };
        let (after, _) = transition(running(None), event, NOON, &Policy::default()).expect("legal");
        let waits = matches!(after.state, State::Backoff { .. });
        prop_assert!(waits, "{:?}", after.state);
    }
}

#[test]
fn a_claim_says_where_and_by_whom() {
    let event = Event::Claim {
        attempt: attempt_id(9),
        boot: boot_id(8),
        run_root: run_root(),
    };
    let (job, effects) = transition(job(), event, NOON, &Policy::default()).expect("due");
    let attempt = job.attempt().expect("claimed");
    assert_eq!(
        (attempt.id, attempt.boot, attempt.run_root, attempt.ordinal),
        (attempt_id(9), boot_id(8), run_root(), 1)
    );
    assert_eq!((attempt.claimed_at, attempt.solo), (NOON, None));
    assert_eq!(effects, []);
}
