//! The rules as they are: no claim is broken, and all ends well.

use super::claims::{
    ALONE, COMPANY, CONDEMNED, DEADLINE, HELD, LINGERING, SET_ASIDE, SEVERAL_BOOTS, SPOILT,
    STALE_WRITE, Sight, TWO_IN_A_STEP, UNDRIVEN, UNREAD, UNSTARTED,
};
use super::poison::{Deed, Moment, Poison, poison};
use super::world::{Kill, Model};
use super::{explored, holds};

pub(super) const MOMENTS: [Moment; 5] = [
    Moment::Prepare,
    Moment::Running,
    Moment::Watch,
    Moment::Look,
    Moment::Conclude,
];

pub(super) const KILLS: [Kill; 7] = [
    Kill::Shim,
    Kill::Broker,
    Kill::BrokerAndRuns,
    Kill::Host,
    Kill::Drain,
    Kill::Driver,
    Kill::Cancel,
];

/// With what recovery looks at only if a broker has died before.
fn beside_an_innocent(poison: Option<Poison>) -> Model {
    let kills = u8::from(poison.is_some_and(|poison| poison.at == Moment::Look));
    Model::new([poison, None]).with_kills(kills, &[Kill::Broker])
}

/// I7, without anything from outside: the brokers of two exposures and three losses.
#[test]
fn a_job_that_kills_its_broker_is_set_aside_in_time_whenever_it_strikes() {
    for at in MOMENTS {
        let model = beside_an_innocent(poison(at, Deed::KillBroker));
        holds(model, 5, &[ALONE]);
    }
}

/// A host takes all runs along, so that whoever is claimed beside a job whose strike is not in its
/// solo run would excuse it: nobody is, once it is a suspect.
#[test]
fn a_job_that_kills_its_host_is_set_aside_whenever_it_strikes() {
    for at in MOMENTS {
        let model = beside_an_innocent(poison(at, Deed::KillHost));
        let most = match at {
            Moment::Prepare | Moment::Running | Moment::Watch | Moment::Conclude => 5,
            Moment::Look => 4,
            Moment::End => 7,
        };
        holds(model, most, &[ALONE]);
    }
}

#[test]
fn a_job_whose_run_takes_the_broker_along_is_set_aside_in_time() {
    let model = Model::new([poison(Moment::Running, Deed::KillBroker), None]);
    holds(
        model.with_slow_writes(),
        5,
        &[ALONE, COMPANY, CONDEMNED, UNDRIVEN],
    );
}

#[test]
fn a_job_whose_record_kills_the_broker_is_set_aside_unread() {
    let model = Model::new([poison(Moment::Conclude, Deed::KillBroker), None]);
    holds(model, 5, &[UNREAD, CONDEMNED, TWO_IN_A_STEP]);
}

/// Whatever the end says, and whoever writes it: in the end nobody writes one.
#[test]
fn a_job_whose_end_kills_the_broker_is_set_aside_by_its_row_alone() {
    for (does, most) in [(Deed::KillBroker, 6), (Deed::KillHost, 5)] {
        let model = beside_an_innocent(poison(Moment::End, does));
        holds(model, 7, &[SET_ASIDE, ALONE]);
        let model = Model::new([poison(Moment::End, does), None]).with_limits(1, 1);
        holds(model.with_kills(1, &KILLS), most, &[SET_ASIDE]);
    }
}

/// I5 and I7: also with limits of one, where the first mistake condemns.
#[test]
fn one_kill_of_any_kind_from_outside_changes_neither_whom_it_costs_nor_how_it_ends() {
    for at in MOMENTS {
        for does in [Deed::KillBroker, Deed::KillHost] {
            let model = Model::new([poison(at, does), None]).with_limits(1, 1);
            let most = match (at, does) {
                (Moment::Prepare | Moment::Running, _) => 3,
                (Moment::Watch | Moment::Conclude, Deed::KillBroker) => 4,
                (Moment::Watch | Moment::Look | Moment::Conclude, _) => 3,
                (Moment::End, _) => 6,
            };
            let sights: &[Sight] = match (at, does) {
                (Moment::Watch, Deed::KillBroker) => &[SPOILT, SEVERAL_BOOTS, LINGERING],
                (_, _) => &[],
            };
            holds(model.with_kills(1, &KILLS), most, sights);
        }
    }
}

/// I8: nobody is charged; the deadline ends it, and the innocent beside it finishes.
#[test]
fn a_job_that_ends_its_broker_in_order_is_ended_by_its_deadline_at_no_charge() {
    for at in [Moment::Prepare, Moment::Running, Moment::Watch] {
        for does in [Deed::Sigterm, Deed::Reboot] {
            let model = Model::new([poison(at, does), None]);
            let gentle = [Kill::Drain, Kill::Cancel, Kill::Driver];
            holds(model.with_kills(1, &gentle), 0, &[DEADLINE, ALONE]);
        }
    }
}

/// A record whose reading ends the broker in order is read no more once its deadline has passed.
#[test]
fn a_record_that_ends_its_broker_in_order_is_ended_by_its_deadline() {
    for does in [Deed::Sigterm, Deed::Reboot] {
        let model = Model::new([poison(Moment::Conclude, does), None]);
        holds(model, 0, &[DEADLINE, UNREAD]);
    }
}

