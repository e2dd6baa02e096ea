//! Boots that are over, as far as anything still depends on them.

use evenkeel_core::ids::BootId;
use evenkeel_core::recovery::{DeadBoot, DeathFact, Exclusive, Exposure, exposures};

use super::poison::Poison;
use super::rows::plainly;
use super::world::{Driver, Flaw, Model, Run, World};
use crate::fixtures::boot_id;

/// A boot, with its black box. What a spoilt box names is no longer `alone`.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(super) struct Boot {
    pub(super) drained: bool,
    /// Its host has restarted since.
    pub(super) host_gone: bool,
    /// Jobs in whose shared steps it died, as bits.
    pub(super) named: u8,
    /// The job in whose exclusive step it died.
    pub(super) alone: Option<usize>,
    /// The living boot has found that no other run was lost with it.
    pub(super) judged: bool,
}

/// What steps were under way when a boot died.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Names {
    Shared(u8),
    Alone(usize),
}

impl World {
    /// The living boot, or the one that died last.
    pub(super) fn latest(&self) -> u8 {
        u8::try_from(self.boots.len() - 1).expect("few boots matter")
    }

    /// How many boots are over.
    fn dead(&self) -> usize {
        self.boots.len() - usize::from(self.up)
    }

    pub(super) fn is_dead(&self, boot: u8) -> bool {
        usize::from(boot) < self.dead()
    }

    /// What the dead boots mean for an attempt, oldest first.
    pub(super) fn bearing_on(&self, model: &Model, n: usize) -> Vec<DeadBoot> {
        let owner = usize::from(self.things[n].owner);
        let free = match (model.flaw, self.things[n].run) {
            (Some(Flaw::FreeIfNeverStarted), Run::NotStarted) => true,
            (Some(Flaw::FreeIfAdoptedAlive), Run::Spawning | Run::Alive) => true,
            (_, _) => false,
        };
        let bearing = self.boots[..self.dead()]
            .iter()
            .enumerate()
            .map(|(k, boot)| {
                let named = boot.named & (1 << n) != 0;
                let everyone = model.has(Flaw::ChargeEveryoneInFlight) && k >= owner;
                let counts_hosts = !model.has(Flaw::HostLostForNobody);
                let names = if boot.alone == Some(n) || everyone {
                    Some(Exclusive(true))
                } else {
                    named.then_some(Exclusive(model.has(Flaw::OneCounter)))
                };
                DeadBoot {
                    boot: number(k),
                    names: names.filter(|_| !free),
                    took_host: k >= owner && boot.host_gone && !boot.drained && counts_hosts,
                }
            });
        bearing.collect()
    }

    pub(super) fn death_of_owner(&self, model: &Model, n: usize) -> DeathFact {
        let thing = &self.things[n];
        let owner = &self.boots[usize::from(thing.owner)];
        let counted = thing.deaths.iter().find(|death| death.boot == thing.owner);
        // One that outlived its owner may have killed the boot that it was lost under.
        let under = thing
            .lost_under
            .filter(|_| !model.has(Flaw::OwnersDrainAlone));
        let lost_in_order = match under {
            Some(under) => self.boots[usize::from(under)].drained,
            None => !thing.outlived,
        };
        DeathFact {
            drained: owner.drained && lost_in_order,
            host_restarted: owner.host_gone,
            counted: counted.map(|death| death.cause),
        }
    }

    pub(super) fn uncounted(&self, model: &Model, n: usize) -> Vec<Exposure> {
        exposures(&self.things[n].attempt(false), &self.bearing_on(model, n))
    }

    /// The broker dies while these steps are under way.
    pub(super) fn broker_dies(&mut self, model: &Model, names: Names, drained: bool) -> bool {
        if !self.up {
            return false;
        }
        let latest = usize::from(self.latest());
        let boot = &mut self.boots[latest];
        boot.drained = drained;
        match names {
            Names::Shared(named) => boot.named = named,
            Names::Alone(n) => boot.alone = Some(n),
        }
        self.up = false;
        self.held = false;
        self.panicked = 0;
        for boot in &mut self.boots {
            boot.judged = false;
        }
        for (n, thing) in self.things.iter_mut().enumerate() {
            let named = match names {
                Names::Shared(named) => named & (1 << n) != 0,
                Names::Alone(alone) => alone == n,
            };
            let passed = usize::from(thing.owner) < latest && (drained || named);
            if thing.is_running() && passed {
                let most = u32::from(model.most_rounds(n));
                thing.hands.passed = (thing.hands.passed + 1).min(most);
            }
            if model.has(Flaw::CountAgain) {
                thing.deaths.clear();
            }
            thing.driver = Driver::None;
            if let Some(write) = thing.sent.take() {
                thing.ghost = Some(write);
            }
        }
        true
    }

