//! Names and words: ids from names, what a command line can carry, and what an author meant.

use uuid::Uuid;

/// The longest name, id or tag, in characters (the specification recommends 255).
pub(super) const MAX_NAME_CHARS: usize = 255;

/// The id of an offering that gives none; also the namespace of its plans.
pub(super) fn service_id(namespace: Uuid, name: &str) -> Uuid {
    Uuid::new_v5(&namespace, format!("service/{name}").as_bytes())
}

/// The id of a plan that gives none.
pub(super) fn plan_id(namespace: Uuid, service: &str, plan: &str) -> Uuid {
    Uuid::new_v5(
        &service_id(namespace, service),
        format!("plan/{plan}").as_bytes(),
    )
}

/// Whether a command line can carry the name without quotes (specification, "CLI-friendly").
pub(super) fn is_cli_friendly(name: &str) -> bool {
    name.chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
}

/// Foreign text, fit for a message: short, and without control characters.
pub(super) fn shown(text: &str) -> String {
    const MAX_SHOWN: usize = 200;
    let mut out = String::new();
    for c in text.chars().take(MAX_SHOWN) {
        if c.is_control() {
            out.extend(c.escape_debug());
        } else {
            out.push(c);
        }
    }
    if text.chars().nth(MAX_SHOWN).is_some() {
        out.push('…');
    }
    out
}

/// The word that `typed` was probably meant to be.
pub(super) fn nearest<'k>(typed: &str, known: &[&'k str]) -> Option<&'k str> {
    const MAX_TYPED: usize = 40;
    if typed.chars().count() > MAX_TYPED {
        return None;
    }
    let typed = typed.to_lowercase().replace('-', "_");
    let (distance, word) = known
        .iter()
        .map(|word| (edit_distance(&typed, word), *word))
        .min_by_key(|pair| pair.0)?;
    (distance <= word.len().div_ceil(3).min(3)).then_some(word)
}

/// Insertions, deletions, replacements and swaps of neighbours between two words.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            if i == 0 || j == 0 {
                rows[i][j] = i + j;
                continue;
            }
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            rows[i][j] = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                rows[i][j] = rows[i][j].min(rows[i - 2][j - 2] + 1);
            }
        }
    }
    rows[a.len()][b.len()]
}

/// Whether `text` is a semantic version 2.0 (<https://semver.org/spec/v2.0.0.html>).
pub(super) fn is_semver(text: &str) -> bool {
    let (rest, build) = match text.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (text, None),
    };
    let (core, pre) = match rest.split_once('-') {
        Some((core, pre)) => (core, Some(pre)),
        None => (rest, None),
    };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let number = |part: &str| digits(part) && (part == "0" || !part.starts_with('0'));
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|pre| pre.split('.').all(|p| word(p) && (!digits(p) || number(p))))
        && build.is_none_or(|build| build.split('.').all(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semantic_versions_are_told_from_what_looks_like_them() {
        for good in [
            "0.0.0",
            "1.2.3",
            "10.20.30",
            "1.0.0-alpha.1",
            "1.0.0+001",
            "1.0.0-x-y.0a+b-c.d",
        ] {
            assert!(is_semver(good), "{good}");
        }
        for bad in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "01.2.3",
            "1.2.3-",
            "1.2.3-01",
            "1.2.3+",
            "v1.2.3",
            "1.2.x",
            "1.2.3-a..b",
            " 1.2.3",
        ] {
            assert!(!is_semver(bad), "{bad}");
        }
    }

    #[test]
    fn a_slip_of_the_finger_is_recognised_and_a_foreign_word_is_not() {
        let known = ["command", "timeout", "async", "retries"];
        assert_eq!(nearest("comand", &known), Some("command"));
        assert_eq!(nearest("tiemout", &known), Some("timeout"));
        assert_eq!(nearest("Retries", &known), Some("retries"));
        assert_eq!(nearest("image", &known), None);
        assert_eq!(nearest(&"c".repeat(10_000), &known), None);
    }
}
