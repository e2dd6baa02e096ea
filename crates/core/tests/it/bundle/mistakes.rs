//! Typical mistakes, and what an author is told.

use evenkeel_core::bundle::MAX_FINDINGS;
use insta::assert_snapshot;

use super::{SMALLEST, errors, parse};

fn with(from: &str, to: &str) -> String {
    assert!(SMALLEST.contains(from), "nothing to replace");
    errors(SMALLEST.replace(from, to))
}

fn adding(lines: &str) -> String {
    errors(format!("{SMALLEST}{lines}"))
}

#[test]
fn a_misspelt_field_is_recognised() {
    assert_snapshot!(with("{command: [./provision]}", "{comand: [./provision], image: x}"), @"
    bundle.yml:6:14: actions.provision.command: is missing
    bundle.yml:6:15: actions.provision.comand: unknown field
      hint: did you mean `command`?
    bundle.yml:6:38: actions.provision.image: unknown field
      hint: known here: command, timeout, async, retries
    ");
}

#[test]
fn a_missing_field_names_where_it_belongs() {
    assert_snapshot!(with("{name: small, description: A small one}", "{name: small}"), @"bundle.yml:4:5: plans[0].description: is missing");
    assert_snapshot!(with("  deprovision: {command: [./deprovision]}\n", ""), @"bundle.yml:6:3: actions.deprovision: is missing");
    assert_snapshot!(errors("bundle: 1\n"), @"
    bundle.yml:1:1: actions: is missing
    bundle.yml:1:1: plans: is missing
    bundle.yml:1:1: service: is missing
    ");
}

#[test]
fn an_empty_value_is_not_taken_for_an_absent_field() {
    assert_snapshot!(with("{name: small, description: A small one}", "{name: \"\", description: ~}"), @"
    bundle.yml:4:12: plans[0].name: must not be empty
    bundle.yml:4:29: plans[0].description: has no value
      hint: write a value, or leave the field out
    ");
}

#[test]
fn a_repeated_key_names_both_lines() {
    assert_snapshot!(adding("env: {A: b}\nbundle: 1\nactions: {}\n"), @"
    bundle.yml:9:1: bundle: the key is there twice, first in line 1
    bundle.yml:10:1: actions: the key is there twice, first in line 5
    ");
}

#[test]
fn a_value_of_the_wrong_kind_is_told_how_to_be_written() {
    assert_snapshot!(
        with("{name: small, description: A small one}", "{name: 1.5, description: yes, free: yes, metadata: [], maintenance_info: {version: 1.0}}"),
        @"
    bundle.yml:4:12: plans[0].name: expected a text, found a number
      hint: put the value into quotes
    bundle.yml:4:41: plans[0].free: expected true or false, found a text
      hint: write true, without quotes
    bundle.yml:4:56: plans[0].metadata: expected a mapping, found a list
    bundle.yml:4:88: plans[0].maintenance_info.version: expected a text, found a number
      hint: put the value into quotes
    "
    );
    assert_snapshot!(with("[./provision]", "./provision --now"), @"
    bundle.yml:6:24: actions.provision.command: expected a list, found a text
      hint: write it as a list: [./provision --now]
    ");
    assert_snapshot!(with("{command: [./provision]}", "[./provision]"), @"bundle.yml:6:14: actions.provision: expected a mapping, found a list");
}

#[test]
fn durations_sizes_and_counts_have_units_and_bounds() {
    assert_snapshot!(
        with("{command: [./provision]}", "{command: [./provision], timeout: 10, retries: -1}"),
        @"
    bundle.yml:6:48: actions.provision.timeout: a duration needs a unit
      hint: write the unit: 10s, or 10m
    bundle.yml:6:61: actions.provision.retries: must be a whole number from 0 to 100, is -1
    "
    );
    assert_snapshot!(
        with("{command: [./provision]}", "{command: [./provision], timeout: 10 minutes, retries: 1.5}"),
        @r#"
    bundle.yml:6:48: actions.provision.timeout: "10 minutes" is not a duration such as 30s, 10m, 1h30m or 500ms
    bundle.yml:6:69: actions.provision.retries: must be a whole number from 0 to 100, is 1.5
    "#
    );
    assert_snapshot!(
        adding("limits: {memory: 128MB, cpu_time: 10ms, open_files: 1, processes: many, disk: 1, output: 1Ti}\n"),
        @r#"
    bundle.yml:8:18: limits.memory: "128MB" is not a size such as 64Ki, 128Mi, 1Gi or 500M
    bundle.yml:8:35: limits.cpu_time: must be from 1s to 7d, is 10ms
    bundle.yml:8:53: limits.open_files: must be a whole number from 16 to 1048576, is 1
    bundle.yml:8:67: limits.processes: expected a whole number, found a text
    bundle.yml:8:79: limits.disk: must be a whole number from 1024 to 17592186044416, is 1
    bundle.yml:8:90: limits.output: must be from 1024 to 1073741824 bytes, is 1099511627776
    "#
    );
    assert_snapshot!(with("[./provision]", "[./provision], timeout: 30d"), @"bundle.yml:6:48: actions.provision.timeout: must be from 100ms to 7d, is 30d");
}

#[test]
fn a_command_must_be_an_executable_file_of_the_bundle_or_a_name() {
    assert_snapshot!(with("[./provision]", "[]"), @"
    bundle.yml:6:24: actions.provision.command: must not be empty
      hint: write the program first: [./provision]
    ");
    assert_snapshot!(with("[./provision]", "[./missing]"), @"bundle.yml:6:25: actions.provision.command[0]: there is no file `missing` in the bundle");
    assert_snapshot!(with("[./provision]", "[./notes.txt]"), @"
    bundle.yml:6:25: actions.provision.command[0]: `notes.txt` is not executable
      hint: run chmod +x notes.txt
    ");
    assert_snapshot!(with("[./provision]", "[/bin/sh, -c, true]"), @"
    bundle.yml:6:25: actions.provision.command[0]: must be a path in the bundle, or a name that is looked up in PATH
      hint: write the name alone, such as [sh, …]; env.PATH can name further folders
    bundle.yml:6:38: actions.provision.command[2]: expected a text, found a boolean
      hint: put the value into quotes
    ");
    assert_snapshot!(with("[./provision]", "[bin/../provision]"), @"bundle.yml:6:25: actions.provision.command[0]: must not lead out of the bundle with `..`");
    assert_snapshot!(with("[./provision]", "[sh, 1]"), @"
    bundle.yml:6:29: actions.provision.command[1]: expected a text, found a number
      hint: put the value into quotes
    ");
}

#[test]
fn words_with_a_meaning_are_checked() {
    assert_snapshot!(
        with("{command: [./provision]}", "{command: [./provision], async: optinal}"),
        @r#"
    bundle.yml:6:46: actions.provision.async: "optinal" is not one of: required, optional, unsupported
      hint: did you mean `optional`?
    "#
    );
    assert_snapshot!(adding("executor: docker\n"), @r#"bundle.yml:8:11: executor: "docker" is not one of: process"#);
    assert_snapshot!(with("description: A database", "description: A, requires: [volume_mounts, gold]"), @r#"
    bundle.yml:2:48: service.requires[0]: "volume_mounts" is not one of: syslog_drain, route_forwarding, volume_mount
      hint: did you mean `volume_mount`?
    bundle.yml:2:63: service.requires[1]: "gold" is not one of: syslog_drain, route_forwarding, volume_mount
    "#);
    assert_snapshot!(with("bundle: 1", "bundle: 2"), @"
    bundle.yml:1:9: bundle: bundle format 2 is unknown, this version reads 1
      hint: write bundle: 1
    ");
}

#[test]
fn plans_are_unique_and_at_least_one() {
    let twice = "plans:
  - {name: small, description: A}
  - {name: small, description: B}
  - {name: a, id: same, description: C}
  - {name: b, id: same, description: D}
";
    let head = SMALLEST.replace(
        "plans:\n  - {name: small, description: A small one}\n",
        twice,
    );
    assert_snapshot!(errors(head), @"
    bundle.yml:5:12: plans[1].name: plans[0] has the same name
    bundle.yml:7:19: plans[3].id: plans[2] has the same id
    ");
    assert_snapshot!(with("plans:\n  - {name: small, description: A small one}", "plans: []"), @"bundle.yml:3:8: plans: must have at least one plan");
}

#[test]
fn updateable_plans_need_an_update_action() {
    assert_snapshot!(with("description: A database", "description: A, plan_updateable: true"), @"
    bundle.yml:2:54: service.plan_updateable: plans cannot be changed without an `update` action
      hint: add actions.update, or leave plan_updateable out
    ");
    assert_snapshot!(with("description: A small one", "description: A, plan_updateable: true"), @"
    bundle.yml:4:52: plans[0].plan_updateable: plans cannot be changed without an `update` action
      hint: add actions.update, or leave plan_updateable out
    ");
}

#[test]
fn the_environment_keeps_what_belongs_to_the_broker() {
    assert_snapshot!(
        adding("env: {EVENKEEL_ACTION: x, HOME: /root, 1A: x, A-B: x, PORT: 5432, PATH: /bin}\n"),
        @"
    bundle.yml:8:7: env.EVENKEEL_ACTION: is set by the broker
      hint: EVENKEEL_*, HOME and TMPDIR are set for each run; PATH and LANG may be set here
    bundle.yml:8:27: env.HOME: is set by the broker
      hint: EVENKEEL_*, HOME and TMPDIR are set for each run; PATH and LANG may be set here
    bundle.yml:8:40: env.1A: is no name of a variable
      hint: use letters, digits and `_`, and no digit first
    bundle.yml:8:47: env.A-B: is no name of a variable
      hint: use letters, digits and `_`, and no digit first
    bundle.yml:8:61: env.PORT: expected a text, found a number
      hint: put the value into quotes
    "
    );
}

#[test]
fn secrets_are_files_with_plain_names() {
    assert_snapshot!(
        adding("secrets: {a: {file: ''}, b: {file: ../y}, ../c: {file: /c}, d: plain, e: {}, f: {file: /x/../y}, g: {file: x/..y}}\n"),
        @r#"
    bundle.yml:8:21: secrets.a.file: must not be empty
    bundle.yml:8:36: secrets.b.file: must not climb with `..`
      hint: give an absolute path, or one below the operator's folder of secrets
    bundle.yml:8:43: secrets["../c"]: is no name for a secret
      hint: it becomes a file name: up to 64 letters, digits, `_`, `-`, `.`
    bundle.yml:8:64: secrets.d: expected a mapping, found a text
    bundle.yml:8:74: secrets.e.file: is missing
    bundle.yml:8:88: secrets.f.file: must not climb with `..`
      hint: give an absolute path, or one below the operator's folder of secrets
    "#
    );
}

#[test]
fn a_plan_does_not_share_the_id_of_its_service() {
    let ids = SMALLEST
        .replace("name: db", "name: db, id: one")
        .replace("name: small", "name: small, id: one");
    assert_snapshot!(errors(ids), @r##"bundle.yml:4:23: plans[0].id: the service has the same id"##);
}

#[test]
fn other_rules_of_the_catalog_hold() {
    let service = "name: db, id: \"a\\tb\", tags: [\"\", 1], bindable: maybe, dashboard_client: {id: x}, instances_retrievable: maybe, dashboard_url: 'dash/{id}'";
    assert_snapshot!(with("name: db", service), @r#"
    bundle.yml:2:25: service.id: "a\tb" must not hold control characters
    bundle.yml:2:40: service.tags[0]: must not be empty
    bundle.yml:2:44: service.tags[1]: expected a text, found a number
      hint: put the value into quotes
    bundle.yml:2:58: service.bindable: expected true or false, found a text
    bundle.yml:2:83: service.dashboard_client.secret: is missing
    bundle.yml:2:115: service.instances_retrievable: expected true or false, found a text
    bundle.yml:2:137: service.dashboard_url: must begin with https:// or http://
      hint: write it as https://dash.example.com/instances/{instance_id}
    "#);
    let plan =
        "name: small, maintenance_info: {version: v1, notes: x}, maximum_polling_duration: 0";
    assert_snapshot!(with("name: small", plan), @r#"
    bundle.yml:4:47: plans[0].maintenance_info.version: "v1" is no semantic version such as 1.4.0
      hint: see https://semver.org/spec/v2.0.0.html
    bundle.yml:4:51: plans[0].maintenance_info.notes: unknown field
      hint: known here: version, description
    bundle.yml:4:88: plans[0].maximum_polling_duration: must be a whole number from 1 to 604800, is 0
    "#);
    assert_snapshot!(with("name: small", &format!("name: {}", "x".repeat(256))), @"bundle.yml:4:12: plans[0].name: has 256 characters, more than the 255 allowed");
}

#[test]
fn broken_yaml_says_where() {
    assert_snapshot!(errors("bundle: 1\nservice: {name: [}\n"), @"bundle.yml:2:17: not valid YAML: mismatched bracket '[' closed by '}'");
    assert_snapshot!(errors("bundle: 1\n\tservice: x\n"), @"bundle.yml:1:9: not valid YAML: while scanning a plain scalar, found a tab");
    assert_snapshot!(errors(""), @"bundle.yml:1:1: expected a mapping, found nothing");
    assert_snapshot!(errors("- a\n- b\n"), @"bundle.yml:1:1: expected a mapping, found a list");
    assert_snapshot!(errors(format!("{SMALLEST}---\n{SMALLEST}")), @"
    bundle.yml:9:1: more than one YAML document
      hint: a bundle is one document: remove the second `---`
    ");
    assert_snapshot!(errors(b"bundle: 1\nenv: {\xc3\xa4: \xff}\n"), @"bundle.yml:2:10: the file is not UTF-8 from here on");
    assert_snapshot!(errors("bundle: *one\n"), @"bundle.yml:1:9: not valid YAML: reference to unknown value");
    assert_snapshot!(errors("bundle: !!js/function x\n"), @"bundle.yml:1:23: not valid YAML: unsupported tag `!!js/function`");
    assert_snapshot!(errors("bundle: .inf\n"), @"bundle.yml:1:9: not valid YAML: value `.inf` is not a finite number");
}

#[test]
fn errors_are_bounded_and_the_rest_is_counted() {
    let env: String = (0..50).map(|n| format!("  {n}X: a\n")).collect();
    let found = parse(format!("{SMALLEST}env:\n{env}")).unwrap_err();
    assert_eq!(found.len(), MAX_FINDINGS + 1);
    assert_eq!(found[MAX_FINDINGS].to_string(), "30 more errors not shown");
}

#[test]
fn mistakes_in_all_parts_are_reported_in_one_reading() {
    assert_snapshot!(
        errors("bundle: 1
service: {name: db}
plans: [{description: x}]
executor: proces
actions: {provision: {}, destroy: {}}
env: {HOME: x}
secrets: {a: b}
limits: {memory: big}
"),
        @r#"
    bundle.yml:2:10: service.description: is missing
    bundle.yml:3:9: plans[0].name: is missing
    bundle.yml:4:11: executor: "proces" is not one of: process
      hint: did you mean `process`?
    bundle.yml:5:10: actions.deprovision: is missing
    bundle.yml:5:22: actions.provision.command: is missing
    bundle.yml:5:26: actions.destroy: unknown field
      hint: known here: provision, update, bind, unbind, deprovision
    bundle.yml:6:7: env.HOME: is set by the broker
      hint: EVENKEEL_*, HOME and TMPDIR are set for each run; PATH and LANG may be set here
    bundle.yml:7:14: secrets.a: expected a mapping, found a text
    bundle.yml:8:18: limits.memory: "big" is not a size such as 64Ki, 128Mi, 1Gi or 500M
    "#
    );
}
