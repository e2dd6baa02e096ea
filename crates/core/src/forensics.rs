//! What is known about how an attempt came to a bad end, beside the end itself.
//!
//! Kept with the attempt, for operators, for as long as the job is. Nothing in it is secret: numbers
//! that the kernel vouches for, the name of a command, the line of progress that platforms are told
//! too, and of a panic its place and the functions that it came through, which are words of our
//! sources. What a panic *says* may have been put together from a request, and is kept only where
//! it is a literal of the sources (I16).

use serde::{Deserialize, Serialize};

use crate::ids::{BootId, InstanceId, JobId};
use crate::time::Timestamp;
use crate::{action::Action, attempt::Charge};

/// Most bytes of a backtrace that are kept.
pub const MAX_BACKTRACE_BYTES: usize = 8 << 10;
/// Most bytes of any other text here.
pub const MAX_TEXT_BYTES: usize = 1 << 10;

/// What is known of one attempt's bad end. What is not known is left out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Forensics {
    /// What the main process returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended the main process, whoever sent it, as in signal(7).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The kernel wrote a core for the main process.
    #[serde(skip_serializing_if = "is_false")]
    pub core_dumped: bool,
    /// What of the run was hit, where that is not its main process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub victim: Option<Victim>,
    /// Who sent the signal that stopped the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<Sender>,
    /// Whose memory ran out, if it is or may be the cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryCause>,
    /// What its tree was allowed, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// When the run last showed a sign of life, where it left no record of its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sign: Option<Timestamp>,
    /// How long its shim had been silent, in milliseconds, when the broker that drove it ended the shim
    /// for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// The last line of progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// What it wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<LogBytes>,
    /// The panic of a driving step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub panic: Option<Panic>,
}

/// What of a run was hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Victim {
    /// A process of its tree, not the main one.
    Child,
    /// The whole of it at once: the init of its PID namespace.
    Namespace,
    /// Its shim: there is no record of the end.
    Shim,
    /// Something that a newer release tells apart.
    #[serde(other)]
    Unknown,
}

/// Whose memory ran out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryCause {
    /// Its tree went over its own limit, and was ended for it.
    OwnLimit,
    /// The kernel ended a process of it for the memory of its own cgroup.
    OwnCgroup,
    /// It failed by itself and had used nearly all that it was allowed, so that an allocation may have
    /// been refused.
    NearLimit,
    /// The host ran out of memory meanwhile, on whoever's account.
    Host,
    /// Something that a newer release tells apart.
    #[serde(other)]
    Unknown,
}

impl MemoryCause {
    /// What the facts say, the most certain first.
    pub fn of(facts: &MemoryFacts) -> Option<Self> {
        let near = |(peak, most): (u64, u64)| peak >= most - most / 8;
        if facts.over_limit {
            Some(Self::OwnLimit)
        } else if facts.own_oom_kills > 0 {
            Some(Self::OwnCgroup)
        } else if facts.killed && facts.host_oom {
            Some(Self::Host)
        } else if facts.failed && !facts.killed && facts.peak.zip(facts.limit).is_some_and(near) {
            Some(Self::NearLimit)
        } else {
            None
        }
    }
}

/// What [`MemoryCause::of`] goes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryFacts {
    /// It was ended for going over its limit.
    pub over_limit: bool,
    /// Processes of it that the kernel ended for its own cgroup.
    pub own_oom_kills: u64,
    /// The host ended a process for want of memory while it ran.
    pub host_oom: bool,
    /// It was ended by a SIGKILL that none of its own limits explains, or vanished.
    pub killed: bool,
    /// It ended by itself and as one does to whom memory is refused: a failure of its own, or a signal
    /// that a process brings on itself.
    pub failed: bool,
    /// The most memory of its own that it is known to have used, in bytes. The page cache is no part of
    /// it: the kernel takes that back before it refuses anything.
    pub peak: Option<u64>,
    /// What it was allowed, in bytes.
    pub limit: Option<u64>,
}

/// Who sent a signal, as the kernel said and `/proc` showed at that moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sender {
    /// Its process id; 0 where it cannot be seen from the host's namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its command's name; `None` if it was gone already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// It was a process of the run itself.
    #[serde(default, skip_serializing_if = "is_false")]
    pub of_run: bool,
    /// It was a broker that had left its wish to stop.
    #[serde(default, skip_serializing_if = "is_false")]
    pub broker: bool,
}

/// How much a run wrote, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LogBytes {
    /// On standard output.
    pub stdout: u64,
    /// On standard error.
    pub stderr: u64,
    /// Of both, what could not be stored for want of room.
    #[serde(default)]
    pub lost: u64,
}

