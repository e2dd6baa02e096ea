//! Laws over random histories: whatever happens in whatever order, also what does not belong.

use std::time::Duration;

use evenkeel_core::attempt::{
    Attempt, Charge, DisruptionCause, End, Evidence, ExposureCause, FailReason, LimitKind,
};
use evenkeel_core::job::{Job, State, StopReason};
use evenkeel_core::policy::{Chance, Policy};
use evenkeel_core::time::Timestamp;
use evenkeel_core::transition::{Effect, Event, IllegalTransition, is_due, transition};
use proptest::prelude::*;

use crate::fixtures::{DEADLINE, NOON, attempt_id, boot_id, charge_in, job, job_id, run_root};

/// Something that a history consists of. Events name the attempt under way unless `stray`.
#[derive(Clone, Debug)]
enum Step {
    Claim,
    Adopt {
        stray: bool,
    },
    /// Of one of a few boots, so that some deaths are told again.
    Expose {
        boot: Option<u64>,
        cause: ExposureCause,
        exclusive: bool,
        ran: Duration,
        stray: bool,
    },
    End {
        end: End,
        ran: Duration,
        chance: Chance,
        stray: bool,
    },
    Stop(StopReason),
    Clear,
    /// The clock moves, or is set back.
    Clock(i64),
}

fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        (0u64..600_000).prop_map(Duration::from_millis),
        Just(Duration::MAX),
    ]
}

fn cause() -> impl Strategy<Value = ExposureCause> {
    prop_oneof![
        Just(ExposureCause::VanishedWithBroker),
        Just(ExposureCause::NamedByBlackBox),
        Just(ExposureCause::HostLost),
    ]
}

fn text() -> impl Strategy<Value = String> {
    "[a-z ]{0,8}"
}

fn fail_reason() -> impl Strategy<Value = FailReason> {
    prop_oneof![
        (1i32..256).prop_map(|code| FailReason::ExitCode { code }),
        Just(FailReason::RetriesSpent),
        Just(FailReason::Timeout),
        Just(FailReason::Deadline),
        text().prop_map(|message| FailReason::BadOutput { message }),
        text().prop_map(|message| FailReason::NotRunnable { message }),
        text().prop_map(|message| FailReason::NotPrepared { message }),
    ]
}

fn any_end() -> impl Strategy<Value = End> {
    let evidence = prop_oneof![
        Just(Evidence::FatalSignal { signal: 11 }),
        Just(Evidence::Limit {
            limit: LimitKind::Memory
        }),
        Just(Evidence::OutOfMemory),
        text().prop_map(|location| Evidence::Panic { location }),
    ];
    let disruption = prop_oneof![
        Just(DisruptionCause::Drain),
        Just(DisruptionCause::Stopped),
        Just(DisruptionCause::NeverStarted),
        Just(DisruptionCause::Reboot),
    ];
    prop_oneof![
        1 => Just(End::Succeeded),
        1 => (fail_reason(), proptest::option::of(text()))
            .prop_map(|(reason, message)| End::Failed { reason, message }),
        3 => Just(End::TryLater),
        2 => Just(End::Stopped),
        4 => proptest::option::of(evidence).prop_map(|evidence| End::Crashed { evidence }),
        4 => cause().prop_map(|cause| End::Exposed { cause }),
        4 => disruption.prop_map(|cause| End::Disrupted { cause }),
        2 => text().prop_map(|location| End::OurBug { location }),
        1 => text().prop_map(|message| End::Unreadable { message }),
    ]
}

