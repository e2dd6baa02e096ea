use evenkeel_osb::{
    BindRequest, Fields, FromObject, MaintenanceInfo, PreviousValues, ProvisionRequest,
    UpdateRequest,
};
use serde_json::{Value, json};

use crate::{object, read, written};

fn provision() -> Value {
    json!({ "service_id": "s", "plan_id": "p", "organization_guid": "o", "space_guid": "x" })
}

fn with(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

/// Each field in turn is left out, `null`, `""` and of a wrong type.
fn each_is_required<T: FromObject + std::fmt::Debug>(body: &Value, fields: &[&str]) {
    for name in fields {
        let mut without = object(body.clone());
        without.remove(*name);
        for absent in [
            Value::Object(without),
            with(body.clone(), name, Value::Null),
            with(body.clone(), name, json!("")),
        ] {
            let error = read::<T>(absent).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("/{name}: is missing: a non-empty string is required")
            );
        }
        let error = read::<T>(with(body.clone(), name, json!(["secret"]))).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("/{name}: must be a string, not an array")
        );
    }
}

// P1
#[test]
fn a_provision_requires_service_plan_organization_and_space_even_with_a_context() {
    let body = with(
        provision(),
        "context",
        json!({ "platform": "cloudfoundry", "organization_guid": "o", "space_guid": "x" }),
    );
    each_is_required::<ProvisionRequest>(
        &body,
        &["service_id", "plan_id", "organization_guid", "space_guid"],
    );
}

// P1
#[test]
fn a_provision_reads_every_field() {
    let mut body = provision();
    body["context"] = json!({ "platform": "kubernetes", "namespace": "n", "clusterid": "c" });
    body["parameters"] = json!({ "size": 3, "nested": { "a": [null] } });
    body["maintenance_info"] = json!({ "version": "1.0.0", "description": "d" });
    let request: ProvisionRequest = read(body.clone()).unwrap();
    assert_eq!(request.context.platform(), Some("kubernetes"));
    assert_eq!(request.context.text("namespace"), Some("n"));
    assert_eq!(
        request.parameters.expose(),
        &object(json!({ "size": 3, "nested": { "a": [null] } }))
    );
    assert_eq!(
        request.maintenance_info,
        Some(MaintenanceInfo {
            version: "1.0.0".into(),
            description: Some("d".into())
        })
    );
    assert_eq!(written(&request), body);
}

// H6
#[test]
fn unknown_fields_are_ignored_at_every_level() {
    let mut body = provision();
    body["new_in_2_99"] = json!({ "deep": [1] });
    body["maintenance_info"] = json!({ "version": "1.0.0", "urgency": 7 });
    let request: ProvisionRequest = read(body).unwrap();
    assert_eq!(request.maintenance_info.unwrap().version, "1.0.0");

    let previous =
        json!({ "plan_id": "q", "colour": "red", "maintenance_info": { "version": "1", "x": {} } });
    let update: UpdateRequest =
        read(json!({ "service_id": "s", "y": 1, "previous_values": previous })).unwrap();
    assert_eq!(update.previous_values.plan_id.as_deref(), Some("q"));

    let bind = json!({ "service_id": "s", "plan_id": "p", "z": null, "bind_resource": { "app_guid": "a", "w": true } });
    let bind: BindRequest = read(bind).unwrap();
    assert_eq!(bind.details().app_guid(), Some("a"));
}

