//! Cancels, deletes and deadlines, while a job waits and while it runs.

use std::time::Duration;

use evenkeel_core::attempt::{Charge, End, Evidence, ExposureCause, FailReason};
use evenkeel_core::job::{Job, State, StopReason};
use evenkeel_core::policy::{Chance, Policy};
use evenkeel_core::transition::{Effect, Event, never_started, transition};

use crate::fixtures::{NOON, attempt_id, boot_id, death_of, end, job, job_id, running};

const RAN: Duration = Duration::from_secs(1);

fn by_delete(n: u64) -> StopReason {
    StopReason::Superseded { job: job_id(n) }
}

fn stop(job: Job, reason: StopReason) -> (Job, Vec<Effect>) {
    transition(job, Event::Stop { reason }, NOON, &Policy::default()).expect("not final")
}

#[test]
fn a_waiting_job_stops_at_once() {
    for (reason, word) in [
        (by_delete(2), "cancelled"),
        (StopReason::Operator, "cancelled"),
        (StopReason::SyncLimit, "cancelled"),
        (StopReason::Deadline, "failed"),
    ] {
        for state in [State::Queued, State::Backoff { next_at: NOON }] {
            let (after, effects) = stop(Job { state, ..job() }, reason.clone());
            assert_eq!(after.state.as_str(), word);
            assert_eq!(effects, [Effect::Settle]);
        }
    }
}

#[test]
fn a_running_job_is_asked_and_keeps_its_reason_through_a_change_of_owner() {
    let (asked, effects) = stop(running(None), by_delete(2));
    let attempt = attempt_id(1);
    assert_eq!(effects, [Effect::StopRun { attempt }]);
    assert_eq!(asked.superseded_by, Some(job_id(2)));

    let event = Event::Adopt {
        attempt,
        boot: boot_id(2),
    };
    let death = death_of(&asked, 1, ExposureCause::NamedByBlackBox, true, RAN);
    let (asked, effects) = transition(asked, death, NOON, &Policy::default()).expect("running");
    assert_eq!(effects, [Effect::StopRun { attempt }]);
    assert_eq!(asked.stop(), Some(&by_delete(2)));
    let (adopted, effects) = transition(asked, event, NOON, &Policy::default()).expect("running");
    assert_eq!(
        effects,
        [Effect::StopRun { attempt }],
        "the wish is renewed"
    );

    let failed = End::Failed {
        reason: FailReason::ExitCode { code: 1 },
        message: None,
    };
    let exposed = End::Exposed {
        cause: ExposureCause::HostLost,
    };
    let crashed = End::Crashed {
        evidence: Some(Evidence::OutOfMemory),
    };
    let unreadable = End::Unreadable {
        message: "EOF".to_owned(),
    };
    let later = End::TryLater;
    for how in [
        End::Stopped,
        End::Succeeded,
        failed,
        exposed,
        crashed,
        unreadable,
        later,
        never_started(),
    ] {
        let (after, _) = end(adopted.clone(), how, RAN, &Policy::default());
        assert_eq!(after.state, State::Cancelled { by: by_delete(2) });
    }
}

/// DESIGN §5, line 5.
#[test]
fn a_run_that_succeeds_after_a_cancel_keeps_its_outputs_for_the_delete() {
    for reason in [by_delete(2), StopReason::Operator, StopReason::SyncLimit] {
        let (asked, _) = stop(running(None), reason.clone());
        let event = Event::End {
            attempt: attempt_id(1),
            end: End::Succeeded,
            ran: RAN,
            chance: Chance(0),
        };
        let (after, effects) = transition(asked, event, NOON, &Policy::default()).expect("running");
        assert_eq!(after.state, State::Cancelled { by: reason });
        let close = Effect::CloseAttempt {
            attempt: attempt_id(1),
            charge: Charge::None,
        };
        assert_eq!(effects, [close, Effect::KeepOutputs, Effect::Settle]);
    }
}

#[test]
fn a_run_that_succeeds_while_its_deadline_stops_it_has_succeeded() {
    let (asked, _) = stop(running(None), StopReason::Deadline);
    let (after, _) = end(asked.clone(), End::Succeeded, RAN, &Policy::default());
    assert_eq!(after.state, State::Succeeded);
    let (after, _) = end(asked, End::Stopped, RAN, &Policy::default());
    let reason = FailReason::Deadline;
    let failed = State::Failed {
        reason,
        message: None,
    };
    assert_eq!(after.state, failed);
}

#[test]
fn a_delete_outranks_a_cancel_and_a_cancel_the_deadline() {
    use StopReason::{Deadline, Operator, SyncLimit};
    for (first, then, left) in [
        (Deadline, Operator, Operator),
        (Deadline, SyncLimit, SyncLimit),
        (Deadline, by_delete(2), by_delete(2)),
        (Operator, by_delete(2), by_delete(2)),
        (SyncLimit, by_delete(2), by_delete(2)),
        (Operator, SyncLimit, Operator),
        (SyncLimit, Operator, SyncLimit),
        (Operator, Deadline, Operator),
        (by_delete(2), by_delete(3), by_delete(2)),
        (by_delete(2), Operator, by_delete(2)),
        (by_delete(2), Deadline, by_delete(2)),
    ] {
        let (asked, _) = stop(running(None), first);
        let (asked, effects) = stop(asked, then);
        assert_eq!(asked.stop(), Some(&left));
        assert_eq!(effects.len(), 1, "asking again is no harm");
        let (after, _) = end(asked, End::Stopped, RAN, &Policy::default());
        let by = if let StopReason::Superseded { job } = left {
            Some(job)
        } else {
            None
        };
        assert_eq!(after.superseded_by, by);
    }
}
