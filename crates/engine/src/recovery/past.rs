//! What is known about boots that are over: how they ended, and what each was working on when it
//! died. Read once a pass.

use std::sync::Arc;

use evenkeel_core::attempt::Attempt;
use evenkeel_core::ids::{AttemptId, BootId};
use evenkeel_core::recovery::{DeadBoot, Exclusive, Hands};
use evenkeel_core::time::Timestamp;
use evenkeel_store::seam::Boot;

use crate::service::{Shared, run_blocking};
use crate::steps::{BlackBoxes, Named};

/// Boots on which no verdict has been given, this one included.
#[derive(Debug, Default)]
pub(super) struct Past {
    own: Option<Boot>,
    /// Oldest first.
    dead: Vec<Dead>,
}

/// A boot that is over.
#[derive(Debug)]
pub(super) struct Dead {
    pub(super) boot: Boot,
    /// What its black box says.
    named: Named,
}

impl Past {
    /// Of the boots on which no verdict has been given.
    pub(super) async fn read(shared: &Arc<Shared>, open: Vec<Boot>) -> Self {
        let mut past = Self::default();
        for boot in open {
            if boot.id == shared.options.boot {
                past.own = Some(boot);
                continue;
            }
            let host_too = boot.host_boot != shared.options.host_boot;
            let mut named = match &shared.options.black_boxes {
                Some(boxes) => named_by(boxes, boot.id, host_too).await,
                None => Named::default(),
            };
            if shared.spoilt(boot.id) {
                named.spoil();
            }
            past.dead.push(Dead { boot, named });
        }
        past.dead.sort_by_key(|dead| dead.boot.nth);
        past
    }

    /// Every boot that is over, oldest first.
    pub(super) fn dead(&self) -> &[Dead] {
        &self.dead
    }

    pub(super) fn get(&self, boot: BootId) -> Option<&Boot> {
        self.known().find(|known| known.id == boot)
    }

    /// The exclusive step that a boot died in was not all that went wrong.
    pub(super) fn spoil(&mut self, boot: BootId) {
        for dead in self.dead.iter_mut().filter(|dead| dead.boot.id == boot) {
            dead.named.spoil();
        }
    }

    /// What the deaths of boots have to do with an attempt, oldest first.
    pub(super) fn bearing_on(&self, attempt: &Attempt, host_boot: &str) -> Vec<DeadBoot> {
        let owner = self.get(attempt.boot);
        let bearing = self.dead.iter().map(|dead| {
            let boot = &dead.boot;
            // Its owner, or one that was about to take it over.
            let in_hand = boot.id == attempt.boot || owner.is_none_or(|owner| boot.nth > owner.nth);
            let took_host = boot.drained_at.is_none() && boot.host_boot != host_boot;
            DeadBoot {
                boot: boot.id,
                names: dead.named.names(attempt.id).map(Exclusive),
                took_host: in_hand && took_host,
            }
        });
        bearing.collect()
    }

    /// What became of the boots that had an attempt in their hands, whose job has this deadline.
    pub(super) fn hands(&self, attempt: &Attempt, deadline_at: Timestamp) -> Hands {
        let owner = self.get(attempt.boot);
        // One that died elsewhere had not come to this attempt, or need not have.
        let passed = self.dead.iter().filter(|dead| {
            let after = owner.is_none_or(|owner| dead.boot.nth > owner.nth);
            after && (dead.boot.drained_at.is_some() || dead.named.names(attempt.id).is_some())
        });
        let passed = passed.count();
        let lives = |boot: &Boot| self.own.as_ref().is_some_and(|own| own.id == boot.id);
        let late = |owner: &Boot| !lives(owner) && owner.started_at >= deadline_at;
        Hands {
            passed: u32::try_from(passed).unwrap_or(u32::MAX),
            late: owner.is_some_and(late),
        }
    }

    fn known(&self) -> impl Iterator<Item = &Boot> {
        self.dead.iter().map(|dead| &dead.boot).chain(&self.own)
    }

    /// When the boot after this one began.
    pub(super) fn next_began(&self, boot: &Boot) -> Option<Timestamp> {
        let later = self.known().filter(|known| known.nth > boot.nth);
        later
            .min_by_key(|known| known.nth)
            .map(|next| next.started_at)
    }

    /// Whether a boot's orderly end explains that a run of it is gone: only if the boot under
    /// which the run was last seen alive ended in order too. It may have been about to take the
    /// run over, and the run have taken it along.
    pub(super) fn drained(&self, boot: &Boot, last_sign: Option<Timestamp>) -> bool {
        let under = last_sign.and_then(|sign| {
            let begun = self.known().filter(|known| known.started_at <= sign);
            begun.max_by_key(|known| known.nth)
        });
        let later = under.filter(|under| under.nth > boot.nth);
        boot.drained_at.is_some() && later.is_none_or(|later| later.drained_at.is_some())
    }
}

impl Dead {
    /// The attempt in whose exclusive step it died.
    pub(super) fn alone(&self) -> Option<AttemptId> {
        self.named.exclusive()
    }
}