/// Each boot ends before it has written that it took the run over.
#[test]
fn a_run_that_ends_in_order_whoever_looks_at_it_is_ended_unread_by_its_deadline() {
    for does in [Deed::Sigterm, Deed::Reboot] {
        let model = Model::new([poison(Moment::Look, does), None]);
        let kills = [Kill::Broker, Kill::Drain];
        holds(model.with_kills(1, &kills), 0, &[DEADLINE, UNREAD]);
    }
}

/// As above, where it is looked at for what somebody else's exclusive step did.
#[test]
fn a_run_that_ends_in_order_whoever_looks_at_it_keeps_nobody_else_from_being_judged() {
    for at in [Moment::Prepare, Moment::Watch] {
        let jobs = [
            poison(Moment::Look, Deed::Sigterm),
            poison(at, Deed::KillBroker),
        ];
        holds(
            Model::new(jobs).with_limits(1, 1),
            3,
            &[DEADLINE, CONDEMNED],
        );
    }
}

/// Whatever the end says, and whoever writes it.
#[test]
fn a_job_whose_end_ends_the_broker_in_order_is_left_to_its_row_by_its_deadline() {
    for does in [Deed::Sigterm, Deed::Reboot] {
        let model = Model::new([poison(Moment::End, does), None]);
        let gentle = [Kill::Drain, Kill::Driver];
        holds(model.with_kills(1, &gentle), 0, &[SET_ASIDE, UNREAD]);
    }
}

/// I8.
#[test]
fn drains_and_cancels_cost_innocents_nothing() {
    let model = Model::new([None, None]).with_kills(2, &[Kill::Drain, Kill::Cancel]);
    holds(model.with_slow_writes(), 0, &[COMPANY]);
}

/// I5: whatever is killed, among themselves.
#[test]
fn innocents_are_charged_only_for_kills_that_met_them_alone() {
    let kills = [Kill::Shim, Kill::Broker, Kill::BrokerAndRuns, Kill::Host];
    for limit in [1, 2] {
        let model = Model::new([None, None]).with_limits(limit, limit);
        holds(model.with_kills(2, &kills), 0, &[TWO_IN_A_STEP]);
    }
}

/// I6.
#[test]
fn a_job_that_kills_its_own_run_costs_itself_and_nobody_else() {
    for does in [Deed::KillShim, Deed::Crash] {
        let model = Model::new([poison(Moment::Running, does), None]);
        let kinds = [Kill::Broker, Kill::Driver, Kill::BrokerAndRuns];
        let model = model.with_kills(1, &kinds).with_slow_writes();
        holds(model, 0, &[STALE_WRITE, UNDRIVEN]);
    }
}

#[test]
fn a_step_that_panics_costs_its_job_and_a_place_that_three_share_nobody() {
    let own = Model::new([poison(Moment::Conclude, Deed::Panic), None]);
    holds(own.with_kills(1, &[Kill::Broker]), 0, &[]);
    let alike = poison(Moment::Prepare, Deed::PanicLikeOthers);
    let model = Model::new([alike, alike, alike, None]).with_limits(2, 2);
    holds(model, 0, &[HELD]);
}

/// The account goes by the target: a delete and a new order buy no new tries.
#[test]
fn a_new_job_for_the_same_target_inherits_the_account() {
    for at in [Moment::Prepare, Moment::Conclude] {
        let model = Model::new([poison(at, Deed::KillBroker)]);
        holds(model.with_kills(3, &[Kill::Cancel]), 5, &[UNSTARTED]);
    }
}

/// Each of two poisons costs what one alone does: neither excuses the other.
#[test]
fn two_poisons_cost_what_each_costs_alone() {
    use Moment::{Conclude, Look, Prepare, Running, Watch};
    for (one, other) in [
        (Prepare, Prepare),
        (Look, Prepare),
        (Running, Conclude),
        (Look, Watch),
        (Look, Look),
    ] {
        let deadly = |at| poison(at, Deed::KillBroker);
        let kills = u8::from(other == Look);
        let model = Model::new([deadly(one), deadly(other)]).with_limits(1, 1);
        holds(model.with_kills(kills, &[Kill::Broker]), 3, &[CONDEMNED]);
    }
}

#[test]
fn two_poisons_leave_an_innocent_alone() {
    let deadly = |does| poison(Moment::Prepare, does);
    let jobs = [deadly(Deed::KillBroker), deadly(Deed::KillHost), None];
    holds(Model::new(jobs).with_limits(1, 1), 3, &[TWO_IN_A_STEP]);
}

/// I7: no stream of new jobs excuses it for ever.
#[test]
fn a_record_that_kills_its_host_costs_no_more_the_more_innocents_there_are() {
    let record = poison(Moment::Conclude, Deed::KillHost);
    let model = |innocents| {
        let jobs = std::iter::once(record).chain(vec![None; innocents]);
        Model::new(jobs).with_limits(1, 1)
    };
    let figures = [1, 2].map(|innocents| explored(model(innocents), &[]));
    assert_eq!(figures, [3, 3]);
}
