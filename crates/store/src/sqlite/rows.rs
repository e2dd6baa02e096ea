//! Rows and what they mean: one module for each table.

pub(crate) mod attempt;
pub(crate) mod audit;
pub(crate) mod binding;
pub(crate) mod body;
pub(crate) mod budget;
pub(crate) mod instance;
pub(crate) mod job;

/// The states in which a job is not final; the text that the partial indexes were made with.
pub(crate) const UNFINISHED: &str = "state IN ('queued', 'running', 'backoff')";