fn any_stop() -> impl Strategy<Value = StopReason> {
    prop_oneof![
        (50u64..53).prop_map(|n| StopReason::Superseded { job: job_id(n) }),
        Just(StopReason::Operator),
        Just(StopReason::SyncLimit),
        Just(StopReason::Deadline),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let stray = || prop::bool::weighted(0.1);
    prop_oneof![
        8 => Just(Step::Claim),
        2 => stray().prop_map(|stray| Step::Adopt { stray }),
        4 => (proptest::option::of(900u64..903), cause(), any::<bool>(), span(), stray())
            .prop_map(|(boot, cause, exclusive, ran, stray)| {
                Step::Expose { boot, cause, exclusive, ran, stray }
            }),
        8 => (any_end(), span(), any::<u16>(), stray()).prop_map(|(end, ran, chance, stray)| {
            Step::End { end, ran, chance: Chance(chance), stray }
        }),
        1 => any_stop().prop_map(Step::Stop),
        1 => Just(Step::Clear),
        4 => prop_oneof![0i64..700_000, -3_600_000i64..0, Just(i64::MAX / 4)].prop_map(Step::Clock),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    (1u32..5, 1u32..5).prop_map(|(crash_limit, loss_limit)| Policy {
        crash_limit,
        loss_limit,
        ..Policy::default()
    })
}

fn history() -> impl Strategy<Value = (Policy, u32, Vec<Step>)> {
    (policy(), 0u32..6, prop::collection::vec(step(), 0..60))
}

/// One event of a history with what came of it.
struct Turn {
    before: Job,
    event: Event,
    now: Timestamp,
    outcome: Result<(Job, Vec<Effect>), IllegalTransition>,
}

impl Turn {
    fn after(&self) -> &Job {
        self.outcome.as_ref().map_or(&self.before, |(job, _)| job)
    }

    fn effects(&self) -> &[Effect] {
        self.outcome
            .as_ref()
            .map_or(&[], |(_, effects)| effects.as_slice())
    }

    fn charge(&self) -> Option<Charge> {
        charge_in(self.effects())
    }

    /// Whether the attempt ends by its owner's death, which was counted before.
    fn counted_at_end(&self) -> bool {
        let exposed = matches!(
            self.event,
            Event::End {
                end: End::Exposed { .. },
                ..
            }
        );
        let owner_counted = |attempt: &Attempt| {
            attempt
                .deaths
                .iter()
                .any(|death| death.boot == attempt.boot)
        };
        exposed && self.before.attempt().is_some_and(owner_counted)
    }
}

fn play(policy: &Policy, retries: u32, steps: Vec<Step>) -> Vec<Turn> {
    let mut present = Job { retries, ..job() };
    let mut now = NOON;
    let mut turns = Vec::new();
    for (n, step) in steps.into_iter().enumerate() {
        let fresh = attempt_id(1_000 + n as u64);
        let named = |stray: bool| match present.attempt() {
            Some(attempt) if !stray => attempt.id,
            _ => fresh,
        };
        let event = match step {
            Step::Clock(millis) => {
                now = Timestamp(now.0.saturating_add(millis));
                continue;
            }
            Step::Claim => Event::Claim {
                attempt: fresh,
                boot: boot_id(n as u64),
                run_root: run_root(),
            },
            Step::Adopt { stray } => Event::Adopt {
                attempt: named(stray),
                boot: boot_id(n as u64),
            },
            // The owner's, where no other is meant.
            Step::Expose {
                boot,
                cause,
                exclusive,
                ran,
                stray,
            } => Event::Expose {
                attempt: named(stray),
                boot: boot.map_or_else(
                    || present.attempt().map_or(boot_id(900), |owned| owned.boot),
                    boot_id,
                ),
                cause,
                exclusive,
                ran,
            },
            Step::End {
                end,
                ran,
                chance,
                stray,
            } => Event::End {
                attempt: named(stray),
                end,
                ran,
                chance,
            },
            Step::Stop(reason) => Event::Stop { reason },
            Step::Clear => Event::Clear,
        };
        let outcome = transition(present.clone(), event.clone(), now, policy);
        let turn = Turn {
            before: present,
            event,
            now,
            outcome,
        };
        present = turn.after().clone();
        turns.push(turn);
    }
    turns
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// I11, and that every event in every state has an answer.
    #[test]
    fn a_final_job_answers_every_event_by_staying_final((policy, retries, steps) in history()) {
        for turn in play(&policy, retries, steps) {
            if turn.before.state.is_final() {
                let word = turn.before.state.as_str();
                prop_assert_eq!(turn.outcome, Err(IllegalTransition::Final(word)));
            }
        }
    }

    #[test]
    fn counters_shrink_only_by_success_or_an_operators_word((policy, retries, steps) in history()) {
        for turn in play(&policy, retries, steps) {
            let (before, after) = (&turn.before.budget, &turn.after().budget);
            let accepted = turn.outcome.is_ok();
            let succeeded = accepted && matches!(turn.event, Event::End { end: End::Succeeded, .. });
            let cleared = accepted && turn.event == Event::Clear;
            let finished = accepted
                && matches!(turn.event, Event::End { end: End::Failed { .. } | End::TryLater, .. });
            prop_assert!(after.crashes >= before.crashes || succeeded);
            prop_assert!(after.losses >= before.losses || succeeded);
            prop_assert!(after.exposures >= before.exposures || succeeded || cleared);
            prop_assert!(after.longest_lost >= before.longest_lost || succeeded || cleared);
            prop_assert!(after.suspect || !before.suspect || succeeded || cleared);
            prop_assert!(
                after.disruptions >= before.disruptions || succeeded || cleared || finished
            );
        }
    }

    /// I4: every change of owner has a token of its own, and nothing else has.
    #[test]
    fn the_token_grows_exactly_with_the_owner((policy, retries, steps) in history()) {
        for turn in play(&policy, retries, steps) {
            let (before, after) = (&turn.before, turn.after());
            let claimed = matches!(turn.event, Event::Claim { .. })
                && turn.outcome.is_ok()
                && after.attempt().is_some();
            let adopted = matches!(turn.event, Event::Adopt { .. }) && turn.outcome.is_ok();
            prop_assert_eq!(after.token.0, before.token.0 + u64::from(claimed || adopted));
            prop_assert_eq!(after.attempts, before.attempts + u32::from(claimed));
            if let (Some(was), Some(is)) = (before.attempt(), after.attempt()) {
                prop_assert!(was.boot == is.boot || adopted);
                prop_assert_eq!((was.id, was.ordinal), (is.id, is.ordinal));
            }
            if claimed {
                prop_assert_eq!(after.attempt().map(|attempt| attempt.ordinal), Some(after.attempts));
            }
        }
    }

    #[test]
    fn only_the_attempt_under_way_can_be_adopted_exposed_or_ended((policy, retries, steps) in history()) {
        for turn in play(&policy, retries, steps) {
            if let Event::Adopt { attempt, .. }
            | Event::Expose { attempt, .. }
            | Event::End { attempt, .. } = turn.event
            {
                let under_way = turn.before.attempt().map(|known| known.id);
                prop_assert_eq!(turn.outcome.is_ok(), under_way == Some(attempt));
            }
        }
    }

    /// I6: and what was charged is what the account says.
    #[test]
    fn charged_crashes_never_exceed_their_limit((policy, retries, steps) in history()) {
        let mut crashes = 0;
        for turn in play(&policy, retries, steps) {
            let (before, after) = (&turn.before.budget, &turn.after().budget);
            let told_before = turn.counted_at_end();
            match turn.charge() {
                Some(Charge::Exposure | Charge::Loss) if told_before => {
                    prop_assert_eq!(after, before, "what is counted is not counted again");
                }
                Some(Charge::Crash) => {
                    crashes += 1;
                    prop_assert_eq!(after.crashes, before.crashes + 1);
                }
                Some(Charge::Exposure) => prop_assert_eq!(after.exposures, before.exposures + 1),
                Some(Charge::Loss) => prop_assert_eq!(after.losses, before.losses + 1),
                Some(Charge::Disruption) => {
                    prop_assert_eq!(after.disruptions, before.disruptions + 1);
                }
                Some(Charge::None) | None => prop_assert!(after.crashes <= before.crashes),
            }
            prop_assert!(crashes <= policy.crash_limit);
            prop_assert!(after.crashes <= policy.crash_limit);
        }
    }

    /// A death is counted once for each attempt and boot, and changes nothing but the account.
    #[test]
    fn a_death_is_counted_once_however_often_it_is_told((policy, retries, steps) in history()) {
        for turn in play(&policy, retries, steps) {
            let (Event::Expose { boot, cause, exclusive, ran, .. }, true) =
                (&turn.event, turn.outcome.is_ok())
            else {
                continue;
            };
            let (was, is) = (turn.before.attempt().expect("under way"), turn.after().attempt());
            let is = is.expect("a death ends no attempt");
            let known = was.death_of(*boot).is_some();
            prop_assert_eq!(is.deaths.len(), was.deaths.len() + usize::from(!known));
            prop_assert_eq!(&is.deaths[..was.deaths.len()], &was.deaths[..]);
            let (mut before, after) = (turn.before.clone(), turn.after());
            if let (false, Some(last)) = (known, is.deaths.last()) {
                let alone = *exclusive || (was.boot == *boot && was.is_solo_after(*ran));
                let charge = before.budget.expose(alone, *ran, &policy);
                prop_assert_eq!((last.boot, last.cause), (*boot, *cause));
                prop_assert_eq!((last.exclusive, last.charge), (*exclusive, charge));
            }
            if let State::Running { attempt, .. } = &mut before.state {
                attempt.deaths.clone_from(&is.deaths);
            }
            prop_assert_eq!(&before, after);
        }
    }

    #[test]
    fn no_run_starts_on_a_spent_budget((policy, retries, steps) in history()) {
        for turn in play(&policy, retries, steps) {
            if matches!(turn.event, Event::Claim { .. }) && turn.outcome.is_ok() {
                let spent = turn.before.budget.is_spent(&policy);
                prop_assert!(!(spent && turn.after().attempt().is_some()));
            }
            // And none goes on unasked.
            if matches!(turn.event, Event::Adopt { .. } | Event::Expose { .. })
                && turn.outcome.is_ok()
                && turn.after().budget.is_spent(&policy)
            {
                let asked_to_stop = matches!(turn.effects(), [Effect::StopRun { .. }]);
                prop_assert!(asked_to_stop);
            }
        }
    }

    #[test]
    fn effects_say_what_happened((policy, retries, steps) in history()) {
        for turn in play(&policy, retries, steps) {
            let effects = turn.effects();
            let became_final = turn.after().state.is_final() && !turn.before.state.is_final();
            prop_assert_eq!(effects.contains(&Effect::Settle), became_final);
            let ended = matches!(turn.event, Event::End { .. }) && turn.outcome.is_ok();
            prop_assert_eq!(turn.charge().is_some(), ended);
            let succeeded = matches!(turn.event, Event::End { end: End::Succeeded, .. });
            prop_assert_eq!(effects.contains(&Effect::KeepOutputs), ended && succeeded);
            // An ended attempt is no longer the job's.
            prop_assert!(!ended || turn.after().attempt().is_none());
        }
    }

    /// I1: past its deadline a job takes no further turn.
    #[test]
    fn an_end_or_a_claim_past_the_deadline_is_final((policy, retries, steps) in history()) {
        for turn in play(&policy, retries, steps) {
            let moved = matches!(turn.event, Event::End { .. } | Event::Claim { .. });
            if moved && turn.outcome.is_ok() && turn.now >= DEADLINE {
                prop_assert!(turn.after().state.is_final());
            }
        }
    }

    #[test]
    fn a_superseded_job_ends_as_cancelled_by_its_successor((policy, retries, steps) in history()) {
        for turn in play(&policy, retries, steps) {
            let job = turn.after();
            match (&job.state, job.superseded_by) {
                (State::Cancelled { by: StopReason::Superseded { job: by } }, marked) => {
                    prop_assert_eq!(Some(*by), marked);
                }
                (State::Running { stop, .. }, Some(by)) => {
                    prop_assert_eq!(stop, &Some(StopReason::Superseded { job: by }));
                }
                (_, marked) => prop_assert_eq!(marked, None),
            }
        }
    }

    #[test]
    fn a_stop_reason_survives_all_but_a_weightier_one((policy, retries, steps) in history()) {
        for turn in play(&policy, retries, steps) {
            let Some(asked) = turn.before.stop() else { continue };
            match (&turn.after().state, &turn.event) {
                (State::Running { stop, .. }, Event::Stop { reason }) => {
                    prop_assert!(stop.as_ref() == Some(asked) || stop.as_ref() == Some(reason));
                }
                (State::Running { stop, .. }, _) => prop_assert_eq!(stop.as_ref(), Some(asked)),
                (State::Cancelled { by }, _) => prop_assert_eq!(by, asked),
                (State::Failed { reason, .. }, _) => {
                    prop_assert_eq!(asked, &StopReason::Deadline);
                    prop_assert_eq!(reason, &FailReason::Deadline);
                }
                (State::Succeeded, _) => prop_assert_eq!(asked, &StopReason::Deadline),
                (other, _) => prop_assert!(false, "a job that was to stop is {}", other.as_str()),
            }
        }
    }

    #[test]
    fn backoff_keeps_its_bounds((policy, retries, steps) in history()) {
        for turn in play(&policy, retries, steps) {
            let entered = turn.before.attempt().is_some();
            if let (true, State::Backoff { next_at }) = (entered, &turn.after().state) {
                let wait = next_at.since(turn.now);
                prop_assert!(wait <= policy.backoff_max);
                prop_assert!(wait >= policy.backoff_min * 3 / 4 || next_at.0 == i64::MAX);
            }
        }
    }

    #[test]
    fn backoff_doubles_up_to_its_maximum(nth in 1u32..100, chance in any::<u16>()) {
        let policy = Policy::default();
        let full = policy
            .backoff_min
            .saturating_mul(1 << (nth - 1).min(20))
            .min(policy.backoff_max);
        let wait = policy.backoff(nth, Chance(chance));
        prop_assert!(wait <= full && wait >= full * 3 / 4);
        prop_assert_eq!(policy.backoff(nth, Chance(0)), full);
    }

    #[test]
    fn a_job_in_backoff_waits_neither_too_short_nor_beyond_a_clock_step(
        wait in 0i64..600_000,
        passed in -10_000_000i64..10_000_000,
    ) {
        let policy = Policy::default();
        let next_at = Timestamp(NOON.0 + wait);
        let now = Timestamp(NOON.0 + passed);
        let max = i64::try_from(policy.backoff_max.as_millis()).expect("minutes");
        let due = is_due(next_at, now, &policy);
        // Time went on: due when the wait is over. Set back too far: due at once. Else it waits.
        prop_assert_eq!(due, passed >= wait || wait - passed > max);
    }

    #[test]
    fn a_claim_obeys_the_backoff(wait in 1i64..600_000, passed in 0i64..700_000) {
        let policy = Policy::default();
        let next_at = Timestamp(NOON.0 + wait);
        let job = Job { state: State::Backoff { next_at }, ..job() };
        let event = Event::Claim { attempt: attempt_id(1), boot: boot_id(1), run_root: run_root() };
        let outcome = transition(job, event, Timestamp(NOON.0 + passed), &policy);
        if passed >= wait {
            prop_assert!(outcome.is_ok_and(|(job, _)| job.attempt().is_some()));
        } else {
            prop_assert_eq!(outcome.err(), Some(IllegalTransition::NotDue(next_at)));
        }
    }
}
