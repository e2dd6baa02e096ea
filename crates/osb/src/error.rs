//! Error bodies: each has its status and a description, and says about usability only what the specification allows.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

use crate::body::BadRequest;

pub use after_failure::{DeprovisionError, UpdateError};

pub(crate) mod after_failure;

/// How long a description may get, in bytes: Cloud Foundry cuts error texts of more than 16 KiB to 8 KiB.
pub const MAX_DESCRIPTION_BYTES: usize = 8 * 1024;

/// The `error` word of a body, for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ErrorCode(Cow<'static, str>);

impl ErrorCode {
    /// The plan can only be served asynchronously, and the request lacks `accepts_incomplete=true`.
    pub const ASYNC_REQUIRED: Self = Self(Cow::Borrowed("AsyncRequired"));
    /// Another operation on the same instance or binding is in progress.
    pub const CONCURRENCY_ERROR: Self = Self(Cow::Borrowed("ConcurrencyError"));
    /// The binding needs an application.
    pub const REQUIRES_APP: Self = Self(Cow::Borrowed("RequiresApp"));
    /// The request's maintenance version is not the catalog's.
    pub const MAINTENANCE_INFO_CONFLICT: Self = Self(Cow::Borrowed("MaintenanceInfoConflict"));

    /// A word of the broker's own: one camel-case word, as `QuotaExceeded`.
    ///
    /// Cloud Foundry answers a 422 to a provision or bind with a word that it does not know by orphan mitigation.
    pub fn custom(word: &str) -> Option<Self> {
        let is_word = word.starts_with(|c: char| c.is_ascii_alphabetic())
            && word.chars().all(|c| c.is_ascii_alphanumeric());
        (is_word && word.len() <= 255).then(|| Self(Cow::Owned(word.to_owned())))
    }

    /// As on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An error answer: its status, and a body that always has a description.
///
/// It cannot carry `instance_usable` or `update_repeatable`; see [`UpdateError`] and [`DeprovisionError`]:
///
/// ```compile_fail,E0599
/// evenkeel_osb::ErrorBody::conflict("the id is taken").instance_usable(true);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorBody {
    #[serde(skip)]
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorCode>,
    description: String,
}

impl ErrorBody {
    /// 400: malformed, or lacking something, or with parameters that the plan does not take.
    pub fn bad_request(description: impl Into<String>) -> Self {
        Self::new(400, description, "The request is malformed.")
    }

    /// 401: send `WWW-Authenticate` with it.
    pub fn unauthorized(description: impl Into<String>) -> Self {
        Self::new(
            401,
            description,
            "User name or password are missing or wrong.",
        )
    }

    /// 404: no such route, instance or binding (a DELETE of a missing one is [`gone`](Self::gone)).
    pub fn not_found(description: impl Into<String>) -> Self {
        Self::new(404, description, "There is nothing here.")
    }

    /// 405: send `Allow` with it.
    pub fn method_not_allowed(description: impl Into<String>) -> Self {
        Self::new(405, description, "The method is not allowed here.")
    }

    /// 408: the request did not arrive in time.
    pub fn request_timeout(description: impl Into<String>) -> Self {
        Self::new(408, description, "The request did not arrive in time.")
    }

    /// 409: the id is taken, with other attributes.
    pub fn conflict(description: impl Into<String>) -> Self {
        Self::new(
            409,
            description,
            "The id exists already with other attributes.",
        )
    }

    /// 410: what is to be deleted does not exist.
    pub fn gone(description: impl Into<String>) -> Self {
        Self::new(410, description, "It does not exist.")
    }

    /// 412: the API version is not served; say which is.
    pub fn precondition_failed(description: impl Into<String>) -> Self {
        Self::new(
            412,
            description,
            "The API version is not supported: use 2.17.",
        )
    }

    /// 413: the body is larger than the server reads.
    pub fn payload_too_large(description: impl Into<String>) -> Self {
        Self::new(413, description, "The request body is too large.")
    }

    /// 422: understood, and not possible (as a plan change that the plan does not allow).
    ///
    /// Not for a refused provision or bind: Cloud Foundry would start orphan mitigation; use
    /// [`bad_request`](Self::bad_request) there.
    pub fn unprocessable(description: impl Into<String>) -> Self {
        Self::new(422, description, "The request is not possible.")
    }

    /// 422 `AsyncRequired`.
    pub fn async_required() -> Self {
        Self::unprocessable(
            "This service plan requires client support for asynchronous service operations.",
        )
        .with_code(ErrorCode::ASYNC_REQUIRED)
    }

    /// 422 `ConcurrencyError`.
    pub fn concurrency(description: impl Into<String>) -> Self {
        Self::new(
            422,
            description,
            "Another operation for this service instance is in progress.",
        )
        .with_code(ErrorCode::CONCURRENCY_ERROR)
    }

    /// 422 `RequiresApp`.
    pub fn requires_app() -> Self {
        Self::unprocessable(
            "This service supports generation of credentials through binding an application only.",
        )
        .with_code(ErrorCode::REQUIRES_APP)
    }

    /// 422 `MaintenanceInfoConflict`.
    pub fn maintenance_info_conflict(description: impl Into<String>) -> Self {
        Self::new(
            422,
            description,
            "The maintenance_info.version of the request does not match the catalog: fetch the catalog again.",
        )
        .with_code(ErrorCode::MAINTENANCE_INFO_CONFLICT)
    }

    /// 500: the broker's own fault.
    pub fn internal(description: impl Into<String>) -> Self {
        Self::new(500, description, "The broker failed.")
    }

    /// 503: not now; send `Retry-After` with it.
    pub fn unavailable(description: impl Into<String>) -> Self {
        Self::new(
            503,
            description,
            "The broker cannot serve this now: try again later.",
        )
    }

    /// With a word for programs.
    #[must_use]
    pub fn with_code(mut self, code: ErrorCode) -> Self {
        self.error = Some(code);
        self
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The word for programs.
    pub fn code(&self) -> Option<&ErrorCode> {
        self.error.as_ref()
    }

    /// The text for users, never empty.
    pub fn description(&self) -> &str {
        &self.description
    }

    fn new(status: u16, description: impl Into<String>, otherwise: &str) -> Self {
        let mut description = description.into();
        if description.trim().is_empty() {
            description = otherwise.to_owned();
        }
        description.truncate(description.floor_char_boundary(MAX_DESCRIPTION_BYTES));
        Self {
            status,
            error: None,
            description,
        }
    }
}

impl fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(code) => write!(f, "{} {}: {}", self.status, code.0, self.description),
            None => write!(f, "{}: {}", self.status, self.description),
        }
    }
}

impl std::error::Error for ErrorBody {}

impl From<BadRequest> for ErrorBody {
    fn from(error: BadRequest) -> Self {
        Self::bad_request(error.to_string())
    }
}
