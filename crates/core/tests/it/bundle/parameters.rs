//! Parameters against the schemas of a bundle, and the defaults that they get.

use evenkeel_core::bundle::ParameterSchema;
use evenkeel_core::request::Object;
use proptest::prelude::*;
use serde_json::{Value, json};

const DRAFTS: [&str; 5] = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
];

fn schema(draft: &str, mut keywords: Value) -> ParameterSchema {
    keywords["$schema"] = json!(draft);
    serde_json::from_value(keywords).expect("any JSON")
}

fn object(value: Value) -> Object {
    value.as_object().expect("an object").clone()
}

fn told(schema: &ParameterSchema, parameters: Value) -> Option<(String, String)> {
    let found = schema
        .violation(&object(parameters))
        .expect("a good schema");
    found.map(|found| (found.pointer, found.message))
}

#[test]
fn each_draft_is_read_by_its_own_rules() {
    // What only some drafts know: (keyword, its value, parameters that break it, from which draft).
    for (keyword, value, breaks, from) in [
        ("required", json!(["a"]), json!({}), 0),
        ("dependencies", json!({"a": ["b"]}), json!({"a": 1}), 0),
        (
            "propertyNames",
            json!({"maxLength": 1}),
            json!({"ab": 1}),
            1,
        ),
        ("const", json!({"a": 1}), json!({}), 1),
        ("if", json!({"required": ["a"]}), json!({"a": 1}), 2),
        ("dependentRequired", json!({"a": ["b"]}), json!({"a": 1}), 3),
        ("unevaluatedProperties", json!(false), json!({"a": 1}), 3),
    ] {
        for (index, draft) in DRAFTS.into_iter().enumerate() {
            let mut keywords = json!({ keyword: value });
            if keyword == "if" {
                keywords["then"] = json!({"required": ["b"]});
            }
            let schema = schema(draft, keywords);
            let refused = told(&schema, breaks.clone()).is_some();
            assert_eq!(refused, index >= from, "{keyword} in {draft}");
        }
    }
    let exclusive = json!({"properties": {"a": {"minimum": 1, "exclusiveMinimum": true}}});
    assert!(told(&schema(DRAFTS[0], exclusive), json!({"a": 1})).is_some());
    let tuple = json!({"properties": {"a": {"prefixItems": [{"type": "string"}]}}});
    assert!(told(&schema(DRAFTS[4], tuple), json!({"a": [1]})).is_some());
}

#[test]
fn a_violation_names_its_place_and_what_is_asked_and_shows_no_value() {
    let secret = "hunter2";
    for (keywords, sent, pointer, word) in [
        (
            json!({"properties": {"a/b": {"properties": {"c~": {"type": "integer"}}}}}),
            json!({"a/b": {"c~": secret}}),
            "/a~1b/c~0",
            "integer",
        ),
        (
            json!({"properties": {"a": {"items": {"enum": ["x", "y"]}}}}),
            json!({"a": ["x", secret]}),
            "/a/1",
            "y",
        ),
        (
            json!({"properties": {"a": {"pattern": "^x+$"}}}),
            json!({"a": secret}),
            "/a",
            "^x+$",
        ),
        (
            json!({"properties": {"a": {"not": {"type": "string"}}}}),
            json!({"a": secret}),
            "/a",
            "not allowed",
        ),
        (
            json!({"properties": {"a": {"const": "x"}}}),
            json!({"a": secret}),
            "/a",
            "x",
        ),
        (
            json!({"properties": {"a": {"anyOf": [{"type": "null"}, {"type": "object"}]}}}),
            json!({"a": secret}),
            "/a",
            "anyOf",
        ),
        (
            json!({"properties": {"a": {"oneOf": [{"maxLength": 9}, {"type": "string"}]}}}),
            json!({"a": secret}),
            "/a",
            "oneOf",
        ),
        (
            json!({"properties": {"a": {"uniqueItems": true}}}),
            json!({"a": [secret, secret]}),
            "/a",
            "non-unique",
        ),
        (
            json!({"properties": {"a": {"contains": {"type": "null"}}}}),
            json!({"a": [secret]}),
            "/a",
            "valid",
        ),
        (
            json!({"properties": {"a": {"format": "ipv4"}}}),
            json!({"a": secret}),
            "/a",
            "ipv4",
        ),
        (
            json!({"properties": {"a": {"maxLength": 1}}}),
            json!({"a": secret}),
            "/a",
            "1",
        ),
        (
            json!({"additionalProperties": false}),
            json!({"a": secret}),
            "",
            "\"a\"",
        ),
        (
            json!({"additionalProperties": false, "properties": {"b": {}}}),
            json!({"a": secret}),
            "",
            "a",
        ),
        (json!({"required": ["b"]}), json!({"a": secret}), "", "b"),
        (
            json!({"properties": {"a": false}}),
            json!({"a": secret}),
            "/a",
            "not allow",
        ),
        (
            json!({"propertyNames": {"pattern": "^b"}}),
            json!({"a": secret}),
            "",
            "^b",
        ),
        (json!({"maxProperties": 0}), json!({"a": secret}), "", "0"),
    ] {
        let (at, message) = told(&schema(DRAFTS[2], keywords.clone()), sent)
            .unwrap_or_else(|| panic!("{keywords} takes it"));
        assert_eq!(at, pointer, "{keywords}: {message}");
        assert!(message.contains(word), "{keywords}: {message}");
        assert!(!message.contains(secret), "{keywords}: {message}");
    }
}

