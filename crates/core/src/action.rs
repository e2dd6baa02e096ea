//! What a job does.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The five actions of a service (DESIGN "Words").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Makes a service instance.
    Provision,
    /// Changes the plan or the parameters of an instance.
    Update,
    /// Removes an instance and all that belongs to it.
    Deprovision,
    /// Makes a service binding.
    Bind,
    /// Removes a binding.
    Unbind,
}

impl Action {
    /// All actions, in the order of a life cycle.
    pub const ALL: [Self; 5] = [
        Self::Provision,
        Self::Update,
        Self::Bind,
        Self::Unbind,
        Self::Deprovision,
    ];

    /// The word used on the wire, in bundles and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provision => "provision",
            Self::Update => "update",
            Self::Deprovision => "deprovision",
            Self::Bind => "bind",
            Self::Unbind => "unbind",
        }
    }

    /// Whether the action is about a binding rather than the instance itself.
    pub fn is_for_binding(self) -> bool {
        matches!(self, Self::Bind | Self::Unbind)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an action; actions are provision, update, bind, unbind, deprovision")]
pub struct UnknownAction(pub String);

impl FromStr for Action {
    type Err = UnknownAction;

    fn from_str(text: &str) -> Result<Self, UnknownAction> {
        Self::ALL
            .into_iter()
            .find(|action| action.as_str() == text)
            .ok_or_else(|| UnknownAction(text.chars().take(64).collect()))
    }
}
