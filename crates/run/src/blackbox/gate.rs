//! Who may be worked on at the same time.
//!
//! Invariant: while a step is exclusive, every other step under way is of the same attempt, and
//! exclusive with it, whether it wished to be or not (whoever clears away a run that its driver
//! is still clearing away wishes nothing): each step is counted where it will be counted out. A step
//! that enters all the same (because it would have waited too long) makes it shared first.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Alone, Wish};

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
    alone: Alone,
    /// Its steps under way.
    steps: u32,
}

/// How a step was let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// As what it is exclusive, if it is.
    pub(super) alone: Option<Alone>,
    /// An exclusive step under way is exclusive no longer.
    pub(super) breaks_exclusive: bool,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn try_enter(&self, wish: Wish, now: Instant) -> Option<Entry> {
        let mut state = self.state();
        let mut breaks_exclusive = false;
        if let Some(exclusive) = &mut state.exclusive {
            if exclusive.attempt == wish.attempt {
                exclusive.steps += 1;
                return Some(Entry {
                    alone: wish.alone.or(Some(exclusive.alone)),
                    breaks_exclusive: false,
                });
            }
            if now.duration_since(exclusive.since) < exclusive.alone.patience {
                return None;
            }
            state.shared += exclusive_steps(state.exclusive.take());
            breaks_exclusive = true;
        }
        if let Some(alone) = wish.alone {
            return state.try_exclusive(wish, alone, now, breaks_exclusive);
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
            alone: None,
            breaks_exclusive,
        })
    }

    /// `wish`: of the step, as it was let in; `last`: what has to be done before others may enter,
    /// when the last part of an exclusive step is over.
    pub(super) fn leave(&self, wish: Wish, last: impl FnOnce()) {
        let mut state = self.state();
        if let Some(exclusive) = &mut state.exclusive
            && exclusive.attempt == wish.attempt
            && wish.alone.is_some()
        {
            exclusive.steps -= 1;
            if exclusive.steps == 0 {
                last();
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
        wish: Wish,
        alone: Alone,
        now: Instant,
        breaks_exclusive: bool,
    ) -> Option<Entry> {
        if self.shared == 0 {
            self.wanted = None;
            self.exclusive = Some(Exclusive {
                attempt: wish.attempt,
                since: now,
                alone,
                steps: 1,
            });
            return Some(Entry {
                alone: Some(alone),
                breaks_exclusive,
            });
        }
        // Others that never end (a disk that hangs) must not keep a suspect from its step: it is
        // shared then.
        let wanted = *self.wanted.get_or_insert(now);
        if now.duration_since(wanted) >= alone.patience || breaks_exclusive {
            self.wanted = None;
            self.shared += 1;
            return Some(Entry {
                alone: None,
                breaks_exclusive,
            });
        }
        None
    }
}
