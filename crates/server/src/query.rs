//! Query parameters of the admin API: strict, so that a mistyped one is not silently ignored.
//! (The OSB API's are tolerant, and read by `evenkeel_osb::Query`.)

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The parameters of a query, in order.
///
/// # Errors
/// A name or value that is not UTF-8, in words.
pub(crate) fn pairs(query: Option<&str>) -> Result<Vec<(String, String)>, String> {
    query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

// The plus sign before the percent-decoding: an encoded one is a plus sign.
fn decode(text: &str) -> Result<String, String> {
    percent_decode_str(&text.replace('+', " "))
        .decode_utf8()
        .map(Cow::into_owned)
        .map_err(|_| "the query is not UTF-8".to_owned())
}
