//! `X-Broker-API-Originating-Identity`: a platform's name and a base64 JSON object.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use crate::body::{BadRequest, parse_body};

// Platforms pad; one that does not is understood all the same.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How long the header may be, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// On whose behalf a platform asks.
#[derive(Debug, Clone, PartialEq)]
pub struct OriginatingIdentity {
    platform: String,
    value: Map<String, Value>,
}

/// A header that cannot be read. The specification names no status for it: log it and serve the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Longer than 64 KiB.
    #[error("the originating identity has {0} bytes: at most {MAX_BYTES} are read")]
    TooLong(usize),
    /// Not `PLATFORM VALUE`.
    #[error(
        "the originating identity is not a platform and a base64 value with a space between them"
    )]
    Shape,
    /// The value is not base64.
    #[error("the value of the originating identity is not base64")]
    Base64,
    /// The value is not a base64 JSON object.
    #[error("the value of the originating identity: {0}")]
    Json(#[from] BadRequest),
}

impl OriginatingIdentity {
    /// An identity; none when the platform's name is empty or not made of visible ASCII characters.
    pub fn new(platform: impl Into<String>, value: Map<String, Value>) -> Option<Self> {
        let platform = platform.into();
        let is_name = !platform.is_empty() && platform.bytes().all(|byte| byte.is_ascii_graphic());
        is_name.then_some(Self { platform, value })
    }

    /// Reads the header.
    ///
    /// # Errors
    /// Any header that is not a name, a space and a base64 JSON object.
    pub fn parse(header: &[u8]) -> Result<Self, IdentityError> {
        if header.len() > MAX_BYTES {
            return Err(IdentityError::TooLong(header.len()));
        }
        let header = std::str::from_utf8(header).map_err(|_| IdentityError::Shape)?;
        let (platform, value) = header.trim().split_once(' ').ok_or(IdentityError::Shape)?;
        let json = BASE64
            .decode(value.trim_start())
            .map_err(|_| IdentityError::Base64)?;
        Self::new(platform, parse_body(&json)?).ok_or(IdentityError::Shape)
    }

    /// As a header.
    pub fn to_header(&self) -> String {
        let json = Value::Object(self.value.clone()).to_string();
        format!("{} {}", self.platform, BASE64.encode(json))
    }

    /// The platform's name; equals the context's when both are there.
    pub fn platform(&self) -> &str {
        &self.platform
    }

    /// What the platform tells about the user.
    pub fn value(&self) -> &Map<String, Value> {
        &self.value
    }

    /// The user: Cloud Foundry's `user_id`, the `username` of Kubernetes.
    pub fn user(&self) -> Option<&str> {
        let property = match self.platform.as_str() {
            "cloudfoundry" => "user_id",
            "kubernetes" => "username",
            _ => return None,
        };
        self.value.get(property)?.as_str()
    }

    /// Properties that the platform's profile requires and that are not there.
    pub fn missing_properties(&self) -> Vec<&'static str> {
        let required: &[&str] = match self.platform.as_str() {
            "cloudfoundry" => &["user_id"],
            "kubernetes" => &["username", "uid", "groups", "extra"],
            _ => &[],
        };
        required
            .iter()
            .copied()
            .filter(|property| !self.value.contains_key(*property))
            .collect()
    }
}
