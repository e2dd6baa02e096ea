use serde_json::json;

use super::*;

const DRAFT_4: &str = "http://json-schema.org/draft-04/schema#";

fn plan(schemas: &Value) -> Plan {
    let plan = json!({
        "id": "p", "name": "small", "description": "d", "free": true, "schemas": schemas,
    });
    serde_json::from_value(plan).unwrap()
}

fn object(value: Value) -> Object {
    value.as_object().unwrap().clone()
}

fn sized() -> Plan {
    let schema = json!({
        "$schema": DRAFT_4,
        "additionalProperties": false,
        "properties": {
            "size": {"type": "integer"},
            "note": {"type": ["string", "null"]},
            "disk": {"type": "object", "properties": {"gb": {"type": "integer"}}},
        },
    });
    plan(&json!({"provision": schema, "update": schema}))
}

#[test]
fn what_does_not_fit_is_named_by_its_pointer() {
    let sent = object(json!({"disk": {"gb": "s3cret"}}));
    let Err(Refusal::Parameters { pointer, message }) = check(&sized(), Action::Provision, &sent)
    else {
        panic!("a string is no integer");
    };
    assert_eq!(pointer, "/disk/gb");
    assert!(message.contains("integer"), "{message}");
    assert!(!message.contains("s3cret"), "{message}");
    assert!(
        check(&sized(), Action::Bind, &sent).is_ok(),
        "bind has no schema"
    );
}

#[test]
fn in_an_update_alone_null_removes_what_has_a_type() {
    let removes = object(json!({"size": null, "disk": {"gb": null}}));
    assert!(check(&sized(), Action::Update, &removes).is_ok());
    assert!(check(&sized(), Action::Provision, &removes).is_err());
    let allowed = object(json!({"note": null}));
    assert!(check(&sized(), Action::Provision, &allowed).is_ok());
    for wrong in [
        json!({"size": null, "disk": 1}),
        json!({"disk": {"gb": null, "size": "x"}, "more": 1}),
    ] {
        assert!(check(&sized(), Action::Update, &object(wrong)).is_err());
    }
}

#[test]
fn what_must_be_there_cannot_be_removed_unless_the_schema_takes_a_null() {
    let needs = |types: Value| {
        let schema = json!({
            "$schema": DRAFT_4, "required": ["a"], "properties": {"a": {"type": types}},
        });
        plan(&json!({"update": schema}))
    };
    let removes = object(json!({"a": null}));
    assert!(check(&needs(json!("string")), Action::Update, &removes).is_err());
    assert!(check(&needs(json!(["string", "null"])), Action::Update, &removes).is_ok());
}

#[test]
fn defaults_are_filled_in_only_where_the_bundle_says_so() {
    let schema = json!({
        "$schema": DRAFT_4,
        "properties": {
            "colour": {"type": "string", "default": "red"},
            "disk": {"type": "object", "properties": {"gb": {"type": "integer", "default": 5}}},
        },
    });
    let silent = plan(&json!({"provision": schema}));
    let said = plan(&json!({"provision": schema, "apply_defaults": true}));
    let sent = object(json!({"disk": {}}));
    assert_eq!(
        with_defaults(&silent, Action::Provision, sent.clone()),
        sent
    );
    assert_eq!(
        with_defaults(&said, Action::Provision, sent.clone()),
        object(json!({"colour": "red", "disk": {"gb": 5}}))
    );
    assert_eq!(with_defaults(&said, Action::Update, sent.clone()), sent);
}

#[test]
fn a_schema_of_an_older_release_that_cannot_be_used_is_no_fault_of_the_platform() {
    let schema = json!({"$schema": DRAFT_4, "properties": {"a": {"pattern": "(?=x)"}}});
    let pinned = plan(&json!({"bind": schema, "apply_defaults": true}));
    let sent = object(json!({"a": "x"}));
    assert!(matches!(
        check(&pinned, Action::Bind, &sent),
        Err(Refusal::Unavailable(_))
    ));
}
