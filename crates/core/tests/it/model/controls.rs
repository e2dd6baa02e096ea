//! Negative controls: each mistake in the rules, or in the order of steps, is found.

use super::claims::names;
use super::poison::{Deed, Moment, poison};
use super::world::{Flaw, Kill, Model};
use super::{breaks, explored, never_ends};

/// A job that kills its broker, and an innocent.
fn deadly(at: Moment) -> Model {
    Model::new([poison(at, Deed::KillBroker), None])
}

/// A job that kills its shim, and an innocent.
fn own_run() -> Model {
    Model::new([poison(Moment::Running, Deed::KillShim), None])
}

#[test]
fn a_run_that_starts_before_its_attempt_is_committed_is_found() {
    let model = own_run().with_kills(1, &[Kill::Broker]);
    breaks(
        model.with_flaw(Flaw::StartBeforeCommit),
        names::COMMITTED_FIRST,
    );
}

#[test]
fn a_probe_that_is_no_fence_is_found() {
    let model = own_run().with_kills(1, &[Kill::Broker]);
    breaks(model.with_flaw(Flaw::ProbeWithoutFence), names::ONE_RUN);
}

#[test]
fn a_lingering_run_that_is_taken_for_gone_is_found() {
    let model = own_run().with_kills(1, &[Kill::Broker]);
    breaks(model.with_flaw(Flaw::ChargeLingering), names::ONE_RUN);
}

#[test]
fn a_write_that_ignores_the_token_is_found() {
    let model = own_run().with_slow_writes();
    let model = model.with_kills(2, &[Kill::Broker, Kill::Driver]);
    breaks(model.with_flaw(Flaw::IgnoreToken), names::STALE_OWNER);
}

#[test]
fn a_conviction_in_company_is_found() {
    let model = own_run().with_limits(2, 2).with_kills(2, &[Kill::Shim]);
    breaks(model.with_flaw(Flaw::ConvictInCompany), names::NO_INNOCENT);
}

#[test]
fn a_charge_in_two_writes_is_found() {
    let model = own_run().with_slow_writes();
    let model = model.with_kills(1, &[Kill::BrokerAndRuns]);
    breaks(
        model.with_flaw(Flaw::AdoptBeforeCharge),
        names::CUT_DISPOSAL,
    );
}

#[test]
fn crashes_that_nobody_counts_are_found_to_go_on_for_ever() {
    never_ends(own_run().with_flaw(Flaw::CountNothing));
}

#[test]
fn a_start_that_counts_as_a_crash_is_found() {
    let model = Model::new([None, None]).with_kills(3, &[Kill::Drain]);
    let model = model.with_flaw(Flaw::CountEveryStart);
    breaks(model, names::NONE_CONDEMNED);
}

#[test]
fn a_charge_to_everyone_in_flight_is_found() {
    let model = deadly(Moment::Prepare).with_flaw(Flaw::ChargeEveryoneInFlight);
    breaks(model, names::NONE_CONDEMNED);
}

#[test]
fn one_counter_for_company_and_isolation_is_found() {
    let model = deadly(Moment::Watch).with_flaw(Flaw::OneCounter);
    breaks(model, names::NONE_CONDEMNED);
}

#[test]
fn a_run_that_costs_nothing_because_it_never_started_is_found() {
    let model = deadly(Moment::Prepare);
    breaks(model.with_flaw(Flaw::FreeIfNeverStarted), names::FEW_DEATHS);
}

#[test]
fn a_run_that_costs_nothing_because_it_is_adopted_alive_is_found() {
    let model = deadly(Moment::Watch);
    breaks(model.with_flaw(Flaw::FreeIfAdoptedAlive), names::FEW_DEATHS);
}

#[test]
fn an_end_that_is_written_again_and_again_is_found() {
    let model = deadly(Moment::End);
    breaks(model.with_flaw(Flaw::EndForEver), names::FEW_DEATHS);
}

