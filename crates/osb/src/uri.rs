//! Ids in paths, and the query: percent-encoding, decoded once, and a reader that takes every query that platforms
//! are known to send.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::body::BadRequest;
use crate::operation::Operation;

/// Everything but RFC 3986 unreserved characters.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// An id as a segment of a path.
pub fn encode_segment(id: &str) -> String {
    utf8_percent_encode(id, RESERVED).to_string()
}

/// The id in a segment of a path, as it stands in the request line: `%2F` is a slash of the id, `+` a plus sign.
///
/// # Errors
/// A segment that is empty or not UTF-8.
pub fn decode_segment(segment: &str) -> Result<String, BadRequest> {
    let id = percent_decode_str(segment)
        .decode_utf8()
        .map_err(|_| BadRequest::new("", "an id in the path is not UTF-8"))?;
    if id.is_empty() {
        return Err(BadRequest::new("", "an id in the path is empty"));
    }
    Ok(id.into_owned())
}

/// The parameters that the API knows. Empty ones are absent; of repeated ones the first that is not empty counts;
/// others are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Service offering.
    pub service_id: Option<String>,
    /// Plan.
    pub plan_id: Option<String>,
    /// The operation to poll.
    pub operation: Option<Operation>,
    /// Whether the platform can deal with a 202: `true`, and nothing else, says so.
    pub accepts_incomplete: bool,
}

impl Query {
    /// Reads the part of a request's target after `?`.
    ///
    /// # Errors
    /// A known parameter that is not UTF-8, or an operation that is too long.
    pub fn parse(query: &str) -> Result<Self, BadRequest> {
        let mut read = Self::default();
        let mut accepts_incomplete = None;
        let mut operation = None;
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let place = match decode(name).as_deref() {
                Some("service_id") => &mut read.service_id,
                Some("plan_id") => &mut read.plan_id,
                Some("operation") => &mut operation,
                Some("accepts_incomplete") => &mut accepts_incomplete,
                Some(_) | None => continue,
            };
            if place.is_some() || value.is_empty() {
                continue;
            }
            *place = Some(decode(value).ok_or_else(|| bad_parameter(name, "is not UTF-8"))?);
        }
        read.accepts_incomplete = accepts_incomplete.as_deref() == Some("true");
        read.operation = operation
            .map(|name| {
                Operation::received(name)
                    .map_err(|error| bad_parameter("operation", error.to_string()))
            })
            .transpose()?;
        Ok(read)
    }

    /// The service offering, where it is required (DELETE).
    ///
    /// # Errors
    /// When it is absent or empty.
    pub fn required_service_id(&self) -> Result<&str, BadRequest> {
        required("service_id", self.service_id.as_deref())
    }

    /// The plan, where it is required (DELETE).
    ///
    /// # Errors
    /// When it is absent or empty.
    pub fn required_plan_id(&self) -> Result<&str, BadRequest> {
        required("plan_id", self.plan_id.as_deref())
    }

    /// As the part of a target after `?`; empty when there is nothing to say.
    pub fn encode(&self) -> String {
        let parameters = [
            (
                "accepts_incomplete",
                self.accepts_incomplete.then_some("true"),
            ),
            ("service_id", self.service_id.as_deref()),
            ("plan_id", self.plan_id.as_deref()),
            ("operation", self.operation.as_ref().map(Operation::as_str)),
        ];
        let pairs = parameters
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", encode_segment(value?))));
        pairs.collect::<Vec<_>>().join("&")
    }
}

fn required<'a>(name: &str, value: Option<&'a str>) -> Result<&'a str, BadRequest> {
    value
        .filter(|value| !value.is_empty())
        .ok_or_else(|| bad_parameter(name, "is missing: this query parameter is required"))
}

fn bad_parameter(name: &str, message: impl Into<String>) -> BadRequest {
    BadRequest::new(format!("?{name}"), message)
}

// The plus sign before the percent-decoding: an encoded one is a plus sign.
fn decode(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced)
        .decode_utf8()
        .ok()
        .map(std::borrow::Cow::into_owned)
}
