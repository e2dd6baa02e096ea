//! Deaths of brokers, counted against an attempt before anybody looks at its run.

use std::time::Duration;

use evenkeel_core::attempt::{Charge, Death, End, ExposureCause, MAX_DEATHS};
use evenkeel_core::budget::SOLO_MIN;
use evenkeel_core::job::{Job, QuarantineReason, State};
use evenkeel_core::policy::Policy;
use evenkeel_core::transition::{Effect, Event, IllegalTransition, transition};

use crate::fixtures::{
    NOON, attempt_id, boot_id, claim, death_of, end, job, policy, run_root, running,
};

const SHORT: Duration = Duration::from_millis(20);
const NAMED: ExposureCause = ExposureCause::NamedByBlackBox;

/// The owner is boot 1.
const OWNER: u64 = 1;

fn expose(job: Job, boot: u64, exclusive: bool, ran: Duration) -> (Job, Vec<Effect>) {
    let event = death_of(&job, boot, NAMED, exclusive, ran);
    transition(job, event, NOON, &Policy::default()).expect("its attempt is under way")
}

fn deaths(job: &Job) -> &[Death] {
    &job.attempt().expect("its attempt is under way").deaths
}

#[test]
fn a_death_is_written_down_with_what_it_cost() {
    let (job, effects) = expose(running(None), OWNER, false, SHORT);
    let (job, _) = expose(job, 2, true, SHORT);
    let death = |boot, exclusive, charge| Death {
        boot: boot_id(boot),
        cause: NAMED,
        exclusive,
        charge,
    };
    assert_eq!(effects, []);
    assert_eq!(
        deaths(&job),
        [
            death(OWNER, false, Charge::Exposure),
            death(2, true, Charge::Loss)
        ]
    );
    assert_eq!((job.budget.exposures, job.budget.losses), (1, 1));
    assert_eq!(job.budget.longest_lost, SHORT);
}

/// I9: recovery that is cut and done again tells the same death again.
#[test]
fn a_death_that_is_told_again_changes_nothing() {
    for exclusive in [false, true] {
        for solo in [None, Some(SOLO_MIN)] {
            let (once, first) = expose(running(solo), OWNER, exclusive, SHORT);
            let (twice, second) = expose(once.clone(), OWNER, exclusive, SHORT);
            assert_eq!((&twice, second), (&once, first));
            // Also if it looks worse by now.
            let (thrice, _) = expose(once.clone(), OWNER, true, SOLO_MIN);
            assert_eq!(thrice, once);
        }
    }
}

#[test]
fn a_death_changes_neither_the_owner_nor_the_token() {
    let (job, _) = expose(running(None), 7, true, SHORT);
    let attempt = job.attempt().expect("under way");
    assert_eq!(attempt.boot, boot_id(OWNER));
    assert_eq!(job.token, running(None).token);
}

#[test]
fn a_death_near_another_attempt_is_refused() {
    let event = Event::Expose {
        attempt: attempt_id(9),
        boot: boot_id(OWNER),
        cause: NAMED,
        exclusive: true,
        ran: SHORT,
    };
    let refused = transition(running(None), event.clone(), NOON, &Policy::default());
    let wrong = IllegalTransition::WrongAttempt(attempt_id(9));
    assert_eq!(refused, Err(wrong));

    let refused = transition(job(), event, NOON, &Policy::default());
    let wrong = IllegalTransition::WrongState {
        event: "expose",
        state: "queued",
    };
    assert_eq!(refused, Err(wrong));
}

#[test]
fn deaths_beyond_those_that_are_kept_cost_nothing_more() {
    let mut present = running(None);
    for boot in 1..=MAX_DEATHS as u64 {
        present = expose(present, boot, false, SHORT).0;
    }
    assert_eq!(deaths(&present).len(), MAX_DEATHS);
    let (after, _) = expose(present.clone(), 1_000, true, SHORT);
    assert_eq!(after, present);
}

#[test]
fn a_death_is_a_loss_only_in_an_exclusive_step_or_if_the_owner_died_in_the_solo_run() {
    let another = 2;
    for (solo, boot, exclusive, ran, charge) in [
        (None, OWNER, false, SHORT, Charge::Exposure),
        (None, OWNER, true, SHORT, Charge::Loss),
        (None, another, false, SHORT, Charge::Exposure),
        (None, another, true, SHORT, Charge::Loss),
        (Some(SOLO_MIN), OWNER, false, SHORT, Charge::Loss),
        (Some(SOLO_MIN), OWNER, true, SHORT, Charge::Loss),
        // It shares the replica again.
        (Some(SOLO_MIN), OWNER, false, SOLO_MIN, Charge::Exposure),
        // Somebody who had not taken it over yet was about other jobs too.
        (Some(SOLO_MIN), another, false, SHORT, Charge::Exposure),
        (Some(SOLO_MIN), another, true, SHORT, Charge::Loss),
    ] {
        let (job, _) = expose(running(solo), boot, exclusive, ran);
        assert_eq!(
            deaths(&job)[0].charge,
            charge,
            "{solo:?} {boot} {exclusive} {ran:?}"
        );
    }
}

