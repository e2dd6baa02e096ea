//! Network endpoints of a binding.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::body::BadRequest;
use crate::fields::{Fields, FromObject};

/// One port or a range of ports; on the wire a string, `"443"` or `"9000-9010"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ports {
    first: u16,
    last: u16,
}

/// A text that is no port and no range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a port as \"443\" or a range as \"9000-9010\", from 1 to 65535")]
pub struct PortsError;

impl Ports {
    /// One port; none for 0.
    pub fn one(port: u16) -> Option<Self> {
        Self::range(port, port)
    }

    /// A range, both ends included; none when `first` is 0 or greater than `last`.
    pub fn range(first: u16, last: u16) -> Option<Self> {
        (first >= 1 && first <= last).then_some(Self { first, last })
    }

    /// The first port.
    pub fn first(self) -> u16 {
        self.first
    }

    /// The last port, which is the first where there is only one.
    pub fn last(self) -> u16 {
        self.last
    }
}

impl FromStr for Ports {
    type Err = PortsError;

    fn from_str(text: &str) -> Result<Self, PortsError> {
        let number = |digits: &str| -> Result<u16, PortsError> {
            // `u16::from_str` would take a leading '+'.
            if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(PortsError);
            }
            digits.parse().map_err(|_| PortsError)
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Self::range(number(first)?, number(last)?).ok_or(PortsError)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl Serialize for Ports {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The protocol of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The default; not written.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// Both.
    All,
}

impl Protocol {
    // By reference as serde's `skip_serializing_if` hands it over.
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature that serde calls"
    )]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A host and its ports that an application connects to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    host: String,
    ports: Vec<Ports>,
    #[serde(skip_serializing_if = "Protocol::is_default")]
    protocol: Protocol,
}

impl Endpoint {
    /// None when the host is empty or there are no ports.
    pub fn new(host: impl Into<String>, ports: Vec<Ports>, protocol: Protocol) -> Option<Self> {
        let host = host.into();
        (!host.is_empty() && !ports.is_empty()).then_some(Self {
            host,
            ports,
            protocol,
        })
    }

    /// Name or address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// At least one.
    pub fn ports(&self) -> &[Ports] {
        &self.ports
    }

    /// TCP when it was not said.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }
}

impl FromObject for Endpoint {
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
        let ports = fields
            .texts("ports")?
            .into_iter()
            .enumerate()
            .map(|(index, text)| {
                let pointer = format!("{}/{index}", fields.pointer_to("ports"));
                text.parse()
                    .map_err(|error: PortsError| BadRequest::new(pointer, error.to_string()))
            });
        let protocol = match fields.text("protocol")?.as_deref() {
            None | Some("tcp") => Protocol::Tcp,
            Some("udp") => Protocol::Udp,
            Some("all") => Protocol::All,
            Some(_) => return Err(fields.bad("protocol", "must be \"tcp\", \"udp\" or \"all\"")),
        };
        Self::new(
            fields.required_text("host")?,
            ports.collect::<Result<_, _>>()?,
            protocol,
        )
        .ok_or_else(|| fields.bad("ports", "is missing: at least one port is required"))
    }
}
