//! A model of the broker around the real `transition`, `plan` and `Budget`, explored whole.
//!
//! Two jobs, one of which kills (its own run, or the broker at some step), and an innocent one.
//! A store row, a run and a driver each; a broker that ends between any two steps; a write that
//! arrives after its sender has died. From outside come up to a given number of kills: of a run,
//! of the broker, of both, a drain, and a driver that is lost. What the world does by itself (run
//! on, kill as poison does, restart, recover) is not counted.
//!
//! The projection (DESIGN §12, "Means"): time is short or long (whether a run has outlived its
//! isolation), backoff is always over, counters stop where no decision looks further. The rules
//! themselves are not projected: each row is made into a `Job`, and each event goes through them.

mod claims;
mod dispose;
mod liveness;
mod steps;
mod world;

use stateright::{Checker, HasDiscoveries, Model as _};

use claims::names;
use liveness::Verdict;
use world::{Flaw, Model, Poison};

/// Explores a sound model whole: no claim is broken, and all ends well.
#[expect(
    clippy::print_stdout,
    reason = "the size of what was explored, for whoever asks with --nocapture"
)]
fn holds(model: Model) {
    let checker = model.checker().spawn_bfs().join();
    if let Some((claim, path)) = checker.discoveries().into_iter().next() {
        panic!("{claim} is broken:\n{path:?}\n{:#?}", path.last_state());
    }
    let states = checker.model().states();
    assert_eq!(states.len(), checker.unique_state_count());
    let verdict = liveness::check(checker.model(), &states);
    println!(
        "{:?} {:?}: {} states, depth {}",
        checker.model().poison,
        checker.model().limits(),
        states.len(),
        checker.max_depth()
    );
    assert_eq!(verdict, Verdict::EndsWell);
    for (sight, seen) in claims::sights(checker.model().poison) {
        assert!(
            states.iter().any(seen),
            "never saw {sight}: the claims are hollow"
        );
    }
}

/// A negative control: this claim has to be found broken.
fn breaks(model: Model, claim: &'static str) {
    let only = HasDiscoveries::AnyOf([claim].into());
    let checker = model.checker().finish_when(only).spawn_bfs().join();
    assert!(
        checker.discovery(claim).is_some(),
        "{:?} went unnoticed over {} states",
        checker.model().flaw,
        checker.unique_state_count()
    );
}

#[test]
fn a_job_that_kills_its_own_run_costs_itself_and_nobody_else() {
    holds(Model::new(Poison::OwnRun, 2));
}

#[test]
fn a_job_whose_start_kills_the_broker_is_set_aside_in_time() {
    holds(Model::new(Poison::BrokerAtStart, 1));
}

#[test]
fn a_job_whose_run_takes_the_broker_along_is_set_aside_in_time() {
    holds(Model::new(Poison::BrokerWhileRunning, 1));
}

#[test]
fn a_job_whose_record_kills_the_broker_is_set_aside_unread() {
    holds(Model::new(Poison::BrokerAtConclusion, 1));
}

#[test]
fn limits_of_one_and_two_hold_as_well() {
    for poison in Poison::ALL {
        holds(Model::new(poison, 1).with_limits(1, 1));
    }
    holds(Model::new(Poison::OwnRun, 2).with_limits(2, 2));
}

#[test]
fn a_run_that_starts_before_its_attempt_is_committed_is_found() {
    let model = Model::new(Poison::OwnRun, 1).with_flaw(Flaw::StartBeforeCommit);
    breaks(model, names::COMMITTED_FIRST);
}

#[test]
fn a_probe_that_is_no_fence_is_found() {
    let model = Model::new(Poison::OwnRun, 1).with_flaw(Flaw::ProbeWithoutFence);
    breaks(model, names::ONE_RUN);
}

#[test]
fn a_lingering_run_that_is_taken_for_gone_is_found() {
    let model = Model::new(Poison::OwnRun, 1).with_flaw(Flaw::ChargeLingering);
    breaks(model, names::ONE_RUN);
}

#[test]
fn a_write_that_ignores_the_token_is_found() {
    let model = Model::new(Poison::OwnRun, 2).with_flaw(Flaw::IgnoreToken);
    breaks(model, names::STALE_OWNER);
}

#[test]
fn a_conviction_in_company_is_found() {
    let model = Model::new(Poison::OwnRun, 2)
        .with_limits(2, 2)
        .with_flaw(Flaw::ConvictInCompany);
    breaks(model, names::NO_INNOCENT);
}

#[test]
fn a_charge_in_two_writes_is_found() {
    let model = Model::new(Poison::OwnRun, 1).with_flaw(Flaw::AdoptBeforeCharge);
    breaks(model, names::CUT_DISPOSAL);
}

#[test]
fn a_condemned_record_that_is_read_all_the_same_is_found() {
    let model = Model::new(Poison::BrokerAtConclusion, 1).with_flaw(Flaw::ReadCondemnedRecord);
    breaks(model, names::FEW_DEATHS);
}

#[test]
fn crashes_that_nobody_counts_are_found_to_go_on_for_ever() {
    let model = Model::new(Poison::OwnRun, 0).with_flaw(Flaw::CountNothing);
    let checker = model.checker().spawn_bfs().join();
    checker.assert_properties();
    let verdict = liveness::check(checker.model(), &checker.model().states());
    assert!(matches!(verdict, Verdict::NeverEnds(_)), "{verdict:?}");
}