#[test]
fn a_condemned_record_that_is_read_all_the_same_is_found() {
    let model = deadly(Moment::Conclude);
    breaks(
        model.with_flaw(Flaw::ReadCondemnedRecord),
        names::FEW_DEATHS,
    );
}

#[test]
fn a_run_that_is_looked_at_before_the_deaths_are_counted_is_found() {
    let model = deadly(Moment::Look).with_kills(1, &[Kill::Broker]);
    breaks(model.with_flaw(Flaw::LookBeforeCounting), names::FEW_DEATHS);
}

/// The box names an innocent suspect alone, while the poison's run took the broker along.
#[test]
fn a_conviction_in_an_exclusive_step_although_another_run_vanished_is_found() {
    let model = deadly(Moment::Running).with_limits(1, 1);
    let model = model.with_kills(2, &[Kill::Broker]);
    let flaw = Flaw::ConvictThoughAnotherVanished;
    breaks(model.with_flaw(flaw), names::NONE_CONDEMNED);
}

/// As above, where the poison's run was not taken over yet by the boot that it killed.
#[test]
fn a_question_for_only_those_runs_that_a_dead_boot_owned_is_found() {
    let model = deadly(Moment::Running).with_limits(1, 1);
    let model = model.with_kills(1, &[Kill::Broker]);
    let flaw = Flaw::AskOnlyItsOwnRuns;
    breaks(model.with_flaw(flaw), names::NONE_CONDEMNED);
}

/// Each keeps the other from being convicted.
#[test]
fn a_look_at_a_run_that_is_to_be_taken_over_for_the_sake_of_another_is_found() {
    let looked_at = poison(Moment::Look, Deed::KillBroker);
    let model = Model::new([looked_at, looked_at]).with_limits(1, 1);
    let model = model.with_kills(1, &[Kill::Broker]);
    let flaw = Flaw::LookAtWhatIsToBeTakenOver;
    breaks(model.with_flaw(flaw), names::FEW_DEATHS);
}

/// Of a box that names a suspect alone the runs of others are asked, which may kill too.
#[test]
fn a_condemned_run_that_is_asked_whether_it_vanished_is_found() {
    let kills = |at| poison(at, Deed::KillBroker);
    let model = Model::new([kills(Moment::Look), kills(Moment::Watch)]).with_limits(1, 1);
    breaks(model.with_flaw(Flaw::LookAtTheCondemned), names::FEW_DEATHS);
}

/// A condemned run that is there excuses each death beside it, as if it had vanished.
#[test]
fn a_death_that_each_condemned_run_beside_it_excuses_is_found_to_go_on_for_ever() {
    let model = deadly(Moment::End).with_limits(1, 1);
    never_ends(
        model
            .with_kills(1, &[Kill::Broker])
            .with_flaw(Flaw::ExcuseByTheCondemned),
    );
}

/// A drained boot leaves a run, and the next one ends in order with its host before it takes it
/// over.
#[test]
fn a_drain_of_the_owner_that_does_not_excuse_the_next_is_found() {
    let model = Model::new([poison(Moment::Running, Deed::Reboot), None]);
    let model = model.with_kills(1, &[Kill::Drain]);
    breaks(model.with_flaw(Flaw::OwnersDrainAlone), names::FREE_DRAIN);
}

/// A job that ends its broker in order, and an innocent.
fn orderly(at: Moment) -> Model {
    let model = Model::new([poison(at, Deed::Sigterm), None]);
    model.with_kills(u8::from(at == Moment::Look), &[Kill::Drain])
}

#[test]
fn a_record_that_is_read_past_its_deadline_is_found_to_go_on_for_ever() {
    never_ends(orderly(Moment::Conclude).with_flaw(Flaw::ReadForEver));
}

/// None of those boots has written that it took the run over.
#[test]
fn boots_that_come_and_go_without_being_counted_are_found_to_go_on_for_ever() {
    never_ends(orderly(Moment::Look).with_flaw(Flaw::PassersUncounted));
}

#[test]
fn an_end_that_is_written_past_the_deadline_by_boot_after_boot_is_found_to_go_on_for_ever() {
    never_ends(orderly(Moment::End).with_flaw(Flaw::EndForEver));
}