#[test]
fn a_pattern_takes_linear_time_whatever_it_meets() {
    // Seconds and more for an engine that backtracks: each `a` doubles the work.
    let schema = schema(
        DRAFTS[0],
        json!({"properties": {"a": {"pattern": "^(a|a)*(a|a)*$"}}}),
    );
    let sent = json!({"a": "a".repeat(50_000) + "b"});
    let (pointer, _) = told(&schema, sent).expect("no match");
    assert_eq!(pointer, "/a");
    assert!(told(&schema, json!({"a": "a".repeat(50_000)})).is_none());
}

#[test]
fn no_schema_is_fetched_whatever_a_stored_bundle_says() {
    for reference in [
        "http://127.0.0.1:1/a.json",
        "file:///etc/passwd",
        "a.json",
        "urn:x",
    ] {
        let schema = schema(DRAFTS[4], json!({"properties": {"a": {"$ref": reference}}}));
        let error = schema.violation(&Object::new()).expect_err(reference);
        assert!(!error.to_string().is_empty());
    }
}

fn filled(keywords: Value, draft: usize, parameters: Value) -> Value {
    let mut parameters = object(parameters);
    let schema = schema(DRAFTS[draft], keywords);
    schema.fill(&mut parameters).expect("a good schema");
    Value::Object(parameters)
}

#[test]
fn defaults_fill_what_is_absent_and_nothing_else() {
    let keywords = json!({
        "definitions": {
            "gb": {"type": "integer", "default": 5},
            "named": {"properties": {"name": {"default": "n"}}},
        },
        "allOf": [{"$ref": "#/definitions/named"}, {"properties": {"colour": {"default": "blue"}}}],
        "properties": {
            "colour": {"default": "red"},
            "empty": {"default": null},
            "disk": {"properties": {"gb": {"$ref": "#/definitions/gb"}}},
            "net": {"default": {"kind": "private"}, "properties": {"mtu": {"default": 1500}}},
            "list": {"items": {"properties": {"a": {"default": 1}}}},
            "choice": {"anyOf": [{"properties": {"a": {"default": 1}}}]},
        },
    });
    assert_eq!(
        filled(keywords.clone(), 0, json!({})),
        json!({"colour": "red", "empty": null, "name": "n", "net": {"kind": "private", "mtu": 1500}})
    );
    let sent = json!({
        "colour": null, "empty": 0, "name": "", "disk": {}, "net": {"kind": "public"},
        "list": [{}], "choice": {},
    });
    let mut expected = sent.clone();
    expected["disk"] = json!({"gb": 5});
    expected["net"]["mtu"] = json!(1500);
    assert_eq!(filled(keywords.clone(), 0, sent), expected);
    // Not an object: left to the check.
    let odd = filled(keywords, 0, json!({"disk": 3, "net": []}));
    assert_eq!((&odd["disk"], &odd["net"]), (&json!(3), &json!([])));
}

#[test]
fn beside_a_reference_a_default_counts_from_2019_on() {
    let keywords = json!({
        "definitions": {"a": {"default": "there"}},
        "properties": {"a": {"$ref": "#/definitions/a", "default": "here"}},
    });
    for (draft, expected) in [(0, "there"), (2, "there"), (3, "here"), (4, "here")] {
        assert_eq!(
            filled(keywords.clone(), draft, json!({})),
            json!({"a": expected}),
            "{draft}"
        );
    }
}

#[test]
fn a_schema_that_leads_to_itself_is_not_followed_for_ever() {
    let keywords = json!({
        "properties": {"a": {"$ref": "#", "default": {}}, "b": {"default": 1}},
    });
    assert_eq!(filled(keywords, 4, json!({})), json!({"a": {}, "b": 1}));
}

proptest! {
    #[test]
    fn filling_again_changes_nothing_and_what_was_sent_stays(
        sent in proptest::collection::btree_map("[abc]", 0..3_i64, 0..3),
        defaults in proptest::collection::btree_map("[abc]", 0..3_i64, 0..3),
    ) {
        let properties: Object = defaults
            .iter()
            .map(|(name, value)| (name.clone(), json!({"default": value})))
            .collect();
        let schema = schema(DRAFTS[0], json!({"properties": properties}));
        let sent: Object = sent.into_iter().map(|(name, value)| (name, json!(value))).collect();
        let mut once = sent.clone();
        schema.fill(&mut once).unwrap();
        let mut twice = once.clone();
        schema.fill(&mut twice).unwrap();
        prop_assert_eq!(&once, &twice);
        for (name, value) in &once {
            let default = json!(defaults.get(name));
            prop_assert_eq!(value, sent.get(name).unwrap_or(&default));
        }
    }
}
