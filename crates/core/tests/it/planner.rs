//! The recovery planner, over every combination of facts there is.

use std::fmt::Write as _;
use std::time::Duration;

use evenkeel_core::attempt::{End, Exposure, ExposureCause};
use evenkeel_core::recovery::{
    Action, DeathFact, Facts, OwnerFact, RunFact, plan, plan_unclaimed, plan_unreadable,
};

use crate::fixtures::attempt_id;

const RUNS: [RunFact; 6] = [
    RunFact::NeverStarted,
    RunFact::Alive,
    RunFact::Lingering,
    RunFact::Exited,
    RunFact::Vanished,
    RunFact::Elsewhere,
];

fn deaths() -> impl Iterator<Item = DeathFact> {
    (0u8..16).map(|bits| DeathFact {
        drained: bits & 8 != 0,
        host_restarted: bits & 4 != 0,
        named: bits & 2 != 0,
        exclusive: bits & 1 != 0,
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
                (death.named, " named"),
                (death.exclusive, " exclusive"),
            ] {
                if is {
                    words.push_str(word);
                }
            }
            words
        }
    }
}

fn exposure_words(exposure: Exposure) -> String {
    let cause = match exposure.cause {
        ExposureCause::VanishedWithBroker => "vanished with broker",
        ExposureCause::NamedByBlackBox => "named",
        ExposureCause::HostLost => "host lost",
    };
    let alone = if exposure.exclusive {
        ", exclusive"
    } else {
        ""
    };
    format!("exposed ({cause}{alone})")
}

fn end_words(end: &End) -> String {
    if let End::Exposed(exposure) = end {
        return exposure_words(*exposure);
    }
    format!("{end:?}")
}

fn action_words(action: &Action) -> String {
    let while_exposed = |exposed: &Option<Exposure>| {
        exposed.map_or_else(String::new, |exposure| {
            format!(", {}", exposure_words(exposure))
        })
    };
    match action {
        Action::Leave => "leave".to_owned(),
        Action::Adopt(exposed) => format!("adopt{}", while_exposed(exposed)),
        Action::Conclude(exposed) => format!("conclude{}", while_exposed(exposed)),
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
        writeln!(table, "{owner:<44}| {run:<13}| {}", action_words(action))
            .expect("a string takes it");
    }
    for run in RUNS {
        let plan = plan_unclaimed(run);
        let words: Vec<_> = plan.iter().map(action_words).collect();
        let run = format!("{run:?}");
        writeln!(table, "{:<44}| {run:<13}| {}", "no row", words.join(", "))
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

/// What an action books on the job, if it books anything near a broker's death.
fn booked(action: &Action) -> Option<Exposure> {
    match action {
        Action::Adopt(exposed) | Action::Conclude(exposed) => *exposed,
        Action::Charge(End::Exposed(exposure)) => Some(*exposure),
        Action::Leave
        | Action::Requeue(_)
        | Action::Charge(_)
        | Action::SetAside
        | Action::Sweep => None,
    }
}

#[test]
fn whom_the_black_box_names_is_exposed_wherever_its_run_is() {
    for facts in all_facts() {
        let OwnerFact::Dead(death) = facts.owner else {
            continue;
        };
        let within_reach = !matches!(facts.run, RunFact::Lingering | RunFact::Elsewhere);
        let named = Exposure {
            cause: ExposureCause::NamedByBlackBox,
            exclusive: death.exclusive,
        };
        let booked = plan(&facts).iter().find_map(booked);
        if death.named && within_reach {
            assert_eq!(booked, Some(named), "{facts:?}");
        } else {
            assert!(
                booked.is_none_or(|exposure| !exposure.exclusive),
                "{facts:?}"
            );
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
        if death.drained && !death.named {
            let booked = plan(&facts).iter().find_map(booked);
            assert_eq!(booked, None, "{facts:?}");
        }
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
