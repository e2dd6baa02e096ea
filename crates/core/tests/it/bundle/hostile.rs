//! Bytes that nobody wrote in good faith.

use evenkeel_core::bundle::MAX_BUNDLE_BYTES;
use insta::assert_snapshot;
use proptest::prelude::*;

use super::{SMALLEST, errors, parse};

#[test]
fn a_file_over_the_limit_is_not_read() {
    let big = format!("{SMALLEST}{}", "#".repeat(MAX_BUNDLE_BYTES));
    assert_snapshot!(errors(big), @"bundle.yml: the file has 1048771 bytes, more than the limit of 1048576");
    let filled = format!(
        "{SMALLEST}{}",
        "#".repeat(MAX_BUNDLE_BYTES - SMALLEST.len())
    );
    assert!(parse(filled).is_ok(), "a file of the very limit is read");
}

#[test]
fn deep_nesting_is_refused() {
    let flow = format!("bundle: {}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_snapshot!(errors(flow), @"bundle.yml:1:58: not valid YAML: recursion limit exceeded");
    let block: String = (0..1000)
        .map(|depth| format!("{}a:\n", " ".repeat(depth)))
        .collect();
    assert_snapshot!(errors(block), @"bundle.yml:49:49: too deep or too large: at most 48 levels, 50000 values and 500 aliases, counted with what the aliases stand for");
    let dashes = format!("{}x", "- ".repeat(100_000));
    assert_snapshot!(errors(dashes), @"bundle.yml:1:97: too deep or too large: at most 48 levels, 50000 values and 500 aliases, counted with what the aliases stand for");
}

#[test]
fn aliases_that_multiply_are_refused() {
    let mut laughs = "a0: &a0 [lol, lol]\n".to_owned();
    for n in 1..40 {
        let before = n - 1;
        laughs += &format!("a{n}: &a{n} [*a{before}, *a{before}, *a{before}]\n");
    }
    assert_snapshot!(errors(laughs), @"bundle.yml:10:10: too deep or too large: at most 48 levels, 50000 values and 500 aliases, counted with what the aliases stand for");
    let long = format!(
        "a: &a \"{}\\n\"\nb: [{}]\n",
        "x".repeat(500_000),
        "*a, ".repeat(400)
    );
    assert_snapshot!(errors(long), @"bundle.yml:2:33: too deep or too large: at most 48 levels, 50000 values and 500 aliases, counted with what the aliases stand for");
    assert_snapshot!(errors("a: &a [*a]\n"), @"bundle.yml:1:8: an alias stands inside of what it stands for");
    let merged: String = (1..600).map(|n| format!("k{n}: {{<<: *a}}\n")).collect();
    assert_snapshot!(errors(format!("a: &a {{x: y}}\n{merged}")), @"bundle.yml:502:8: too deep or too large: at most 48 levels, 50000 values and 500 aliases, counted with what the aliases stand for");
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_text() {
    assert!(parse(format!("\u{feff}{SMALLEST}")).is_ok());
    let utf16: Vec<u8> = SMALLEST.encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(parse([b"\xff\xfe".as_slice(), &utf16].concat()).is_err());
}

#[test]
fn many_values_are_refused() {
    assert_snapshot!(errors(format!("a: [{}]", "1,".repeat(100_000))), @"bundle.yml:1:99999: too deep or too large: at most 48 levels, 50000 values and 500 aliases, counted with what the aliases stand for");
}

#[test]
fn messages_repeat_little_of_what_they_are_about() {
    let long = "y".repeat(100_000);
    let parts = [
        format!("{long}: x"),
        format!("executor: {long}"),
        format!("env: {{1{long}: x}}"),
        format!("limits: {{memory: {long}, cpu_time: {long}}}"),
        format!("secrets: {{\"a\\e[31m\": {{file: {long}}}}}"),
    ];
    for part in parts {
        for error in parse(format!("{SMALLEST}{part}\n")).unwrap_err() {
            let text = error.to_string();
            assert!(text.chars().count() < 1000, "{} characters", text.len());
            assert!(
                !text.contains('\u{1b}'),
                "a control character reaches the terminal"
            );
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(parse(bytes).is_err());
    }

    #[test]
    fn random_yaml_like_text_never_panics(text in "([a-c$]: |- |\\[|\\]|\\{|\\}|&a |\\*a|,|\n| |'|\"|!!str |<<: |1|~|#){0,60}") {
        prop_assert!(parse(text).is_err());
    }

    #[test]
    fn a_damaged_bundle_never_panics(
        place in 0..SMALLEST.len(),
        gone in 0..20_usize,
        put in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut bytes = SMALLEST.as_bytes().to_vec();
        let end = (place + gone).min(bytes.len());
        bytes.splice(place..end, put);
        if let Err(errors) = parse(bytes) {
            prop_assert!(!errors.is_empty());
        }
    }
}
