//! What the living boot does about jobs that are recorded as running and have no driver, step by
//! step: each is one durable write, which a death may precede or follow.

use evenkeel_core::attempt::End;
use evenkeel_core::recovery::{self, Exposure, Facts, OwnerFact, RunFact, plan};
use evenkeel_core::transition::{Effect, Event, never_started};

use super::poison::Moment;
use super::world::{Driver, Flaw, Model, Run, Thing, World};
use crate::fixtures::{attempt_id, boot_id};

/// What recovery has to do next with a job.
pub(super) enum Next {
    Nothing,
    Count(Exposure),
    /// It is condemned, or goes round past its deadline: its run is taken over, to be ended unread.
    End,
    /// Brokers die of ending it: its run is ended, then its row marked.
    SetAside,
    Look,
}

/// What recovery has to do next before anything else.
enum Judgement {
    Done,
    Count(usize, Exposure),
    /// Of another job, to see whether its run vanished.
    Look(usize),
    Spoil,
    SpoilWrongly,
    Sound,
}

impl World {
    /// The latest box that names an exclusive step of which the living boot does not know yet
    /// whether another run was lost with it.
    fn unjudged(&self) -> Option<usize> {
        let open = |&k: &usize| self.boots[k].alone.is_some() && !self.boots[k].judged;
        (0..self.boots.len()).rev().find(open)
    }

    fn lacks_driver(&self, n: usize) -> bool {
        self.up && self.things[n].is_running() && self.things[n].driver == Driver::None
    }

    pub(super) fn next_for(&self, model: &Model, n: usize) -> Next {
        if !self.lacks_driver(n) || self.unjudged().is_some() {
            return Next::Nothing;
        }
        let thing = &self.things[n];
        match self.uncounted(model, n).into_iter().next() {
            Some(near) if !model.has(Flaw::LookBeforeCounting) => Next::Count(near),
            Some(_) | None => {
                if thing.cannot_be_ended(model) {
                    return Next::SetAside;
                }
                if thing.ends_unread(model) {
                    return Next::End;
                }
                Next::Look
            }
        }
    }

    pub(super) fn recover(&mut self, model: &Model, n: usize) -> bool {
        match self.next_for(model, n) {
            Next::Nothing => false,
            Next::Count(near) => self.count(model, n, near),
            Next::End => self.adopt(model, n, !model.has(Flaw::ReadCondemnedRecord)),
            Next::SetAside if !self.things[n].run.is_alive() => self.set_aside(model, n),
            Next::SetAside => {
                self.lose_run(n);
                true
            }
            Next::Look if self.looking_kills(model, n) => false,
            Next::Look => self.look(model, n),
        }
    }

    fn count(&mut self, model: &Model, n: usize, near: Exposure) -> bool {
        let event = Event::Expose {
            attempt: attempt_id(1),
            boot: near.boot,
            cause: near.cause,
            exclusive: near.exclusive
                || model.has(Flaw::SoloLossOfAnyBoot) && self.things[n].is_alone(),
            ran: self.things[n].ran(),
        };
        self.apply(model, n, event).is_some()
    }

    fn looking_kills(&self, model: &Model, n: usize) -> bool {
        model.poison(n).is_some_and(|poison| match poison.at {
            Moment::Look => !poison.panics(),
            Moment::End => self.is_ended_by_a_look(n),
            Moment::Prepare | Moment::Running | Moment::Watch | Moment::Conclude => false,
        })
    }

    /// Whether recovery itself writes the end of a job that it looks at.
    pub(super) fn is_ended_by_a_look(&self, n: usize) -> bool {
        matches!(self.things[n].run, Run::NotStarted | Run::Vanished)
    }

    /// The step of job `n` that recovery may be in: one of its own, or a look whether its run
    /// vanished with another's.
    pub(super) fn looks_at(&self, model: &Model, n: usize) -> bool {
        let judges = matches!(self.judgement(model), Judgement::Look(of) if of == n);
        judges || matches!(self.next_for(model, n), Next::Look)
    }