#[test]
fn an_end_by_the_owners_death_costs_nothing_more_once_that_is_counted() {
    let how = || End::Exposed { cause: NAMED };
    for (solo, cost) in [(None, Charge::Exposure), (Some(SOLO_MIN), Charge::Loss)] {
        let (counted, _) = expose(running(solo), OWNER, false, SHORT);
        let (after, charge) = end(counted.clone(), how(), SHORT, &Policy::default());
        assert_eq!(charge, cost, "what the death cost");
        assert_eq!(after.budget, counted.budget);

        let (after, charge) = end(running(solo), how(), SHORT, &Policy::default());
        assert_eq!(charge, cost, "not counted before");
        assert_eq!(after.budget, counted.budget, "either way the same");

        // Another's death that is counted does not stand for the owner's.
        let (other, _) = expose(running(solo), 2, false, SHORT);
        let (after, charge) = end(other, how(), SHORT, &Policy::default());
        assert_eq!(charge, cost);
        assert_eq!((after.budget.exposures + after.budget.losses), 2);
    }
}

#[test]
fn deaths_in_exclusive_steps_are_losses_from_the_first() {
    let policy = policy(3, 2);
    let mut present = job();
    for losses in 1..=2 {
        let claimed = claim(present, &policy);
        let (counted, _) = expose(claimed, OWNER, true, Duration::ZERO);
        assert_eq!(counted.budget.losses, losses);
        present = end(counted, End::Exposed { cause: NAMED }, SHORT, &policy).0;
    }
    let reason = QuarantineReason::Losses { count: 2 };
    assert_eq!(present.state, State::Quarantined { reason });
}

/// I7: a run whose record kills whoever reads it is not read for ever.
#[test]
fn a_living_run_is_stopped_once_the_deaths_of_those_who_looked_at_it_condemn() {
    let policy = policy(3, 2);
    let attempt = attempt_id(1);
    let tell = |job: Job, boot| {
        let event = death_of(&job, boot, NAMED, true, SHORT);
        transition(job, event, NOON, &policy).expect("it is running")
    };
    let (job, effects) = tell(running(None), OWNER);
    assert_eq!((job.budget.losses, effects), (1, vec![]));
    let (job, effects) = tell(job, 2);
    assert_eq!(job.budget.losses, 2);
    assert_eq!(effects, [Effect::StopRun { attempt }]);
    // Said again to whoever repeats it, and to whoever takes it over.
    let (job, effects) = tell(job, 2);
    assert_eq!(effects, [Effect::StopRun { attempt }]);
    let boot = boot_id(3);
    let adopt = Event::Adopt { attempt, boot };
    let (job, effects) = transition(job, adopt, NOON, &policy).expect("it is running");
    assert_eq!(effects, [Effect::StopRun { attempt }]);
    let (job, charge) = end(job, End::Stopped, SHORT, &policy);
    assert_eq!(charge, Charge::None);
    let reason = QuarantineReason::Losses { count: 2 };
    assert_eq!(job.state, State::Quarantined { reason });
}

#[test]
fn who_takes_a_run_over_answers_for_a_death_of_its_own() {
    let (job, _) = expose(running(Some(SOLO_MIN)), OWNER, false, SHORT);
    let adopt = Event::Adopt {
        attempt: attempt_id(1),
        boot: boot_id(2),
    };
    let (job, _) = transition(job, adopt, NOON, &Policy::default()).expect("it is running");
    assert_eq!(deaths(&job).len(), 1, "what is counted stays counted");
    let how = End::Exposed {
        cause: ExposureCause::VanishedWithBroker,
    };
    let (after, charge) = end(job, how, SHORT, &Policy::default());
    assert_eq!(charge, Charge::Loss, "the new owner died in its solo run");
    assert_eq!(after.budget.losses, 2);
}

#[test]
fn a_new_attempt_begins_without_deaths() {
    let (job, _) = expose(running(None), OWNER, false, SHORT);
    let policy = Policy::default();
    let (waiting, _) = end(job, End::Exposed { cause: NAMED }, SHORT, &policy);
    let again = claim(waiting, &policy);
    assert_eq!(deaths(&again), []);
    assert_eq!(again.attempt().map(|now| now.run_root), Some(run_root()));
}
