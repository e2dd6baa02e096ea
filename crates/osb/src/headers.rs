//! The API's headers. Values come as bytes, since that is what HTTP has.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::body::BadRequest;
use crate::error::ErrorBody;

pub use identity::{IdentityError, OriginatingIdentity};

mod identity;

/// The version that the platform speaks, on every request.
pub const API_VERSION: &str = "X-Broker-API-Version";
/// On whose behalf the platform asks.
pub const ORIGINATING_IDENTITY: &str = "X-Broker-API-Originating-Identity";
/// A name for the request, to be given back with every answer.
pub const REQUEST_IDENTITY: &str = "X-Broker-API-Request-Identity";
/// When to poll or try again.
pub const RETRY_AFTER: &str = "Retry-After";

/// Checks the `Content-Type` of a request that has a body: JSON, with whatever parameters. One that is missing or empty
/// is taken for JSON.
///
/// # Errors
/// Any other type; the specification's practice is 400 and not 415.
pub fn check_content_type(header: Option<&[u8]>) -> Result<(), BadRequest> {
    let Some(header) = header.filter(|header| !header.is_empty()) else {
        return Ok(());
    };
    let essence = header
        .split(|&byte| byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    if essence.eq_ignore_ascii_case(b"application/json") {
        Ok(())
    } else {
        Err(BadRequest::new(
            "",
            "the Content-Type must be application/json",
        ))
    }
}

/// A version of the API, `MAJOR.MINOR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiVersion {
    /// Platforms and brokers with different ones do not understand each other.
    pub major: u32,
    /// What a larger one adds can be ignored.
    pub minor: u32,
}

/// Why a request is not served: missing, unreadable or unsupported version. Becomes a 412.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiVersionError {
    /// No header.
    #[error("the header {API_VERSION} is missing: send {}", ApiVersion::V2_17)]
    Missing,
    /// A header without a value.
    #[error("the header {API_VERSION} is empty: send {}", ApiVersion::V2_17)]
    Empty,
    /// Not `MAJOR.MINOR`.
    #[error(
        "the header {API_VERSION} is not a version as MAJOR.MINOR: send {}",
        ApiVersion::V2_17
    )]
    Garbage,
    /// A major version other than 2.
    #[error(
        "version {version} of the API is not supported: send {}",
        ApiVersion::V2_17
    )]
    Unsupported {
        /// What was sent.
        version: ApiVersion,
    },
}

impl ApiVersion {
    /// What this crate speaks.
    pub const V2_17: Self = Self {
        major: 2,
        minor: 17,
    };

    /// The version of a request, if it can be served: any 2.x, since platforms send from 2.11 to 2.17 and what is
    /// newer can be ignored.
    ///
    /// # Errors
    /// A header that is missing, empty, garbage or of another major version.
    pub fn of_request(header: Option<&[u8]>) -> Result<Self, ApiVersionError> {
        let header = header.ok_or(ApiVersionError::Missing)?;
        let text = std::str::from_utf8(header).map_err(|_| ApiVersionError::Garbage)?;
        let version: Self = text.trim().parse()?;
        if version.major == 2 {
            Ok(version)
        } else {
            Err(ApiVersionError::Unsupported { version })
        }
    }
}

impl FromStr for ApiVersion {
    type Err = ApiVersionError;

    fn from_str(text: &str) -> Result<Self, ApiVersionError> {
        if text.is_empty() {
            return Err(ApiVersionError::Empty);
        }
        let number = |digits: &str| -> Result<u32, ApiVersionError> {
            // `u32::from_str` would take a leading '+'.
            if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(ApiVersionError::Garbage);
            }
            digits.parse().map_err(|_| ApiVersionError::Garbage)
        };
        let (major, minor) = text.split_once('.').ok_or(ApiVersionError::Garbage)?;
        Ok(Self {
            major: number(major)?,
            minor: number(minor)?,
        })
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl From<ApiVersionError> for ErrorBody {
    fn from(error: ApiVersionError) -> Self {
        Self::precondition_failed(error.to_string())
    }
}

/// The name that a platform gave to a request: any non-empty bytes that a header can hold, given back unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestIdentity(Vec<u8>);

impl RequestIdentity {
    /// The identity of a request; none when the header is missing or empty.
    pub fn of_request(header: Option<&[u8]>) -> Option<Self> {
        // Control characters cannot come from an HTTP parser, and must not go into a header; the tab can and may.
        let is_text = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
        let header = header.filter(|header| !header.is_empty() && header.iter().all(is_text))?;
        Some(Self(header.to_vec()))
    }

    /// For the header of the answer.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for RequestIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// `Retry-After` in whole seconds, the only form that all platforms read (an HTTP date is 0 for Cloud Foundry).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetryAfter(u32);

/// A `Retry-After` that is no whole number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{RETRY_AFTER} must be a whole number of seconds")]
pub struct RetryAfterError;

impl RetryAfter {
    /// So many seconds.
    pub fn seconds(seconds: u32) -> Self {
        Self(seconds)
    }

    /// A duration, rounded up to whole seconds.
    pub fn at_least(duration: Duration) -> Self {
        let seconds = duration
            .as_secs()
            .saturating_add(u64::from(duration.subsec_nanos() > 0));
        Self(u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    /// As a duration.
    pub fn as_duration(self) -> Duration {
        Duration::from_secs(self.0.into())
    }
}

impl FromStr for RetryAfter {
    type Err = RetryAfterError;

    fn from_str(text: &str) -> Result<Self, RetryAfterError> {
        let text = text.trim();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(RetryAfterError);
        }
        // What does not fit is longer than anybody waits.
        Ok(Self(text.parse().unwrap_or(u32::MAX)))
    }
}

impl fmt::Display for RetryAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
