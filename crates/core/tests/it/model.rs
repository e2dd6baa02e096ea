//! A model of the broker around the real `transition`, `exposures`, `plan`, `Budget` and
//! `PanicLedger`, explored whole.
//!
//! A few jobs, of which some are poison ([`poison`]): a row, a run and a driver each; boots that
//! are over, with their black boxes; a broker that ends between any two steps, while any steps
//! that may be under way together are; a write that arrives after its sender has died. From
//! outside come up to a given number of kills ([`world::Kill`]). What the world does by itself (run
//! on, strike as poison does, restart, recover) is not counted.
//!
//! The projection (DESIGN §12, "Means"): time is short or long (whether a run has outlived its
//! isolation), backoff is always over, counters stop where no decision looks further, boots that
//! nothing depends on are forgotten, and what ends in order too often has met its deadline. The
//! rules themselves are not projected: each row is made into a `Job`, and each event goes through
//! them.
//!
//! Small instances run with the suite, larger ones ([`long`]) with `scripts/prove model`.

mod boots;
mod claims;
mod controls;
mod dispose;
mod liveness;
mod long;
mod poison;
mod recovery;
mod rows;
mod sound;
mod steps;
mod strikes;
mod twins;
mod world;

use stateright::{Checker, HasDiscoveries, Model as _};

use claims::Sight;
use liveness::Verdict;
use world::Model;

/// Explores a sound model whole: no claim is broken, all ends well, and the worst that a job can
/// cost is `most` brokers.
fn holds(model: Model, most: u8, sights: &[Sight]) {
    let words = model.words();
    assert_eq!(explored(model, sights), most, "{words}");
}

/// As above; says what the worst is.
#[expect(
    clippy::print_stdout,
    reason = "the size of what was explored, for whoever asks with --nocapture"
)]
fn explored(model: Model, sights: &[Sight]) -> u8 {
    let words = model.words();
    let first = HasDiscoveries::AnyFailures;
    let checker = model.checker().finish_when(first).spawn_bfs().join();
    if let Some((claim, path)) = checker.discoveries().into_iter().next() {
        let last = path.last_state().clone();
        let steps = path.into_actions();
        panic!("{words}: {claim} is broken:\n{steps:?}\n{last:?}");
    }
    let states = checker.model().states();
    let strikes = claims::most_strikes(&states);
    println!(
        "{words}: {} states, {strikes} deaths by one job",
        states.len()
    );
    assert_eq!(states.len(), checker.unique_state_count());
    let verdict = liveness::check(checker.model(), &states);
    assert_eq!(verdict, Verdict::EndsWell, "{words}");
    for (sight, seen) in sights {
        assert!(
            states.iter().any(seen),
            "{words}: never saw {sight}: the claims are hollow"
        );
    }
    strikes
}

/// A negative control: this claim has to be found broken.
#[expect(
    clippy::print_stdout,
    reason = "how it was found, for whoever asks with --nocapture"
)]
fn breaks(model: Model, claim: &'static str) {
    let only = HasDiscoveries::AnyOf([claim].into());
    let checker = model.checker().finish_when(only).spawn_bfs().join();
    let (flaw, states) = (checker.model().flaw, checker.unique_state_count());
    let Some(path) = checker.discovery(claim) else {
        panic!("{flaw:?} went unnoticed over {states} states");
    };
    println!("{flaw:?}: {claim}: {:?}", path.into_actions());
}

/// A negative control: a claim is broken, or it goes on for ever.
fn never_ends(model: Model) {
    let first = HasDiscoveries::AnyFailures;
    let checker = model.checker().finish_when(first).spawn_bfs().join();
    if checker
        .discoveries()
        .contains_key(claims::names::FEW_DEATHS)
    {
        return;
    }
    checker.assert_properties();
    let verdict = liveness::check(checker.model(), &checker.model().states());
    assert!(matches!(verdict, Verdict::NeverEnds(_)), "{verdict:?}");
}
