//! The black box: which attempt each thread of a broker is working on, in a file that outlives it.
//!
//! A broker that dies of a step that it takes for a job (an abort, a stack that overflows, memory
//! that runs out) can say nothing any more. So before each such step it writes the attempt's id
//! into a slot of its own thread, in a file that is mapped into memory: the kernel keeps what was
//! written whatever becomes of the process, and the next boot reads it. Writing costs a few
//! nanoseconds and no system call.
//!
//! A step of a suspect is *exclusive*: none of another job is taken at the same time, so that a
//! death in it is nobody else's. Others wait as long as it says ([`Alone::patience`]); then they go
//! on, and the step counts as shared. Where the host itself went down before, it is written
//! through to the disk ([`Alone::through`]).

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod file;
mod gate;

pub use file::{forget, named_by, spoil};

use crate::error::Result;
use crate::root::RunRoot;
use file::Map;
use gate::Gate;

/// Between two looks of a thread that may wait.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A step that is to be taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Wish {
    /// The attempt's id, as the sixteen bytes of a UUID.
    pub attempt: [u8; 16],
    /// Whether no other job may be worked on meanwhile.
    pub alone: Option<Alone>,
}

/// How a step is kept apart from those of other jobs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Alone {
    /// How long others wait for it, or it for them, before they go on.
    pub patience: Duration,
    /// Whether its name has to outlive the host: it is on the disk before the step begins.
    pub through: bool,
}

/// An attempt that was being worked on, as it is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Named {
    /// The attempt's id, as the sixteen bytes of a UUID.
    pub attempt: [u8; 16],
    /// Whether nothing else was.
    pub exclusive: bool,
}

/// The black box of this process's boot; cheap to clone.
#[derive(Clone, Debug)]
pub struct BlackBox {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    map: Map,
    gate: Gate,
}

thread_local! {
    /// What this thread is working on, and where that is written down.
    static CURRENT: RefCell<Option<(BlackBox, Wish)>> = const { RefCell::new(None) };
}

/// A step under way, as it is written down; it is over when this is dropped. Stays on its thread.
#[derive(Debug)]
pub struct Step {
    black_box: BlackBox,
    wish: Wish,
    before: Option<(BlackBox, Wish)>,
    slot: Option<usize>,
    // Slots belong to threads.
    _here: std::marker::PhantomData<*const ()>,
}

