//! Holds on the wire: why no new run starts, and what an operator does about it.

use evenkeel_core::hold::Cause;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Outcome;

/// A reason for which no new run starts. Everything else is served, and what runs goes on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hold {
    /// `hand`, `deaths` or `panics`.
    pub cause: Cause,
    /// In words.
    pub reason: String,
    /// Who wants it: `operator`, `broker`.
    pub actor: String,
    /// Since when.
    pub since: Timestamp,
    /// When it ends by itself if nothing more goes wrong; absent where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
}

/// What an operator says with a hold.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldRequest {
    /// Why, for other operators; at most 500 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a hold or a release did, and what is held now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Holding {
    /// `done` or `already`.
    pub outcome: Outcome,
    /// In words.
    pub description: String,
    /// Why no new run starts; empty where new runs start.
    pub holds: Vec<Hold>,
}
