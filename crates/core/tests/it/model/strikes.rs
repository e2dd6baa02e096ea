//! Deaths: what poisons do, and kills from outside.

use evenkeel_core::attempt::{End, Evidence};
use evenkeel_core::budget::Budget;
use evenkeel_core::job::{Job, State, StopReason};
use evenkeel_core::panics::{OUR_BUG_JOBS, PanicLedger, PanicVerdict};
use evenkeel_core::transition::Event;

use super::boots::Names;
use super::poison::{Deed, Moment};
use super::recovery::Next;
use super::rows::{one_more, one_more_free};
use super::steps::NOBODY;
use super::world::{Driver, Flaw, Kill, Model, RowState, Run, Thing, World, Wrong};
use crate::fixtures::{NOON, job_id};

const PLACE: &str = "crates/engine/src/attempt.rs:1:1";

impl World {
    /// Whether a step of job `n` may be under way.
    fn in_step(&self, model: &Model, n: usize) -> bool {
        self.up && (self.things[n].driver != Driver::None || self.looks_at(model, n))
    }

    /// What a death may find under way: a suspect's step, or any steps of others. The steps of
    /// the jobs in `with` are.
    pub(super) fn names(&self, model: &Model, with: u8) -> Vec<Names> {
        let (mut shared, mut names) = (0u8, Vec::new());
        for n in (0..self.things.len()).filter(|n| self.in_step(model, *n)) {
            if !self.things[n].is_suspect() || model.has(Flaw::NothingExclusive) {
                shared |= 1 << n;
            } else if with == 0 || with == 1 << n {
                names.push(Names::Alone(n));
            }
        }
        let subsets = (0..=shared).filter(|mask| mask & !shared == 0 && mask & with == with);
        names.extend(subsets.map(Names::Shared));
        names
    }

    /// What a drain may find under way when everybody else has come to an end: at most one step
    /// that hangs.
    pub(super) fn hung(&self, model: &Model) -> Vec<Names> {
        let mut names = self.names(model, 0);
        names.retain(|names| match names {
            Names::Shared(mask) => mask.count_ones() <= 1,
            Names::Alone(_) => true,
        });
        names
    }

    pub(super) fn strikes_now(&self, model: &Model, n: usize) -> bool {
        let Some(poison) = model.poison(n) else {
            return false;
        };
        let thing = &self.things[n];
        let watched = thing.driver == Driver::Watching;
        let strikes = match poison.at {
            Moment::Prepare => thing.driver == Driver::Claimed,
            Moment::Running => {
                thing.run == Run::Alive
                    && (poison.is_deadly() || poison.is_orderly())
                    && thing.is_running()
            }
            Moment::Watch => watched && thing.run == Run::Alive,
            Moment::Look => self.looks_at(model, n),
            Moment::Conclude => watched && matches!(thing.run, Run::Exited(_)),
            Moment::End => {
                let looks = matches!(self.next_for(model, n), Next::Look);
                thing.is_being_ended() || looks && self.is_ended_by_a_look(n)
            }
        };
        let over = poison.lives_by_its_run() && thing.is_past_its_deadline();
        self.up && strikes && !over
    }

    /// What may be under way when job `n` strikes.
    pub(super) fn names_while(&self, model: &Model, n: usize) -> Vec<Names> {
        let own_step = model
            .poison(n)
            .is_some_and(|poison| poison.at != Moment::Running);
        self.names(model, u8::from(own_step) << n)
    }

    pub(super) fn strike(&mut self, model: &Model, n: usize, names: Names) -> bool {
        let Some(poison) = model.poison(n) else {
            return false;
        };
        let within = poison.at == Moment::Running;
        if poison.is_orderly() {
            self.things[n].free = one_more_free(self.things[n].free);
        }
        if poison.is_deadly() {
            self.things[n].strikes = one_more(self.things[n].strikes, model);
        }
        match poison.does {
            Deed::KillBroker => {
                if within {
                    self.lose_run(n);
                }
                self.broker_dies(model, names, false)
            }
            Deed::KillHost => self.host_dies(model, names, false),
            // Steps come to their ends before a drained broker does.
            Deed::Sigterm => self.broker_dies(model, NOBODY, true),
            Deed::Reboot => self.host_dies(model, NOBODY, true),
            Deed::Panic => self.panic(model, n, false),
            Deed::PanicLikeOthers => self.panic(model, n, true),
            Deed::KillShim | Deed::Crash => false,
        }
    }

