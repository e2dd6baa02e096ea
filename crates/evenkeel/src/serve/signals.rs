//! Signals: SIGTERM and SIGINT ask for the end, SIGHUP for the bundles to be read again.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::fail::{Exit, Failure};

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    End,
    Reload,
}

#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    pub(super) fn new() -> Result<Self, Failure> {
        let catch = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(Exit::Failed, format!("signals cannot be caught: {error}"))
            })
        };
        Ok(Self {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
            hang_up: catch(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::End,
            _ = self.interrupt.recv() => Asked::End,
            _ = self.hang_up.recv() => Asked::Reload,
        }
    }

    /// Until the end is asked for.
    pub(super) async fn end(&mut self) {
        while self.next().await != Asked::End {}
    }
}
