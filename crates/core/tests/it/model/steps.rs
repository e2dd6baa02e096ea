//! What can happen next: steps of the broker, of the world, and kills from outside.

use evenkeel_core::attempt::{DisruptionCause, End, Evidence};
use evenkeel_core::policy::Chance;
use evenkeel_core::recovery::{self, DeathFact, Facts, OwnerFact, RunFact, plan};
use evenkeel_core::transition::{Effect, Event};

use super::world::{
    Driver, Flaw, Model, Owner, POISON, Poison, RowState, Run, Thing, World, Write,
};
use crate::fixtures::{attempt_id, boot_id, run_root};

/// A death that nobody announced, on a host that goes on.
pub(super) const UNANNOUNCED: DeathFact = DeathFact {
    drained: false,
    host_restarted: false,
    named: false,
    exclusive: false,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    // The broker's.
    Claim(usize),
    Start(usize),
    NoteStarted(usize),
    Watch(usize),
    Recover(usize),
    Restart,
    // The world's.
    Deliver(usize),
    GhostArrives(usize),
    RunBegins(usize),
    RunEnds(usize),
    RunAges(usize),
    /// What the poison does.
    Strike,
    // Kills from outside, counted.
    KillRun(usize),
    KillBroker {
        named: Option<usize>,
    },
    KillBoth {
        named: Option<usize>,
    },
    Drain,
    LoseDriver(usize),
}

impl Step {
    /// Whether it takes one of the kills that are left.
    pub(super) fn is_kill(self) -> bool {
        matches!(
            self,
            Self::KillRun(_)
                | Self::KillBroker { .. }
                | Self::KillBoth { .. }
                | Self::Drain
                | Self::LoseDriver(_)
        )
    }

    pub(super) fn all() -> Vec<Self> {
        let each = |step: fn(usize) -> Self| [step(0), step(1)];
        let named = [None, Some(0), Some(1)];
        let mut all = vec![Self::Restart, Self::Strike, Self::Drain];
        for step in [
            Self::Claim,
            Self::Start,
            Self::NoteStarted,
            Self::Watch,
            Self::Recover,
            Self::Deliver,
            Self::GhostArrives,
            Self::RunBegins,
            Self::RunEnds,
            Self::RunAges,
            Self::KillRun,
            Self::LoseDriver,
        ] {
            all.extend(each(step));
        }
        all.extend(named.map(|named| Self::KillBroker { named }));
        all.extend(named.map(|named| Self::KillBoth { named }));
        all
    }
}

impl World {
    /// The world after `step`; `None` if it cannot happen now.
    pub(super) fn after(&self, model: &Model, step: Step) -> Option<Self> {
        if step.is_kill() && self.kills_left == 0 {
            return None;
        }
        let mut next = self.clone();
        if step.is_kill() {
            next.kills_left -= 1;
        }
        let happened = match step {
            Step::Claim(n) => self.may_claim(n) && next.claim(model, n),
            Step::Start(n) => next.start(model, n),
            Step::NoteStarted(n) => next.things[n].moves(Driver::Spawned, Driver::Watching),
            Step::Watch(n) => self.may_conclude(model, n) && next.watch(model, n),
            Step::Recover(n) => next.recover(model, n),
            Step::Restart => next.restart(),
            Step::Deliver(n) => next.deliver(model, n),
            Step::GhostArrives(n) => {
                let ghost = next.things[n].ghost.take();
                ghost.is_some_and(|write| next.store(model, n, &write))
            }
            Step::RunBegins(n) => next.things[n].run_goes(Run::Spawning, Run::Alive),
            Step::RunEnds(n) => self.may_end(model, n) && next.things[n].run_ends(model, n),
            Step::RunAges(n) => next.age(n),
            Step::Strike => next.strike(model),
            Step::KillRun(n) => next.kill_run(n),
            Step::KillBroker { named } => next.kill_broker(named, false),
            Step::KillBoth { named } => next.kill_broker(named, true),
            Step::Drain => {
                let drained = DeathFact {
                    drained: true,
                    ..UNANNOUNCED
                };
                self.broker_up && next.broker_dies(|_| drained)
            }
            Step::LoseDriver(n) => next.lose_driver(n),
        };
        (happened && next != *self).then_some(next)
    }

