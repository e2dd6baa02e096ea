//! Named points of the broker at which a test can end, break, hold or slow it. How rules are
//! written says `crates/run/src/faults.rs`, whose points and rules these are; here is what needs
//! the runtime, the engine's own state or the store.
//!
//! Without the cargo feature `faults` every point is empty.

#[cfg(not(feature = "faults"))]
use std::ffi::OsString;
#[cfg(not(feature = "faults"))]
use std::sync::Arc;

#[cfg(not(feature = "faults"))]
use evenkeel_store::seam::Store;

#[cfg(feature = "faults")]
mod store;

#[cfg(feature = "faults")]
pub(crate) use armed::share;
#[cfg(feature = "faults")]
pub use armed::{environment, hit, hit_about, store};

/// A point that is always passed.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn hit(_point: &str) {}

/// A point that is always passed; `about` is what is being worked on.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn hit_about(_point: &str, _about: &str) {}

/// Nothing.
#[cfg(not(feature = "faults"))]
pub fn environment() -> Vec<(OsString, OsString)> {
    Vec::new()
}

/// The store as it is.
#[cfg(not(feature = "faults"))]
pub fn store(real: Arc<dyn Store>) -> Arc<dyn Store> {
    real
}

#[cfg(feature = "faults")]
mod armed {
    use std::sync::{Arc, Mutex, PoisonError, Weak};

    use evenkeel_executor::faults::{Fault, armed, due};
    use evenkeel_store::seam::Store;
    use tokio::runtime::{Handle, RuntimeFlavor};

    pub use evenkeel_executor::faults::environment;

    use crate::service::Shared;

    /// The service that runs here: its locks are those that a panic may meet.
    static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

    pub(crate) fn share(shared: &Arc<Shared>) {
        *SHARED.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(shared);
    }

    /// The store with a point before and after each write.
    pub fn store(real: Arc<dyn Store>) -> Arc<dyn Store> {
        if armed() {
            Arc::new(super::store::Faulty::new(real))
        } else {
            real
        }
    }

    /// Reaches a point. A panic is the caller's: each point is a place of its own.
    #[track_caller]
    pub fn hit(point: &str) {
        hit_about(point, "");
    }

    /// Reaches a point; `about` is what is being worked on.
    #[track_caller]
    pub fn hit_about(point: &str, about: &str) {
        for fault in due(point, || about.to_owned()) {
            act(fault, point);
        }
    }

    #[track_caller]
    pub(super) fn act(fault: &Fault, point: &str) {
        if fault.waits() {
            // What else this worker of the runtime has to do goes to another one: only who
            // reached the point is held.
            match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
                Ok(RuntimeFlavor::MultiThread) => {
                    tokio::task::block_in_place(|| fault.strike(point));
                }
                Ok(_) | Err(_) => fault.strike(point),
            }
            return;
        }
        if *fault == Fault::PanicLocked
            && let Some(shared) = {
                let shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
                shared.upgrade()
            }
        {
            shared.drivers.panic_locked(point);
        }
        if *fault == Fault::Wedge {
            wedge_others();
        }
        fault.strike(point);
    }

    /// Gives every other worker of the runtime a task that never yields. One more than there are
    /// workers: the last one stays with the caller's.
    fn wedge_others() {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        for _ in 0..=runtime.metrics().num_workers() {
            drop(runtime.spawn(async {
                loop {
                    std::thread::park();
                }
            }));
        }
    }
}
