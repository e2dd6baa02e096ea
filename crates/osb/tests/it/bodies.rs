use evenkeel_osb::{MAX_DEPTH, parse_body};

fn message(body: &[u8]) -> String {
    let error = parse_body(body).unwrap_err();
    assert_eq!(error.pointer, "");
    error.to_string()
}

#[test]
fn a_body_that_is_no_json_object_is_refused_with_its_reason() {
    assert_eq!(message(b""), "the body is empty: send a JSON object");
    assert_eq!(message(b" \r\n"), "the body is empty: send a JSON object");
    assert_eq!(
        message(b"[]"),
        "the body must be a JSON object, not an array"
    );
    assert_eq!(message(b"null"), "the body must be a JSON object, not null");
    assert_eq!(
        message(b"\"{}\""),
        "the body must be a JSON object, not a string"
    );
    assert_eq!(
        message(b"{\"a\":"),
        "the body is not JSON: it ends too early at line 1 column 5"
    );
    assert_eq!(
        message(b"{\n}{"),
        "the body is not JSON: syntax error at line 2 column 2"
    );
    assert_eq!(
        message(b"{\"a\":\"\xff\"}"),
        "the body is not JSON: syntax error at line 1 column 7"
    );
}

#[test]
fn an_error_about_a_body_does_not_repeat_what_is_in_it() {
    for body in [
        &b"{\"password\": hunter2}"[..],
        b"\"hunter2\"",
        b"{\"a\": 1, hunter2",
    ] {
        assert!(!message(body).contains("hunter2"));
    }
}

#[test]
fn ten_thousand_nested_arrays_are_a_clear_error() {
    let body = format!(
        "{{\"parameters\":{}{}}}",
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    assert_eq!(
        message(body.as_bytes()),
        "the body is nested too deep: at most 64 arrays and objects in one another"
    );
    assert!(message("[".repeat(10_000_000).as_bytes()).contains("nested too deep"));
}

#[test]
fn nesting_is_allowed_up_to_the_limit_and_brackets_in_strings_do_not_count() {
    let nested = |depth: usize| {
        format!(
            "{{\"a\":{}{}}}",
            "[".repeat(depth - 1),
            "]".repeat(depth - 1)
        )
    };
    assert!(parse_body(nested(MAX_DEPTH).as_bytes()).is_ok());
    assert!(parse_body(nested(MAX_DEPTH + 1).as_bytes()).is_err());
    let wide = format!("{{\"a\":[{}[]]}}", "[],".repeat(1_000));
    assert!(parse_body(wide.as_bytes()).is_ok());
    let quoted = format!(
        "{{\"a\":\"\\\"{}\\\\\",\"b\":\"{}\"}}",
        "[".repeat(100),
        "{".repeat(100)
    );
    assert!(parse_body(quoted.as_bytes()).is_ok());
}
