//! A JSON object that does not show itself in logs.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

/// A JSON object that may hold secrets: credentials and parameters.
///
/// Its `Debug` tells only how many fields it has. Serializing writes it in full, that being the point of a wire type.
#[derive(Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct SecretObject(Map<String, Value>);

impl SecretObject {
    /// The content.
    pub fn expose(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The content.
    pub fn into_exposed(self) -> Map<String, Value> {
        self.0
    }

    /// Whether it has no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Map<String, Value>> for SecretObject {
    fn from(object: Map<String, Value>) -> Self {
        Self(object)
    }
}

impl fmt::Debug for SecretObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretObject({} hidden fields)", self.0.len())
    }
}
