//! What the warden says: a line to standard error about each death that nobody asked for, in the
//! form of the broker's log.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use super::broker::End;
use crate::cli::LogFormat;
use crate::output;

/// Of the last words, how much goes into the line: the rest is in the file.
const QUOTED_CHARS: usize = 400;

pub(super) struct Voice {
    human: bool,
}

impl Voice {
    pub(super) fn new(format: LogFormat) -> Self {
        Self {
            human: format.is_human(),
        }
    }

    pub(super) fn died(&self, end: &End, pause: Duration) {
        self.say("ERROR", &told(end, pause));
    }

    pub(super) fn not_started(&self, error: &io::Error, pause: Duration) {
        let when = when(pause);
        self.say(
            "ERROR",
            &format!("the broker could not be started: {error}; trying again {when}"),
        );
    }

    pub(super) fn waits(&self, text: &str) {
        self.say("WARN", text);
    }

    pub(super) fn no_last_words(&self, error: &io::Error) {
        self.say(
            "ERROR",
            &format!("the broker's last words will not be kept: {error}"),
        );
    }

    pub(super) fn no_room(&self, error: &io::Error) {
        self.say(
            "WARN",
            &format!("how this broker ends may not be recorded: {error}"),
        );
    }

    pub(super) fn not_recorded(&self, error: &io::Error) {
        self.say(
            "ERROR",
            &format!("how the broker ended could not be recorded: {error}"),
        );
    }

    fn say(&self, level: &str, text: &str) {
        // A reader that has stopped reading must not stop the warden.
        let stderr = io::stderr();
        let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
        if !poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
            return;
        }
        if self.human {
            output::note(&format!("warden: {text}"));
        } else {
            let at = jiff::Timestamp::from_millisecond(now()).unwrap_or_default();
            let line = json!({
                "timestamp": at.to_string(), "level": level, "message": text,
                "target": "evenkeel::warden",
            });
            output::note(&line.to_string());
        }
    }
}

fn now() -> i64 {
    use evenkeel_engine::world::{RealWorld, World as _};
    RealWorld.now().as_millis()
}

fn when(pause: Duration) -> String {
    if pause.is_zero() {
        "at once".to_owned()
    } else {
        format!("in {} ms", pause.as_millis())
    }
}

fn told(end: &End, pause: Duration) -> String {
    let End {
        boot,
        record,
        lived,
    } = end;
    let when = when(pause);
    let mut text = format!(
        "the broker (boot {boot}) {record} after {:.1} s; another starts {when}",
        lived.as_secs_f64()
    );
    if !record.last_words.is_empty() {
        let words = &record.last_words;
        let skipped = words.chars().count().saturating_sub(QUOTED_CHARS);
        let quoted: String = words.chars().skip(skipped).collect();
        let cut = if skipped > 0 { "…" } else { "" };
        text.push_str(&format!(
            "; its last words: {cut}{}",
            output::shown(&quoted)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::boot::DeathRecord;
    use evenkeel_core::ids::BootId;
    use evenkeel_core::time::Timestamp;

    #[test]
    fn a_death_is_one_line_with_how_when_and_the_end_of_its_last_words() {
        let end = |words: &str| End {
            boot: BootId(uuid::Uuid::from_u128(7)),
            record: DeathRecord {
                signal: Some(6),
                core_dumped: true,
                last_words: words.to_owned(),
                ..DeathRecord::at(Timestamp(0))
            },
            lived: Duration::from_millis(1500),
        };
        assert_eq!(
            told(&end("fatal\nend"), Duration::ZERO),
            "the broker (boot 00000000-0000-0000-0000-000000000007) was killed by SIGABRT \
             (core dumped) after 1.5 s; another starts at once; its last words: fatal\\nend"
        );
        let long = told(&end(&"ä".repeat(1000)), Duration::from_millis(50));
        assert!(long.contains("in 50 ms; its last words: …ä"), "{long}");
        assert_eq!(long.chars().filter(|c| *c == 'ä').count(), QUOTED_CHARS);
    }
}
