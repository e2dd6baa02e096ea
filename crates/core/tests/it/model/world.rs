//! The state of the modelled world: jobs with all that belongs to them, and boots.

use std::sync::Mutex;

use evenkeel_core::attempt::{Charge, End, ExposureCause};
use evenkeel_core::budget::Budget;
use evenkeel_core::policy::Policy;
use evenkeel_core::recovery::{ENDINGS, Hands, RunFact};

use super::boots::Boot;
use super::poison::{Moment, Poison};
use crate::fixtures::policy;

/// A mistake in the rules or in the order of steps, to see that it would be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flaw {
    StartBeforeCommit,
    ProbeWithoutFence,
    ChargeLingering,
    IgnoreToken,
    ConvictInCompany,
    AdoptBeforeCharge,
    ReadCondemnedRecord,
    CountNothing,
    CountEveryStart,
    ChargeEveryoneInFlight,
    FreeIfNeverStarted,
    FreeIfAdoptedAlive,
    OneCounter,
    CountAgain,
    NothingExclusive,
    NothingWrittenThrough,
    HostLostForNobody,
    SoloLossOfAnyBoot,
    SpoiltByWhatOutlivedIt,
    OneCrashTooMany,
    PassersUncounted,
    LookAtTheLate,
    SettleTheCondemnedAsDone,
    ConvictThoughAnotherVanished,
    AskOnlyItsOwnRuns,
    LookAtWhatIsToBeTakenOver,
    LookAtTheCondemned,
    LookBeforeCounting,
    OwnersDrainAlone,
    ReadForEver,
    CompanyForWhoeverLostItsHost,
    ExcuseByTheCondemned,
    EndForEver,
}

/// What may come from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kill {
    /// The shim of a run.
    Shim,
    Broker,
    /// The broker with all runs, as by the OOM killer.
    BrokerAndRuns,
    Host,
    Drain,
    /// A driver that is lost.
    Driver,
    /// The platform's delete while the job runs, and its asking again.
    Cancel,
}

/// The model: what does not change.
#[derive(Debug)]
pub(super) struct Model {
    /// What each job is; `None` is an innocent.
    pub(super) jobs: Vec<Option<Poison>>,
    pub(super) flaw: Option<Flaw>,
    pub(super) kills: u8,
    pub(super) kinds: Vec<Kill>,
    pub(super) policy: Policy,
    /// Runs at the same time.
    pub(super) concurrency: usize,
    /// A finish is sent and then delivered, in two steps, and may arrive after its sender's death.
    pub(super) slow_writes: bool,
    /// Every state that was visited, each once.
    pub(super) seen: Mutex<Vec<World>>,
}

impl Model {
    pub(super) fn new(jobs: impl IntoIterator<Item = Option<Poison>>) -> Self {
        Self {
            jobs: jobs.into_iter().collect(),
            flaw: None,
            kills: 0,
            kinds: Vec::new(),
            policy: Policy {
                suspect_disruptions: 2,
                ..policy(3, 3)
            },
            concurrency: usize::MAX,
            slow_writes: false,
            seen: Mutex::default(),
        }
    }

    pub(super) fn with_kills(mut self, kills: u8, kinds: &[Kill]) -> Self {
        self.kills = kills;
        self.kinds = kinds.to_vec();
        self
    }

    pub(super) fn with_limits(mut self, crash_limit: u32, loss_limit: u32) -> Self {
        self.policy.crash_limit = crash_limit;
        self.policy.loss_limit = loss_limit;
        self
    }

    pub(super) fn with_concurrency(mut self, runs: usize) -> Self {
        self.concurrency = runs;
        self
    }

    pub(super) fn with_slow_writes(mut self) -> Self {
        self.slow_writes = true;
        self
    }

    pub(super) fn with_flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    pub(super) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    pub(super) fn poison(&self, n: usize) -> Option<Poison> {
        self.jobs[n]
    }

    pub(super) fn states(&self) -> Vec<World> {
        std::mem::take(&mut *self.seen.lock().expect("nobody panics with it"))
    }

