//! Who asks the shim to end: read from the descriptor that its signals come by.

use std::os::fd::OwnedFd;

use crate::line::clean;
use crate::proc;
use crate::record::Sender;

/// The kernel holds a command's name to 15 bytes; what cannot be read as UTF-8 grows.
const MAX_COMMAND_BYTES: usize = 64;

/// The sender of a SIGTERM, by the numbers that the kernel vouches for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asker {
    pid: u32,
    uid: u32,
}

impl Asker {
    /// With what `/proc` shows of it now. It may be gone, and its id in use again, by then: for
    /// people's eyes, and nothing is decided by it.
    pub(super) fn told(self, attempt_id: &str) -> Sender {
        let pid = i32::try_from(self.pid).unwrap_or(0);
        let visible = pid > 0;
        let command = proc::command(pid).filter(|_| visible);
        Sender {
            pid: self.pid,
            uid: self.uid,
            command: command
                .map(|name| bounded(clean(&String::from_utf8_lossy(&name))))
                .filter(|name| !name.is_empty()),
            of_run: visible && proc::is_of_attempt(pid, attempt_id),
        }
    }
}

fn bounded(mut text: String) -> String {
    let mut end = text.len().min(MAX_COMMAND_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// Takes all signals that came; gives the sender of the first that asks us to end.
pub(super) fn asked_to_end(signals: &OwnedFd) -> Option<Asker> {
    let mut buffer = [0; 8 * INFO_BYTES];
    let mut first = None;
    while let Ok(length) = rustix::io::read(signals, &mut buffer) {
        let mut infos = buffer[..length].chunks_exact(INFO_BYTES);
        first = first.or_else(|| infos.find_map(asker));
    }
    first
}

/// `signalfd_siginfo` of signalfd(2): 128 bytes, of which the first 20 are `ssi_signo`,
/// `ssi_errno`, `ssi_code`, `ssi_pid` and `ssi_uid`.
const INFO_BYTES: usize = 128;

fn asker(info: &[u8]) -> Option<Asker> {
    const SIGTERM: u32 = 15;
    let field = |number: usize| {
        let bytes = info.get(4 * number..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    (field(0)? == SIGTERM).then_some(())?;
    Some(Asker {
        pid: field(3)?,
        uid: field(4)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_sender_or_none(info in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(asker) = asker(&info) {
                prop_assert!(info.starts_with(&15_u32.to_ne_bytes()));
                prop_assert!(asker.told("nobody").command.is_none_or(|name| name.len() <= MAX_COMMAND_BYTES));
            }
        }
    }

    #[test]
    fn names_are_cut_between_characters() {
        assert_eq!(bounded("ä".repeat(100)).len(), MAX_COMMAND_BYTES);
        assert_eq!(
            bounded(format!("a{}", "ä".repeat(100))).len(),
            MAX_COMMAND_BYTES - 1
        );
    }

    #[test]
    fn a_process_that_cannot_be_seen_has_no_name() {
        let unseen = Asker { pid: 0, uid: 1 }.told("attempt");
        assert_eq!((unseen.command, unseen.of_run), (None, false));
        let gone = Asker {
            pid: u32::MAX,
            uid: 1,
        }
        .told("attempt");
        assert_eq!(gone.command, None);
        let own = Asker {
            pid: std::process::id(),
            uid: 0,
        }
        .told("attempt");
        assert!(own.command.is_some() && !own.of_run);
    }
}
