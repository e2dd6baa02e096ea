use evenkeel_osb::{Catalog, Plan, Schemas, ServiceOffering};
use serde_json::{Value, json};

use crate::{object, read, written};

fn minimal() -> Value {
    json!({ "services": [{
        "name": "db", "id": "s1", "description": "A database", "bindable": true,
        "plans": [{ "id": "p1", "name": "small", "description": "Small" }],
    }] })
}

fn full() -> Value {
    let schema = json!({ "$schema": "http://json-schema.org/draft-04/schema#", "type": "object" });
    json!({ "services": [{
        "name": "db", "id": "s1", "description": "A database", "tags": ["sql", "pg"],
        "requires": ["syslog_drain", "route_forwarding", "volume_mount"], "bindable": true,
        "instances_retrievable": true, "bindings_retrievable": true, "allow_context_updates": true,
        "plan_updateable": true,
        "metadata": { "displayName": "Database", "shareable": true },
        "dashboard_client": { "id": "client", "secret": "hunter2", "redirect_uri": "https://d.example.com" },
        "plans": [{
            "id": "p1", "name": "small", "description": "Small",
            "metadata": { "bullets": ["one"], "costs": [{ "amount": { "usd": 9.5 }, "unit": "MONTHLY" }] },
            "free": false, "bindable": false, "binding_rotatable": true, "plan_updateable": false,
            "schemas": {
                "service_instance": { "create": { "parameters": schema }, "update": { "parameters": schema } },
                "service_binding": { "create": { "parameters": schema } },
            },
            "maximum_polling_duration": 3600,
            "maintenance_info": { "version": "1.2.3-rc.1+b", "description": "New minor version" },
        }],
    }] })
}

fn problems(catalog: Value) -> Vec<String> {
    let catalog: Catalog = read(catalog).unwrap();
    catalog.problems().iter().map(ToString::to_string).collect()
}

// C1, C2, C3, C4
#[test]
fn a_full_catalog_reads_and_writes_every_field() {
    let catalog: Catalog = read(full()).unwrap();
    assert_eq!(written(&catalog), full());
    assert_eq!(problems(full()), Vec::<String>::new());
    insta::assert_json_snapshot!(catalog);
}

// C9
#[test]
fn a_minimal_catalog_is_written_without_nulls_empty_arrays_and_defaults() {
    let plan = Plan {
        id: "p1".into(),
        name: "small".into(),
        description: "Small".into(),
        ..Plan::default()
    };
    let service = ServiceOffering {
        name: "db".into(),
        id: "s1".into(),
        description: "A database".into(),
        bindable: true,
        plans: vec![plan],
        ..ServiceOffering::default()
    };
    let catalog = Catalog {
        services: vec![service],
    };
    assert_eq!(read::<Catalog>(minimal()).as_ref(), Ok(&catalog));
    assert_eq!(written(&catalog), minimal());
    assert!(catalog.problems().is_empty());
    insta::assert_json_snapshot!(catalog);
}

// C1
#[test]
fn an_empty_catalog_is_a_catalog() {
    assert_eq!(written(&Catalog::default()), json!({ "services": [] }));
    assert_eq!(
        read::<Catalog>(json!({ "services": [] })),
        Ok(Catalog::default())
    );
    assert_eq!(read::<Catalog>(json!({})).unwrap_err().pointer, "/services");
}

// C2, C3
#[test]
fn defaults_are_read_where_nothing_is_said() {
    let mut body = minimal();
    body["services"][0]["tags"] = Value::Null;
    body["services"][0]["plan_updateable"] = Value::Null;
    body["services"][0]["dashboard_client"] = json!({});
    body["services"][0]["plans"][0]["schemas"] =
        json!({ "service_instance": { "create": {} }, "service_binding": null });
    body["services"][0]["plans"][0]["new_in_2_99"] = json!(1);
    let catalog: Catalog = read(body).unwrap();
    assert_eq!(written(&catalog), minimal());
    let service = &catalog.services[0];
    let plan = service.plan("p1").unwrap();
    assert!(plan.free && !plan.binding_rotatable && !service.plan_updateable);
    assert!(service.plan("p2").is_none());
}