/// What a boot was working on. A box that cannot be read says nothing: recovery goes on.
async fn named_by(boxes: &BlackBoxes, boot: BootId, host_too: bool) -> Named {
    let boxes = boxes.clone();
    let read = run_blocking(move || boxes.named_by(boot, host_too)).await;
    let error = match read {
        Ok(Ok(named)) => return named,
        Ok(Err(error)) => error.to_string(),
        Err(error) => error,
    };
    tracing::error!(%boot, error, "the black box of a dead boot cannot be read");
    Named::default()
}

#[cfg(test)]
mod tests {
    use evenkeel_core::ids::RunRootId;

    use super::*;

    fn id(id: u128) -> BootId {
        BootId(uuid::Uuid::from_u128(id))
    }

    fn boot(number: u128, started_at: i64, drained_at: Option<i64>) -> Boot {
        Boot {
            id: id(number),
            nth: u64::try_from(number).unwrap(),
            run_root: RunRootId(uuid::Uuid::from_u128(9)),
            started_at: Timestamp(started_at),
            host_boot: "before".to_owned(),
            drained_at: drained_at.map(Timestamp),
            broke: None,
            seen_at: Timestamp(started_at),
            closed_at: None,
        }
    }

    fn past(boots: impl IntoIterator<Item = (Boot, Named)>) -> Past {
        let boots = boots.into_iter();
        Past {
            own: None,
            dead: boots.map(|(boot, named)| Dead { boot, named }).collect(),
        }
    }

    fn attempt(owner: u128) -> Attempt {
        Attempt {
            id: AttemptId(uuid::Uuid::from_u128(7)),
            ordinal: 1,
            boot: id(owner),
            run_root: RunRootId(uuid::Uuid::from_u128(9)),
            claimed_at: Timestamp(0),
            solo: None,
            deaths: Vec::new(),
        }
    }

    #[test]
    fn a_drain_explains_a_lost_run_unless_a_later_boot_under_which_it_lived_died_otherwise() {
        let boots = [
            boot(1, 0, Some(100)),
            boot(2, 200, None),
            boot(3, 300, Some(350)),
        ];
        let past = past(boots.map(|boot| (boot, Named::default())));
        let first = past.get(id(1)).unwrap();
        let second = past.get(id(2)).unwrap();
        assert!(past.drained(first, Some(Timestamp(150))));
        assert!(!past.drained(first, Some(Timestamp(250))));
        assert!(past.drained(first, Some(Timestamp(320))), "both in order");
        assert!(past.drained(first, None));
        assert!(!past.drained(second, Some(Timestamp(250))));
    }

    #[test]
    fn whoever_died_in_a_step_for_an_attempt_bears_on_it_and_a_spoilt_box_is_not_exclusive() {
        let named = Named::of([(attempt(1).id, true)]);
        let mut past = past([
            (boot(1, 0, None), Named::default()),
            (boot(2, 1, None), named),
        ]);
        let names = |past: &Past| -> Vec<_> {
            let bearing = past.bearing_on(&attempt(1), "before");
            assert!(bearing.iter().all(|dead| !dead.took_host));
            bearing.iter().map(|dead| dead.names).collect()
        };
        assert_eq!(names(&past), [None, Some(Exclusive(true))]);
        past.spoil(id(2));
        assert_eq!(names(&past), [None, Some(Exclusive(false))]);
    }

    #[test]
    fn boots_after_the_owner_count_and_an_owner_of_after_the_deadline_is_told() {
        let boots = [
            boot(1, 0, None),
            boot(2, 100, Some(150)),
            boot(3, 200, None),
        ];
        // The last one died in a step for the attempt; where it died elsewhere it proves nothing.
        let named = |boot: &Boot| boot.nth == 3;
        let names = |boot: Boot| {
            let named = Named::of(named(&boot).then_some((attempt(1).id, false)));
            (boot, named)
        };
        let elsewhere = past(boots.clone().map(|boot| (boot, Named::default())));
        assert_eq!(elsewhere.hands(&attempt(1), Timestamp(100)).passed, 1);
        let mut past = past(boots.map(names));
        past.own = Some(boot(4, 300, None));
        let hands = |owner, deadline| past.hands(&attempt(owner), Timestamp(deadline));
        for (owner, passed, late) in [(1, 2, false), (2, 1, true), (3, 0, true)] {
            assert_eq!(hands(owner, 100), Hands { passed, late }, "{owner}");
            assert!(!hands(owner, 201).late, "it began before that");
        }
        assert_eq!(hands(4, 100), Hands::default(), "the owner lives");
        let forgotten = Hands {
            passed: 2,
            late: false,
        };
        assert_eq!(hands(9, 100), forgotten);
    }

    #[test]
    fn a_host_that_was_lost_bears_on_what_its_boot_had_in_hand() {
        let boots = [
            boot(1, 0, None),
            boot(2, 100, None),
            boot(3, 200, Some(250)),
            boot(4, 300, None),
        ];
        let past = past(boots.map(|boot| (boot, Named::default())));
        let took = |owner| -> Vec<_> {
            let bearing = past.bearing_on(&attempt(owner), "after");
            bearing.iter().map(|dead| dead.took_host).collect()
        };
        assert_eq!(took(1), [true, true, false, true], "3 ended in order");
        assert_eq!(took(2), [false, true, false, true], "1 was before its time");
        assert_eq!(took(4), [false, false, false, true]);
    }
}
