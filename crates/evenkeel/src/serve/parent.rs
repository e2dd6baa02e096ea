//! The broker's side of whoever started it: the line to a warden, or systemd's notifications.

use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// Between two beats to a warden.
const BEAT: Duration = Duration::from_secs(1);

/// Whoever started this process.
#[derive(Debug, Default)]
pub(super) struct Parent {
    line: Option<UnixStream>,
    /// Ends with this value.
    beats: JoinSet<()>,
}

impl Parent {
    /// Begins to show that this runtime turns: to the warden at the other end of `line`, and to
    /// systemd if it asks for that.
    pub(super) fn new(line: Option<StdStream>) -> io::Result<Self> {
        let mut parent = Self::default();
        if let Some(line) = line {
            line.set_nonblocking(true)?;
            let beats = UnixStream::from_std(line.try_clone()?)?;
            parent.line = Some(UnixStream::from_std(line)?);
            parent.beats.spawn(every(BEAT, move || {
                // A full line has beats enough in it; one without a reader is told of by `gone`.
                beats.try_write(b".").ok();
            }));
        }
        let mut usec = 0;
        if sd_notify::watchdog_enabled(false, &mut usec) {
            let half = Duration::from_micros(usec / 2).max(Duration::from_millis(1));
            parent
                .beats
                .spawn(every(half, || notify(&[NotifyState::Watchdog])));
        }
        Ok(parent)
    }

    /// Until the warden is dead; for ever where there is none.
    pub(super) async fn gone(&self) {
        let Some(line) = &self.line else {
            return std::future::pending().await;
        };
        loop {
            if line.readable().await.is_err() {
                return;
            }
            match line.try_read(&mut [0; 16]) {
                // Nothing is ever said on this side.
                Ok(1..) => {}
                Ok(0) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// From here on every request is answered, if only by a 503: units that need more can ask
    /// `/readyz`, and a store that cannot be used must not look like a start that hangs.
    pub(super) fn listening() {
        notify(&[NotifyState::Ready, NotifyState::Status("starting")]);
    }

    /// For people who ask systemd, in one line.
    pub(super) fn status(text: &str) {
        notify(&[NotifyState::Status(&text.replace('\n', " "))]);
    }

    pub(super) fn stopping() {
        notify(&[NotifyState::Stopping, NotifyState::Status("ending")]);
    }
}

async fn every(period: Duration, work: impl Fn()) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        work();
    }
}

/// Where `NOTIFY_SOCKET` is not set this is nothing.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, state) {
        tracing::debug!(%error, "systemd could not be told");
    }
}
