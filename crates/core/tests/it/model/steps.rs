//! What can happen next: steps of the broker and of the world.

use evenkeel_core::attempt::{DisruptionCause, End, Evidence, FailReason};
use evenkeel_core::transition::{Event, never_started};

use super::boots::Names;
use super::poison::{Deed, Moment};
use super::world::{Driver, Flaw, Kill, Model, Record, RowState, Run, World};
use crate::fixtures::{attempt_id, boot_id, run_root};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    // The broker's.
    Claim(usize),
    Start(usize),
    Watch(usize),
    Judge,
    Recover(usize),
    Restart,
    // The world's.
    Deliver(usize),
    GhostArrives(usize),
    RunBegins(usize),
    RunEnds(usize),
    RunAges(usize),
    /// A quiet period ends the hold.
    Release,
    /// What a poison does, while these steps are under way.
    Strike(usize, Names),
    // From outside, counted.
    Kill(Kill, usize, Names),
}

/// Where steps under way do not matter.
pub(super) const NOBODY: Names = Names::Shared(0);

impl Step {
    /// Whether it takes one of the kills that are left.
    pub(super) fn is_kill(self) -> bool {
        matches!(self, Self::Kill(..))
    }
}

impl World {
    /// Steps that may be possible.
    pub(super) fn steps(&self, model: &Model) -> Vec<Step> {
        let jobs = 0..self.things.len();
        let mut all = vec![Step::Judge, Step::Restart];
        if self.held {
            all.push(Step::Release);
        }
        for step in [
            Step::Claim,
            Step::Start,
            Step::Watch,
            Step::Recover,
            Step::Deliver,
            Step::GhostArrives,
            Step::RunBegins,
            Step::RunEnds,
            Step::RunAges,
        ] {
            all.extend(jobs.clone().map(step));
        }
        for n in jobs.clone().filter(|n| self.strikes_now(model, *n)) {
            let names = self.names_while(model, n);
            all.extend(names.into_iter().map(|names| Step::Strike(n, names)));
        }
        if self.kills_left == 0 {
            return all;
        }
        for kill in model.kinds.iter().copied() {
            match kill {
                Kill::Broker | Kill::BrokerAndRuns | Kill::Host => {
                    let names = self.names(model, 0);
                    all.extend(names.into_iter().map(|names| Step::Kill(kill, 0, names)));
                }
                Kill::Drain => {
                    let names = self.hung(model);
                    all.extend(names.into_iter().map(|names| Step::Kill(kill, 0, names)));
                }
                Kill::Shim | Kill::Driver | Kill::Cancel => {
                    all.extend(jobs.clone().map(|n| Step::Kill(kill, n, NOBODY)));
                }
            }
        }
        all
    }

    /// The world after `step`; `None` if it cannot happen now.
    pub(super) fn after(&self, model: &Model, step: Step) -> Option<Self> {
        if !self.may(model, step) {
            return None;
        }
        let mut next = self.clone();
        let happened = match step {
            Step::Claim(n) => next.claim(model, n),
            Step::Start(n) => next.start(n),
            Step::Watch(n) => next.watch(model, n),
            Step::Judge => next.judge(model),
            Step::Recover(n) => next.recover(model, n),
            Step::Restart => next.restart(),
            Step::Deliver(n) => next.deliver(model, n),
            Step::GhostArrives(n) => {
                let ghost = next.things[n].ghost.take();
                ghost.is_some_and(|write| next.store(model, n, &write))
            }
            Step::RunBegins(n) => {
                next.things[n].run = Run::Alive;
                true
            }
            Step::RunEnds(n) => next.run_ends(model, n),
            Step::RunAges(n) => {
                next.things[n].aged = true;
                true
            }
            Step::Release => {
                next.held = false;
                next.panicked = 0;
                true
            }
            Step::Strike(n, names) => next.strike(model, n, names),
            Step::Kill(kill, n, names) => {
                next.kills_left -= 1;
                next.kill(model, kill, n, names)
            }
        };
        if !happened {
            return None;
        }
        next.tidy(model);
        (next != *self).then_some(next)
    }

    /// What can be told without a copy of the world.
    fn may(&self, model: &Model, step: Step) -> bool {
        let thing = |n: usize| &self.things[n];
        match step {
            Step::Claim(n) => self.may_claim(model, n),
            Step::Start(n) => thing(n).driver == Driver::Claimed && !self.preparing_kills(model, n),
            Step::Watch(n) => {
                matches!(thing(n).driver, Driver::Watching | Driver::Stopping)
                    && self.may_watch(model, n)
            }
            Step::Recover(n) => self.up && thing(n).is_running() && thing(n).driver == Driver::None,
            Step::Judge => self.up,
            Step::Restart => !self.up,
            Step::Deliver(n) => thing(n).sent.is_some(),
            Step::GhostArrives(n) => thing(n).ghost.is_some(),
            Step::RunBegins(n) => thing(n).run == Run::Spawning,
            Step::RunEnds(n) => thing(n).run == Run::Alive && self.may_end(model, n),
            // A poison strikes at the same age each time: its isolation is made to cover that.
            Step::RunAges(n) => {
                model.poison(n).is_none() && thing(n).is_alone() && thing(n).run == Run::Alive
            }
            Step::Release | Step::Strike(..) | Step::Kill(..) => true,
        }
    }