impl BlackBox {
    /// Makes the black box of a boot.
    ///
    /// # Errors
    /// The name is malformed, or no room, or what the operating system says.
    pub fn create(root: &RunRoot, boot_id: &str) -> Result<Self> {
        let inner = Inner {
            map: Map::create(root, boot_id)?,
            gate: Gate::default(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Begins a step on this thread, unless another job's step stands against it now: then it is
    /// to be tried again in a moment.
    pub fn try_enter(&self, wish: Wish) -> Option<Step> {
        let Inner { map, gate } = &*self.inner;
        let entry = gate.try_enter(wish, Instant::now())?;
        if entry.breaks_exclusive {
            map.spoil();
        }
        let alone = entry.alone;
        if let Some(alone) = alone {
            map.begin_exclusive();
            if alone.through {
                map.write_through(Some(wish.attempt));
            }
        }
        let wish = Wish { alone, ..wish };
        let slot = file::slot_of_this_thread();
        if let Some(slot) = slot {
            map.write(slot, Some(wish));
        }
        let before = CURRENT.replace(Some((self.clone(), wish)));
        Some(Step {
            black_box: self.clone(),
            wish,
            before,
            slot,
            _here: std::marker::PhantomData,
        })
    }

    /// As [`Self::try_enter`], on a thread that may wait: not for ever, since everybody's patience
    /// ends.
    pub fn enter(&self, wish: Wish) -> Step {
        loop {
            if let Some(step) = self.try_enter(wish) {
                return step;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        let Inner { map, gate } = &*self.black_box.inner;
        let before = self.before.take();
        if let Some(slot) = self.slot {
            map.write(slot, before.as_ref().map(|(_, wish)| *wish));
        }
        CURRENT.set(before);
        gate.leave(self.wish, || {
            // Before anybody else may be blamed: what outlives the host must not name who has left.
            if self.wish.alone.is_some_and(|alone| alone.through) {
                map.write_through(None);
            }
        });
    }
}

/// Work for another thread that belongs to the step under way on this one, if there is one: it is
/// named there for as long as it takes.
pub fn carried<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let current = CURRENT.with_borrow(Clone::clone);
    move || {
        let _step = current.map(|(black_box, wish)| black_box.enter(wish));
        work()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn world() -> (tempfile::TempDir, RunRoot, BlackBox) {
        let dir = tempfile::tempdir().unwrap();
        let root = RunRoot::open(&dir.path().join("run"), "root").unwrap();
        let black_box = BlackBox::create(&root, "boot").unwrap();
        (dir, root, black_box)
    }

    fn wish(byte: u8, alone: bool) -> Wish {
        Wish {
            attempt: [byte; 16],
            alone: alone.then_some(Alone {
                patience: Duration::from_millis(300),
                through: true,
            }),
        }
    }

    fn job(byte: u8, exclusive: bool) -> Named {
        Named {
            attempt: [byte; 16],
            exclusive,
        }
    }

    fn read(root: &RunRoot) -> Vec<Named> {
        named_by(root, "boot", false).unwrap()
    }

    /// What is read after the host went down too.
    fn read_after_the_host(root: &RunRoot) -> Vec<Named> {
        named_by(root, "boot", true).unwrap()
    }

    #[test]
    fn what_is_being_worked_on_is_named_and_nothing_else() {
        let (_dir, root, black_box) = world();
        assert_eq!(read(&root), []);
        let step = black_box.enter(wish(1, false));
        assert_eq!(read(&root), [job(1, false)]);
        std::thread::scope(|scope| {
            let (entered, ready) = mpsc::channel();
            let (over, wait) = mpsc::channel::<()>();
            let black_box = &black_box;
            scope.spawn(move || {
                let _step = black_box.enter(wish(2, false));
                entered.send(()).unwrap();
                wait.recv().ok();
            });
            ready.recv().unwrap();
            let mut both = read(&root);
            both.sort_by_key(|named| named.attempt);
            assert_eq!(both, [job(1, false), job(2, false)]);
            drop(over);
        });
        drop(step);
        assert_eq!(read(&root), []);
    }

    #[test]
    fn work_that_is_handed_to_another_thread_is_named_there() {
        let (_dir, root, black_box) = world();
        let step = black_box.enter(wish(1, false));
        let work = carried(|| read(&root));
        drop(step);
        assert_eq!(read(&root), []);
        let seen = std::thread::scope(|scope| scope.spawn(work).join().unwrap());
        assert_eq!(seen, [job(1, false)]);
        assert_eq!(read(&root), []);
        assert_eq!(carried(|| read(&root))(), [], "nothing is under way here");
    }

    #[test]
    fn an_exclusive_step_keeps_other_jobs_out_and_lets_its_own_in() {
        let (_dir, root, black_box) = world();
        let suspect = black_box.enter(wish(1, true));
        assert_eq!(read(&root), [job(1, true)]);
        std::thread::scope(|scope| {
            let black_box = &black_box;
            let root = &root;
            scope
                .spawn(move || {
                    assert!(black_box.try_enter(wish(2, false)).is_none());
                    assert!(black_box.try_enter(wish(3, true)).is_none());
                    let own = black_box.try_enter(wish(1, true)).unwrap();
                    assert_eq!(read(root), [job(1, true), job(1, true)]);
                    drop(own);
                })
                .join()
                .unwrap();
        });
        drop(suspect);
        drop(black_box.try_enter(wish(2, false)).unwrap());
    }

    #[test]
    fn a_step_that_others_did_not_wait_for_was_not_exclusive() {
        let (_dir, root, black_box) = world();
        let suspect = black_box.enter(wish(1, true));
        std::thread::scope(|scope| {
            let black_box = &black_box;
            let root = &root;
            scope
                .spawn(move || {
                    // Waits for the patience of others to end.
                    let _other = black_box.enter(wish(2, false));
                    let named = read(root);
                    assert_eq!(named.len(), 2);
                    assert!(named.iter().all(|named| !named.exclusive), "{named:?}");
                })
                .join()
                .unwrap();
        });
        drop(suspect);
        let _next = black_box.enter(wish(1, true));
        assert_eq!(read(&root), [job(1, true)], "the next one is again");
    }

    #[test]
    fn an_exclusive_step_outlives_the_host_and_no_other_does() {
        let (_dir, root, black_box) = world();
        let shared = black_box.enter(wish(2, false));
        assert_eq!(read_after_the_host(&root), []);
        drop(shared);
        let suspect = black_box.enter(wish(1, true));
        let work = carried(|| drop(read(&root)));
        assert_eq!(read_after_the_host(&root), [job(1, true)]);
        // It is over when the last of its parts is.
        std::thread::scope(|scope| scope.spawn(work).join().unwrap());
        assert_eq!(read_after_the_host(&root), [job(1, true)]);
        drop(suspect);
        assert_eq!(read_after_the_host(&root), []);
        let suspect = black_box.enter(wish(1, true));
        std::thread::scope(|scope| {
            // Waits for its own patience to end.
            let other = scope.spawn(|| drop(black_box.enter(wish(2, false))));
            other.join().unwrap();
        });
        assert_eq!(read_after_the_host(&root), [], "it was not alone any more");
        drop(suspect);
        drop(black_box.enter(wish(1, true)));
        let spoilt = black_box.enter(wish(1, true));
        spoil(&root, "boot").unwrap();
        assert_eq!(read_after_the_host(&root), []);
        assert_eq!(read(&root), [job(1, false)]);
        drop(spoilt);
    }

    /// As when a run that its driver still clears away is cleared away by whoever looks for those
    /// that nobody claims.
    #[test]
    fn a_step_that_joins_an_exclusive_one_of_its_job_is_exclusive_too_and_leaves_nothing_behind() {
        for joins_last in [false, true] {
            let (_dir, root, black_box) = world();
            let suspect = black_box.enter(wish(1, true));
            let joins = black_box.try_enter(wish(1, false)).unwrap();
            assert!(black_box.try_enter(wish(2, false)).is_none());
            if joins_last {
                drop(suspect);
                assert!(black_box.try_enter(wish(2, false)).is_none());
                drop(joins);
            } else {
                drop(joins);
                drop(suspect);
            }
            assert_eq!(read_after_the_host(&root), []);
            let next = black_box
                .try_enter(wish(2, true))
                .expect("nobody is at work");
            assert_eq!(read(&root), [job(2, true)]);
            drop(next);
            drop(
                black_box
                    .try_enter(wish(3, false))
                    .expect("nobody is at work"),
            );
        }
    }

    #[test]
    fn an_exclusive_step_gets_its_turn_among_many_short_ones() {
        let (_dir, _root, black_box) = world();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for byte in 2..6 {
                let (black_box, over) = (&black_box, &over);
                scope.spawn(move || {
                    while !over.load(std::sync::atomic::Ordering::SeqCst) {
                        let _step = black_box.enter(wish(byte, false));
                        std::thread::yield_now();
                    }
                });
            }
            let step = black_box.enter(wish(1, true));
            assert!(step.wish.alone.is_some());
            over.store(true, std::sync::atomic::Ordering::SeqCst);
        });
    }

    #[test]
    fn a_boot_without_a_box_names_nobody_and_a_spoiled_box_is_read_as_far_as_it_goes() {
        let (_dir, root, black_box) = world();
        assert_eq!(named_by(&root, "other", false).unwrap(), []);
        let _step = black_box.enter(wish(1, false));
        let path = root.path().join("boots/boot.box");
        let whole = std::fs::read(&path).unwrap();
        for cut in [0, 3, 16, 63, 64, 100] {
            std::fs::write(root.path().join("boots/cut.box"), &whole[..cut]).unwrap();
            named_by(&root, "cut", false).unwrap();
        }
        std::fs::write(root.path().join("boots/cut.box"), vec![0xff; 4096]).unwrap();
        assert_eq!(named_by(&root, "cut", false).unwrap(), []);
        forget(&root, "boot").unwrap();
        forget(&root, "boot").unwrap();
        assert_eq!(read(&root), []);
    }
}