// C2, C3
#[test]
fn what_a_catalog_lacks_or_has_in_the_wrong_type_is_named_by_its_pointer() {
    let pointer = |at: &str, value: Value| {
        let mut body = full();
        *body.pointer_mut(at).unwrap() = value;
        read::<Catalog>(body).unwrap_err().pointer
    };
    let service =
        ["name", "id", "description", "bindable"].map(|name| format!("/services/0/{name}"));
    let plan = ["name", "id", "description"].map(|name| format!("/services/0/plans/0/{name}"));
    for at in service.iter().chain(&plan) {
        assert_eq!(pointer(at, Value::Null), *at);
        assert_eq!(pointer(at, json!([])), *at);
    }
    for (at, value) in [
        ("/services/0/tags", json!("sql")),
        ("/services/0/tags/1", json!(1)),
        ("/services/0/requires/2", json!("teleportation")),
        ("/services/0/metadata", json!([])),
        ("/services/0/dashboard_client/secret", json!("")),
        ("/services/0/plans/0", json!("p1")),
        ("/services/0/plans/0/free", json!("yes")),
        ("/services/0/plans/0/maximum_polling_duration", json!(1.5)),
        ("/services/0/plans/0/maximum_polling_duration", json!("60")),
        ("/services/0/plans/0/maximum_polling_duration", json!(-1)),
        (
            "/services/0/plans/0/schemas/service_instance/create/parameters",
            json!(true),
        ),
    ] {
        assert_eq!(pointer(at, value), at);
    }
}

// C2, C3
#[test]
fn ids_and_names_are_unique_in_their_scope() {
    let mut body = minimal();
    let service = body["services"][0].clone();
    let plan = service["plans"][0].clone();
    body["services"][0]["plans"] = json!([plan, plan]);
    body["services"].as_array_mut().unwrap().push(service);
    assert_eq!(
        problems(body),
        [
            "/services/0/plans/1/id: is another service offering's or plan's id already",
            "/services/0/plans/1/name: is taken by another plan of the same service offering",
            "/services/1/id: is another service offering's or plan's id already",
            "/services/1/name: is another service offering's name already",
            "/services/1/plans/0/id: is another service offering's or plan's id already",
        ]
    );
    // Names are case-sensitive, and a plan's name may be taken in another offering.
    let mut body = minimal();
    let mut other = body["services"][0].clone();
    other["name"] = json!("DB");
    other["id"] = json!("s2");
    other["plans"][0]["id"] = json!("p2");
    body["services"].as_array_mut().unwrap().push(other);
    assert_eq!(problems(body), Vec::<String>::new());
}

// C2
#[test]
fn texts_are_not_blank_and_an_offering_has_a_plan() {
    let mut body = minimal();
    body["services"][0]["name"] = json!(" ");
    body["services"][0]["plans"] = json!([]);
    assert_eq!(
        problems(body),
        [
            "/services/0/name: is empty",
            "/services/0/plans: is empty: a service offering has at least one plan"
        ]
    );
    let mut body = full();
    body["services"][0]["dashboard_client"] = json!({ "id": "c", "secret": "s" });
    assert_eq!(
        problems(body),
        ["/services/0/dashboard_client/redirect_uri: is missing"]
    );
}

