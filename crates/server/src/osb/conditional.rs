//! Conditional requests (RFC 9110, 13): whether what a platform remembers is still so.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use axum::http::HeaderMap;
use axum::http::header::{ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use axum::response::Response;
use evenkeel_core::time::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::exchange::with_header;

const SECOND: Duration = Duration::from_secs(1);

/// What some bytes are known by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Validators {
    /// A strong one, over the bytes.
    etag: String,
    /// Since when the bytes are what they are, to the second, as HTTP tells it.
    last_modified: SystemTime,
}

impl Validators {
    /// Of what was read at `loaded_at`, and served after what had `before`.
    pub(super) fn of(bytes: &[u8], loaded_at: Timestamp, before: Option<&Self>) -> Self {
        let mut etag = String::from("\"");
        for byte in &Sha256::digest(bytes)[..16] {
            write!(etag, "{byte:02x}").expect("a string takes any text");
        }
        etag.push('"');
        if let Some(same) = before.filter(|before| before.etag == etag) {
            return same.clone();
        }
        let seconds = u64::try_from(loaded_at.as_millis() / 1000).unwrap_or(0);
        let loaded_at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        // Two changes within a second (or a clock that went back) must not look like one.
        let after = before.map(|before| before.last_modified + SECOND);
        let last_modified = after.map_or(loaded_at, |after| after.max(loaded_at));
        Self {
            etag,
            last_modified,
        }
    }

    /// Whether the request's conditions say that the platform has these bytes: 304.
    pub(super) fn are_known(&self, headers: &HeaderMap) -> bool {
        if headers.contains_key(IF_NONE_MATCH) {
            // It is the more exact of the two, and decides alone.
            let tags = headers.get_all(IF_NONE_MATCH);
            return tags.iter().any(|tags| self.is_named(tags.as_bytes()));
        }
        // A date that cannot be read is no condition.
        let since = headers
            .get(IF_MODIFIED_SINCE)
            .and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        since.is_some_and(|since| self.last_modified <= since)
    }

    // Weak comparison (RFC 9110, 13.1.2): `W/` does not count. Tags of ours hold no comma.
    fn is_named(&self, tags: &[u8]) -> bool {
        let tags = String::from_utf8_lossy(tags);
        tags.split(',')
            .map(str::trim)
            .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == self.etag)
    }

    /// The answer with them.
    pub(super) fn tell(&self, response: Response) -> Response {
        let date = httpdate::fmt_http_date(self.last_modified);
        let response = with_header(response, LAST_MODIFIED, &date);
        with_header(response, ETAG, &self.etag)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    /// 1994-11-06 08:49:37.5, the example of RFC 9110.
    const LOADED: Timestamp = Timestamp(784_111_777_500);

    fn asked(headers: &[(HeaderName, &str)]) -> HeaderMap {
        let pair = |(name, value): &(HeaderName, &str)| {
            (name.clone(), HeaderValue::from_str(value).unwrap())
        };
        headers.iter().map(pair).collect()
    }

    #[test]
    fn an_entity_tag_is_found_in_lists_weak_or_not() {
        let known = Validators::of(b"x", LOADED, None);
        let tag = &known.etag;
        for header in [
            tag.clone(),
            format!("W/{tag}"),
            format!("\"y\", {tag}"),
            "*".to_owned(),
            format!(" \"y\" ,W/{tag} "),
        ] {
            assert!(
                known.are_known(&asked(&[(IF_NONE_MATCH, &header)])),
                "{header}"
            );
        }
        let bare = tag.trim_matches('"');
        for header in ["", bare, "\"y\"", &format!("w/{tag}")] {
            assert!(
                !known.are_known(&asked(&[(IF_NONE_MATCH, header)])),
                "{header}"
            );
        }
    }

    #[test]
    fn a_date_from_the_change_on_is_known_in_every_form_that_http_has() {
        let known = Validators::of(b"x", LOADED, None);
        for (date, is_known) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", true),
            ("Sunday, 06-Nov-94 08:49:37 GMT", true),
            ("Sun Nov  6 08:49:37 1994", true),
            ("Mon, 30 Nov 2026 00:00:00 GMT", true),
            ("Sun, 06 Nov 1994 08:49:36 GMT", false),
            ("yesterday", false),
            ("784111777", false),
            ("", false),
        ] {
            let headers = asked(&[(IF_MODIFIED_SINCE, date)]);
            assert_eq!(known.are_known(&headers), is_known, "{date}");
        }
    }

    #[test]
    fn an_entity_tag_decides_where_both_are_asked_for() {
        let known = Validators::of(b"x", LOADED, None);
        let (past, future) = (
            "Sun, 06 Nov 1994 08:49:36 GMT",
            "Mon, 30 Nov 2026 00:00:00 GMT",
        );
        let both = |tag: &str, date| asked(&[(IF_NONE_MATCH, tag), (IF_MODIFIED_SINCE, date)]);
        assert!(known.are_known(&both(&known.etag, past)));
        assert!(!known.are_known(&both("\"y\"", future)));
        assert!(!known.are_known(&asked(&[])));
    }

    #[test]
    fn the_time_changes_with_the_bytes_and_with_nothing_else() {
        let first = Validators::of(b"x", LOADED, None);
        let later = LOADED.plus(Duration::from_secs(60));
        assert_eq!(Validators::of(b"x", later, Some(&first)), first);
        let changed = Validators::of(b"y", later, Some(&first));
        assert_eq!(
            changed.last_modified,
            first.last_modified + Duration::from_secs(60)
        );
        // Within the same second, and with a clock that went back.
        for loaded_at in [LOADED, Timestamp(0), Timestamp(i64::MIN)] {
            let changed = Validators::of(b"y", loaded_at, Some(&first));
            assert_eq!(changed.last_modified, first.last_modified + SECOND);
        }
    }
}
