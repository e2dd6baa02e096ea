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

/// The parameters that the API knows. Of repeated ones the first counts that says something; others are ignored.
///
/// ```
/// use evenkeel_osb::Query;
///
/// let query = Query::parse("plan_id=&plan_id=a+b&plan_id=c&service_id=%FF&colour=blue");
/// assert_eq!(query.plan_id.as_deref(), Some("a b"));
/// // What cannot be read is missed only where it is needed.
/// assert_eq!(query.service_id, None);
/// assert_eq!(query.required_service_id().unwrap_err().pointer, "?service_id");
/// ```
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
    /// Reads the part of a request's target after `?`. A parameter that says nothing is absent: an empty one, one that
    /// is not UTF-8, an operation with a longer name than any has.
    ///
    /// There is no error for these: Cloud Foundry takes a 400 to a poll as the end of the operation, and a request that
    /// has no use for a parameter should not fail for it.
    pub fn parse(query: &str) -> Self {
        let mut read = Self::default();
        let mut accepts_incomplete = None;
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(name) = decode(name) else { continue };
            let Some(value) = decode(value).filter(|value| !value.is_empty()) else {
                continue;
            };
            match name.as_str() {
                "service_id" => read.service_id = read.service_id.or(Some(value)),
                "plan_id" => read.plan_id = read.plan_id.or(Some(value)),
                "operation" => {
                    read.operation = read.operation.or_else(|| Operation::received(value).ok());
                }
                "accepts_incomplete" => {
                    accepts_incomplete = accepts_incomplete.or(Some(value));
                }
                _ => {}
            }
        }
        read.accepts_incomplete = accepts_incomplete.as_deref() == Some("true");
        read
    }

    /// The service offering, where it is required (DELETE).
    ///
    /// # Errors
    /// When it is absent.
    pub fn required_service_id(&self) -> Result<&str, BadRequest> {
        required("service_id", self.service_id.as_deref())
    }

    /// The plan, where it is required (DELETE).
    ///
    /// # Errors
    /// When it is absent.
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
    value.filter(|value| !value.is_empty()).ok_or_else(|| {
        BadRequest::new(
            format!("?{name}"),
            "is missing, empty or not UTF-8: this query parameter is required",
        )
    })
}

// The plus sign before the percent-decoding: an encoded one is a plus sign.
fn decode(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced)
        .decode_utf8()
        .ok()
        .map(std::borrow::Cow::into_owned)
}
