//! The attempts of a job, for people: a row each, and below the table what is known of each, in a
//! hundred columns.

use evenkeel_core::explain::{Clue, clues_of, death_line, usage_line};
use evenkeel_core::time::Timestamp;
use evenkeel_server::admin::types::{Attempt, Forensics};

use super::detail::time;
use crate::output::shown;

/// What fits a terminal that nobody has made larger.
const WIDTH: usize = 100;
/// Where what is known of an attempt begins.
const INDENT: usize = 15;

pub(super) const HEADINGS: [&str; 8] = [
    "TRY",
    "CLAIMED (UTC)",
    "ENDED (UTC)",
    "ALONE",
    "HELD BY",
    "END",
    "CHARGE",
    "MEMORY",
];

pub(super) fn row(attempt: &Attempt) -> Vec<String> {
    let held = attempt.containment.map(|level| level.as_str().to_owned());
    let charge = attempt.charge.map(|charge| charge.as_str().to_owned());
    let memory = attempt
        .peak_memory_bytes
        .map(|bytes| format!("{} KiB", bytes / 1024));
    let alone = if attempt.solo { "yes" } else { "no" };
    let end = attempt.end.clone();
    vec![
        attempt.ordinal.to_string(),
        time(attempt.claimed_at),
        attempt.ended_at.map(time).unwrap_or_default(),
        alone.to_owned(),
        held.unwrap_or_default(),
        end.unwrap_or_else(|| "under way".to_owned()),
        charge.unwrap_or_default(),
        memory.unwrap_or_default(),
    ]
}

/// All that is known of an attempt, in the words of its story.
pub(super) fn details(attempt: &Attempt) -> String {
    let mut lines = vec![format!("attempt {:<5}  {}", attempt.ordinal, attempt.id)];
    let mut last = "";
    let mut line = |about: &'static str, text: &str| {
        // Of a sentence that stands by its name: neither that name again nor a full stop.
        let text = text
            .strip_prefix(about)
            .map_or(text, |rest| rest.strip_prefix(": ").unwrap_or(text));
        let name = if about == last { "" } else { about };
        last = about;
        lines.extend(wrapped(name, &shown(text.trim_end_matches('.'))));
    };
    line("boot", &attempt.boot.to_string());
    for death in &attempt.deaths {
        line("death", &death_line(death));
    }
    for (about, text) in [("end", &attempt.reason), ("charge", &attempt.charge_reason)] {
        if let Some(text) = text {
            line(about, text);
        }
    }
    for Clue { about, text } in clues(attempt) {
        line(about, &text);
    }
    let limit = attempt.forensics.as_ref();
    let limit = limit.and_then(|known| known.memory_limit_bytes);
    if let Some(used) = usage_line(attempt.peak_memory_bytes, limit, attempt.cpu_millis) {
        line("usage", &used);
    }
    lines.join("\n")
}

fn clues(attempt: &Attempt) -> Vec<Clue> {
    let known = attempt.forensics.as_ref().map(Forensics::known);
    let claimed_at = Timestamp(attempt.claimed_at.as_millisecond());
    known.map_or_else(Vec::new, |known| clues_of(&known, claimed_at))
}

/// A name and what belongs to it, in lines that go on below where it began. A word that fits no line
/// has one to itself.
fn wrapped(name: &str, text: &str) -> Vec<String> {
    let set_in = text.len() - text.trim_start().len();
    let mut lines = Vec::new();
    let mut line = " ".repeat(set_in);
    for word in text.split_whitespace() {
        let empty = line.len() == set_in;
        if !empty && INDENT + line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::replace(&mut line, " ".repeat(set_in)));
        } else if !empty {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    let names = std::iter::once(name).chain(std::iter::repeat(""));
    let indented = lines.iter().zip(names).map(|(line, name)| {
        let begin = format!("  {name}");
        format!("{begin:<INDENT$}{line}")
    });
    indented.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_goes_on_below_where_it_began_and_no_word_is_cut() {
        let text = format!("{} {} end", "word ".repeat(16).trim(), "x".repeat(120));
        let lines = wrapped("charge", &text);
        assert_eq!(
            lines[0],
            format!("  charge       {}", "word ".repeat(16).trim())
        );
        assert_eq!(
            lines[1],
            format!("{}{}", " ".repeat(INDENT), "x".repeat(120))
        );
        assert_eq!(lines[2], format!("{}end", " ".repeat(INDENT)));
        let set_in = format!("{}in a::b", " ".repeat(INDENT + 2));
        assert_eq!(wrapped("", "  in a::b"), [set_in]);
        let full = "a".repeat(WIDTH - INDENT - 2);
        assert_eq!(wrapped("x", &format!("{full} b")).len(), 1);
        assert_eq!(wrapped("x", &format!("{full} bc")).len(), 2);
    }
}