// C4
#[test]
fn a_schema_names_its_draft_stays_within_itself_and_is_at_most_64_kib() {
    let at = "/services/0/plans/0/schemas/service_instance/update/parameters";
    let problem = |schema: Value| {
        let mut body = full();
        *body.pointer_mut(at).unwrap() = schema;
        problems(body).join("; ")
    };
    let draft = "http://json-schema.org/draft-04/schema#";
    assert_eq!(
        problem(json!({})),
        format!("{at}/$schema: is missing: name the draft of JSON Schema")
    );
    let local = json!({ "$schema": draft, "properties": { "a": { "$ref": "#/definitions/a" }, "$ref": { "type": "string" } } });
    assert_eq!(problem(local), "");
    for remote in [
        json!({ "$schema": draft, "$ref": "https://example.com/schema" }),
        json!({ "$schema": draft, "anyOf": [{ "items": [{ "$ref": "file:///etc/passwd" }] }] }),
    ] {
        assert_eq!(
            problem(remote),
            format!("{at}: has a $ref that leaves the schema: only \"#…\" is allowed")
        );
    }
    let sized = |bytes: usize| {
        let empty = json!({ "$schema": draft, "description": "" });
        json!({ "$schema": draft, "description": "a".repeat(bytes - empty.to_string().len()) })
    };
    assert_eq!(problem(sized(65_536)), "");
    assert_eq!(
        problem(sized(65_537)),
        format!("{at}: has 65537 bytes as JSON: at most 65536 are allowed")
    );
}

// C3
#[test]
fn a_maintenance_version_is_a_semantic_version() {
    let problem = |version: &str| {
        let mut body = full();
        body["services"][0]["plans"][0]["maintenance_info"]["version"] = json!(version);
        problems(body).join("; ")
    };
    for version in [
        "0.0.0",
        "1.2.3",
        "1.0.0-alpha",
        "1.0.0-0.3.7",
        "1.0.0-x-y.z",
        "1.0.0+001",
        "1.0.0-rc.1+a.b-c",
        "1.0.0--",
    ] {
        assert_eq!(problem(version), "", "{version}");
    }
    for version in [
        "1",
        "1.2",
        "1.2.3.4",
        "01.2.3",
        "1.02.3",
        "1.2.3-",
        "1.2.3-01",
        "1.2.3-a..b",
        "1.2.3+",
        "v1.2.3",
        "1.2.x",
        "1.2.-3",
    ] {
        assert!(
            problem(version).contains("maintenance_info/version: must be a semantic version"),
            "{version}"
        );
    }
}

#[test]
fn sizes_that_cloud_foundry_limits_are_told() {
    let mut body = full();
    body["services"][0]["description"] = json!("é".repeat(10_001));
    body["services"][0]["tags"] = json!(["a".repeat(2_000), "b".repeat(49)]);
    body["services"][0]["plans"][0]["maintenance_info"]["description"] = json!("a".repeat(2_000));
    body["services"][0]["plans"][0]["name"] = json!("a".repeat(256));
    let told = problems(body);
    assert_eq!(
        told[..3],
        [
            "/services/0/description: has 10001 characters: at most 10000 are allowed",
            "/services/0/tags: has 2049 characters in all: at most 2048 are allowed",
            "/services/0/plans/0/name: has 256 characters: at most 255 are allowed",
        ]
    );
    assert!(
        told[3].starts_with("/services/0/plans/0/maintenance_info: has "),
        "{told:?}"
    );
    assert_eq!(told.len(), 4);
}

// C2, C3
#[test]
fn a_plan_overrides_its_offering() {
    let catalog: Catalog = read(full()).unwrap();
    let service = &catalog.services[0];
    let overriding = &service.plans[0];
    let silent = Plan {
        bindable: None,
        plan_updateable: None,
        ..overriding.clone()
    };
    assert!(!service.is_bindable(overriding) && service.is_bindable(&silent));
    assert!(!service.is_plan_updateable(overriding) && service.is_plan_updateable(&silent));
}

#[test]
fn one_schema_alone_is_written_without_the_others() {
    let schemas = Schemas {
        bind: Some(object(json!({ "$schema": "x" }))),
        ..Schemas::default()
    };
    assert_eq!(
        written(&schemas),
        json!({ "service_binding": { "create": { "parameters": { "$schema": "x" } } } })
    );
    assert_eq!(written(&Schemas::default()), json!({}));
}

#[test]
fn the_dashboard_clients_secret_does_not_show_in_debug_output() {
    assert!(!format!("{:?}", read::<Catalog>(full()).unwrap()).contains("hunter2"));
}
