//! From bytes to a JSON object, and the one error for everything that a request body can do wrong.

use serde_json::{Map, Value};

/// How deep arrays and objects may be nested in a body or a header value.
pub const MAX_DEPTH: usize = 64;

/// What is wrong with a request, and where. Becomes a 400 with [`ErrorBody::from`](crate::ErrorBody).
///
/// Never repeats a value of the request: values can be secrets, and descriptions end up in logs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{message}", pointer, if pointer.is_empty() { "" } else { ": " })]
pub struct BadRequest {
    /// JSON pointer (RFC 6901) to the field in the body, `""` for the body itself;
    /// `?name` for a query parameter.
    pub pointer: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl BadRequest {
    /// An error at `pointer`.
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            message: message.into(),
        }
    }
}

/// Reads a request body: JSON, and an object.
///
/// # Errors
/// When the body is empty, not JSON, not an object, or nested deeper than [`MAX_DEPTH`].
/// Its size is the server's affair: by the time it is here it is in memory.
pub fn parse_body(bytes: &[u8]) -> Result<Map<String, Value>, BadRequest> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(BadRequest::new("", "the body is empty: send a JSON object"));
    }
    if nested_deeper_than(MAX_DEPTH, bytes) {
        return Err(BadRequest::new(
            "",
            format!(
                "the body is nested too deep: at most {MAX_DEPTH} arrays and objects in one another"
            ),
        ));
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(BadRequest::new(
            "",
            format!("the body must be a JSON object, not {}", kind(&other)),
        )),
        Err(error) => Err(BadRequest::new(
            "",
            format!(
                "the body is not JSON: {} at line {} column {}",
                category(&error),
                error.line(),
                error.column()
            ),
        )),
    }
}

/// The kind of a JSON value with its article, for messages.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

// serde_json's own text can quote the input, so only its category is told.
fn category(error: &serde_json::Error) -> &'static str {
    match error.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Syntax
        | serde_json::error::Category::Data
        | serde_json::error::Category::Io => "syntax error",
    }
}

// Exact for every prefix of valid JSON, so the parser's own (larger) limit is never what a caller meets.
fn nested_deeper_than(limit: usize, bytes: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for &byte in bytes {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'[' | b'{') => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}
