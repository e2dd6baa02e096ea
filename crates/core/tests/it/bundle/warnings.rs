//! What is allowed, but refused by some platform or probably not meant.

use insta::assert_snapshot;

use super::{SMALLEST, warnings};

fn with(from: &str, to: &str) -> String {
    assert!(SMALLEST.contains(from), "nothing to replace");
    warnings(&SMALLEST.replace(from, to))
}

#[test]
fn a_plain_bundle_has_none() {
    assert_eq!(warnings(SMALLEST), "");
}

#[test]
fn what_cloud_foundry_refuses() {
    assert_snapshot!(
        with("description: A database", "description: A, metadata: {shareable: 'yes'}, dashboard_client: {id: a, secret: b}"),
        @"
    bundle.yml:2:59: service.metadata.shareable: Cloud Foundry demands true or false here
      hint: write it without quotes
    bundle.yml:2:85: service.dashboard_client: Cloud Foundry demands `redirect_uri`
      hint: add the dashboard's URL
    "
    );
    assert_snapshot!(with("description: A database", &format!("description: {}", "d".repeat(10_001))), @"
    bundle.yml:2:34: service.description: Cloud Foundry takes at most 10000 characters
      hint: move the long text to metadata.longDescription
    ");
    let tags = vec!["t".repeat(200); 11].join(", ");
    assert_snapshot!(with("name: db", &format!("name: db, tags: [{tags}]")), @"
    bundle.yml:2:27: service.tags: Cloud Foundry takes at most 2048 characters of tags
      hint: use fewer or shorter tags
    ");
    let info = format!(
        "maintenance_info: {{version: 1.0.0, description: {}}}",
        "d".repeat(2000)
    );
    assert_snapshot!(with("name: small", &format!("name: small, {info}")), @"
    bundle.yml:4:37: plans[0].maintenance_info: Cloud Foundry takes at most 2000 characters as JSON
      hint: shorten the description
    ");
}

#[test]
fn what_marketplaces_do_not_show() {
    assert_snapshot!(
        warnings(&SMALLEST
            .replace("name: db", "name: db, metadata: {displayName: 1, imageUrl: x}")
            .replace("name: small", "name: small, metadata: {displayName: [x], bullets: [1], costs: [{amount: {eur: free}, unit: MONTHLY}]}")),
        @r##"
    bundle.yml:2:45: service.metadata.displayName: marketplaces expect a text here
      hint: put the value into quotes
    bundle.yml:4:43: plans[0].metadata.displayName: marketplaces expect a text here
      hint: put the value into quotes
    bundle.yml:4:57: plans[0].metadata.bullets: marketplaces expect a list of texts here
      hint: write it as [Ten connections, Daily backup]
    bundle.yml:4:69: plans[0].metadata.costs: marketplaces expect amounts with a unit here
      hint: write it as [{amount: {eur: 9.5}, unit: MONTHLY}]
    "##
    );
}

#[test]
fn bindings_that_cannot_be_fetched_though_they_are_made_asynchronously() {
    let text = |mode: &str| {
        let text = SMALLEST.replace("name: db", "name: db, bindings_retrievable: false");
        format!("{text}  bind: {{command: [./bind]{mode}}}\n  unbind: {{command: [./unbind]}}\n")
    };
    assert_snapshot!(warnings(&text("")), @r##"
    bundle.yml:2:43: service.bindings_retrievable: a binding that is made asynchronously can only be handed out when it is fetched
      hint: Cloud Foundry refuses it otherwise: write true, or actions.bind.async: unsupported
    "##);
    assert_eq!(warnings(&text(", async: unsupported")), "");
}

#[test]
fn a_dashboard_that_is_the_same_for_all() {
    let at = |url: &str| with("name: db", &format!("name: db, dashboard_url: '{url}'"));
    assert_eq!(at("https://dash/{instance_id}"), "");
    assert_snapshot!(at("https://dash/"), @r##"
    bundle.yml:2:36: service.dashboard_url: is the same for every instance
      hint: write it as https://dash.example.com/instances/{instance_id}
    "##);
}

#[test]
fn what_kubernetes_and_command_lines_refuse() {
    assert_snapshot!(with("name: db", &format!("name: my db, id: {}", "x".repeat(64))), @"
    bundle.yml:2:17: service.name: is awkward on a command line
      hint: use letters, digits, `.` and `-` only (the specification's CLI-friendly names)
    bundle.yml:2:28: service.id: the Kubernetes service catalog takes at most 63 characters
      hint: choose a shorter one if the service is to be offered there
    ");
}

#[test]
fn schemas_of_newer_drafts() {
    let schema = |draft: &str| {
        let schema = format!("{{$schema: '{draft}', properties: {{a: {{exclusiveMinimum: 3}}}}}}");
        with(
            "name: small",
            &format!("name: small, schemas: {{provision: {schema}}}"),
        )
    };
    assert_snapshot!(schema("http://json-schema.org/draft-06/schema#"), @r##"
    bundle.yml:4:109: plans[0].schemas.provision.properties.a: Cloud Foundry checks schemas against draft 4: "minimum" is a required property
      hint: if the plan is to be offered there, use draft 4
    bundle.yml:4:128: plans[0].schemas.provision.properties.a.exclusiveMinimum: Cloud Foundry checks schemas against draft 4: value is not of type "boolean"
      hint: if the plan is to be offered there, use draft 4
    "##);
    assert_snapshot!(schema("https://json-schema.org/draft/2020-12/schema"), @r##"
    bundle.yml:4:50: plans[0].schemas.provision.$schema: Cloud Foundry refuses schemas newer than draft 6
      hint: if it is to be offered there, use http://json-schema.org/draft-04/schema#
    bundle.yml:4:114: plans[0].schemas.provision.properties.a: Cloud Foundry checks schemas against draft 4: "minimum" is a required property
      hint: if the plan is to be offered there, use draft 4
    bundle.yml:4:133: plans[0].schemas.provision.properties.a.exclusiveMinimum: Cloud Foundry checks schemas against draft 4: value is not of type "boolean"
      hint: if the plan is to be offered there, use draft 4
    "##);
}

#[test]
fn promises_that_the_actions_do_not_keep() {
    let schema = "{$schema: 'http://json-schema.org/draft-04/schema#'}";
    let plan = format!(
        "name: small, binding_rotatable: true, schemas: {{update: {schema}, bind: {schema}}}"
    );
    assert_snapshot!(with("name: small", &plan), @"
    bundle.yml:4:38: plans[0].binding_rotatable: there is no `bind` action
      hint: every binding has the credentials of provision, so rotation changes nothing
    bundle.yml:4:62: plans[0].schemas.update: there is no `update` action
      hint: parameters for it will be refused
    bundle.yml:4:122: plans[0].schemas.bind: there is no `bind` action
      hint: a binding hands out the credentials of provision, whatever its parameters are
    ");
    assert_snapshot!(warnings(&format!("{SMALLEST}  bind: {{command: [./bind]}}\n")), @"
    bundle.yml:8:9: actions.bind: there is no `unbind` action
      hint: what `bind` makes is never taken back: add actions.unbind
    ");
    assert_snapshot!(warnings(&format!("{SMALLEST}  unbind: {{command: [./unbind]}}\n")), @"
    bundle.yml:8:11: actions.unbind: there is no `bind` action
      hint: bindings hand out the credentials of provision; add actions.bind or remove this
    ");
}

#[test]
fn times_that_contradict_each_other() {
    let slow = SMALLEST
        .replace(
            "[./provision]",
            "[./provision], timeout: 10m, async: unsupported",
        )
        .replace("name: small", "name: small, maximum_polling_duration: 60");
    assert_snapshot!(warnings(&slow), @"
    bundle.yml:4:45: plans[0].maximum_polling_duration: is shorter than the timeout of `provision` (10m)
      hint: the platform gives an operation up before the action does: shorten the timeout
    bundle.yml:6:48: actions.provision.timeout: a synchronous request is cancelled after sync_limit, 50s unless set
      hint: write async: optional, or a shorter timeout
    ");
}

#[test]
fn what_is_probably_not_meant() {
    assert_snapshot!(with("[./provision]", "[provision]"), @"
    bundle.yml:6:25: actions.provision.command[0]: `provision` is looked up in PATH, not in the bundle
      hint: for the file of the bundle write ./provision
    ");
    assert_snapshot!(warnings(&format!("{SMALLEST}env: {{DB_PASSWORD: x}}\n")), @"
    bundle.yml:8:7: env.DB_PASSWORD: looks like a secret, and the environment is no place for one
      hint: put it into a file and name the file under `secrets`
    ");
}
