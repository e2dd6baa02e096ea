//! The larger instances: `scripts/prove model`.

use super::claims::{CONDEMNED, SPOILT, TWO_IN_A_STEP};
use super::poison::{Deed, Moment, Poison, poison};
use super::sound::{KILLS, MOMENTS};
use super::world::{Kill, Model};
use super::{explored, holds};

/// Deaths from outside of a broker: by itself, with all runs, with its host.
const DEATHS: [Kill; 3] = [Kill::Broker, Kill::BrokerAndRuns, Kill::Host];

const fn deadly(at: Moment) -> Option<Poison> {
    poison(at, Deed::KillBroker)
}

/// Two poisons and some innocents; the first mistake condemns.
fn two_poisons(poisons: [Option<Poison>; 2], innocents: usize) -> Model {
    let jobs = poisons.into_iter().chain(vec![None; innocents]);
    Model::new(jobs).with_limits(1, 1)
}

#[test]
#[ignore = "long: ./scripts/prove model"]
fn long_one_kill_of_any_kind_beside_the_usual_limits() {
    for at in MOMENTS {
        let model = Model::new([deadly(at), None]);
        let most = if matches!(at, Moment::Watch | Moment::Conclude) {
            6
        } else {
            5
        };
        holds(model.with_kills(1, &KILLS), most, &[]);
    }
}

/// One more at most for what is lost at the kill from outside.
#[test]
#[ignore = "long: ./scripts/prove model"]
fn long_every_pair_of_poisons_and_a_death_from_outside() {
    for (one, other) in pairs() {
        let model = two_poisons([deadly(one), deadly(other)], 0);
        let worst = explored(model.with_kills(1, &DEATHS), &[CONDEMNED]);
        assert!(worst <= 4, "{one:?} and {other:?}: {worst}");
    }
}

/// Two at a time.
#[test]
#[ignore = "long: ./scripts/prove model"]
fn long_every_pair_of_poisons_beside_two_innocents() {
    for (one, other) in pairs() {
        let model = two_poisons([deadly(one), deadly(other)], 2);
        let worst = explored(model.with_concurrency(2), &[]);
        assert!(worst <= 3, "{one:?} and {other:?}: {worst}");
    }
}

/// As above, where one takes the host along, and so each run that could be its witness.
#[test]
#[ignore = "long: ./scripts/prove model"]
fn long_a_poison_that_kills_its_host_and_another_beside_two_innocents() {
    for one in MOMENTS {
        for other in MOMENTS {
            let poisons = [deadly(one), poison(other, Deed::KillHost)];
            let worst = explored(two_poisons(poisons, 2).with_concurrency(2), &[]);
            assert!(worst <= 4, "{one:?} and {other:?}: {worst}");
        }
    }
}

/// Millions of states, and gigabytes, each: three at a time, or two and a kill from outside.
#[test]
#[ignore = "long: ./scripts/prove model"]
fn long_two_poisons_and_two_innocents_with_more_going_on() {
    use Moment::{Conclude, Prepare, Running};
    let model = |other| two_poisons([deadly(Prepare), deadly(other)], 2);
    for other in [Running, Conclude] {
        holds(model(other).with_concurrency(3), 3, &[TWO_IN_A_STEP]);
    }
    let model = model(Running).with_concurrency(2);
    holds(model.with_kills(1, &[Kill::Broker]), 3, &[SPOILT]);
}

/// One more at most for what is lost at the kill from outside.
#[test]
#[ignore = "long: ./scripts/prove model"]
fn long_two_poisons_an_innocent_and_a_death_from_outside() {
    use Moment::{Conclude, Look, Prepare, Running, Watch};
    for (one, other) in [
        (Prepare, Running),
        (Prepare, Conclude),
        (Running, Conclude),
        (Look, Watch),
    ] {
        for kill in DEATHS {
            let model = two_poisons([deadly(one), deadly(other)], 1).with_concurrency(2);
            let worst = explored(model.with_kills(1, &[kill]), &[]);
            assert!(worst <= 4, "{one:?} and {other:?}, {kill:?}: {worst}");
        }
    }
}

fn pairs() -> impl Iterator<Item = (Moment, Moment)> {
    let from = |n: usize| MOMENTS.into_iter().skip(n);
    (from(0).enumerate()).flat_map(move |(n, one)| from(n).map(move |other| (one, other)))
}