    /// The host goes down, and with it the broker, if it is up, and every run. Only the name of a
    /// job that was near the loss of a host before, in an exclusive step, was on disk.
    pub(super) fn host_dies(&mut self, model: &Model, names: Names, drained: bool) -> bool {
        let earlier = self.dead();
        let dies = self.broker_dies(model, names, drained);
        for (k, boot) in self.boots.iter_mut().enumerate() {
            boot.host_gone = true;
            boot.named = 0;
            let Some(n) = boot.alone else { continue };
            let thing = &mut self.things[n];
            if !thing.lost_its_host || model.has(Flaw::NothingWrittenThrough) {
                boot.alone = None;
                // That it killed an earlier one, which nobody has read yet, is lost.
                let counted = thing
                    .deaths
                    .iter()
                    .any(|death| usize::from(death.boot) == k);
                let kills = model.poison(n).is_some_and(Poison::is_deadly);
                let excused = k < earlier && kills && !counted;
                thing.spoilt = (thing.spoilt + u8::from(excused)).min(9);
            }
        }
        for n in 0..self.things.len() {
            self.lose_run(n);
        }
        dies
    }

    /// A run goes, with its tree and without a record.
    pub(super) fn lose_run(&mut self, n: usize) {
        let under = self.latest();
        let thing = &mut self.things[n];
        let was_lost = thing.run == Run::Lingering;
        thing.run = match thing.run {
            Run::Spawning => Run::NotStarted,
            Run::Alive | Run::Lingering => Run::Vanished,
            Run::NotStarted | Run::Exited(_) | Run::Vanished => return,
        };
        if !was_lost {
            thing.lost_under = Some(under);
            thing.outlived = under > thing.owner;
        }
    }

    pub(super) fn restart(&mut self) -> bool {
        if !self.up {
            self.boots.push(Boot::default());
        }
        !std::mem::replace(&mut self.up, true)
    }

    /// Forgets what nothing depends on any more, so that equal worlds are equal.
    pub(super) fn tidy(&mut self, model: &Model) {
        for k in (0..self.dead()).rev() {
            let last = self.boots.len() == 1;
            if !last && !self.is_asked_for(model, u8::try_from(k).expect("few")) {
                self.remove(k);
            }
        }
        let living = self.up.then(|| self.latest());
        for thing in &mut self.things {
            let owner = thing.owner;
            for death in &mut thing.deaths {
                if death.boot != owner {
                    *death = plainly(*death);
                }
            }
            // Nobody asks under whom a run was lost but of dead owners.
            if !thing.is_running() || Some(owner) == living {
                thing.lost_under = None;
                thing.outlived = false;
            }
            thing.deaths.sort_by_key(|death| death.boot);
        }
        self.arrange_twins(model);
    }

    fn is_asked_for(&self, model: &Model, k: u8) -> bool {
        let running = || {
            self.things
                .iter()
                .enumerate()
                .filter(|(_, thing)| thing.is_running())
        };
        let owns = running().any(|(_, thing)| thing.owner == k);
        let tells_how_it_was_lost = running().any(|(_, thing)| {
            thing.lost_under == Some(k) && self.boots[usize::from(thing.owner)].drained
        });
        let costs = || {
            running().any(|(n, _)| {
                let uncounted = self.uncounted(model, n);
                uncounted.iter().any(|near| near.boot == number(k.into()))
            })
        };
        owns || tells_how_it_was_lost || costs()
    }

    fn remove(&mut self, k: usize) {
        self.boots.remove(k);
        let k = u8::try_from(k).expect("few boots matter");
        let moved = |boot: u8| if boot > k { boot - 1 } else { boot };
        for thing in &mut self.things {
            thing.owner = moved(thing.owner);
            thing.lost_under = thing.lost_under.filter(|under| *under != k).map(moved);
            thing.deaths.retain(|death| death.boot != k);
            for death in &mut thing.deaths {
                death.boot = moved(death.boot);
            }
        }
    }
}

pub(super) fn number(boot: usize) -> BootId {
    boot_id(boot.try_into().expect("few boots matter"))
}
