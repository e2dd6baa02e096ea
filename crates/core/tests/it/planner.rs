//! The recovery planner, over every combination of facts there is.

use std::fmt::Write as _;
use std::time::Duration;

use evenkeel_core::attempt::{Charge, Death, DisruptionCause, End, ExposureCause};
use evenkeel_core::recovery::{
    Action, DeadBoot, DeathFact, Exclusive, Exposure, Facts, OwnerFact, RunFact, exposures, plan,
    plan_unclaimed, plan_unreadable,
};

use proptest::prelude::*;

use crate::fixtures::{attempt_id, boot_id, running};

const RUNS: [RunFact; 6] = [
    RunFact::NeverStarted,
    RunFact::Alive,
    RunFact::Lingering,
    RunFact::Exited,
    RunFact::Vanished,
    RunFact::Elsewhere,
];

const CAUSES: [ExposureCause; 3] = [
    ExposureCause::VanishedWithBroker,
    ExposureCause::NamedByBlackBox,
    ExposureCause::HostLost,
];

fn deaths() -> impl Iterator<Item = DeathFact> {
    let counted = || std::iter::once(None).chain(CAUSES.map(Some));
    (0u8..4).flat_map(move |bits| {
        counted().map(move |counted| DeathFact {
            drained: bits & 2 != 0,
            host_restarted: bits & 1 != 0,
            counted,
        })
    })
}

fn owners() -> impl Iterator<Item = OwnerFact> {
    [OwnerFact::Driven, OwnerFact::Undriven, OwnerFact::Alive]
        .into_iter()
        .chain(deaths().map(OwnerFact::Dead))
}

fn all_facts() -> impl Iterator<Item = Facts> {
    owners().flat_map(|owner| {
        RUNS.map(|run| Facts {
            attempt: attempt_id(1),
            owner,
            run,
            ran: Duration::from_secs(1),
        })
    })
}

fn owner_words(owner: OwnerFact) -> String {
    match owner {
        OwnerFact::Driven => "ours, driven".to_owned(),
        OwnerFact::Undriven => "ours, no driver".to_owned(),
        OwnerFact::Alive => "another, alive".to_owned(),
        OwnerFact::Dead(death) => {
            let mut words = "dead".to_owned();
            for (is, word) in [
                (death.drained, " drained"),
                (death.host_restarted, " host-restarted"),
            ] {
                if is {
                    words.push_str(word);
                }
            }
            if let Some(cause) = death.counted {
                words.push_str(", counted: ");
                words.push_str(cause_words(cause));
            }
            words
        }
    }
}

fn cause_words(cause: ExposureCause) -> &'static str {
    match cause {
        ExposureCause::VanishedWithBroker => "vanished with broker",
        ExposureCause::NamedByBlackBox => "named",
        ExposureCause::HostLost => "host lost",
    }
}

fn end_words(end: &End) -> String {
    if let End::Exposed { cause } = end {
        return format!("exposed ({})", cause_words(*cause));
    }
    format!("{end:?}")
}

fn action_words(action: &Action) -> String {
    match action {
        Action::Leave => "leave".to_owned(),
        Action::Adopt => "adopt".to_owned(),
        Action::Conclude => "conclude".to_owned(),
        Action::Requeue(end) => format!("requeue: {}", end_words(end)),
        Action::Charge(end) => format!("charge: {}", end_words(end)),
        Action::SetAside => "set aside".to_owned(),
        Action::Sweep => "sweep".to_owned(),
    }
}

