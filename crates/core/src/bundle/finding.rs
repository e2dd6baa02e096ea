//! What is found while a bundle is read: errors and warnings, each with its place.

use std::cell::RefCell;
use std::fmt;

use super::Bundle;

/// The most errors, and the most warnings, that one reading reports one by one.
pub const MAX_FINDINGS: usize = 20;

/// Something to say about a place in `bundle.yml`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// From 1; 0 where the whole file is meant.
    pub line: u32,
    /// In characters, from 1; 0 where the whole file is meant.
    pub column: u32,
    /// Path of the field, such as `plans[1].name`; empty for the file itself.
    pub field: String,
    /// What is the matter.
    pub message: String,
    /// How to mend it, where that helps.
    pub hint: Option<String>,
}

impl Finding {
    /// The finding as people read it: `FILE:LINE:COLUMN: FIELD: MESSAGE`, and the hint on a line
    /// of its own.
    pub fn render(&self, file: &str) -> String {
        let gap = if self.line == 0 { " " } else { "" };
        format!("{file}:{gap}{self}")
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line != 0 {
            write!(f, "{}:{}: ", self.line, self.column)?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Why a bundle is refused.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
#[error("{0}")]
pub struct BundleError(pub Finding);

/// What is allowed but will hurt: some platform refuses it, or it is probably not meant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Warning(pub Finding);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where something stands in the file; ordered from top to bottom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct At {
    pub(super) line: u32,
    pub(super) column: u32,
}

/// Collects findings. Shared by all fields of one reading, hence the cells.
#[derive(Debug, Default)]
pub(super) struct Findings {
    errors: RefCell<Bounded>,
    warnings: RefCell<Bounded>,
}

#[derive(Debug, Default)]
struct Bounded {
    kept: Vec<Finding>,
    dropped: usize,
}

impl Bounded {
    fn push(&mut self, finding: Finding) {
        if self.kept.contains(&finding) {
            return;
        }
        if self.kept.len() < MAX_FINDINGS {
            self.kept.push(finding);
        } else {
            self.dropped += 1;
        }
    }

    fn into_sorted(self, what: &str) -> Vec<Finding> {
        let mut all = self.kept;
        all.sort();
        if self.dropped > 0 {
            let message = format!("{} more {what} not shown", self.dropped);
            all.push(Finding {
                line: 0,
                column: 0,
                field: String::new(),
                message,
                hint: None,
            });
        }
        all
    }
}

impl Findings {
    pub(super) fn error(&self, at: At, field: &str, message: String, hint: Option<String>) {
        self.errors
            .borrow_mut()
            .push(finding(at, field, message, hint));
    }

    pub(super) fn warn(&self, at: At, field: &str, message: String, hint: Option<String>) {
        self.warnings
            .borrow_mut()
            .push(finding(at, field, message, hint));
    }

    /// The result of a reading: no bundle without an error, and no error beside a bundle.
    pub(super) fn conclude(
        self,
        bundle: Option<Bundle>,
    ) -> Result<(Bundle, Vec<Warning>), Vec<BundleError>> {
        let errors = self.errors.into_inner().into_sorted("errors");
        match bundle {
            Some(bundle) if errors.is_empty() => {
                let warnings = self.warnings.into_inner().into_sorted("warnings");
                Ok((bundle, warnings.into_iter().map(Warning).collect()))
            }
            Some(_) | None => {
                debug_assert!(!errors.is_empty(), "a bundle was refused without a reason");
                Err(errors.into_iter().map(BundleError).collect())
            }
        }
    }
}

fn finding(at: At, field: &str, message: String, hint: Option<String>) -> Finding {
    Finding {
        line: at.line,
        column: at.column,
        field: field.to_owned(),
        message,
        hint,
    }
}
