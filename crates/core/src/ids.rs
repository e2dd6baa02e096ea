//! A type for every id, so that none can be passed for another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Why a text is not the id that it was read as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not a UUID in its usual form.
    #[error("{0:?} is not a UUID")]
    NotUuid(String),
    /// Ids of the API are never empty (Open Service Broker API v2.17, "Provisioning").
    #[error("an id must not be empty")]
    Empty,
    /// Longer than [`MAX_ID_BYTES`].
    #[error("an id of {0} bytes is longer than the limit of {MAX_ID_BYTES}")]
    TooLong(usize),
    /// Not 64 hexadecimal digits.
    #[error("{0:?} is not a digest of 64 hexadecimal digits")]
    NotDigest(String),
    /// A control character, which no log or file could carry safely.
    #[error("an id must not hold the control character U+{0:04X}")]
    Control(u32),
}

/// The longest id that a platform may choose, in bytes of UTF-8.
///
/// The specification recommends at most 255 characters; 1,024 bytes hold those in any script.
pub const MAX_ID_BYTES: usize = 1024;

macro_rules! uuid_id {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Uuid::parse_str(text)
                    .map($name)
                    .map_err(|_| IdError::NotUuid(text.chars().take(64).collect()))
            }
        }
    )+};
}

uuid_id! {
    /// One durable execution of an action (UUIDv7); the `operation` of the API.
    JobId;
    /// One try of a job (UUIDv7); also the name of its run.
    AttemptId;
    /// One life of a broker process (UUIDv7).
    BootId;
    /// The random name of a run root: the identity of a host.
    RunRootId;
    /// One life of a service instance (UUIDv7): a platform may use its id again after a delete.
    InstanceUid;
    /// One life of a service binding (UUIDv7).
    BindingUid;
}

macro_rules! text_id {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Takes a text that a platform or a bundle chose.
            ///
            /// # Errors
            /// Empty, longer than [`MAX_ID_BYTES`], or with a control character.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                if text.is_empty() {
                    return Err(IdError::Empty);
                }
                if text.len() > MAX_ID_BYTES {
                    return Err(IdError::TooLong(text.len()));
                }
                if let Some(c) = text.chars().find(|c| c.is_control()) {
                    return Err(IdError::Control(u32::from(c)));
                }
                Ok(Self(text))
            }

            /// The id as its owner wrote it.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    )+};
}

text_id! {
    /// `instance_id` of the API, chosen by the platform.
    InstanceId;
    /// `binding_id` of the API, chosen by the platform.
    BindingId;
    /// `service_id` of the API, from the bundle.
    ServiceId;
    /// `plan_id` of the API, from the bundle.
    PlanId;
    /// The authenticated platform: the user name it comes with.
    Platform;
}

macro_rules! digest {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub [u8; 32]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                read_hex(text)
                    .map($name)
                    .ok_or_else(|| IdError::NotDigest(text.chars().take(80).collect()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(digest: $name) -> Self {
                digest.to_string()
            }
        }
    )+};
}

digest! {
    /// SHA-256 over the canonical form of a bundle's content.
    BundleDigest;
    /// HMAC-SHA-256 over the canonical form of a request: equal requests, equal digests.
    RequestDigest;
}

fn read_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(bytes)
}

/// The fencing token of a job: grows with every change of owner.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Token(pub u64);

impl Token {
    /// The token of the next owner.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
