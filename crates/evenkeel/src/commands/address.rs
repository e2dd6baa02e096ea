//! Addresses that a command is told to ask.

use reqwest::Url;

use crate::fail::Failure;

/// Refuses what this release cannot speak, before a secret is looked for.
///
/// # Errors
/// Exit code 2 for an https URL.
pub(super) fn spoken(url: &str) -> Result<(), Failure> {
    if Url::parse(url).is_ok_and(|url| url.scheme() == "https") {
        return Err(Failure::usage(
            "this release speaks plain HTTP only: use a tunnel or a proxy on this host",
        ));
    }
    Ok(())
}

/// Whether two addresses are one, however they are written.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    matches!((Url::parse(one), Url::parse(other)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_same_with_and_without_its_last_slash_only() {
        let here = "http://127.0.0.1:8081";
        assert!(is_same(here, "HTTP://127.0.0.1:8081/"));
        for other in [
            "http://127.0.0.1:8080",
            "http://127.0.0.2:8081",
            "http://127.0.0.1:8081@example.com",
            "http://127.0.0.1:8081/x",
            "https://127.0.0.1:8081",
            "",
        ] {
            assert!(!is_same(here, other), "{other}");
        }
    }

    #[test]
    fn https_is_refused() {
        assert!(spoken("http://127.0.0.1:8080").is_ok());
        assert!(spoken("HTTPS://broker.example").is_err());
    }
}