    fn look(&mut self, model: &Model, n: usize) -> bool {
        let thing = &self.things[n];
        let owner = if self.is_dead(thing.owner) {
            OwnerFact::Dead(self.death_of_owner(model, n))
        } else {
            OwnerFact::Undriven
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
        if model.has(Flaw::LookBeforeCounting) {
            for near in self.uncounted(model, n) {
                self.count(model, n, near);
            }
        }
        let actions = plan(&facts);
        actions
            .into_iter()
            .all(|action| self.carry_out(model, n, action))
    }

    /// The dumb loop's part: one write for each action.
    fn carry_out(&mut self, model: &Model, n: usize, action: recovery::Action) -> bool {
        match action {
            recovery::Action::Leave | recovery::Action::SetAside => false,
            recovery::Action::Sweep => {
                self.lose_run(n);
                true
            }
            recovery::Action::Adopt | recovery::Action::Conclude => self.adopt(model, n, false),
            recovery::Action::Requeue(end) | recovery::Action::Charge(end) => {
                if model.has(Flaw::AdoptBeforeCharge) {
                    return self.adopt(model, n, false) && self.send(model, n, end);
                }
                let charged = matches!(end, End::Crashed { .. } | End::Exposed { .. });
                let end = if charged && model.has(Flaw::CountNothing) {
                    never_started()
                } else {
                    end
                };
                self.end(model, n, end)
            }
        }
    }

    fn adopt(&mut self, model: &Model, n: usize, unread: bool) -> bool {
        let boot = boot_id(self.latest().into());
        let event = Event::Adopt {
            attempt: attempt_id(1),
            boot,
        };
        let Some(effects) = self.apply(model, n, event) else {
            return false;
        };
        let thing = &mut self.things[n];
        thing.each_write(|write| write.sender_owns = false);
        let spent = thing.budget.is_spent(&model.policy);
        let stop = effects
            .iter()
            .any(|effect| matches!(effect, Effect::StopRun { .. }));
        // One that was asked to stop is read as ever.
        assert!(stop || !spent, "the run of a condemned job goes on");
        thing.driver = if unread {
            Driver::Stopping
        } else {
            Driver::Watching
        };
        true
    }

    /// The latest box that names an exclusive step and is not judged: another run that was lost
    /// with that boot spoils it, whether that boot owned it or was about to take it over.
    fn judgement(&self, model: &Model) -> Judgement {
        let Some(k) = self.unjudged() else {
            return Judgement::Done;
        };
        if !self.up {
            return Judgement::Done;
        }
        if model.has(Flaw::ConvictThoughAnotherVanished) {
            return Judgement::Sound;
        }
        let boot = u8::try_from(k).expect("few");
        for (n, thing) in self.things.iter().enumerate() {
            if self.boots[k].alone == Some(n) || !thing.is_running() || thing.owner > boot {
                continue;
            }
            let gone = matches!(thing.run, Run::Vanished | Run::Lingering);
            // Who is about to be taken over is not looked at for this: its last sign of life tells.
            if thing.owner < boot {
                if model.has(Flaw::LookAtWhatIsToBeTakenOver) && self.looking_kills(model, n) {
                    return Judgement::Look(n);
                }
                let lost_with_it = gone && thing.lost_under == Some(boot);
                if lost_with_it && !model.has(Flaw::AskOnlyItsOwnRuns) {
                    return Judgement::Spoil;
                }
                continue;
            }
            if let Some(near) = self.uncounted(model, n).into_iter().next() {
                return Judgement::Count(n, near);
            }
            // Nor is who is to be ended unread: that may be what kills.
            let unread = if model.has(Flaw::LookAtTheLate) {
                thing.budget.is_spent(&model.policy)
            } else {
                thing.ends_unread(model)
            };
            if unread && model.has(Flaw::ExcuseByTheCondemned) {
                return Judgement::Spoil;
            }
            if unread && !model.has(Flaw::LookAtTheCondemned) {
                if gone && thing.lost_under == Some(boot) {
                    return Judgement::Spoil;
                }
                continue;
            }
            if self.looking_kills(model, n) {
                return Judgement::Look(n);
            }
            // A run that was lost after that boot had died did not take it along. A run folder is
            // not sure to survive the loss of its host.
            let unknown = thing.run == Run::NotStarted && self.boots[k].host_gone;
            if (gone && !thing.outlived) || unknown {
                return Judgement::Spoil;
            }
            if gone && model.has(Flaw::SpoiltByWhatOutlivedIt) {
                return Judgement::SpoilWrongly;
            }
        }
        Judgement::Sound
    }

    pub(super) fn judge(&mut self, model: &Model) -> bool {
        let judgement = self.judgement(model);
        let Some(k) = self.unjudged() else {
            return false;
        };
        match judgement {
            Judgement::Done | Judgement::Look(_) => false,
            Judgement::Count(n, near) => self.count(model, n, near),
            Judgement::Sound => {
                self.boots[k].judged = true;
                true
            }
            Judgement::Spoil => {
                if let Some(n) = self.spoil(k) {
                    let spoilt = self.things[n].spoilt;
                    self.things[n].spoilt = (spoilt + u8::from(model.poison(n).is_some())).min(9);
                }
                true
            }
            Judgement::SpoilWrongly => self.spoil(k).is_some(),
        }
    }

    /// The step that this box names was not all that went wrong: whose it was.
    fn spoil(&mut self, k: usize) -> Option<usize> {
        let n = self.boots[k].alone.take()?;
        self.boots[k].named |= 1 << n;
        Some(n)
    }

    /// Whether the first pass of recovery is over.
    pub(super) fn is_settled(&self) -> bool {
        let left = |thing: &Thing| thing.is_running() && self.is_dead(thing.owner);
        self.up && !self.things.iter().any(left)
    }
}
