//! Signals: SIGTERM and SIGINT ask for the end, SIGHUP for the bundles to be read again.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use tokio::time::Instant;

use crate::fail::{Exit, Failure};

/// One wish may come as several signals: coreutils' `timeout` signals its child and then the
/// group that the child is in.
const ONE_WISH: Duration = Duration::from_secs(1);

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

    /// Until the end is asked for once more, after it was at `first`.
    pub(super) async fn end_again(&mut self, first: Instant) {
        loop {
            self.end().await;
            if first.elapsed() >= ONE_WISH {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    /// Sends SIGTERM to this process, and waits until it has come.
    async fn terminate(witness: &mut Signals) {
        kill_process(getpid(), Signal::TERM).unwrap();
        tokio::time::timeout(Duration::from_secs(60), witness.end())
            .await
            .expect("the signal comes");
    }

    #[tokio::test]
    async fn signals_in_quick_succession_are_one_wish_and_a_later_one_is_another() {
        let (mut signals, mut witness) = (Signals::new().unwrap(), Signals::new().unwrap());
        terminate(&mut witness).await;
        signals.end().await;
        terminate(&mut witness).await;
        // However slow this test is, the first one has only just come.
        let just_now = Instant::now() + Duration::from_secs(600);
        tokio::select! {
            biased;
            () = signals.end_again(just_now) => panic!("the same wish was taken for another"),
            () = tokio::task::yield_now() => {}
        }
        terminate(&mut witness).await;
        let long_ago = Instant::now() - ONE_WISH;
        tokio::time::timeout(Duration::from_secs(60), signals.end_again(long_ago))
            .await
            .expect("another wish");
    }
}