    /// A boot begins. What is alive now has outlived any drain before.
    pub(super) fn restart(&mut self) -> bool {
        for thing in &mut self.things {
            if let (Owner::Dead(death), Run::Spawning | Run::Alive) = (&mut thing.owner, thing.run)
            {
                death.drained = false;
            }
        }
        !std::mem::replace(&mut self.broker_up, true)
    }

    /// Isolation: a suspect waits until nothing else runs, and nothing starts beside one.
    fn may_claim(&self, n: usize) -> bool {
        let (this, other) = (&self.things[n], &self.things[1 - n]);
        let free = !other.is_running() || !(this.row.budget.suspect || other.is_alone());
        self.broker_up && this.driver == Driver::None && free
    }

    pub(super) fn claim(&mut self, model: &Model, n: usize) -> bool {
        let thing = &mut self.things[n];
        let event = Event::Claim {
            attempt: attempt_id(1),
            boot: boot_id(1),
            run_root: run_root(),
        };
        let old = thing.run;
        // The flaw: the run is there before the attempt is.
        let flawed = model.has(Flaw::StartBeforeCommit) && thing.row.state == RowState::Waiting;
        if flawed && old != Run::Spawning {
            thing.old_run_alive |= old.is_alive();
            thing.run = Run::Spawning;
            return true;
        }
        if thing.apply(event, &model.policy).is_none() {
            return false;
        }
        if !thing.is_running() {
            return true;
        }
        thing.each_write(|write| write.sender_owns = false);
        thing.owner = Owner::Living;
        thing.aged = false;
        if flawed {
            thing.driver = Driver::Watching;
            return true;
        }
        thing.old_run_alive |= old.is_alive();
        thing.run = Run::NotStarted;
        thing.driver = Driver::Claimed;
        true
    }

    fn start(&mut self, model: &Model, n: usize) -> bool {
        if n == POISON && model.poison == Poison::BrokerAtStart {
            return false;
        }
        let thing = &mut self.things[n];
        thing.run = Run::Spawning;
        thing.moves(Driver::Claimed, Driver::Spawned)
    }

    /// Reading the record is what kills, so the step never comes to its end.
    pub(super) fn may_conclude(&self, model: &Model, n: usize) -> bool {
        !(n == POISON
            && model.poison == Poison::BrokerAtConclusion
            && self.things[n].driver == Driver::Watching
            && matches!(self.things[n].run, Run::Exited { .. }))
    }

    pub(super) fn watch(&mut self, model: &Model, n: usize) -> bool {
        let thing = &mut self.things[n];
        let stopping = match thing.driver {
            Driver::Watching => false,
            Driver::Stopping => true,
            Driver::None | Driver::Claimed | Driver::Spawned | Driver::Finishing => return false,
        };
        let end = match thing.run {
            Run::Spawning | Run::Alive if stopping => {
                thing.run = Run::Exited { stopped: true };
                return true;
            }
            Run::Spawning | Run::Alive => return false,
            Run::Lingering if model.has(Flaw::ChargeLingering) => End::Crashed { evidence: None },
            Run::Lingering => {
                thing.run = Run::Vanished;
                return true;
            }
            Run::Exited { .. } | Run::Vanished | Run::NotStarted if stopping => End::Stopped,
            Run::Exited { stopped: false } => End::Succeeded,
            Run::Exited { stopped: true } => End::Disrupted {
                cause: DisruptionCause::Stopped,
            },
            Run::NotStarted => evenkeel_core::transition::never_started(),
            Run::Vanished if model.has(Flaw::CountNothing) => {
                evenkeel_core::transition::never_started()
            }
            Run::Vanished => End::Crashed {
                evidence: model
                    .has(Flaw::ConvictInCompany)
                    .then_some(Evidence::OutOfMemory),
            },
        };
        thing.sent = Some(Write::by_owner(end));
        thing.driver = Driver::Finishing;
        true
    }