    /// For whoever reads what was explored.
    pub(super) fn words(&self) -> String {
        let jobs: Vec<String> = (self.jobs.iter())
            .map(|job| match job {
                Some(poison) => format!("{:?} at {:?}", poison.does, poison.at),
                None => "innocent".to_owned(),
            })
            .collect();
        let (crashes, losses) = (self.policy.crash_limit, self.policy.loss_limit);
        format!(
            "[{}] limits {crashes} and {losses}, {} kills of {:?}",
            jobs.join(", "),
            self.kills,
            self.kinds
        )
    }

    /// How often what becomes final past its deadline changes hands, as far as a decision looks;
    /// for others none does.
    pub(super) fn most_rounds(&self, n: usize) -> u8 {
        match self.poison(n) {
            Some(poison) if poison.meets_its_deadline() => {
                small(self.policy.suspect_disruptions + ENDINGS)
            }
            Some(_) | None => 0,
        }
    }

    /// Whether disposal is cut everywhere, which takes its time; and it has to come to an end.
    pub(super) fn checks_cuts(&self) -> bool {
        self.jobs.len() <= 2 && !self.has_endless()
    }

    /// Whether the end of a job kills whoever writes it.
    fn has_endless(&self) -> bool {
        (self.jobs.iter().flatten()).any(|poison| poison.at == Moment::End)
    }

    /// I7: brokers that one target may cost.
    pub(super) fn most_deaths(&self) -> u8 {
        let endings = if self.has_endless() { ENDINGS } else { 0 };
        small(self.policy.suspect_exposures + self.policy.loss_limit + endings)
    }
}

pub(super) fn small(n: u32) -> u8 {
    u8::try_from(n).expect("limits of the model are small")
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    /// Oldest first. The last one lives if the broker is up.
    pub(super) boots: Vec<Boot>,
    pub(super) up: bool,
    pub(super) things: Vec<Thing>,
    /// Kills from outside that may still come.
    pub(super) kills_left: u8,
    /// Jobs that panicked at one place lately, as bits.
    pub(super) panicked: u8,
    /// New runs are held because of that.
    pub(super) held: bool,
    /// What must never happen, and did.
    pub(super) wrong: Option<Wrong>,
}

/// What a transition, rather than a state, shows to be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Wrong {
    /// Somebody who was no longer the owner changed a row.
    StaleWrite,
    /// A job paid for a panic that three jobs share.
    PaidForOurBug,
    /// Something that the target of a quarantined job has would be deleted or changed.
    QuarantineTouched,
}

/// A job with all that belongs to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Thing {
    pub(super) state: RowState,
    pub(super) budget: Budget,
    /// The boot that owns the attempt under way, or owned the last one.
    pub(super) owner: u8,
    pub(super) deaths: Vec<Counted>,
    /// One of them, over all of the attempt, was that of its host: boots that no longer matter are
    /// forgotten here.
    pub(super) lost_its_host: bool,
    /// The run of the latest attempt.
    pub(super) run: Run,
    /// The latest boot that had begun when that run was lost, if that one still matters.
    pub(super) lost_under: Option<u8>,
    /// That run was lost after its owner's successor had begun.
    pub(super) outlived: bool,
    /// How often the row changed owners but by claims, as far as a decision looks: its token less
    /// its attempts.
    pub(super) taken_over: u8,
    /// What became of the boots that had the attempt in their hands.
    pub(super) hands: Hands,
    /// Whether that run has outlived its isolation.
    pub(super) aged: bool,
    /// A run of an earlier attempt is still alive.
    pub(super) old_run_alive: bool,
    pub(super) driver: Driver,
    /// A finish that the living broker has sent.
    pub(super) sent: Option<Write>,
    /// A finish whose sender has died; it may yet arrive.
    pub(super) ghost: Option<Write>,
    /// Kills from outside that met it, and those of them that met it in isolation.
    pub(super) hits: u8,
    pub(super) isolated_hits: u8,
    /// Brokers that it has killed, itself or with their host.
    pub(super) strikes: u8,
    /// Those that it killed in an exclusive step while another run vanished, or of which its name
    /// was lost with a host before anybody had read it.
    pub(super) spoilt: u8,
    /// Ends that it caused and that cost nothing: after so many its deadline has come.
    pub(super) free: u8,
}

