//! Which runs have processes on this host: asked by many at once, answered by one look.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::proc;

/// The attempt ids in the environments of this host's living processes, our own excepted.
type Marks = Arc<HashSet<Vec<u8>>>;

/// Looks through `/proc` for whoever asks. A recovery asks about thousands of runs side by side,
/// and a look costs by the number of processes: those who wait are answered by the same look.
///
/// Invariant: an answer comes from a look that began after the question was asked.
#[derive(Debug)]
pub(crate) struct Census {
    state: Mutex<State>,
    finished: Condvar,
}

#[derive(Debug)]
struct State {
    /// Looks begun, and the number of the last one that was finished.
    begun: u64,
    finished: u64,
    under_way: bool,
    marks: Option<Marks>,
    /// Those who wait for a look.
    waiting: u32,
}

/// There is one `/proc`.
pub(crate) static CENSUS: Census = Census::new();

impl Census {
    const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                begun: 0,
                finished: 0,
                under_way: false,
                marks: None,
                waiting: 0,
            }),
            finished: Condvar::new(),
        }
    }

    /// Whether a living process was started for this attempt. Processes that hide their
    /// environment are not found: those have other marks (namespace, group, inherited lock).
    ///
    /// # Errors
    /// The processes cannot be listed.
    pub(crate) fn has(&self, attempt_id: &str) -> io::Result<bool> {
        Ok(self.fresh(look)?.contains(attempt_id.as_bytes()))
    }

    fn fresh(&self, look: impl Fn() -> io::Result<HashSet<Vec<u8>>>) -> io::Result<Marks> {
        let mut state = self.state();
        let asked = state.begun;
        loop {
            if state.finished > asked
                && let Some(marks) = &state.marks
            {
                return Ok(Arc::clone(marks));
            }
            if !state.under_way {
                break;
            }
            state.waiting += 1;
            state = self
                .finished
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.begun += 1;
        state.under_way = true;
        let number = state.begun;
        drop(state);
        let _over = Over(self);
        let marks = Arc::new(look()?);
        let mut state = self.state();
        state.finished = number;
        state.marks = Some(Arc::clone(&marks));
        Ok(marks)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a look, however it ended: those who wait take their answer, or begin the next one.
struct Over<'a>(&'a Census);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.state().under_way = false;
        self.0.finished.notify_all();
    }
}

fn look() -> io::Result<HashSet<Vec<u8>>> {
    let ourselves = rustix::process::getpid().as_raw_nonzero().get();
    let mut marks = HashSet::new();
    for process in proc::all()? {
        if !process.dead && process.pid != ourselves {
            marks.extend(proc::attempt_ids(process.pid));
        }
    }
    Ok(marks)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;

    fn marks(words: &[&str]) -> HashSet<Vec<u8>> {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn those_who_ask_during_a_look_share_the_next_one_and_never_get_that_one() {
        let census = Census::new();
        let looks = AtomicU32::new(0);
        let (entered, first_is_looking) = mpsc::channel();
        let (let_go, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                census.fresh(|| {
                    entered.send(()).unwrap();
                    released.lock().unwrap().recv().unwrap();
                    Ok(marks(&["old"]))
                })
            });
            first_is_looking.recv().unwrap();
            let ask = || {
                census.fresh(|| {
                    looks.fetch_add(1, Ordering::SeqCst);
                    Ok(marks(&["new"]))
                })
            };
            let later: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            let until = Instant::now() + Duration::from_secs(30);
            while census.state().waiting < 8 {
                assert!(Instant::now() < until, "they do not wait");
                std::thread::yield_now();
            }
            let_go.send(()).unwrap();
            assert_eq!(*first.join().unwrap().unwrap(), marks(&["old"]));
            for one in later {
                assert_eq!(*one.join().unwrap().unwrap(), marks(&["new"]));
            }
        });
        assert_eq!(
            looks.load(Ordering::SeqCst),
            1,
            "one look answers all of them"
        );
    }

    #[test]
    fn a_look_that_fails_or_panics_holds_nobody_up() {
        let census = Census::new();
        let failed = census.fresh(|| Err(io::Error::other("no /proc")));
        assert_eq!(failed.unwrap_err().to_string(), "no /proc");
        let panicked = std::panic::catch_unwind(|| census.fresh(|| panic!("look")));
        assert!(panicked.is_err());
        assert_eq!(
            *census.fresh(|| Ok(marks(&["new"]))).unwrap(),
            marks(&["new"])
        );
    }
}
