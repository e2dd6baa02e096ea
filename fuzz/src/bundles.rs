//! What authors of bundles write: `bundle.yml`, and the schemas of parameters in it.

use evenkeel_core::action::Action;
use evenkeel_core::bundle::{Bundle, BundleError, FileFact, Finding, MAX_FINDINGS, check_catalog};
use evenkeel_core::request::Object;
use serde_json::{Value, json};
use uuid::Uuid;

use super::replay::Target;

/// The targets of this module.
pub const TARGETS: [Target; 1] = [("bundle", bundle)];

const NAMESPACE: Uuid = Uuid::from_u128(0x6ba7_b810_9dad_11d1_80b4_00c0_4fd4_30c8);
/// The longest message, in characters; `shown` cuts what it repeats.
const MAX_MESSAGE_CHARS: usize = 1000;

/// The bytes as a `bundle.yml`; and, where they are JSON, as the schema of a plan's parameters. What
/// follows a line `%%` is taken as the parameters that are checked with it.
pub fn bundle(data: &[u8]) {
    parsed(data);
    let (schema, parameters) = match find(data, b"\n%%\n") {
        Some(at) => (&data[..at], &data[at + 4..]),
        None => (data, &b"{}"[..]),
    };
    let Ok(schema @ Value::Object(_)) = serde_json::from_slice(schema) else {
        return;
    };
    // JSON is YAML.
    let text = json!({
        "bundle": 1,
        "service": {"name": "db", "description": "A database"},
        "plans": [{
            "name": "small",
            "description": "A small one",
            "schemas": {"provision": schema, "apply_defaults": true},
        }],
        "actions": {
            "provision": {"command": ["./provision"]},
            "deprovision": {"command": ["./deprovision"]},
        },
    });
    let Some(bundle) = parsed(text.to_string().as_bytes()) else {
        return;
    };
    let schema = bundle.plans[0].schemas.of(Action::Provision);
    let schema = schema.expect("the schema that was given");
    let mut parameters: Object = serde_json::from_slice(parameters).unwrap_or_default();
    let found = schema.violation(&parameters);
    let found = found.unwrap_or_else(|error| panic!("it was checked: {error:?}"));
    if let Some(violation) = found {
        assert!(!violation.message.is_empty());
        let whole = Value::Object(parameters.clone());
        assert!(whole.pointer(&violation.pointer).is_some(), "{violation:?}");
    }
    schema
        .fill(&mut parameters)
        .unwrap_or_else(|error| panic!("it was checked: {error:?}"));
    let filled = parameters.clone();
    schema.fill(&mut parameters).expect("as before");
    assert_eq!(parameters, filled, "what is filled is full");
    schema.violation(&parameters).expect("as before");
}

/// As the loader reads a bundle: checked, stored, and read again.
fn parsed(yaml: &[u8]) -> Option<Bundle> {
    let (bundle, warnings) = match Bundle::parse(yaml, NAMESPACE, &files) {
        Ok(parsed) => parsed,
        Err(errors) => {
            assert!(!errors.is_empty(), "refused without a reason");
            assert!(errors.len() <= MAX_FINDINGS + 1);
            for BundleError(error) in &errors {
                assert_told(error, yaml);
            }
            return None;
        }
    };
    assert!(warnings.len() <= MAX_FINDINGS + 1);
    for warning in &warnings {
        assert_told(&warning.0, yaml);
    }
    let stored = serde_json::to_vec(&bundle).expect("JSON");
    let again: Bundle = serde_json::from_slice(&stored).expect("a bundle");
    assert_eq!(again, bundle);
    let (accepted, errors) = check_catalog(&[("a", &bundle)]);
    assert_eq!((accepted, errors.len()), (vec![0], 0));
    let (accepted, errors) = check_catalog(&[("b", &bundle), ("a", &again)]);
    assert_eq!(accepted, [1]);
    assert!(!errors.is_empty());
    for plan in &bundle.plans {
        assert_eq!(bundle.plan(&plan.id), Some(plan));
        for action in [Action::Provision, Action::Update, Action::Bind] {
            if let Some(schema) = plan.schemas.of(action) {
                assert!(schema.json().is_object());
                let told = schema.violation(&Object::new());
                told.unwrap_or_else(|error| panic!("it was checked: {error:?}"));
            }
        }
    }
    Some(bundle)
}

/// A finding names its place and can be shown.
fn assert_told(finding: &Finding, yaml: &[u8]) {
    let lines = yaml.split(|byte| *byte == b'\n').count();
    assert!(!finding.message.is_empty());
    let text = finding.to_string();
    assert!(text.chars().count() <= MAX_MESSAGE_CHARS, "{text}");
    assert!(
        !text.contains(|char: char| char.is_control() && char != '\n'),
        "{text:?}"
    );
    let counts_others = finding.message.ends_with("not shown");
    // YAML 1.2 breaks lines at carriage returns too.
    let returns = yaml.iter().filter(|byte| **byte == b'\r').count();
    let placed = (1..=lines + returns + 1).contains(&(finding.line as usize)) && finding.column > 0;
    assert!(placed || counts_others, "no place: {finding:?}");
}

/// Every file of the seeds' commands.
fn files(path: &str) -> Option<FileFact> {
    match path {
        "provision" | "update" | "bind" | "unbind" | "deprovision" | "bin/make" => {
            Some(FileFact { executable: true })
        }
        "notes.txt" => Some(FileFact { executable: false }),
        _ => None,
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|part| part == what)
}