// H15
#[test]
fn null_and_empty_optional_fields_are_absent() {
    let bare: ProvisionRequest = read(provision()).unwrap();
    for (name, values) in [
        ("parameters", vec![json!(null), json!({})]),
        ("context", vec![json!(null), json!({})]),
        (
            "maintenance_info",
            vec![
                json!(null),
                json!({}),
                json!({ "version": "" }),
                json!({ "version": null }),
            ],
        ),
    ] {
        for value in values {
            assert_eq!(
                read::<ProvisionRequest>(with(provision(), name, value)).unwrap(),
                bare,
                "{name}"
            );
        }
    }
    let bare: UpdateRequest = read(json!({ "service_id": "s" })).unwrap();
    for previous_values in [
        json!(null),
        json!({}),
        json!({ "maintenance_info": {} }),
        json!({ "maintenance_info": null, "plan_id": "", "space_id": null }),
    ] {
        let update =
            json!({ "service_id": "s", "plan_id": "", "previous_values": previous_values });
        assert_eq!(read::<UpdateRequest>(update).unwrap(), bare);
    }
    let ids = json!({ "service_id": "s", "plan_id": "p" });
    let bare: BindRequest = read(ids.clone()).unwrap();
    for (name, value) in [
        ("bind_resource", json!({})),
        ("bind_resource", json!(null)),
        ("bind_resource", json!({ "app_guid": null, "route": "" })),
        ("app_guid", json!("")),
        ("predecessor_binding_id", json!("")),
        ("predecessor_binding_id", json!(null)),
    ] {
        assert_eq!(
            read::<BindRequest>(with(ids.clone(), name, value)).unwrap(),
            bare,
            "{name}"
        );
    }
}

#[test]
fn a_field_of_the_wrong_type_is_named_by_its_pointer_and_its_value_kept_quiet() {
    let message = |name: &str, value: Value| {
        read::<ProvisionRequest>(with(provision(), name, value))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        message("parameters", json!("hunter2")),
        "/parameters: must be an object, not a string"
    );
    assert_eq!(
        message("context", json!([])),
        "/context: must be an object, not an array"
    );
    assert_eq!(
        message("service_id", json!(7)),
        "/service_id: must be a string"
    );
    assert_eq!(
        message("maintenance_info", json!(true)),
        "/maintenance_info: must be an object, not a boolean"
    );
    assert_eq!(
        message("maintenance_info", json!({ "version": {} })),
        "/maintenance_info/version: must be a string, not an object"
    );
    let previous =
        json!({ "service_id": "s", "previous_values": { "maintenance_info": { "version": [] } } });
    assert_eq!(
        read::<UpdateRequest>(previous).unwrap_err().pointer,
        "/previous_values/maintenance_info/version"
    );
    let bind = json!({ "service_id": "s", "plan_id": "p", "bind_resource": { "route": [] } });
    assert_eq!(
        read::<BindRequest>(bind).unwrap_err().pointer,
        "/bind_resource/route"
    );
}

#[test]
fn a_maintenance_version_of_any_text_can_be_read_so_that_it_can_be_answered_with_a_conflict() {
    let request: ProvisionRequest = read(with(
        provision(),
        "maintenance_info",
        json!({ "version": "Invalid" }),
    ))
    .unwrap();
    assert_eq!(request.maintenance_info.unwrap().version, "Invalid");
}

// U1
#[test]
fn an_update_requires_only_the_service() {
    each_is_required::<UpdateRequest>(&json!({ "service_id": "s" }), &["service_id"]);
    let body = json!({
        "service_id": "s",
        "plan_id": "p2",
        "context": { "platform": "cloudfoundry", "instance_name": "db" },
        "parameters": { "size": 4 },
        "previous_values": {
            "service_id": "s", "plan_id": "p", "organization_id": "o", "space_id": "x",
            "maintenance_info": { "version": "1.0.0" },
        },
        "maintenance_info": { "version": "2.0.0" },
    });
    let update: UpdateRequest = read(body.clone()).unwrap();
    assert_eq!(update.plan_id.as_deref(), Some("p2"));
    assert_eq!(update.previous_values.organization_id.as_deref(), Some("o"));
    assert_eq!(written(&update), body);
}

// U2
#[test]
fn an_update_with_absent_and_with_empty_parameters_are_the_same() {
    let absent: UpdateRequest = read(json!({ "service_id": "s" })).unwrap();
    let empty: UpdateRequest = read(json!({ "service_id": "s", "parameters": {} })).unwrap();
    assert_eq!(absent, empty);
    assert_eq!(absent.plan_id, None);
    assert!(absent.parameters.is_empty());
}

// B1
#[test]
fn a_bind_requires_service_and_plan() {
    each_is_required::<BindRequest>(
        &json!({ "service_id": "s", "plan_id": "p" }),
        &["service_id", "plan_id"],
    );
}

