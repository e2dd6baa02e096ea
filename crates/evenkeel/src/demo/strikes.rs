//! Whoever kills the broker, and whoever looks whether it shows.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_core::policy::Chance;
use evenkeel_engine::world::{RealWorld, World as _};
use evenkeel_osb::client::{Client, ClientError};
use evenkeel_server::admin::types::BootList;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::net::TcpStream;

use super::ledger::Ledger;
use super::screen::Screen;
use super::stage::parent;
use crate::commands::admin::AdminClient;
use crate::files;

/// From an answer to the next kill: between these.
const SHORTEST_MILLIS: u64 = 700;
const LONGEST_MILLIS: u64 = 2200;
/// From one connection of the prober to the next.
const PROBE: Duration = Duration::from_millis(10);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Of one try to get an answer; a connection may wait in the listen queue for the next broker.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// For a killed process to be gone.
const GONE_WITHIN: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// Where the broker answers, and as whom it is asked.
#[derive(Clone, Debug)]
pub(super) struct Door {
    /// `host:port` of the OSB API.
    pub(super) address: String,
    pub(super) password: String,
    pub(super) warden: u32,
}

/// What came of knocking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Knock {
    Refused,
    Answered,
    /// Not yet: the broker died with the request, or says that it is not ready.
    NotYet,
}

impl Door {
    /// A client without connections.
    ///
    /// # Errors
    /// The broker's address is none.
    pub(super) fn client(&self) -> Result<Client, ClientError> {
        let url = format!("http://{}", self.address);
        let password = self.password.clone().into();
        let client = Client::new(&url, files::GENERATED_USER, password)?;
        Ok(client.with_time_limit(ANSWER_WITHIN))
    }

    /// Asks for the catalog.
    async fn knock(client: &Client) -> Knock {
        match client.catalog().await {
            Ok(_) => Knock::Answered,
            Err(ClientError::Transport { source, .. }) if source.is_connect() => Knock::Refused,
            Err(_) => Knock::NotYet,
        }
    }

    /// Connects all the time, and counts who is refused.
    pub(super) async fn probe(&self, ledger: Arc<Ledger>) {
        loop {
            let refused = match TcpStream::connect(&self.address).await {
                Ok(_) => false,
                Err(error) => error.kind() == io::ErrorKind::ConnectionRefused,
            };
            {
                let mut counts = ledger.open();
                counts.connections += 1;
                counts.refused += u64::from(refused);
            }
            tokio::time::sleep(PROBE).await;
        }
    }

    /// Kills the broker again and again, and measures how long nobody answers.
    pub(super) async fn strike(&self, admin: &AdminClient, ledger: &Ledger, screen: &Screen) {
        loop {
            tokio::time::sleep(pause(RealWorld.chance())).await;
            let under_way = {
                let counts = ledger.open();
                counts.operations.len() - counts.ended()
            };
            let Some(broker) = self.kill(admin, ledger).await else {
                // It is about to be killed by somebody else, or only just there.
                continue;
            };
            let died = Instant::now();
            // A connection of its own: one from before would be of the dead broker.
            let Ok(client) = self.client() else { continue };
            loop {
                match Self::knock(&client).await {
                    Knock::Answered => break,
                    Knock::Refused => ledger.open().refused += 1,
                    Knock::NotYet => {}
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            let gap = died.elapsed();
            ledger.open().gaps.push(gap);
            screen.tell(&format!(
                "kill -9 of broker {broker} with {under_way} operations under way: answers again after {} ms",
                gap.as_millis()
            ));
        }
    }

    /// Kills the broker that says it is the present one, and waits until it is gone.
    async fn kill(&self, admin: &AdminClient, ledger: &Ledger) -> Option<u32> {
        let query = [("limit", "1".to_owned())];
        let list: BootList = admin.get(&["admin", "v1", "boots"], &query).await.ok()?;
        let broker = list.boots.iter().find(|boot| boot.present)?.pid;
        let pid = Pid::from_raw(i32::try_from(broker).ok()?)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Its number may be somebody else's by now; what the handle is of stays so.
        if parent(broker) != Some(self.warden) {
            return None;
        }
        pidfd_send_signal(&handle, Signal::KILL).ok()?;
        ledger.open().killed.push(broker);
        let gone = tokio::task::spawn_blocking(move || is_gone(&handle)).await;
        gone.unwrap_or(false).then_some(broker)
    }
}

fn is_gone(handle: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(handle, PollFlags::IN)];
    poll(&mut fds, Some(&GONE_WITHIN)).is_ok_and(|ready| ready == 1)
}

fn pause(chance: Chance) -> Duration {
    let span = LONGEST_MILLIS - SHORTEST_MILLIS;
    Duration::from_millis(SHORTEST_MILLIS + u64::from(chance.0) * span / u64::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_lie_between_their_bounds() {
        assert_eq!(pause(Chance(0)), Duration::from_millis(SHORTEST_MILLIS));
        assert_eq!(
            pause(Chance(u16::MAX)),
            Duration::from_millis(LONGEST_MILLIS)
        );
    }
}
