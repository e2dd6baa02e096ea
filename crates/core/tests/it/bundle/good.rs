//! What a good bundle means.

use std::time::Duration;

use evenkeel_core::action::Action;
use evenkeel_core::bundle::{AsyncMode, Bundle, ExecutorKind, Limits};
use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

use super::{NAMESPACE, SMALLEST, good, parse};

const FULL: &str = r##"
bundle: 1
service:
  name: postgres
  id: 0b1f7a8e-service
  description: A PostgreSQL database
  tags: [postgresql, relational]
  bindable: true
  requires: [volume_mount, syslog_drain, volume_mount]
  plan_updateable: true
  allow_context_updates: true
  metadata: {displayName: PostgreSQL, shareable: true}
  dashboard_client: {id: dash, secret: hunter2, redirect_uri: https://dash.example.com}
plans:
  - name: small
    id: 0b1f7a8e-small
    description: Ten connections
    free: false
    bindable: false
    binding_rotatable: false
    plan_updateable: false
    metadata: {bullets: [one, two], costs: [{amount: {eur: 1.5}, unit: MONTHLY}]}
    maintenance_info: {version: 1.2.3-rc.1+b7, description: Newer}
    maximum_polling_duration: 3600
    schemas:
      provision: &schema
        $schema: http://json-schema.org/draft-04/schema#
        type: object
        definitions: {size: {type: integer, minimum: 0, exclusiveMinimum: true}}
        properties: {size: {$ref: "#/definitions/size"}}
      update: *schema
      bind: *schema
    values: {connections: 10, nested: {list: [1, -2, 2.5, null, true, text]}}
  - {name: large, description: Many connections, maximum_polling_duration: 1h}
executor: process
actions:
  provision: {command: [./bin//./make, --db, ""], timeout: 1h, async: required, retries: 2}
  update: {command: [./update], timeout: 1m30s}
  bind: {command: [sh, -c, ./bind], async: unsupported, timeout: 50s}
  unbind: {command: [./unbind]}
  deprovision: {command: [./deprovision], async: optional, retries: 0}
env: {PATH: /opt/pg/bin:/usr/bin, PGHOST: db.example.com, EMPTY: ""}
secrets:
  admin: {file: /run/secrets/admin}
  other.key: {file: sub/other}
limits: {memory: 128Mi, cpu_time: 90s, open_files: 256, processes: 64, disk: 1Gi, output: 65536}
"##;

#[test]
fn every_field_is_read_as_written() {
    let (bundle, warnings) = parse(FULL).expect("a good bundle");
    assert_eq!(warnings, []);
    insta::assert_json_snapshot!(bundle);
    let provision = &bundle.actions[&Action::Provision];
    assert_eq!(provision.command, ["./bin//./make", "--db", ""]);
    assert_eq!(provision.timeout, Some(Duration::from_secs(3600)));
    assert_eq!(provision.async_mode, AsyncMode::Required);
    assert_eq!(bundle.limits.memory, Some(128 << 20));
    let plan = &bundle.plans[0];
    let schema = plan.schemas.of(Action::Provision).expect("a schema");
    assert_eq!(plan.schemas.of(Action::Update), Some(schema));
    assert_eq!(plan.schemas.of(Action::Bind), Some(schema));
    assert_eq!(plan.schemas.of(Action::Unbind), None);
    let stored = serde_json::to_string(&bundle).expect("JSON");
    assert_eq!(
        serde_json::from_str::<Bundle>(&stored).expect("a bundle"),
        bundle
    );
    assert_eq!(bundle.plan(&plan.id), Some(plan));
}

#[test]
fn what_is_absent_has_the_defaults_of_the_specification() {
    let bundle = good(SMALLEST);
    assert!(
        bundle.service.bindable,
        "bindings hand out the credentials of provision"
    );
    assert!(!bundle.service.plan_updateable);
    assert!(!bundle.service.allow_context_updates);
    assert!(bundle.service.instances_retrievable && bundle.service.bindings_retrievable);
    assert!(!bundle.plans[0].schemas.apply_defaults);
    assert!(bundle.plans[0].free);
    assert!(!bundle.plans[0].binding_rotatable);
    assert_eq!(bundle.executor, ExecutorKind::Process);
    assert_eq!(bundle.limits, Limits::default());
    let provision = &bundle.actions[&Action::Provision];
    assert_eq!(provision.timeout, None);
    assert_eq!(
        (provision.async_mode, provision.retries),
        (AsyncMode::Optional, 0)
    );
    assert_eq!(bundle.actions.len(), 2);
}

#[test]
fn an_update_action_alone_does_not_make_plans_updateable() {
    let with_update = format!("{SMALLEST}  update: {{command: [./update]}}\n");
    assert!(!good(&with_update).service.plan_updateable);
    let said = with_update.replace(
        "description: A database",
        "description: A, plan_updateable: true",
    );
    assert!(good(&said).service.plan_updateable);
}

#[test]
fn a_plan_has_the_last_word_on_being_bindable_and_updateable() {
    let bundle = good(FULL);
    let [small, large] = &bundle.plans[..] else {
        panic!("two plans")
    };
    assert!(!bundle.is_bindable(small) && bundle.is_bindable(large));
    assert!(!bundle.is_plan_updateable(small) && bundle.is_plan_updateable(large));
}

#[test]
fn derived_ids_never_change() {
    let bundle = good(SMALLEST);
    // Known values: a change here would take every offering's instances from it.
    let service = Uuid::new_v5(&NAMESPACE, b"service/db");
    assert_eq!(bundle.service.id.as_str(), service.to_string());
    assert_eq!(
        bundle.plans[0].id.as_str(),
        Uuid::new_v5(&service, b"plan/small").to_string()
    );
    insta::assert_snapshot!(
        format!("{} {}", bundle.service.id, bundle.plans[0].id),
        @"3c918c3a-d8a3-5c5f-a95d-a5b08281aee2 807a5f75-634a-5a16-b029-6a98efe66027"
    );
}

#[test]
fn a_given_service_id_leaves_the_ids_of_its_plans_alone() {
    let given = SMALLEST.replace("{name: db,", "{name: db, id: mine,");
    assert_eq!(good(&given).service.id.as_str(), "mine");
    assert_eq!(good(&given).plans[0].id, good(SMALLEST).plans[0].id);
}

#[test]
fn equal_plan_names_of_two_offerings_have_different_ids() {
    let slash = |service: &str, plan: &str| {
        good(
            &SMALLEST
                .replace("name: db", &format!("name: {service}"))
                .replace("small", plan),
        )
    };
    assert_ne!(slash("a", "b/c").plans[0].id, slash("a/b", "c").plans[0].id);
}

#[test]
fn a_snapshot_round_trips_and_tolerates_fields_of_later_versions() {
    let bundle = good(FULL);
    let mut stored = serde_json::to_value(&bundle).unwrap();
    assert_eq!(stored["bundle"], 1);
    assert_eq!(
        serde_json::from_value::<Bundle>(stored.clone()).unwrap(),
        bundle
    );
    stored["service"]["added_later"] = json!(true);
    stored["added_later"] = json!({});
    assert_eq!(
        serde_json::from_value::<Bundle>(stored.clone()).unwrap(),
        bundle
    );
    stored["bundle"] = json!(2);
    let refused = serde_json::from_value::<Bundle>(stored)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("bundle format 2 is unknown"), "{refused}");
}

#[test]
fn the_secret_of_a_dashboard_client_is_not_in_debug_output() {
    let debug = format!("{:?}", good(FULL));
    assert!(debug.contains("dash.example.com") && !debug.contains("hunter2"));
}

proptest! {
    #[test]
    fn any_good_bundle_round_trips(
        name in "[a-zA-Z0-9 ./_é-]{0,40}x",
        description in "\\PC{0,80}x",
        plans in prop::collection::btree_map("[a-z0-9.-]{1,20}", any::<(bool, Option<bool>)>(), 1..5),
        values in "\\PC*",
        timeout in 1_u32..600_000,
        memory in 1_u64 << 20..1 << 44,
    ) {
        let plans: Vec<_> = plans.iter().map(|(plan, (free, bindable))| {
            let mut it = json!({"name": plan, "description": "p", "free": free, "values": {"v": values}});
            if let Some(bindable) = bindable {
                it["bindable"] = json!(bindable);
            }
            it
        }).collect();
        // JSON is YAML.
        let text = json!({
            "bundle": 1,
            "service": {"name": name, "description": description},
            "plans": plans,
            "actions": {
                "provision": {"command": ["./provision"], "timeout": format!("{}ms", timeout + 100)},
                "deprovision": {"command": ["./deprovision"]},
            },
            "limits": {"memory": memory},
        });
        let bundle = good(&text.to_string());
        prop_assert_eq!(&bundle.service.name, &name);
        prop_assert_eq!(&bundle.service.description, &description);
        prop_assert_eq!(bundle.plans.len(), plans.len());
        prop_assert_eq!(bundle.plans[0].values["v"].as_str(), Some(values.as_str()));
        prop_assert_eq!(bundle.limits.memory, Some(memory));
        let stored = serde_json::to_string(&bundle).unwrap();
        prop_assert_eq!(serde_json::from_str::<Bundle>(&stored).unwrap(), bundle);
    }
}