// B1
#[test]
fn a_bind_reads_every_field_and_keeps_unknown_bind_resources() {
    let body = json!({
        "service_id": "s",
        "plan_id": "p",
        "context": { "platform": "cloudfoundry" },
        "app_guid": "a",
        "bind_resource": {
            "app_guid": "a", "route": "r.example.com", "space_guid": "x", "app_annotations": { "k": "v" },
            "credential_client_id": "c", "backup_agent": true,
        },
        "parameters": { "role": "owner" },
    });
    let bind: BindRequest = read(body.clone()).unwrap();
    let resource = &bind.details().bind_resource;
    assert_eq!(resource.app_guid(), Some("a"));
    assert_eq!(resource.route(), Some("r.example.com"));
    assert_eq!(resource.space_guid(), Some("x"));
    assert_eq!(resource.credential_client_id(), Some("c"));
    assert_eq!(
        resource.app_annotations(),
        Some(&object(json!({ "k": "v" })))
    );
    assert_eq!(resource.as_object()["backup_agent"], json!(true));
    assert_eq!(written(&bind), body);
}

// B3
#[test]
fn the_application_comes_from_either_place_and_a_service_key_has_none() {
    let app = |body: Value| {
        let bind: BindRequest = read(body).unwrap();
        bind.details().app_guid().map(str::to_owned)
    };
    assert_eq!(
        app(json!({ "service_id": "s", "plan_id": "p", "app_guid": "old" })).as_deref(),
        Some("old")
    );
    let both = json!({ "service_id": "s", "plan_id": "p", "app_guid": "old", "bind_resource": { "app_guid": "new" } });
    assert_eq!(app(both).as_deref(), Some("new"));
    let key = json!({ "service_id": "s", "plan_id": "p", "bind_resource": { "credential_client_id": "c" } });
    assert_eq!(app(key), None);
}

// R1
#[test]
fn a_rotation_needs_nothing_but_its_predecessor() {
    let body = json!({ "predecessor_binding_id": "b1" });
    let BindRequest::Rotate(rotation) = read(body.clone()).unwrap() else {
        panic!("not a rotation")
    };
    assert_eq!(rotation.predecessor_binding_id, "b1");
    assert_eq!(
        (rotation.service_id.as_deref(), rotation.plan_id.as_deref()),
        (None, None)
    );
    assert_eq!(written(&rotation), body);

    let body = json!({ "predecessor_binding_id": "b1", "service_id": "s", "plan_id": "p" });
    let BindRequest::Rotate(rotation) = read(body.clone()).unwrap() else {
        panic!("not a rotation")
    };
    assert_eq!(
        (rotation.service_id.as_deref(), rotation.plan_id.as_deref()),
        (Some("s"), Some("p"))
    );
    assert_eq!(written(&rotation), body);
}

#[test]
fn requests_are_written_without_what_is_absent() {
    let request: ProvisionRequest = read(provision()).unwrap();
    assert_eq!(written(&request), provision());
    let update = UpdateRequest {
        service_id: "s".into(),
        ..UpdateRequest::default()
    };
    assert_eq!(written(&update), json!({ "service_id": "s" }));
    assert_eq!(written(&PreviousValues::default()), json!({}));
}

#[test]
fn parameters_do_not_show_in_debug_output() {
    let body = with(provision(), "parameters", json!({ "password": "hunter2" }));
    let shown = format!("{:?}", read::<ProvisionRequest>(body).unwrap());
    assert!(shown.contains("SecretObject(1 hidden fields)"), "{shown}");
    assert!(!shown.contains("hunter2"));
}

// RFC 6901
#[test]
fn a_pointer_escapes_what_would_read_as_another_place() {
    let body = object(json!({ "a/b~c": { "~1": 5 } }));
    let nested = Fields::new(&body).nested("a/b~c").unwrap().unwrap();
    let error = nested.text("~1").unwrap_err();
    assert_eq!(error.pointer, "/a~1b~0c/~01");
    assert_eq!(json!(body).pointer(&error.pointer), Some(&json!(5)));
}