    /// The driver's guard: the run is ended and proven gone, then the attempt is closed.
    fn panic(&mut self, model: &Model, n: usize, shared: bool) -> bool {
        if shared {
            self.panicked |= 1 << n;
        }
        let mut ledger = PanicLedger::default();
        let others = (0..self.things.len()).filter(|m| *m != n && self.panicked & (1 << m) != 0);
        for m in others {
            ledger.observe(PLACE, job_id(m as u64), NOON);
        }
        let place = if shared { PLACE } else { "elsewhere:1:1" };
        let location = place.to_owned();
        let end = match ledger.observe(place, job_id(n as u64), NOON) {
            PanicVerdict::Charge => End::Crashed {
                evidence: Some(Evidence::Panic { location }),
            },
            PanicVerdict::OurBug => {
                self.held = true;
                self.things[n].free = one_more_free(self.things[n].free);
                End::OurBug { location }
            }
        };
        let before = self.things[n].budget.clone();
        if self.things[n].run.is_alive() {
            self.lose_run(n);
        }
        let sent = self.send(model, n, end);
        let charged = self.things[n].budget != before;
        if charged && shared && self.panicked.count_ones() as usize >= OUR_BUG_JOBS {
            self.wrong = Some(Wrong::PaidForOurBug);
        }
        sent
    }

    /// Notes a kill from outside that met the steps of `names` and, if `runs`, all runs.
    fn hit(&mut self, names: Names, runs: bool) {
        // One whose action had not begun leaves no trace of having been lost.
        let lost = |thing: &Thing| runs && matches!(thing.run, Run::Alive | Run::Lingering);
        let others_lost: Vec<bool> = (0..self.things.len())
            .map(|n| (self.things.iter().enumerate()).any(|(m, thing)| m != n && lost(thing)))
            .collect();
        for (n, thing) in self.things.iter_mut().enumerate() {
            let (named, alone) = match names {
                Names::Shared(mask) => (mask & (1 << n) != 0, false),
                Names::Alone(m) => (m == n, m == n && !others_lost[n]),
            };
            if thing.is_running() && (named || runs) {
                thing.hits += 1;
                thing.isolated_hits += u8::from(alone || thing.is_alone());
            }
        }
    }

    pub(super) fn kill(&mut self, model: &Model, kill: Kill, n: usize, names: Names) -> bool {
        match kill {
            Kill::Shim => self.kill_shim(n),
            Kill::Broker => {
                self.hit(names, false);
                self.broker_dies(model, names, false)
            }
            Kill::BrokerAndRuns => {
                self.hit(names, true);
                for n in 0..self.things.len() {
                    self.lose_run(n);
                }
                self.broker_dies(model, names, false)
            }
            Kill::Host => {
                self.hit(names, true);
                self.host_dies(model, names, false);
                true
            }
            Kill::Drain => {
                self.hit(names, false);
                self.broker_dies(model, names, true)
            }
            Kill::Driver => {
                let thing = &mut self.things[n];
                let driven = !matches!(thing.driver, Driver::None | Driver::Finishing);
                thing.driver = Driver::None;
                driven
            }
            Kill::Cancel => self.cancel(model, n),
        }
    }

    fn kill_shim(&mut self, n: usize) -> bool {
        let run = match self.things[n].run {
            Run::Spawning => Run::NotStarted,
            Run::Alive => Run::Lingering,
            Run::NotStarted | Run::Lingering | Run::Exited(_) | Run::Vanished => return false,
        };
        self.lose_run(n);
        let thing = &mut self.things[n];
        thing.run = run;
        thing.hits += 1;
        thing.isolated_hits += u8::from(thing.is_alone());
        true
    }

    /// The platform deletes what is not final, or asks again for what is: the same account.
    fn cancel(&mut self, model: &Model, n: usize) -> bool {
        if !self.things[n].is_final() {
            let reason = StopReason::Operator;
            return self.apply(model, n, Event::Stop { reason }).is_some();
        }
        // A new job, with a row and a deadline of its own.
        self.things[n].taken_over = 0;
        self.things[n].free = 0;
        let inherited: &Budget = &self.things[n].budget;
        self.things[n].state = match Job::first_state(inherited, &model.policy) {
            State::Queued => RowState::Waiting,
            State::Quarantined { .. } => RowState::QuarantinedUnstarted,
            State::Running { .. }
            | State::Backoff { .. }
            | State::Succeeded
            | State::Failed { .. }
            | State::Cancelled { .. } => RowState::Strange,
        };
        true
    }
}
