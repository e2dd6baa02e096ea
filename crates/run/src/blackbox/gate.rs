//! Who may be worked on at the same time.
//!
//! Invariant: while a step is exclusive, every other step under way is of the same attempt; a step
//! that enters all the same (because it would have waited too long) makes it shared first.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Named, PATIENCE};

/// How long a suspect that waits keeps new steps of others from beginning: steps take
/// milliseconds, so that those under way end meanwhile.
const TURN: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Steps under way that are not exclusive.
    shared: u32,
    exclusive: Option<Exclusive>,
    /// A suspect waits since then.
    wanted: Option<Instant>,
}

#[derive(Debug)]
struct Exclusive {
    attempt: [u8; 16],
    since: Instant,
    /// Its steps under way.
    steps: u32,
}

/// How a step was let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) exclusive: bool,
    /// An exclusive step under way is exclusive no longer.
    pub(super) breaks_exclusive: bool,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn try_enter(&self, named: Named, now: Instant) -> Option<Entry> {
        let mut state = self.state();
        let mut breaks_exclusive = false;
        if let Some(exclusive) = &mut state.exclusive {
            if exclusive.attempt == named.attempt {
                exclusive.steps += 1;
                return Some(Entry {
                    exclusive: true,
                    breaks_exclusive: false,
                });
            }
            if now.duration_since(exclusive.since) < PATIENCE {
                return None;
            }
            state.shared += exclusive_steps(state.exclusive.take());
            breaks_exclusive = true;
        }
        if named.exclusive {
            return state.try_exclusive(named, now, breaks_exclusive);
        }
        let waits_for_a_turn = |since: Instant| {
            let waited = now.duration_since(since);
            waited < TURN
        };
        if !breaks_exclusive && state.wanted.is_some_and(waits_for_a_turn) {
            return None;
        }
        state.shared += 1;
        Some(Entry {
            exclusive: false,
            breaks_exclusive,
        })
    }

    pub(super) fn leave(&self, named: Named) {
        let mut state = self.state();
        if let Some(exclusive) = &mut state.exclusive
            && exclusive.attempt == named.attempt
            && named.exclusive
        {
            exclusive.steps -= 1;
            if exclusive.steps == 0 {
                state.exclusive = None;
            }
            return;
        }
        state.shared = state.shared.saturating_sub(1);
    }
}

fn exclusive_steps(exclusive: Option<Exclusive>) -> u32 {
    exclusive.map_or(0, |exclusive| exclusive.steps)
}

impl State {
    fn try_exclusive(
        &mut self,
        named: Named,
        now: Instant,
        breaks_exclusive: bool,
    ) -> Option<Entry> {
        if self.shared == 0 {
            self.wanted = None;
            self.exclusive = Some(Exclusive {
                attempt: named.attempt,
                since: now,
                steps: 1,
            });
            return Some(Entry {
                exclusive: true,
                breaks_exclusive,
            });
        }
        // Others that never end (a disk that hangs) must not keep a suspect from its step: it is
        // shared then.
        let wanted = *self.wanted.get_or_insert(now);
        if now.duration_since(wanted) >= PATIENCE || breaks_exclusive {
            self.wanted = None;
            self.shared += 1;
            return Some(Entry {
                exclusive: false,
                breaks_exclusive,
            });
        }
        None
    }
}
