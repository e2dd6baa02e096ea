use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use evenkeel_osb::headers::check_content_type;
use evenkeel_osb::{
    ApiVersion, ApiVersionError, ErrorBody, IdentityError, OriginatingIdentity, RequestIdentity,
    RetryAfter,
};
use serde_json::json;

use crate::object;

// H2
#[test]
fn any_version_2_is_served() {
    for (header, minor) in [
        ("2.17", 17),
        ("2.15", 15),
        ("2.13", 13),
        ("2.11", 11),
        ("2.0", 0),
        ("2.99", 99),
        (" 2.14 ", 14),
    ] {
        assert_eq!(
            ApiVersion::of_request(Some(header.as_bytes())),
            Ok(ApiVersion { major: 2, minor })
        );
    }
}

// H1, H2
#[test]
fn a_missing_empty_unreadable_or_foreign_version_is_412_and_names_the_version_to_use() {
    use ApiVersionError::{Empty, Garbage, Missing, Unsupported};
    assert_eq!(ApiVersion::of_request(None), Err(Missing));
    let unsupported = |major, minor| Unsupported {
        version: ApiVersion { major, minor },
    };
    let cases: [(&[u8], ApiVersionError); 15] = [
        (b"", Empty),
        (b"  ", Empty),
        (b"2", Garbage),
        (b"2.", Garbage),
        (b".17", Garbage),
        (b"2.17.0", Garbage),
        (b"+2.17", Garbage),
        (b"2.-1", Garbage),
        (b"2.x", Garbage),
        (b"2,17", Garbage),
        (b"\xff\xfe", Garbage),
        (b"2.99999999999999999999", Garbage),
        (b"1.17", unsupported(1, 17)),
        (b"3.0", unsupported(3, 0)),
        (b"9999.9999", unsupported(9999, 9999)),
    ];
    for (header, error) in cases {
        assert_eq!(ApiVersion::of_request(Some(header)), Err(error));
    }
    for error in [Missing, Empty, Garbage, unsupported(3, 0)] {
        let body = ErrorBody::from(error);
        assert_eq!(body.status(), 412);
        assert!(body.description().ends_with("send 2.17"), "{body}");
    }
}

// H4
#[test]
fn an_originating_identity_is_read_with_the_specifications_own_example() {
    let json = "{\r\n  \"user_id\": \"683ea748-3092-4ff4-b656-39cacc4d5360\"\r\n}";
    let header = format!("cloudfoundry {}", STANDARD.encode(json));
    let identity = OriginatingIdentity::parse(header.as_bytes()).unwrap();
    assert_eq!(identity.platform(), "cloudfoundry");
    assert_eq!(
        identity.user(),
        Some("683ea748-3092-4ff4-b656-39cacc4d5360")
    );
    assert_eq!(identity.missing_properties(), Vec::<&str>::new());
}

// H4
#[test]
fn an_originating_identity_survives_writing_and_reading() {
    let value = json!({ "username": "duke", "uid": "1", "groups": ["admin"], "extra": { "k": ["v"] }, "more": 1 });
    let identity = OriginatingIdentity::new("kubernetes", object(value)).unwrap();
    assert_eq!(
        OriginatingIdentity::parse(identity.to_header().as_bytes()),
        Ok(identity.clone())
    );
    assert_eq!(identity.user(), Some("duke"));
    assert!(identity.missing_properties().is_empty());
    assert!(OriginatingIdentity::new("", object(json!({}))).is_none());
    assert!(OriginatingIdentity::new("two words", object(json!({}))).is_none());
}

// H4
#[test]
fn an_originating_identity_tells_which_properties_its_platform_owes() {
    let missing = |platform: &str| {
        let identity = OriginatingIdentity::new(platform, object(json!({ "uid": "1" }))).unwrap();
        identity.missing_properties()
    };
    assert_eq!(missing("cloudfoundry"), ["user_id"]);
    assert_eq!(missing("kubernetes"), ["username", "groups", "extra"]);
    assert!(missing("nomad").is_empty());
}

