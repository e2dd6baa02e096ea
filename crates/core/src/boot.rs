//! How one life of a broker process ended, as its parent saw it.
//!
//! A process cannot tell of its own death. The warden, which waits for it, can: this is what it
//! writes down, and what the next boot reads when it gives its verdict.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// How many bytes of a dead process's last words are kept.
pub const LAST_WORDS_BYTES: usize = 4096;

/// What the parent of a broker process saw of its end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeathRecord {
    /// When it ended.
    pub ended_at: Timestamp,
    /// Its exit code, if it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether the kernel left a core file.
    pub core_dumped: bool,
    /// Whether the warden had been asked for the end, and it was no crash that came first. Counts
    /// as the boot's drain mark: the broker was told before it died, even if its store could not
    /// keep the mark.
    pub asked_to_end: bool,
    /// Whether the watchdog ended it: it had not turned for too long.
    pub killed_by_watchdog: bool,
    /// The most resident memory that it had, in bytes.
    pub peak_memory: u64,
    /// Processor time of it and of the children that it waited for, in milliseconds.
    pub cpu_millis: u64,
    /// Killed while its own control group ended processes for want of memory.
    pub own_oom: bool,
    /// Killed while the host ended processes for want of memory.
    pub host_oom: bool,
    /// The end of what it wrote to its raw standard error, at most [`LAST_WORDS_BYTES`]: an abort,
    /// a panic or the allocator speaks there. May hold anything; for operators of the host only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_words: String,
}

/// Whether a boot ended in order: it has left its drain mark, or its warden had been asked for the
/// end, and it did not hand over because a part of it had broken. The one rule for whoever asks: holds,
/// the verdict, the status.
pub fn ended_in_order(drained: bool, broke: bool) -> bool {
    drained && !broke
}

impl DeathRecord {
    /// An end of which nothing but the time is known.
    #[must_use]
    pub const fn at(ended_at: Timestamp) -> Self {
        Self {
            ended_at,
            exit_code: None,
            signal: None,
            core_dumped: false,
            asked_to_end: false,
            killed_by_watchdog: false,
            peak_memory: 0,
            cpu_millis: 0,
            own_oom: false,
            host_oom: false,
            last_words: String::new(),
        }
    }

    /// The same without what may hold anything.
    #[must_use]
    pub fn without_words(mut self) -> Self {
        self.last_words = String::new();
        self
    }
}

/// The name of a signal, as `SIGKILL`; its number where it has no name of its own.
pub fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
        "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    signal
        .checked_sub(1)
        .and_then(|index| NAMES.get(usize::try_from(index).ok()?))
        .map_or_else(|| format!("signal {signal}"), |name| format!("SIG{name}"))
}

impl fmt::Display for DeathRecord {
    /// As `was killed by SIGSEGV (core dumped)`, to follow the name of a boot.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.killed_by_watchdog {
            f.write_str("no longer turned and was ended by the watchdog")?;
        } else {
            match (self.signal, self.exit_code) {
                (Some(signal), _) => write!(f, "was killed by {}", signal_name(signal))?,
                (None, Some(code)) => write!(f, "exited with code {code}")?,
                (None, None) => f.write_str("ended")?,
            }
        }
        let details = [
            (self.core_dumped, "core dumped"),
            (self.own_oom, "while its control group ran out of memory"),
            (
                self.host_oom && !self.own_oom,
                "while the host ran out of memory",
            ),
            (self.asked_to_end, "asked to end"),
        ];
        let said: Vec<_> = details
            .into_iter()
            .filter_map(|(holds, text)| holds.then_some(text))
            .collect();
        if said.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", said.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_is_told_by_what_ended_it_and_what_is_known_beside() {
        let told = |change: fn(&mut DeathRecord)| {
            let mut record = DeathRecord::at(Timestamp(1));
            change(&mut record);
            record.to_string()
        };
        assert_eq!(
            told(|r| (r.signal, r.core_dumped) = (Some(11), true)),
            "was killed by SIGSEGV (core dumped)"
        );
        assert_eq!(told(|r| r.signal = Some(34)), "was killed by signal 34");
        assert_eq!(
            told(|r| (r.exit_code, r.asked_to_end) = (Some(0), true)),
            "exited with code 0 (asked to end)"
        );
        assert_eq!(
            told(|r| (r.signal, r.own_oom, r.host_oom) = (Some(9), true, true)),
            "was killed by SIGKILL (while its control group ran out of memory)"
        );
        assert_eq!(
            told(|r| (r.signal, r.host_oom) = (Some(9), true)),
            "was killed by SIGKILL (while the host ran out of memory)"
        );
        assert_eq!(
            told(|r| (r.signal, r.killed_by_watchdog) = (Some(6), true)),
            "no longer turned and was ended by the watchdog"
        );
    }

    #[test]
    fn signals_have_the_names_of_the_kernel() {
        let named = [
            (1, "SIGHUP"),
            (6, "SIGABRT"),
            (9, "SIGKILL"),
            (15, "SIGTERM"),
            (31, "SIGSYS"),
        ];
        for (number, name) in named {
            assert_eq!(signal_name(number), name);
        }
        for number in [i32::MIN, -1, 0, 32, i32::MAX] {
            assert_eq!(signal_name(number), format!("signal {number}"));
        }
    }

    #[test]
    fn what_a_record_of_an_earlier_release_lacks_is_absent() {
        let text = r#"{"ended_at":1,"core_dumped":false,"asked_to_end":false,
            "killed_by_watchdog":false,"peak_memory":0,"cpu_millis":0,"own_oom":false,
            "host_oom":false}"#;
        assert_eq!(
            serde_json::from_str::<DeathRecord>(text).ok(),
            Some(DeathRecord::at(Timestamp(1)))
        );
    }
}