/// A death that is on an attempt's list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Counted {
    pub(super) boot: u8,
    pub(super) cause: ExposureCause,
    pub(super) charge: Charge,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum RowState {
    /// Queued, or in a backoff that is over.
    Waiting,
    Running {
        solo: bool,
        stop: bool,
    },
    Succeeded,
    Cancelled,
    /// By its deadline.
    Late,
    QuarantinedForCrashes,
    QuarantinedForLosses,
    QuarantinedUnstarted,
    /// By its row alone: its end could not be written.
    SetAside,
    /// Any other end; none is expected.
    Strange,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Run {
    NotStarted,
    /// The shim holds the lock; the action's first instruction is still to come.
    Spawning,
    Alive,
    /// The shim is gone, the tree is not.
    Lingering,
    /// It has left a record.
    Exited(Record),
    Vanished,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Record {
    Done,
    Stopped,
    Crashed,
    PastDeadline,
}

impl Run {
    pub(super) fn is_alive(self) -> bool {
        matches!(self, Self::Spawning | Self::Alive | Self::Lingering)
    }

    pub(super) fn probed(self) -> RunFact {
        match self {
            Self::NotStarted => RunFact::NeverStarted,
            Self::Spawning | Self::Alive => RunFact::Alive,
            Self::Lingering => RunFact::Lingering,
            Self::Exited(_) => RunFact::Exited,
            Self::Vanished => RunFact::Vanished,
        }
    }
}

/// What the living broker is at with a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Driver {
    None,
    /// The claim is committed, the run not started.
    Claimed,
    Watching,
    /// The run is to end without its record being read.
    Stopping,
    /// Waits for the answer to what it has sent.
    Finishing,
}

/// A finish on its way to the store.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Write {
    pub(super) end: End,
    /// The row's token is still the one that the write is conditional on.
    pub(super) token_holds: bool,
    /// The attempt under way is still the one that it is about.
    pub(super) attempt_holds: bool,
    /// The sender is still the owner: what the token is there to tell.
    pub(super) sender_owns: bool,
}

impl World {
    pub(super) fn first(model: &Model) -> Self {
        let thing = Thing {
            state: RowState::Waiting,
            budget: Budget::default(),
            owner: 0,
            deaths: Vec::new(),
            lost_its_host: false,
            run: Run::NotStarted,
            lost_under: None,
            outlived: false,
            taken_over: 0,
            hands: Hands::default(),
            aged: false,
            old_run_alive: false,
            driver: Driver::None,
            sent: None,
            ghost: None,
            hits: 0,
            isolated_hits: 0,
            strikes: 0,
            spoilt: 0,
            free: 0,
        };
        Self {
            boots: vec![Boot::default()],
            up: true,
            things: vec![thing; model.jobs.len()],
            kills_left: model.kills,
            panicked: 0,
            held: false,
            wrong: None,
        }
    }
}

impl Thing {
    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, RowState::Running { .. })
    }

    pub(super) fn is_final(&self) -> bool {
        !self.is_running() && self.state != RowState::Waiting
    }

    pub(super) fn is_quarantined(&self) -> bool {
        matches!(
            self.state,
            RowState::QuarantinedForCrashes
                | RowState::QuarantinedForLosses
                | RowState::QuarantinedUnstarted
                | RowState::SetAside
        )
    }

    /// Whether its driver has nothing left to do but to write its end.
    pub(super) fn is_being_ended(&self) -> bool {
        matches!(self.driver, Driver::Watching | Driver::Stopping) && !self.run.is_alive()
    }

    /// Whether its run has the replica for itself at this moment.
    pub(super) fn is_alone(&self) -> bool {
        matches!(self.state, RowState::Running { solo: true, .. }) && !self.aged
    }

    pub(super) fn is_asked_to_stop(&self) -> bool {
        matches!(self.state, RowState::Running { stop: true, .. })
    }

    /// The steps of a suspect are exclusive.
    pub(super) fn is_suspect(&self) -> bool {
        self.budget.suspect
    }

    pub(super) fn each_write(&mut self, mut change: impl FnMut(&mut Write)) {
        self.sent
            .iter_mut()
            .chain(&mut self.ghost)
            .for_each(&mut change);
    }
}