    /// Isolation: a suspect waits until nothing else runs, and nothing starts beside one.
    fn may_claim(&self, model: &Model, n: usize) -> bool {
        let this = &self.things[n];
        let mut others = self.things.iter().enumerate().filter(|(m, _)| *m != n);
        let running = others
            .clone()
            .filter(|(_, other)| other.is_running())
            .count();
        let waits = this.state == RowState::Waiting && this.driver == Driver::None;
        let company = if this.is_suspect() {
            running == 0
        } else {
            let alone =
                |other: &super::world::Thing| other.is_alone() || other.shuns_company(model);
            !others.any(|(_, other)| alone(other)) && running < model.concurrency
        };
        waits && company && !self.held && self.is_settled()
    }

    fn claim(&mut self, model: &Model, n: usize) -> bool {
        let thing = &mut self.things[n];
        // The flaw: the run is there before the attempt is.
        if model.has(Flaw::StartBeforeCommit) && thing.run != Run::Spawning {
            thing.old_run_alive |= thing.run.is_alive();
            thing.run = Run::Spawning;
            return true;
        }
        let old = thing.run;
        let event = Event::Claim {
            attempt: attempt_id(1),
            boot: boot_id(self.latest().into()),
            run_root: run_root(),
        };
        if self.apply(model, n, event).is_none() {
            return false;
        }
        let thing = &mut self.things[n];
        if !thing.is_running() {
            return true;
        }
        thing.each_write(|write| write.sender_owns = false);
        thing.aged = false;
        if model.has(Flaw::StartBeforeCommit) {
            thing.driver = Driver::Watching;
            return true;
        }
        thing.old_run_alive |= old.is_alive();
        thing.run = Run::NotStarted;
        thing.driver = Driver::Claimed;
        true
    }

    fn start(&mut self, n: usize) -> bool {
        let thing = &mut self.things[n];
        thing.driver = Driver::Watching;
        if !thing.is_asked_to_stop() {
            thing.run = Run::Spawning;
        }
        true
    }

    fn preparing_kills(&self, model: &Model, n: usize) -> bool {
        model
            .poison(n)
            .is_some_and(|poison| poison.at == Moment::Prepare)
    }

    /// A step that kills never comes to its end.
    pub(super) fn may_watch(&self, model: &Model, n: usize) -> bool {
        let thing = &self.things[n];
        let read = matches!(thing.run, Run::Exited(_)) && thing.driver == Driver::Watching;
        let strikes = |at| model.poison(n).is_some_and(|poison| poison.at == at);
        !(read && strikes(Moment::Conclude) || thing.is_being_ended() && strikes(Moment::End))
    }

    pub(super) fn watch(&mut self, model: &Model, n: usize) -> bool {
        let thing = &mut self.things[n];
        let unread = thing.driver == Driver::Stopping;
        let stopping = unread || thing.is_asked_to_stop();
        let end = match thing.run {
            Run::Spawning | Run::Alive if stopping => {
                thing.run = Run::Exited(Record::Stopped);
                return true;
            }
            Run::Spawning | Run::Alive => return false,
            Run::Lingering if !model.has(Flaw::ChargeLingering) => {
                thing.run = Run::Vanished;
                return true;
            }
            Run::Exited(_) | Run::Vanished | Run::NotStarted if unread => End::Stopped,
            Run::Exited(record) => read(record, stopping),
            Run::NotStarted => never_started(),
            Run::Vanished | Run::Lingering if model.has(Flaw::CountNothing) => never_started(),
            Run::Vanished | Run::Lingering => End::Crashed {
                evidence: model
                    .has(Flaw::ConvictInCompany)
                    .then_some(Evidence::OutOfMemory),
            },
        };
        self.send(model, n, end)
    }

    fn may_end(&self, model: &Model, n: usize) -> bool {
        let late = self.things[n].is_past_its_deadline();
        late || model.poison(n).is_none_or(super::poison::Poison::run_ends)
    }

    fn run_ends(&mut self, model: &Model, n: usize) -> bool {
        let late = self.things[n].is_past_its_deadline();
        let deed = model
            .poison(n)
            .filter(|poison| poison.at == Moment::Running)
            .map(|poison| poison.does);
        if deed == Some(Deed::KillShim) && !late {
            self.lose_run(n);
        }
        self.things[n].run = match deed {
            _ if late => Run::Exited(Record::PastDeadline),
            Some(Deed::KillShim) => Run::Lingering,
            Some(Deed::Crash) => Run::Exited(Record::Crashed),
            Some(
                Deed::KillBroker
                | Deed::KillHost
                | Deed::Reboot
                | Deed::Sigterm
                | Deed::Panic
                | Deed::PanicLikeOthers,
            )
            | None => Run::Exited(Record::Done),
        };
        true
    }
}

fn read(record: Record, asked_to_stop: bool) -> End {
    match record {
        Record::Done => End::Succeeded,
        Record::Stopped if asked_to_stop => End::Stopped,
        Record::Stopped => End::Disrupted {
            cause: DisruptionCause::Stopped,
        },
        Record::Crashed => End::Crashed {
            evidence: Some(Evidence::FatalSignal { signal: 11 }),
        },
        Record::PastDeadline => End::Failed {
            reason: FailReason::Deadline,
            message: None,
        },
    }
}
