//! What may be said about an instance after a failed update or deprovision, and nowhere else.

use serde::Serialize;

use super::ErrorBody;
use crate::body::BadRequest;
use crate::fields::Fields;

/// Both default to true on the platform's side when absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct AfterFailure {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instance_usable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) update_repeatable: Option<bool>,
}

impl AfterFailure {
    pub(crate) fn field_of(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        Ok(Self {
            instance_usable: fields.flag("instance_usable")?,
            update_repeatable: fields.flag("update_repeatable")?,
        })
    }
}

/// The error answer to an update, which may say whether the instance is still usable and the update repeatable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpdateError {
    #[serde(flatten)]
    body: ErrorBody,
    #[serde(flatten)]
    after_failure: AfterFailure,
}

impl UpdateError {
    /// Status, word and description.
    pub fn body(&self) -> &ErrorBody {
        &self.body
    }

    /// Says whether the instance can still be used.
    #[must_use]
    pub fn instance_usable(mut self, usable: bool) -> Self {
        self.after_failure.instance_usable = Some(usable);
        self
    }

    /// Says whether the same update can work later.
    #[must_use]
    pub fn update_repeatable(mut self, repeatable: bool) -> Self {
        self.after_failure.update_repeatable = Some(repeatable);
        self
    }
}

impl<E: Into<ErrorBody>> From<E> for UpdateError {
    fn from(error: E) -> Self {
        Self {
            body: error.into(),
            after_failure: AfterFailure::default(),
        }
    }
}

/// The error answer to a deprovision, which may say whether the instance is still usable, and nothing about updates:
///
/// ```compile_fail,E0599
/// use evenkeel_osb::{DeprovisionError, ErrorBody};
/// DeprovisionError::from(ErrorBody::internal("")).update_repeatable(true);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeprovisionError {
    #[serde(flatten)]
    body: ErrorBody,
    #[serde(flatten)]
    after_failure: AfterFailure,
}

impl DeprovisionError {
    /// Status, word and description.
    pub fn body(&self) -> &ErrorBody {
        &self.body
    }

    /// Says whether the instance can still be used.
    #[must_use]
    pub fn instance_usable(mut self, usable: bool) -> Self {
        self.after_failure.instance_usable = Some(usable);
        self
    }
}

impl<E: Into<ErrorBody>> From<E> for DeprovisionError {
    fn from(error: E) -> Self {
        Self {
            body: error.into(),
            after_failure: AfterFailure::default(),
        }
    }
}