/// A panic of one of the broker's own steps.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Panic {
    /// `file:line:column`.
    pub location: String,
    /// The thread's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// What it said, if that is a literal of the sources. What was put together at run time may
    /// hold what a request said, and is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// The functions that it came through, innermost first, a line each, those of the broker
    /// before all others.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub backtrace: String,
}

impl Forensics {
    /// With every text cut to its bound.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if let Some(progress) = &mut self.progress {
            cut(progress, MAX_TEXT_BYTES);
        }
        if let Some(command) = self
            .sender
            .as_mut()
            .and_then(|sender| sender.command.as_mut())
        {
            cut(command, MAX_TEXT_BYTES);
        }
        if let Some(panic) = &mut self.panic {
            cut(&mut panic.location, MAX_TEXT_BYTES);
            cut(&mut panic.backtrace, MAX_BACKTRACE_BYTES);
            for text in [&mut panic.thread, &mut panic.said].into_iter().flatten() {
                cut(text, MAX_TEXT_BYTES);
            }
        }
        self
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Another job whose attempt came to a bad end in the same moments, or with the same broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beside {
    /// The attempt of the job that is asked about, by its ordinal.
    pub ordinal: u32,
    /// The other job.
    pub job: JobId,
    /// What it did.
    pub action: Action,
    /// Its instance, by the platform's name.
    pub instance: InstanceId,
    /// When its attempt ended.
    pub at: Timestamp,
    /// What that cost it.
    pub charge: Charge,
    /// Both were lost with one broker.
    pub same_broker: bool,
}

/// The death of a broker that an attempt of the job was tied to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerDeath {
    /// The boot that ended.
    pub boot: BootId,
    /// When it was last known to be alive.
    pub at: Timestamp,
    /// How it ended, in words.
    pub how: String,
    /// The black box named this job.
    pub named: bool,
    /// In an exclusive step.
    pub exclusive: bool,
    /// What it cost the job, if it was counted before its run was looked at.
    pub charge: Option<Charge>,
}

fn cut(text: &mut String, most: usize) {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_cut_between_characters() {
        let long = || "ä".repeat(20_000);
        let bounded = Forensics {
            progress: Some(format!("a{}", long())),
            sender: Some(Sender {
                pid: 1,
                uid: 0,
                command: Some(long()),
                of_run: false,
                broker: false,
            }),
            panic: Some(Panic {
                location: long(),
                thread: Some(long()),
                said: Some(long()),
                backtrace: long(),
            }),
            ..Forensics::default()
        }
        .bounded();
        let json = serde_json::to_string(&bounded).unwrap();
        assert!(json.len() < MAX_BACKTRACE_BYTES + 6 * MAX_TEXT_BYTES);
        assert_eq!(bounded.progress.unwrap().len(), MAX_TEXT_BYTES - 1);
        assert_eq!(bounded.panic.unwrap().backtrace.len(), MAX_BACKTRACE_BYTES);
    }

    #[test]
    fn what_is_unknown_takes_no_room_and_what_is_new_is_ignored() {
        assert_eq!(serde_json::to_string(&Forensics::default()).unwrap(), "{}");
        assert!(Forensics::default().is_empty());
        let newer = r#"{"victim":"thread","memory":"swap","colour":1,"signal":9}"#;
        let read: Forensics = serde_json::from_str(newer).unwrap();
        assert_eq!(read.victim, Some(Victim::Unknown));
        assert_eq!(read.memory, Some(MemoryCause::Unknown));
        assert_eq!(read.signal, Some(9));
    }

    #[test]
    fn the_most_certain_cause_in_memory_is_told() {
        let facts = MemoryFacts::default();
        let near = MemoryFacts {
            failed: true,
            peak: Some(56),
            limit: Some(64),
            ..facts
        };
        let host = MemoryFacts {
            killed: true,
            host_oom: true,
            ..near
        };
        let own = MemoryFacts {
            own_oom_kills: 1,
            ..host
        };
        let over = MemoryFacts {
            over_limit: true,
            ..own
        };
        for (facts, cause) in [
            (facts, None),
            (near, Some(MemoryCause::NearLimit)),
            (
                MemoryFacts {
                    peak: Some(55),
                    ..near
                },
                None,
            ),
            (
                MemoryFacts {
                    failed: false,
                    ..near
                },
                None,
            ),
            (
                MemoryFacts {
                    limit: Some(u64::MAX),
                    ..near
                },
                None,
            ),
            (host, Some(MemoryCause::Host)),
            // That the host ended somebody says nothing of a run that it did not end.
            (
                MemoryFacts {
                    host_oom: true,
                    ..facts
                },
                None,
            ),
            (own, Some(MemoryCause::OwnCgroup)),
            (over, Some(MemoryCause::OwnLimit)),
        ] {
            assert_eq!(MemoryCause::of(&facts), cause, "{facts:?}");
        }
    }
}
