//! Asynchronous operations: their name, and what a poll answers.

use std::fmt;

use serde::Serialize;

use crate::body::BadRequest;
use crate::error::after_failure::AfterFailure;
use crate::fields::{Fields, FromObject};

/// How long an operation's name may be, in characters (spec.md; platforms refuse more).
pub const MAX_OPERATION_CHARS: usize = 10_000;

/// The name of an operation: what a 202 hands out and polls bring back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Operation(String);

/// A text that cannot name an operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// Empty: leave the operation out of the answer.
    #[error("an operation's name is empty: leave it out")]
    Empty,
    /// Longer than [`MAX_OPERATION_CHARS`].
    #[error("an operation's name has {0} characters: at most {MAX_OPERATION_CHARS} are allowed")]
    TooLong(usize),
    /// Not unreserved.
    #[error("an operation's name contains {0:?}: use letters, digits, '-', '.', '_' and '~' only")]
    Reserved(char),
}

impl Operation {
    /// A name that a broker gives.
    ///
    /// # Errors
    /// Only RFC 3986 unreserved characters are taken: some platforms put the name into URLs unescaped.
    pub fn new(name: impl Into<String>) -> Result<Self, OperationError> {
        let operation = Self::received(name)?;
        let unreserved = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~');
        match operation.0.chars().find(|c| !unreserved(c)) {
            Some(reserved) => Err(OperationError::Reserved(reserved)),
            None => Ok(operation),
        }
    }

    /// A name as another party wrote it: any characters.
    ///
    /// # Errors
    /// Empty or too long.
    pub fn received(name: impl Into<String>) -> Result<Self, OperationError> {
        let name = name.into();
        match name.chars().count() {
            0 => Err(OperationError::Empty),
            1..=MAX_OPERATION_CHARS => Ok(Self(name)),
            chars => Err(OperationError::TooLong(chars)),
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn field_of(fields: &Fields<'_>) -> Result<Option<Self>, BadRequest> {
        let name = fields.text("operation")?;
        name.map(|name| {
            Self::received(name).map_err(|error| fields.bad("operation", error.to_string()))
        })
        .transpose()
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How far an operation is. `succeeded` and `failed` are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum OperationState {
    /// Not ended yet.
    #[serde(rename = "in progress")]
    InProgress,
    /// Ended well.
    #[serde(rename = "succeeded")]
    Succeeded,
    /// Ended otherwise.
    #[serde(rename = "failed")]
    Failed,
}

impl OperationState {
    /// As on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in progress",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }

    /// Whether polling is over.
    pub fn is_final(self) -> bool {
        self != Self::InProgress
    }
}

impl fmt::Display for OperationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `GET …/last_operation` of a binding, and what an instance's has in any case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastOperation {
    state: OperationState,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

impl LastOperation {
    /// In a state, without a description.
    pub fn new(state: OperationState) -> Self {
        Self {
            state,
            description: None,
        }
    }

    /// With a description for the user; an empty one is left out.
    #[must_use]
    pub fn describe(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into()).filter(|text| !text.trim().is_empty());
        self
    }

    /// How far it is.
    pub fn state(&self) -> OperationState {
        self.state
    }

    /// For the user, never empty.
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }
}

impl FromObject for LastOperation {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        let state = match fields.required_text("state")?.as_str() {
            "in progress" => OperationState::InProgress,
            "succeeded" => OperationState::Succeeded,
            "failed" => OperationState::Failed,
            _ => {
                return Err(fields.bad(
                    "state",
                    "must be \"in progress\", \"succeeded\" or \"failed\"",
                ));
            }
        };
        Ok(Self {
            state,
            description: fields.text("description")?,
        })
    }
}

/// `GET …/last_operation` of an instance.
///
/// ```
/// use evenkeel_osb::{InstanceLastOperation, LastOperation, OperationState};
/// use serde_json::{json, to_value};
///
/// let running = InstanceLastOperation::from(LastOperation::new(OperationState::InProgress).describe("10% done"));
/// assert_eq!(to_value(&running)?, json!({ "state": "in progress", "description": "10% done" }));
/// let failed = InstanceLastOperation::failed_update("no room", Some(true), Some(false));
/// assert_eq!(
///     to_value(&failed)?,
///     json!({ "state": "failed", "description": "no room", "instance_usable": true, "update_repeatable": false })
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
///
///
/// Whether the instance is usable, and whether the update may be repeated, can be said only where the specification
/// allows it: after a failed update or deprovision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InstanceLastOperation {
    #[serde(flatten)]
    operation: LastOperation,
    #[serde(flatten)]
    after_failure: AfterFailure,
}

impl InstanceLastOperation {
    /// A failed update: is the instance still usable, can the same update work later?
    pub fn failed_update(
        description: impl Into<String>,
        instance_usable: Option<bool>,
        update_repeatable: Option<bool>,
    ) -> Self {
        Self {
            operation: LastOperation::new(OperationState::Failed).describe(description),
            after_failure: AfterFailure {
                instance_usable,
                update_repeatable,
            },
        }
    }

    /// A failed deprovision: is the instance still usable?
    pub fn failed_deprovision(
        description: impl Into<String>,
        instance_usable: Option<bool>,
    ) -> Self {
        Self::failed_update(description, instance_usable, None)
    }

    /// State and description.
    pub fn operation(&self) -> &LastOperation {
        &self.operation
    }

    /// How far it is.
    pub fn state(&self) -> OperationState {
        self.operation.state
    }

    /// For the user, never empty.
    pub fn description(&self) -> Option<&str> {
        self.operation.description()
    }

    /// Whether the instance can still be used; none when it was not said.
    pub fn instance_usable(&self) -> Option<bool> {
        self.after_failure.instance_usable
    }

    /// Whether the same update can work later; none when it was not said.
    pub fn update_repeatable(&self) -> Option<bool> {
        self.after_failure.update_repeatable
    }
}

impl From<LastOperation> for InstanceLastOperation {
    fn from(operation: LastOperation) -> Self {
        Self {
            operation,
            after_failure: AfterFailure::default(),
        }
    }
}

impl FromObject for InstanceLastOperation {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        let operation = LastOperation::from_fields(fields)?;
        // Anywhere else they mean nothing, whatever a broker wrote.
        let after_failure = match operation.state {
            OperationState::Failed => AfterFailure::field_of(fields)?,
            OperationState::InProgress | OperationState::Succeeded => AfterFailure::default(),
        };
        Ok(Self {
            operation,
            after_failure,
        })
    }
}
