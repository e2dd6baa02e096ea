//! The recovery planner: what to do about one job that should be running, or one run that no job
//! claims. Pure: facts in, actions out; a dumb loop in the engine carries them out (DESIGN §7).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::attempt::{DisruptionCause, End, Exposure, ExposureCause};
use crate::ids::AttemptId;
use crate::transition::never_started;

/// What the executor answered about a run. A fence: it stays true once given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunFact {
    /// The action's first instruction never ran, and never will.
    NeverStarted,
    /// The shim lives.
    Alive,
    /// The shim is gone, its tree is not known to be.
    Lingering,
    /// It has ended and left its record.
    Exited,
    /// It has ended and left nothing.
    Vanished,
    /// The run lives on another host, which alone can tell.
    Elsewhere,
}

/// What is known about the boot that owns an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum OwnerFact {
    /// This process, and a driver is at work on it.
    Driven,
    /// This process, but no driver is registered: it was lost to a panic, say.
    Undriven,
    /// Another process that holds its lock.
    Alive,
    /// A process whose lock is free.
    Dead(DeathFact),
}

/// How the owning boot ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct DeathFact {
    /// It left its drain mark, and the run showed no sign of life after the next boot had begun:
    /// one that outlived the drain may have killed that boot before it was taken over, and
    /// vanished with it.
    pub drained: bool,
    /// The host has restarted since.
    pub host_restarted: bool,
    /// The black box names this job.
    pub named: bool,
    /// It was named in an exclusive step, and no other run vanished with that boot. Says nothing
    /// of a job that was not named.
    pub exclusive: bool,
}

/// All that the planner looks at for one job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// The attempt under way.
    pub attempt: AttemptId,
    /// Its owner.
    pub owner: OwnerFact,
    /// Its run.
    pub run: RunFact,
    /// How long the run is known to have lived.
    pub ran: Duration,
}

/// What is to be done.
///
/// Each is one conditional write, after which the next look finds other facts (I9). So an
/// attempt that only has to be ended is ended under its dead owner's fence, without being taken
/// over first: cut in between, the facts about that owner's death would be lost, and the next
/// boot's taken for them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Action {
    /// Nothing: it is in good hands.
    Leave,
    /// Take it over and watch it. The black box may have named it although its run lives.
    Adopt(Option<Exposure>),
    /// Take it over and write down what its record says. As above: the exposure is booked with
    /// the change of owner, before the record is looked at.
    Conclude(Option<Exposure>),
    /// End the attempt at no charge.
    Requeue(End),
    /// End the attempt, charged.
    Charge(End),
    /// Quarantine it: its row cannot be understood.
    SetAside,
    /// End what lingers of a run, then look again.
    Sweep,
}

/// Plans for a job that is recorded as running.
///
/// A job that the black box names is charged although its run lives on or has left a record:
/// the run is not what killed the broker, the broker's own step for it was. The charge travels
/// with the change of owner, so that a recovery that is cut short and repeated charges once.
pub fn plan(facts: &Facts) -> Vec<Action> {
    match facts.owner {
        OwnerFact::Driven | OwnerFact::Alive => vec![Action::Leave],
        OwnerFact::Undriven => match facts.run {
            RunFact::Vanished => vec![Action::Charge(End::Crashed { evidence: None })],
            RunFact::NeverStarted => vec![Action::Requeue(never_started())],
            RunFact::Alive | RunFact::Lingering | RunFact::Exited | RunFact::Elsewhere => {
                living(facts.run, None)
            }
        },
        OwnerFact::Dead(death) => after_death(death, facts.run),
    }
}

/// Plans for a run that no job's row claims: nothing may go on without a record.
pub fn plan_unclaimed(run: RunFact) -> Vec<Action> {
    match run {
        RunFact::Elsewhere => vec![Action::Leave],
        RunFact::NeverStarted
        | RunFact::Alive
        | RunFact::Lingering
        | RunFact::Exited
        | RunFact::Vanished => vec![Action::Sweep],
    }
}

/// Plans for a row whose header cannot be read: it delays nobody.
pub fn plan_unreadable() -> Vec<Action> {
    vec![Action::SetAside]
}

fn after_death(death: DeathFact, run: RunFact) -> Vec<Action> {
    let named = death.named.then_some(Exposure {
        cause: ExposureCause::NamedByBlackBox,
        exclusive: death.exclusive,
    });
    let started = match run {
        RunFact::NeverStarted => false,
        RunFact::Vanished => true,
        RunFact::Alive | RunFact::Lingering | RunFact::Exited | RunFact::Elsewhere => {
            return living(run, named);
        }
    };
    // What the black box says comes first: a step takes milliseconds, so one that was cut off by
    // the kill at the end of a drain hung.
    if let Some(exposure) = named {
        return vec![Action::Charge(End::Exposed(exposure))];
    }
    vec![match (started, death.drained, death.host_restarted) {
        (true, true, true) => requeue(DisruptionCause::Reboot),
        (true, true, false) => requeue(DisruptionCause::Drain),
        (true, false, false) => charge(ExposureCause::VanishedWithBroker),
        // Neither a black box nor a run folder is sure to survive the loss of its host: that
        // there is no trace of a start is no proof that there was none.
        (_, false, true) => charge(ExposureCause::HostLost),
        // A bystander.
        (false, true, _) | (false, false, false) => Action::Requeue(never_started()),
    }]
}

fn living(run: RunFact, exposed: Option<Exposure>) -> Vec<Action> {
    match run {
        RunFact::Alive => vec![Action::Adopt(exposed)],
        RunFact::Exited => vec![Action::Conclude(exposed)],
        RunFact::Lingering => vec![Action::Sweep],
        RunFact::NeverStarted | RunFact::Vanished | RunFact::Elsewhere => vec![Action::Leave],
    }
}

/// A charge for nearness alone.
fn charge(cause: ExposureCause) -> Action {
    Action::Charge(End::Exposed(Exposure {
        cause,
        exclusive: false,
    }))
}

fn requeue(cause: DisruptionCause) -> Action {
    Action::Requeue(End::Disrupted { cause })
}
