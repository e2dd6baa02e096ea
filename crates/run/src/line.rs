//! A line for people's eyes, whoever wrote it.

/// The longest line of progress that is passed on, in bytes.
pub(crate) const MAX_LINE_BYTES: usize = 1024;

/// The line without anything that moves a cursor, breaks it or turns the direction of writing, cut
/// to [`MAX_LINE_BYTES`]. A line that was made so comes back as it is.
pub(crate) fn clean(line: &str) -> String {
    let mut text = String::new();
    for char in line.trim().chars() {
        if char.is_control() || breaks_or_turns(char) {
            continue;
        }
        if text.len() + char.len_utf8() > MAX_LINE_BYTES {
            break;
        }
        text.push(char);
    }
    text.trim().to_owned()
}

/// Separators of lines and paragraphs, and what Unicode lists as `Bidi_Control`.
fn breaks_or_turns(char: char) -> bool {
    matches!(
        char,
        '\u{2028}' | '\u{2029}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_line_becomes_short_and_harmless_once_and_for_all(line in "\\PC{0,2000}|(?s:.{0,50})") {
            let text = clean(&line);
            prop_assert!(text.len() <= MAX_LINE_BYTES);
            prop_assert!(!text.chars().any(|char| char.is_control() || breaks_or_turns(char)));
            prop_assert_eq!(clean(&text), text);
        }
    }

    #[test]
    fn what_breaks_a_line_or_turns_it_goes_and_the_rest_stays() {
        assert_eq!(clean(" a\u{2028}b\u{61c}c\u{202e}d\u{7}\u{85}\n"), "abcd");
        assert_eq!(clean(&"ä".repeat(600)), "ä".repeat(512));
    }
}
