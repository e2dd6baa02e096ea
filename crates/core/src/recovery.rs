//! The recovery planner: what to do about one job that should be running, or one run that no job
//! claims. Pure: facts in, actions out; a dumb loop in the engine carries them out (DESIGN §7).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::attempt::{Attempt, DisruptionCause, End, ExposureCause};
use crate::ids::{AttemptId, BootId};
use crate::job::Job;
use crate::policy::Policy;
use crate::time::Timestamp;
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
    /// It left its drain mark, and so did the boot under which the run was last seen alive: one
    /// that outlived the drain may have killed a later boot before it was taken over, and vanished
    /// with it.
    pub drained: bool,
    /// The host has restarted since.
    pub host_restarted: bool,
    /// How the job was near that death, if it is counted against its attempt already.
    pub counted: Option<ExposureCause>,
}

/// A boot that is over, as far as it bears on one attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct DeadBoot {
    /// Which.
    pub boot: BootId,
    /// Whether its black box names the attempt, and if so whether in an exclusive step while no
    /// other run vanished.
    pub names: Option<Exclusive>,
    /// It died with its host while the attempt was its own, or was about to be.
    pub took_host: bool,
}

/// Whether nothing but one job can have caused a death.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Exclusive(pub bool);

/// A death that is to be counted against an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Exposure {
    /// Who died.
    pub boot: BootId,
    /// How the attempt was near.
    pub cause: ExposureCause,
    /// The black box names the attempt, whatever else there is.
    pub named: bool,
    /// Nothing but this job can have caused it.
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
    /// Take it over and watch it.
    Adopt,
    /// Take it over and write down what its record says.
    Conclude,
    /// End the attempt at no charge.
    Requeue(End),
    /// End the attempt, charged.
    Charge(End),
    /// Quarantine it: its row cannot be understood.
    SetAside,
    /// End what lingers of a run, then look again.
    Sweep,
}

/// The deaths that have to be counted against an attempt before anybody looks at its run.
///
/// A broker can die of looking at a run, and so can the next, and the one after it: each death has
/// to be on disk before the next look, else none ever counts. The black box tells in whose step a
/// boot died, whether the run never started, lives on or has ended: not the run killed that boot,
/// its own step for it did. Where the host went down too the black box of a job that is no suspect
/// may not have reached the disk: every attempt in those hands was near then.
pub fn exposures(attempt: &Attempt, dead: &[DeadBoot]) -> Vec<Exposure> {
    let uncounted = |dead: &&DeadBoot| attempt.death_of(dead.boot).is_none();
    let near = dead.iter().filter(uncounted).filter_map(|dead| {
        let cause = match (dead.took_host, dead.names) {
            (true, _) => ExposureCause::HostLost,
            (false, Some(_)) => ExposureCause::NamedByBlackBox,
            (false, None) => return None,
        };
        Some(Exposure {
            boot: dead.boot,
            cause,
            named: dead.names.is_some(),
            exclusive: dead.names == Some(Exclusive(true)),
        })
    });
    near.collect()
}

/// What became of the boots in whose hands an attempt was, as far as its row does not tell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Hands {
    /// Boots that are over and came after its owner, and ended in order or in a step for it: each
    /// was about to take it over.
    pub passed: u32,
    /// Its owner is over, and began when the job's deadline had passed.
    pub late: bool,
}

/// Whether the run of a job is to be ended without anybody looking at what it left: the job is
/// condemned, or its deadline has passed and one boot after the other took it over, or was about
/// to, and came no further. Each of them may have ended in order, which nobody is charged for.
pub fn is_to_end_unread(job: &Job, hands: Hands, now: Timestamp, policy: &Policy) -> bool {
    let goes_round = rounds(job, hands) >= u64::from(policy.suspect_disruptions);
    job.budget.is_spent(policy) || (now >= job.deadline_at && goes_round)
}

/// How often a job went from one boot to the next while it was recorded as running.
fn rounds(job: &Job, hands: Hands) -> u64 {
    // Each change of owner takes a token, a claim or not.
    let taken_over = job.token.0.saturating_sub(u64::from(job.attempts));
    taken_over.saturating_add(u64::from(hands.passed))
}

/// Brokers that may end over the end of a job that is ended unread, beyond those that made it so.
pub const ENDINGS: u32 = 2;

/// Whether brokers end of ending a job even though nothing is read that its run left: they die of
/// it, or past the job's deadline one after the other ends in order. Then its run is ended and its
/// row marked ([`Action::SetAside`]), and nothing else is tried.
///
/// Take-overs of long ago are no sign of the latter: a boot that began past the deadline has to
/// have had it.
pub fn cannot_be_ended(job: &Job, hands: Hands, now: Timestamp, policy: &Policy) -> bool {
    let kills = job.budget.losses >= policy.loss_limit.saturating_add(ENDINGS);
    let most = policy.suspect_disruptions.saturating_add(ENDINGS);
    let goes_round = hands.late && rounds(job, hands) >= u64::from(most);
    kills || (now >= job.deadline_at && goes_round)
}

/// Plans for a job that is recorded as running, once [`exposures`] are counted.
pub fn plan(facts: &Facts) -> Vec<Action> {
    match facts.owner {
        OwnerFact::Driven | OwnerFact::Alive => vec![Action::Leave],
        OwnerFact::Undriven => match facts.run {
            RunFact::Vanished => vec![Action::Charge(End::Crashed { evidence: None })],
            RunFact::NeverStarted => vec![Action::Requeue(never_started())],
            RunFact::Alive | RunFact::Lingering | RunFact::Exited | RunFact::Elsewhere => {
                vec![living(facts.run)]
            }
        },
        OwnerFact::Dead(death) => vec![after_death(death, facts.run)],
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

fn after_death(death: DeathFact, run: RunFact) -> Action {
    let started = match run {
        RunFact::NeverStarted => false,
        RunFact::Vanished => true,
        RunFact::Alive | RunFact::Lingering | RunFact::Exited | RunFact::Elsewhere => {
            return living(run);
        }
    };
    // Counted already, which comes first: a step takes milliseconds, so one that was cut off by
    // the kill at the end of a drain hung.
    if let Some(cause) = death.counted {
        return Action::Charge(End::Exposed { cause });
    }
    let exposed = |cause| Action::Charge(End::Exposed { cause });
    match (started, death.drained, death.host_restarted) {
        (true, true, true) => requeue(DisruptionCause::Reboot),
        (true, true, false) => requeue(DisruptionCause::Drain),
        (true, false, false) => exposed(ExposureCause::VanishedWithBroker),
        // A run folder is not sure to survive the loss of its host: that there is no trace of a
        // start is no proof that there was none.
        (_, false, true) => exposed(ExposureCause::HostLost),
        // A bystander.
        (false, true, _) | (false, false, false) => Action::Requeue(never_started()),
    }
}

fn living(run: RunFact) -> Action {
    match run {
        RunFact::Alive => Action::Adopt,
        RunFact::Exited => Action::Conclude,
        RunFact::Lingering => Action::Sweep,
        RunFact::NeverStarted | RunFact::Vanished | RunFact::Elsewhere => Action::Leave,
    }
}

fn requeue(cause: DisruptionCause) -> Action {
    Action::Requeue(End::Disrupted { cause })
}