    pub(super) fn deliver(&mut self, model: &Model, n: usize) -> bool {
        let Some(write) = self.things[n].sent.take() else {
            return false;
        };
        self.store(model, n, &write);
        self.things[n].driver = Driver::None;
        true
    }

    /// A finish arrives at the store, which asks the fence. Always takes place.
    pub(super) fn store(&mut self, model: &Model, n: usize, write: &Write) -> bool {
        let fence = write.attempt_holds && (write.token_holds || model.has(Flaw::IgnoreToken));
        if fence && self.things[n].is_running() {
            let ended = self.things[n].end(model, write.end.clone());
            self.stale_write_applied |= ended && !write.sender_owns;
        }
        true
    }

    pub(super) fn recover(&mut self, model: &Model, n: usize) -> bool {
        let thing = &mut self.things[n];
        if !self.broker_up || !thing.is_running() || thing.driver != Driver::None {
            return false;
        }
        let owner = match thing.owner {
            Owner::Dead(death) => OwnerFact::Dead(death),
            Owner::Living => OwnerFact::Undriven,
            Owner::None => return false,
        };
        let run = match (thing.run, model.flaw) {
            (Run::Spawning, Some(Flaw::ProbeWithoutFence)) => RunFact::NeverStarted,
            (Run::Lingering, Some(Flaw::ChargeLingering)) => RunFact::Vanished,
            (run, _) => run.probed(),
        };
        let facts = Facts {
            attempt: attempt_id(1),
            owner,
            run,
            ran: thing.ran(),
        };
        plan(&facts)
            .into_iter()
            .all(|action| thing.carry_out(model, action))
    }

    fn age(&mut self, n: usize) -> bool {
        // The poison strikes at the same age each time: its isolation is made to cover that.
        let thing = &mut self.things[n];
        n != POISON && thing.is_alone() && {
            thing.aged = true;
            thing.run == Run::Alive
        }
    }

    /// A poison run never comes to an end of its own, but for one whose record is the poison.
    fn may_end(&self, model: &Model, n: usize) -> bool {
        n != POISON || matches!(model.poison, Poison::OwnRun | Poison::BrokerAtConclusion)
    }

    fn strike(&mut self, model: &Model) -> bool {
        let thing = &self.things[POISON];
        let reads = matches!(thing.run, Run::Exited { .. });
        let (strikes, named, dies) = match model.poison {
            Poison::OwnRun => return false,
            Poison::BrokerAtStart => (thing.driver == Driver::Claimed, true, false),
            Poison::BrokerWhileRunning => (thing.run == Run::Alive, false, true),
            Poison::BrokerAtConclusion => (thing.driver == Driver::Watching && reads, true, false),
        };
        if !(self.broker_up && strikes) {
            return false;
        }
        self.strikes = (self.strikes + 1).min(most_deaths(model) + 1);
        if dies {
            self.things[POISON].run = Run::Vanished;
        }
        let exclusive = is_suspect(&self.things[POISON]);
        self.broker_dies(|n| DeathFact {
            named: named && n == POISON,
            exclusive: named && n == POISON && exclusive,
            ..UNANNOUNCED
        })
    }

    fn kill_run(&mut self, n: usize) -> bool {
        let thing = &mut self.things[n];
        thing.hit(false);
        match thing.run {
            Run::Spawning => thing.run = Run::NotStarted,
            Run::Alive => thing.run = Run::Lingering,
            Run::NotStarted | Run::Lingering | Run::Exited { .. } | Run::Vanished => return false,
        }
        true
    }

    fn kill_broker(&mut self, named: Option<usize>, and_runs: bool) -> bool {
        let stepping = |n: usize| self.things[n].driver != Driver::None;
        if !self.broker_up || named.is_some_and(|n| !stepping(n)) {
            return false;
        }
        let vanished = [0, 1].map(|n| and_runs && self.things[n].run.is_alive());
        if and_runs && vanished == [false; 2] {
            return false;
        }
        let exclusive = named.is_some_and(|n| is_suspect(&self.things[n]) && !vanished[1 - n]);
        for (n, thing) in self.things.iter_mut().enumerate() {
            if vanished[n] || named == Some(n) {
                thing.hit(named == Some(n) && exclusive);
            }
            if vanished[n] {
                let spawning = thing.run == Run::Spawning;
                thing.run = if spawning {
                    Run::NotStarted
                } else {
                    Run::Vanished
                };
            }
        }
        self.broker_dies(|n| DeathFact {
            named: named == Some(n),
            exclusive: named == Some(n) && exclusive,
            ..UNANNOUNCED
        })
    }

