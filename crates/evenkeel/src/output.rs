//! The one place that writes to standard output and standard error: data to the one, messages to
//! the other.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::sync::OnceLock;
use std::time::Duration;

use comfy_table::{Table, presets};
use serde::Serialize;

use crate::fail::{Exit, Failure};
use queue::Queue;

mod queue;

/// How long messages that nobody reads are waited for at the end.
const LAST_MESSAGES: Duration = Duration::from_millis(500);

/// What messages pass through on their way, if they do not go straight to standard error.
static MESSAGES: OnceLock<Queue> = OnceLock::new();

/// From now on messages go there, and nobody waits for a reader: a thread writes them, and `tell`
/// is told how many it has had to drop. Said once, before there are any.
///
/// # Errors
/// There can be no further thread.
pub(crate) fn through_queue(stream: File, tell: impl Fn(u64) + Send + 'static) -> io::Result<()> {
    let queue = Queue::start(stream, tell)?;
    MESSAGES.get_or_init(|| queue);
    Ok(())
}

/// Waits until the messages are with their reader, but not for ever.
pub(crate) fn flush() {
    flush_within(LAST_MESSAGES);
}

/// As [`flush`], for at most `limit`.
pub(crate) fn flush_within(limit: Duration) {
    if let Some(queue) = MESSAGES.get() {
        queue.flush(limit);
    }
}

/// Where messages go.
pub(crate) fn messages() -> Box<dyn Write> {
    match MESSAGES.get() {
        Some(queue) => Box::new(queue),
        None => Box::new(io::stderr()),
    }
}

/// Whether a person may be reading the messages.
pub(crate) fn is_terminal() -> bool {
    match MESSAGES.get() {
        Some(queue) => queue.stream().is_terminal(),
        None => io::stderr().is_terminal(),
    }
}

/// Writes a line of data.
///
/// # Errors
/// Nobody reads it (any more).
pub(crate) fn data(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| {
            if error.kind() == io::ErrorKind::BrokenPipe {
                // `… | head` has seen enough.
                return Failure::silent(Exit::Failed);
            }
            Failure::new(Exit::Failed, format!("standard output: {error}"))
        })
}

/// Writes a value for programs.
///
/// # Errors
/// As [`data`].
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot be written as JSON: {error}"))
    })?;
    data(&text)
}

/// Writes rows under their headings, without lines around them.
///
/// # Errors
/// As [`data`].
pub(crate) fn table(
    headings: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Result<(), Failure> {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(headings);
    for row in rows {
        table.add_row(row.iter().map(|cell| shown(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    data(&table.trim_fmt())
}

/// Tells something to the person at the terminal.
pub(crate) fn note(text: &str) {
    message("", text);
}

/// Tells of something that does not stop the command.
pub(crate) fn warning(text: &str) {
    message("warning: ", text);
}

/// Tells why the command did not succeed.
pub(crate) fn failure(failure: &Failure) {
    if !failure.message.is_empty() {
        message("error: ", &failure.message);
    }
    if let Some(text) = &failure.hint {
        hint(text);
    }
}

/// Tells what would help.
pub(crate) fn hint(text: &str) {
    message("hint: ", text);
}

fn message(kind: &str, text: &str) {
    // Nothing is left to tell it to if standard error is gone.
    drop(messages().write_all(format!("{kind}{text}\n").as_bytes()));
}

/// A text from outside on one line: what could move the cursor, change colours or reorder letters
/// is escaped.
pub(crate) fn shown(text: &str) -> String {
    escaped(text, |_| false)
}

/// As [`shown`], but lines and tabs stay.
pub(crate) fn shown_lines(text: &str) -> String {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if (c.is_control() || is_format(c)) && !stays(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Characters that reorder or hide others (Unicode's bidirectional controls, line and paragraph
/// separators).
fn is_format(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_command_a_terminal_is_escaped() {
        assert_eq!(
            shown("a\x1b[31mb\r\n\u{9b}c"),
            "a\\u{1b}[31mb\\r\\n\\u{9b}c"
        );
        assert_eq!(shown("\u{202e}txt"), "\\u{202e}txt");
        assert_eq!(shown("größe ☃ 🎉"), "größe ☃ 🎉");
        assert_eq!(shown_lines("a\n\tb\x07"), "a\n\tb\\u{7}");
    }
}
