//! The place that this process takes among its kind: the id of its boot, and the lock that proves
//! its life. Kept over all tries to start.

use evenkeel_core::ids::BootId;
use evenkeel_engine::world::{RealWorld, World as _};
use evenkeel_run::{BootLock, RunError, RunRoot};

use crate::fail::Failure;
use crate::warden::broker::{BOOT, RESTARTS};

#[derive(Debug)]
pub(super) struct Seat {
    pub(super) boot: BootId,
    pub(super) has_warden: bool,
    /// Brokers that the warden had before this one.
    pub(super) restarts: u64,
    lock: Option<BootLock>,
}

impl Seat {
    /// A warden names its brokers, so that it can write about them; others name themselves.
    pub(super) fn new(has_warden: bool) -> Result<Self, Failure> {
        let named = |name| std::env::var(name).ok().filter(|_| has_warden);
        let wrong =
            |name, text: &str| Failure::usage(format!("{name}={text:?} is not what a warden says"));
        let boot = match named(BOOT) {
            Some(text) => text.parse().map_err(|_| wrong(BOOT, &text))?,
            None => BootId(RealWorld.id()),
        };
        let restarts = match named(RESTARTS) {
            Some(text) => text.parse().map_err(|_| wrong(RESTARTS, &text))?,
            None => 0,
        };
        Ok(Self {
            boot,
            has_warden,
            restarts,
            lock: None,
        })
    }

    /// Takes the boot's lock, once; it is held until this value ends.
    pub(super) fn lock(&mut self, root: &RunRoot) -> Result<(), RunError> {
        if self.lock.is_none() {
            self.lock = Some(root.lock_boot(&self.boot.to_string())?);
        }
        Ok(())
    }
}