/// The whole planner, to be read by people.
#[test]
fn the_plan_for_every_fact_is_this() {
    let mut table = String::new();
    for facts in all_facts() {
        let plan = plan(&facts);
        let [action] = plan.as_slice() else {
            panic!("not one action for {facts:?}: {plan:?}");
        };
        let (owner, run) = (owner_words(facts.owner), format!("{:?}", facts.run));
        writeln!(table, "{owner:<52}| {run:<13}| {}", action_words(action))
            .expect("a string takes it");
    }
    for run in RUNS {
        let plan = plan_unclaimed(run);
        let words: Vec<_> = plan.iter().map(action_words).collect();
        let run = format!("{run:?}");
        writeln!(table, "{:<52}| {run:<13}| {}", "no row", words.join(", "))
            .expect("a string takes it");
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_row_that_cannot_be_read_is_set_aside() {
    assert_eq!(plan_unreadable(), [Action::SetAside]);
}

/// What an attempt costs, and whether it is over, is decided only when its run is proven gone.
#[test]
fn what_may_still_be_alive_or_has_left_a_record_is_never_requeued_nor_charged() {
    for facts in all_facts() {
        let over = plan(&facts)
            .iter()
            .any(|action| matches!(action, Action::Requeue(_) | Action::Charge(_)));
        let gone = matches!(facts.run, RunFact::NeverStarted | RunFact::Vanished);
        assert!(!over || gone, "I3: {facts:?}");
    }
}

#[test]
fn only_what_is_in_good_hands_or_out_of_reach_is_left() {
    for facts in all_facts() {
        let left = plan(&facts) == [Action::Leave];
        let in_good_hands = matches!(facts.owner, OwnerFact::Driven | OwnerFact::Alive);
        let elsewhere = facts.run == RunFact::Elsewhere;
        assert_eq!(left, in_good_hands || elsewhere, "{facts:?}");
    }
}

/// That the owner's death was counted says how the attempt ended, not whether it did.
#[test]
fn what_is_counted_is_told_by_the_end_and_changes_nothing_for_a_run_that_is_there() {
    for facts in all_facts() {
        let OwnerFact::Dead(death) = facts.owner else {
            continue;
        };
        let owner = OwnerFact::Dead(DeathFact {
            counted: None,
            ..death
        });
        let uncounted = plan(&Facts { owner, ..facts });
        let over = matches!(facts.run, RunFact::NeverStarted | RunFact::Vanished);
        match death.counted {
            Some(cause) if over => {
                let exposed = Action::Charge(End::Exposed { cause });
                assert_eq!(plan(&facts), [exposed], "{facts:?}");
            }
            Some(_) | None => assert_eq!(plan(&facts), uncounted, "{facts:?}"),
        }
    }
}

/// I8.
#[test]
fn a_drained_boot_costs_no_job_anything_but_the_one_that_it_hung_in() {
    for facts in all_facts() {
        let OwnerFact::Dead(death) = facts.owner else {
            continue;
        };
        if death.drained && death.counted.is_none() {
            let charged = matches!(plan(&facts)[..], [Action::Charge(_)]);
            assert!(!charged, "{facts:?}");
        }
    }
}

/// Why a run that never started is free: its boot lived to see it, or was somebody else's victim.
#[test]
fn a_run_that_never_started_costs_nothing_unless_its_host_was_lost_or_a_death_is_counted() {
    let free = Action::Requeue(End::Disrupted {
        cause: DisruptionCause::NeverStarted,
    });
    for facts in all_facts().filter(|facts| facts.run == RunFact::NeverStarted) {
        let expected = match facts.owner {
            OwnerFact::Driven | OwnerFact::Alive => Action::Leave,
            OwnerFact::Undriven => free.clone(),
            OwnerFact::Dead(death) => match (death.counted, death.drained, death.host_restarted) {
                (Some(cause), _, _) => Action::Charge(End::Exposed { cause }),
                (None, false, true) => Action::Charge(End::Exposed {
                    cause: ExposureCause::HostLost,
                }),
                (None, _, _) => free.clone(),
            },
        };
        assert_eq!(plan(&facts), [expected], "{facts:?}");
    }
}

fn dead(boot: u64, names: Option<bool>, took_host: bool) -> DeadBoot {
    DeadBoot {
        boot: boot_id(boot),
        names: names.map(Exclusive),
        took_host,
    }
}

fn attempt_with(counted: &[u64]) -> evenkeel_core::attempt::Attempt {
    let mut attempt = running(None).attempt().expect("it is running").clone();
    attempt.deaths = (counted.iter())
        .map(|boot| Death {
            boot: boot_id(*boot),
            cause: ExposureCause::NamedByBlackBox,
            exclusive: false,
            charge: Charge::Exposure,
        })
        .collect();
    attempt
}

#[test]
fn whom_a_black_box_names_is_near_and_alone_only_if_the_step_was() {
    let dead = [
        dead(4, None, false),
        dead(3, Some(false), false),
        dead(2, Some(true), false),
    ];
    let named = |boot, exclusive| Exposure {
        boot: boot_id(boot),
        cause: ExposureCause::NamedByBlackBox,
        named: true,
        exclusive,
    };
    let near = exposures(&attempt_with(&[]), &dead);
    assert_eq!(near, [named(3, false), named(2, true)], "in their order");
    assert_eq!(exposures(&attempt_with(&[3]), &dead), [named(2, true)]);
    assert_eq!(exposures(&attempt_with(&[2, 3]), &dead), []);
}

#[test]
fn a_boot_that_died_with_its_host_was_near_every_attempt_in_its_hands() {
    for names in [None, Some(false), Some(true)] {
        let lost = Exposure {
            boot: boot_id(5),
            cause: ExposureCause::HostLost,
            named: names.is_some(),
            // A suspect's name is on disk before its step begins.
            exclusive: names == Some(true),
        };
        let dead = [dead(5, names, true)];
        assert_eq!(exposures(&attempt_with(&[1]), &dead), [lost], "{names:?}");
        assert_eq!(exposures(&attempt_with(&[5]), &dead), []);
    }
}

proptest! {
    /// A death that is counted, and one that is told twice, is never due again.
    #[test]
    fn once_the_exposures_are_counted_none_is_left(
        counted in prop::collection::btree_set(0u64..8, 0..4),
        boots in prop::collection::btree_map(0u64..8, (prop::option::of(any::<bool>()), any::<bool>()), 0..8),
    ) {
        let counted: Vec<u64> = counted.into_iter().collect();
        let mut attempt = attempt_with(&counted);
        let dead: Vec<DeadBoot> = boots
            .iter()
            .map(|(boot, (names, took_host))| dead(*boot, *names, *took_host))
            .collect();
        let near = exposures(&attempt, &dead);
        let expected: Vec<_> = dead
            .iter()
            .filter(|dead| dead.names.is_some() || dead.took_host)
            .map(|dead| dead.boot)
            .filter(|boot| attempt.death_of(*boot).is_none())
            .collect();
        prop_assert_eq!(near.iter().map(|near| near.boot).collect::<Vec<_>>(), expected);
        for near in &near {
            prop_assert!(near.cause != ExposureCause::VanishedWithBroker, "that takes a look");
            attempt.deaths.push(Death {
                boot: near.boot,
                cause: near.cause,
                exclusive: near.exclusive,
                charge: Charge::Exposure,
            });
        }
        prop_assert_eq!(exposures(&attempt, &dead), []);
    }
}

#[test]
fn a_boot_that_lives_charges_only_what_vanished_under_its_eyes() {
    let crashed = || Action::Charge(End::Crashed { evidence: None });
    for facts in all_facts().filter(|facts| !matches!(facts.owner, OwnerFact::Dead(_))) {
        let charged = plan(&facts)
            .iter()
            .any(|action| matches!(action, Action::Charge(_)));
        let vanished = facts.owner == OwnerFact::Undriven && facts.run == RunFact::Vanished;
        assert_eq!(charged, vanished, "{facts:?}");
        assert!(!charged || plan(&facts) == [crashed()]);
    }
}

#[test]
fn what_no_row_claims_is_swept_unless_it_is_elsewhere() {
    for run in RUNS {
        let expected = if run == RunFact::Elsewhere {
            Action::Leave
        } else {
            Action::Sweep
        };
        assert_eq!(plan_unclaimed(run), [expected]);
    }
}