// H4
#[test]
fn a_malformed_originating_identity_is_a_typed_error() {
    let parse = |header: &[u8]| OriginatingIdentity::parse(header).unwrap_err();
    for header in [
        &b""[..],
        b"cloudfoundry",
        b"cloudfoundry ",
        b" eyJ9",
        b"\xff x",
    ] {
        assert_eq!(parse(header), IdentityError::Shape);
    }
    assert_eq!(parse(b"cloudfoundry {}"), IdentityError::Base64);
    assert_eq!(parse(b"cloudfoundry e30= e30="), IdentityError::Base64);
    for json in ["", "[]", "{", "null"] {
        let header = format!("cloudfoundry {} ", STANDARD.encode(json));
        let error = parse(header.as_bytes());
        let expected = if json.is_empty() {
            matches!(error, IdentityError::Shape)
        } else {
            matches!(error, IdentityError::Json(_))
        };
        assert!(expected, "{json:?}: {error}");
    }
    let deep = format!(
        "x {}",
        STANDARD.encode(format!("{{\"a\":{}", "[".repeat(10_000)))
    );
    assert!(matches!(parse(deep.as_bytes()), IdentityError::Json(_)));
    assert!(matches!(
        parse(&[b'a'; 70_000]),
        IdentityError::TooLong(70_000)
    ));
}

// H4
#[test]
fn an_originating_identity_without_padding_is_understood() {
    let header = format!(
        "cloudfoundry {}",
        STANDARD_NO_PAD.encode("{\"user_id\":\"u\"}  ")
    );
    assert_eq!(
        OriginatingIdentity::parse(header.as_bytes())
            .unwrap()
            .user(),
        Some("u")
    );
}

// H5
#[test]
fn a_request_identity_is_given_back_byte_for_byte() {
    for header in [
        &b"e26cee84"[..],
        b"any thing {\"a\":1}",
        b"with\ta tab",
        "é".as_bytes(),
        b"\xfe\xff",
    ] {
        assert_eq!(
            RequestIdentity::of_request(Some(header))
                .unwrap()
                .as_bytes(),
            header
        );
    }
    for header in [
        None,
        Some(&b""[..]),
        Some(b"a\r\nSet-Cookie: b"),
        Some(b"\x1b[31m"),
    ] {
        assert_eq!(RequestIdentity::of_request(header), None);
    }
}

// H7
#[test]
fn json_with_any_parameters_or_no_content_type_is_taken_and_others_are_400() {
    for header in [
        "application/json",
        "application/json; charset=UTF-8",
        "Application/JSON;charset=utf-8",
        "application/json ;",
    ] {
        assert_eq!(
            check_content_type(Some(header.as_bytes())),
            Ok(()),
            "{header}"
        );
    }
    assert_eq!(check_content_type(None), Ok(()));
    assert_eq!(check_content_type(Some(b"")), Ok(()));
    for header in [
        " ",
        "text/plain",
        "application/jsonp",
        "application/x-www-form-urlencoded",
        "json",
        ";application/json",
    ] {
        let error = check_content_type(Some(header.as_bytes())).unwrap_err();
        assert_eq!(ErrorBody::from(error).status(), 400);
    }
}

// L2
#[test]
fn retry_after_is_whole_seconds() {
    assert_eq!(RetryAfter::seconds(5).to_string(), "5");
    assert_eq!(
        RetryAfter::at_least(Duration::from_millis(1)).to_string(),
        "1"
    );
    assert_eq!(
        RetryAfter::at_least(Duration::from_millis(2000)).to_string(),
        "2"
    );
    assert_eq!(
        RetryAfter::at_least(Duration::MAX),
        RetryAfter::seconds(u32::MAX)
    );
    assert_eq!("60".parse(), Ok(RetryAfter::seconds(60)));
    assert_eq!(
        "99999999999999999999".parse(),
        Ok(RetryAfter::seconds(u32::MAX))
    );
    for text in ["", "-1", "1.5", "+1", "Fri, 31 Dec 1999 23:59:59 GMT"] {
        assert!(text.parse::<RetryAfter>().is_err(), "{text}");
    }
}