    pub(super) fn broker_dies(&mut self, facts: impl Fn(usize) -> DeathFact) -> bool {
        self.broker_up = false;
        for (n, thing) in self.things.iter_mut().enumerate() {
            if thing.owner == Owner::Living {
                thing.owner = Owner::Dead(facts(n));
            }
            thing.driver = Driver::None;
            if let Some(write) = thing.sent.take() {
                thing.ghost = Some(write);
            }
        }
        true
    }

    fn lose_driver(&mut self, n: usize) -> bool {
        let thing = &mut self.things[n];
        let driven = thing.driver != Driver::None && thing.driver != Driver::Finishing;
        thing.driver = Driver::None;
        driven
    }
}

/// I7: brokers that one target may cost.
pub(super) fn most_deaths(model: &Model) -> u8 {
    let deaths = model.policy.suspect_exposures + model.policy.loss_limit;
    u8::try_from(deaths).expect("limits of the model are small")
}

/// The steps of a suspect are exclusive.
fn is_suspect(thing: &Thing) -> bool {
    thing.row.budget.suspect
}

impl Thing {
    fn moves(&mut self, from: Driver, to: Driver) -> bool {
        let here = self.driver == from;
        self.driver = to;
        here
    }

    fn run_goes(&mut self, from: Run, to: Run) -> bool {
        let here = self.run == from;
        self.run = to;
        here
    }

    fn run_ends(&mut self, model: &Model, n: usize) -> bool {
        let kills_itself = n == POISON && model.poison == Poison::OwnRun;
        let end = if kills_itself {
            Run::Lingering
        } else {
            Run::Exited { stopped: false }
        };
        self.run_goes(Run::Alive, end)
    }

    fn hit(&mut self, in_exclusive_step: bool) {
        self.hits += 1;
        self.isolated_hits += u8::from(in_exclusive_step || self.is_alone());
    }

    fn end(&mut self, model: &Model, end: End) -> bool {
        let event = Event::End {
            attempt: attempt_id(1),
            end,
            ran: self.ran(),
            chance: Chance(0),
        };
        self.apply(event, &model.policy).is_some()
    }

    /// The dumb loop's part: one write for each action.
    fn carry_out(&mut self, model: &Model, action: recovery::Action) -> bool {
        let exposed = match action {
            recovery::Action::Leave | recovery::Action::SetAside => return false,
            recovery::Action::Sweep => {
                self.run = Run::Vanished;
                return true;
            }
            recovery::Action::Requeue(end) | recovery::Action::Charge(end) => {
                if !model.has(Flaw::AdoptBeforeCharge) {
                    return self.end(model, end);
                }
                self.sent = Some(Write::by_owner(end));
                None
            }
            recovery::Action::Adopt(exposed) | recovery::Action::Conclude(exposed) => exposed,
        };
        let event = Event::Adopt {
            attempt: attempt_id(1),
            boot: boot_id(2),
            exposed,
            ran: self.ran(),
        };
        let charge = self.sent.take();
        let Some(effects) = self.apply(event, &model.policy) else {
            return false;
        };
        self.each_write(|write| write.sender_owns = false);
        self.owner = Owner::Living;
        if charge.is_some() {
            self.sent = charge;
            self.driver = Driver::Finishing;
            return true;
        }
        let stop = effects
            .iter()
            .any(|effect| matches!(effect, Effect::StopRun { .. }));
        self.driver = if stop && !model.has(Flaw::ReadCondemnedRecord) {
            Driver::Stopping
        } else {
            Driver::Watching
        };
        true
    }
}
