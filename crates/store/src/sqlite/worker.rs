//! A thread of the store.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::StoreError;

/// How long those of a queue are waited for. What the disk holds can neither be ended nor waited
/// for; it goes with the process.
const LAST_WORK: Duration = Duration::from_secs(5);

/// A thread that is waited for when it has no more to do.
#[derive(Debug)]
pub(super) struct Worker {
    thread: JoinHandle<()>,
    /// Nothing comes; closed when the thread has ended, or panicked. In a lock that nobody shares,
    /// so that its owner may be shared.
    ended: Mutex<Receiver<()>>,
}

impl Worker {
    /// Starts a thread that ends by itself once its queue is closed.
    pub(super) fn start(
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<Self, StoreError> {
        let (alive, ended) = channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let _alive = alive;
                work();
            })
            .map_err(|error| StoreError::Unavailable(format!("no thread for {name}: {error}")))?;
        let ended = Mutex::new(ended);
        Ok(Self { thread, ended })
    }

    /// Waits for the end of all; call it when their queue is closed.
    pub(super) fn join(all: impl IntoIterator<Item = Self>) {
        let until = Instant::now() + LAST_WORK;
        for one in all {
            one.join_until(until);
        }
    }

    fn join_until(self, until: Instant) {
        let name = self.thread.thread().name().unwrap_or_default().to_owned();
        let ended = self
            .ended
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(until.saturating_duration_since(Instant::now()))
            == Err(RecvTimeoutError::Timeout)
        {
            tracing::error!(
                thread = name,
                "not waited for any longer: the disk may hang"
            );
        } else if self.thread.join().is_err() {
            tracing::error!(thread = name, "a thread of the store panicked");
        }
    }
}
