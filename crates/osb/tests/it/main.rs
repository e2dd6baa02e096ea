//! The wire, statement by statement. Marks as H6 or P1 in comments name the statement that a test holds.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod answers;
mod bodies;
mod catalog;
#[cfg(feature = "client")]
mod client;
mod errors;
mod headers;
mod mitigation;
mod operations;
mod random;
mod requests;
mod seeds;
mod uris;

use evenkeel_osb::{BadRequest, FromObject};
use serde_json::{Map, Value};

/// The object in a `json!({…})`.
fn object(value: Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

/// Reads a type from a `json!({…})`.
fn read<T: FromObject>(value: Value) -> Result<T, BadRequest> {
    T::from_object(&object(value))
}

/// What `value` looks like on the wire.
fn written(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}
