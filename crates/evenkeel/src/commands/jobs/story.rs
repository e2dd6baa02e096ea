//! A job's story, for people: sentences in the order in which things happened.

use evenkeel_server::admin::types::{Advice, Explanation, JobLog, LogStream, StoryEvent};
use jiff::Timestamp;

use super::detail::time;
use crate::fail::Failure;
use crate::output::{self, shown, shown_lines};

/// Lines of each stream that are shown with the story.
const LOG_LINES: usize = 20;

pub(super) fn tell(told: &Explanation) -> Result<(), Failure> {
    output::data(&text(told))
}

fn text(told: &Explanation) -> String {
    let summary = &told.job.summary;
    let until = if summary.state.is_final() {
        String::new()
    } else {
        format!(", final by {} UTC at the latest", time(summary.deadline_at))
    };
    let mut parts = vec![format!(
        "{}\nJob {}{until}.",
        shown(&told.headline),
        summary.id
    )];
    if !told.events.is_empty() {
        let events = told.events.iter().map(|one| event(one, told.told_at));
        parts.push(titled("What happened (UTC)", events));
    }
    let standing = told
        .standing
        .iter()
        .map(|line| format!("  {}", shown(line)));
    parts.push(titled("How it stands", standing));
    parts.extend(told.log.as_ref().and_then(log));
    if !told.advice.is_empty() {
        parts.push(titled("What you can do", advice(&told.advice)));
    }
    parts.join("\n\n")
}

fn titled(title: &str, lines: impl IntoIterator<Item = String>) -> String {
    let mut text = title.to_owned();
    for line in lines {
        text.push('\n');
        text.push_str(&line);
    }
    text
}

fn event(event: &StoryEvent, now: Timestamp) -> String {
    let mut text = format!(
        "  {} ({})  {}",
        time(event.at),
        ago(event.at, now),
        shown(&event.text)
    );
    for detail in &event.details {
        text.push_str("\n      ");
        text.push_str(&shown(detail));
    }
    text
}

/// How long before, in words that need no sum.
fn ago(at: Timestamp, now: Timestamp) -> String {
    let millis = now.as_millisecond().saturating_sub(at.as_millisecond());
    let span = evenkeel_core::explain::story::span(std::time::Duration::from_millis(
        millis.unsigned_abs(),
    ));
    match millis {
        ..0 => format!("in {span}"),
        0..1000 => "just now".to_owned(),
        _ => format!("{span} ago"),
    }
}

fn log(log: &JobLog) -> Option<String> {
    let streams = [
        ("standard output", &log.stdout),
        ("standard error", &log.stderr),
    ];
    let lines: Vec<String> = streams
        .into_iter()
        .filter(|(_, stream)| !stream.text.is_empty())
        .flat_map(|(name, stream)| tail(name, stream))
        .collect();
    let title = format!("The end of the log of attempt {}", log.ordinal);
    (!lines.is_empty()).then(|| titled(&title, lines))
}

fn tail(name: &str, stream: &LogStream) -> Vec<String> {
    let text = shown_lines(&stream.text);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LOG_LINES);
    let left_out = if from > 0 || stream.cut {
        ", its last lines"
    } else {
        ""
    };
    let mut shown = vec![format!("  {name}{left_out}:")];
    shown.extend(lines[from..].iter().map(|line| format!("    {line}")));
    shown
}

fn advice(advice: &[Advice]) -> impl Iterator<Item = String> {
    let width = advice
        .iter()
        .map(|one| one.command.len())
        .max()
        .unwrap_or(0);
    advice
        .iter()
        .map(move |one| format!("  {:width$}  {}", shown(&one.command), shown(&one.text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_from_now() {
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        assert_eq!(ago(at(1000), at(1500)), "just now");
        assert_eq!(ago(at(0), at(61_000)), "1 min 1 s ago");
        assert_eq!(ago(at(5000), at(0)), "in 5.0 s");
    }

    #[test]
    fn a_log_shows_its_last_lines_and_cannot_command_the_terminal() {
        let many: String = (0..100).map(|n| format!("line {n}\x1b[2J\n")).collect();
        let stream = LogStream {
            text: many,
            cut: false,
        };
        let lines = tail("standard error", &stream);
        assert_eq!(lines.len(), 1 + LOG_LINES);
        assert_eq!(lines[0], "  standard error, its last lines:");
        assert_eq!(lines[LOG_LINES], "    line 99\\u{1b}[2J");
    }
}