/// Another job's exclusive step is judged by looking at it.
#[test]
fn a_run_that_is_asked_past_its_deadline_whether_it_vanished_is_found_to_go_on_for_ever() {
    let jobs = [
        poison(Moment::Look, Deed::Sigterm),
        poison(Moment::Watch, Deed::KillBroker),
    ];
    never_ends(
        Model::new(jobs)
            .with_limits(1, 1)
            .with_flaw(Flaw::LookAtTheLate),
    );
}

/// I6: one crash more than there may be.
#[test]
fn a_crash_beyond_the_limit_is_found() {
    for does in [Deed::KillShim, Deed::Crash] {
        let model = Model::new([poison(Moment::Running, does), None]);
        breaks(model.with_flaw(Flaw::OneCrashTooMany), names::FEW_CRASHES);
    }
}

/// I13: what a deprovision that was set aside was to delete is still there.
#[test]
fn a_quarantine_that_is_settled_as_a_success_is_found() {
    breaks(
        own_run().with_flaw(Flaw::SettleTheCondemnedAsDone),
        names::KEPT,
    );
    let model = deadly(Moment::End).with_limits(1, 1);
    let flaw = Flaw::SettleTheCondemnedAsDone;
    breaks(model.with_flaw(flaw), names::KEPT);
}

/// Whoever was alone near one death pays for it again when the next boot dies.
#[test]
fn a_death_that_each_boot_counts_anew_is_found() {
    let model = Model::new([None]).with_kills(4, &[Kill::Broker]);
    breaks(model.with_flaw(Flaw::CountAgain), names::NO_INNOCENT);
}

#[test]
fn a_suspect_whose_steps_are_like_those_of_others_is_found() {
    let model = deadly(Moment::Watch);
    breaks(model.with_flaw(Flaw::NothingExclusive), names::FEW_DEATHS);
}

/// The record is still there when the host is, and nothing says that anybody was reading it.
#[test]
fn a_host_that_was_lost_for_nobody_is_found() {
    let model = Model::new([poison(Moment::Conclude, Deed::KillHost), None]);
    breaks(model.with_flaw(Flaw::HostLostForNobody), names::FEW_DEATHS);
}

#[test]
fn an_exclusive_step_that_is_forgotten_with_the_host_is_found() {
    let model = Model::new([poison(Moment::Conclude, Deed::KillHost), None]);
    let flaw = Flaw::NothingWrittenThrough;
    breaks(model.with_flaw(flaw), names::FEW_DEATHS);
}

/// A solo run whose broker dies, and then the next one with its host, is lost once.
#[test]
fn a_loss_for_the_death_of_a_boot_that_did_not_own_the_solo_run_is_found() {
    let model = Model::new([None]).with_kills(4, &[Kill::Broker, Kill::Host]);
    breaks(model.with_flaw(Flaw::SoloLossOfAnyBoot), names::NO_INNOCENT);
}

/// The run beside it outlived the broker that the suspect killed, and was killed later.
#[test]
fn a_death_that_is_excused_by_a_run_which_outlived_it_is_found() {
    let model = deadly(Moment::Watch).with_limits(1, 1);
    let model = model.with_kills(1, &[Kill::Shim]);
    let flaw = Flaw::SpoiltByWhatOutlivedIt;
    breaks(model.with_flaw(flaw), names::FEW_DEATHS);
}

/// Each death is excused by a run that vanished beside it, so that no claim is broken: but there
/// are the more of them the more innocents there are.
#[test]
fn a_suspect_that_lost_its_host_and_gets_new_company_is_found() {
    let figures = [1, 2].map(|innocents| {
        let record = poison(Moment::Conclude, Deed::KillHost);
        let jobs = std::iter::once(record).chain(vec![None; innocents]);
        let model = Model::new(jobs).with_limits(1, 1);
        explored(model.with_flaw(Flaw::CompanyForWhoeverLostItsHost), &[])
    });
    assert!(figures[1] > figures[0], "{figures:?}");
}
