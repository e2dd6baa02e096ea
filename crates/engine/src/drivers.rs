//! The attempts that this process drives. A job that is recorded as running here but is not in
//! this register has lost its driver, and recovery picks it up.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_core::ids::{AttemptId, JobId};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
pub(crate) struct Drivers {
    entries: Mutex<HashMap<AttemptId, Entry>>,
    /// Attempts that a claim under way may bring: from the commit to the place there is no moment
    /// at which recovery could take them for lost.
    expected: Mutex<HashSet<AttemptId>>,
    /// Somebody has left.
    pub(crate) left: Notify,
}

#[derive(Debug)]
struct Entry {
    job: JobId,
    stop: CancellationToken,
    since: Instant,
    solo: Option<Duration>,
}

/// A place in the register; given up when it is dropped, however the driver ends.
#[derive(Debug)]
pub(crate) struct Place {
    drivers: Arc<crate::service::Shared>,
    attempt: AttemptId,
    /// Cancelled when the job is to stop.
    pub(crate) stop: CancellationToken,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.drivers.drivers.entries().remove(&self.attempt);
        self.drivers.drivers.left.notify_waiters();
        self.drivers.wake.notify_one();
    }
}

/// Attempts that are about to be claimed.
#[derive(Debug)]
pub(crate) struct Expectation {
    shared: Arc<crate::service::Shared>,
    attempts: Vec<AttemptId>,
}

impl Drop for Expectation {
    fn drop(&mut self) {
        let mut expected = self.shared.drivers.expected();
        for attempt in &self.attempts {
            expected.remove(attempt);
        }
    }
}

impl Drivers {
    fn entries(&self) -> MutexGuard<'_, HashMap<AttemptId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place; `None` if the attempt has a driver already.
    pub(crate) fn enter(
        shared: &Arc<crate::service::Shared>,
        attempt: AttemptId,
        job: JobId,
        solo: Option<Duration>,
    ) -> Option<Place> {
        let mut entries = shared.drivers.entries();
        if entries.contains_key(&attempt) {
            return None;
        }
        let stop = CancellationToken::new();
        let entry = Entry {
            job,
            stop: stop.clone(),
            since: Instant::now(),
            solo,
        };
        entries.insert(attempt, entry);
        drop(entries);
        Some(Place {
            drivers: Arc::clone(shared),
            attempt,
            stop,
        })
    }

    pub(crate) fn has(&self, attempt: AttemptId) -> bool {
        // In this order: what is expected no longer has its place already.
        self.expected().contains(&attempt) || self.entries().contains_key(&attempt)
    }

    /// Announces attempts before they are claimed, for as long as the answer is kept.
    pub(crate) fn expect(
        shared: &Arc<crate::service::Shared>,
        attempts: &[AttemptId],
    ) -> Expectation {
        shared.drivers.expected().extend(attempts);
        Expectation {
            shared: Arc::clone(shared),
            attempts: attempts.to_vec(),
        }
    }

    fn expected(&self) -> MutexGuard<'_, HashSet<AttemptId>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Panics with the register locked, as a fault of a test.
    #[cfg(feature = "faults")]
    #[track_caller]
    pub(crate) fn panic_locked(&self, point: &str) {
        let _entries = self.entries();
        panic!("fault injected at {point}, with the drivers' register locked");
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.entries().len()).unwrap_or(u32::MAX)
    }

    /// Whose attempt runs alone now, and for how much longer at most.
    pub(crate) fn solo(&self) -> Option<(JobId, Duration)> {
        let entries = self.entries();
        let left = entries.values().filter_map(|entry| {
            let left = entry.solo?.saturating_sub(entry.since.elapsed());
            Some((entry.job, left)).filter(|_| !left.is_zero())
        });
        left.max_by_key(|(_, left)| *left)
    }

    /// Lets others be claimed beside a job that is alone.
    pub(crate) fn end_solo(&self, job: JobId) {
        for entry in self.entries().values_mut() {
            if entry.job == job {
                entry.solo = None;
            }
        }
    }

    /// Tells the driver of this job, if there is one here, to stop.
    pub(crate) fn stop(&self, job: JobId) {
        for entry in self.entries().values().filter(|entry| entry.job == job) {
            entry.stop.cancel();
        }
    }
}
