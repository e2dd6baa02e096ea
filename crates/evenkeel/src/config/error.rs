//! What is wrong with a configuration: where, what, and how to mend it.

use std::fmt;
use std::path::{Path, PathBuf};

use strsim::osa_distance as distance;

use super::place::{Places, line_column};

/// All that one reading found.
#[derive(Debug)]
pub(crate) struct ConfigError {
    pub(crate) problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    /// The file; none where there is no configuration file.
    pub(crate) file: Option<PathBuf>,
    /// Line and column, from 1.
    pub(crate) at: Option<(usize, usize)>,
    /// As `jobs.concurrency`; empty for the whole file.
    pub(crate) key: String,
    /// What is wrong and what would be right.
    pub(crate) message: String,
    /// How to mend it, where that is not said by the message.
    pub(crate) hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
            if let Some((line, column)) = self.at {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Says where things are in one file.
#[derive(Debug)]
pub(super) struct Locator<'a> {
    file: Option<&'a Path>,
    text: &'a str,
    places: Places,
}

impl<'a> Locator<'a> {
    pub(super) fn new(file: Option<&'a Path>, text: &'a str) -> Self {
        Self {
            file,
            text,
            places: Places::of(text),
        }
    }

    /// A problem with a key by its path.
    pub(super) fn problem(&self, key: &str, message: impl Into<String>) -> Problem {
        let span = self.places.span_of(key);
        Problem {
            file: self.file.map(Path::to_owned),
            at: span.map(|span| line_column(self.text, span.start)),
            key: key.to_owned(),
            message: message.into(),
            hint: None,
        }
    }

    /// What the TOML reader found.
    pub(super) fn reading(&self, error: &toml::de::Error) -> Problem {
        let span = error.span();
        let (message, hint) = plain(error.message());
        Problem {
            file: self.file.map(Path::to_owned),
            at: span.as_ref().map(|span| line_column(self.text, span.start)),
            key: span
                .and_then(|span| self.places.path_at(&span))
                .unwrap_or_default()
                .to_owned(),
            message,
            hint,
        }
    }

    /// Whether the file has the key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.places.has(key)
    }
}

/// serde's words for people: "unknown field" is an unknown key, and the nearest known one is a
/// better hint than the list of all.
fn plain(message: &str) -> (String, Option<String>) {
    let names = |rest: &str| -> Vec<String> {
        rest.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    for theirs in ["unknown field", "unknown variant"] {
        if let Some(rest) = message.strip_prefix(theirs)
            && let Some((found, known)) = names(rest).split_first()
        {
            let nearest = known.iter().min_by_key(|name| distance(found, name));
            let close = nearest.filter(|name| distance(found, name) <= found.len().div_ceil(3));
            let hint = match close {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("known here: {}", known.join(", ")),
            };
            let what = match theirs {
                // Its name stands before the message already.
                "unknown field" => "unknown key".to_owned(),
                _ => format!("unknown value `{found}`"),
            };
            return (what, Some(hint));
        }
    }
    if let Some(rest) = message.strip_prefix("missing field")
        && let Some(name) = names(rest).first()
    {
        return (format!("the key `{name}` is missing"), None);
    }
    (message.trim_end().replace('\n', "; "), None)
}
