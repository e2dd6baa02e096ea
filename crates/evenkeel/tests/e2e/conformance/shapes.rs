//! What a body may hold: never a null, and no field that its route does not declare.

use reqwest::Method;
use serde_json::Value;

use super::Ask;

pub(super) fn check(ask: &Ask, status: u16, body: &Value) {
    let what = format!("{} {}: {status} {body}", ask.method, ask.path);
    assert!(body.is_object(), "an object: {what}");
    assert!(!has_null(body), "no null: {what}");
    let fields = declared(&ask.method, &ask.path, status);
    let unknown: Vec<_> = keys(body).filter(|key| !fields.contains(key)).collect();
    assert!(unknown.is_empty(), "{unknown:?} is not declared: {what}");
    if status >= 400 {
        let description = body["description"].as_str().unwrap_or_default();
        assert!(!description.trim().is_empty(), "a description: {what}");
        let word = body.get("error").is_none_or(|word| {
            let word = word.as_str().unwrap_or_default();
            !word.is_empty() && word.chars().all(char::is_alphanumeric)
        });
        assert!(word, "a camel-case word: {what}");
    }
    if status == 202 {
        let operation = body["operation"].as_str().unwrap();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        assert!(
            operation.chars().all(plain),
            "eden does not escape it: {what}"
        );
    }
}

fn keys(body: &Value) -> impl Iterator<Item = &str> {
    body.as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.as_str())
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(fields) => fields.values().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The fields that versions 2.13 to 2.15 declare for an answer.
fn declared(method: &Method, path: &str, status: u16) -> &'static [&'static str] {
    let path = path.split('?').next().unwrap_or_default();
    let is_binding = path.contains("/service_bindings/");
    match (method.as_str(), status, is_binding) {
        (_, 400.., _) => &["error", "description"],
        ("GET", _, _) if path == "/v2/catalog" => &["services"],
        ("GET", _, _) if path.ends_with("/last_operation") => &["state", "description"],
        ("GET", _, false) => &[
            "service_id",
            "plan_id",
            "dashboard_url",
            "parameters",
            "maintenance_info",
        ],
        ("GET", _, true) => &["credentials", "parameters"],
        ("PUT", 202, true) | ("DELETE", 202, _) => &["operation"],
        ("PUT", _, true) => &["credentials"],
        ("PUT" | "PATCH", 202, false) => &["operation", "dashboard_url"],
        ("PUT" | "PATCH", _, false) => &["dashboard_url"],
        _ => &[],
    }
}

/// Fields of an offering and of a plan, by the version that brought them.
const OFFERING: [(&str, &str); 12] = [
    ("name", "2.13"),
    ("id", "2.13"),
    ("description", "2.13"),
    ("tags", "2.13"),
    ("requires", "2.13"),
    ("bindable", "2.13"),
    ("metadata", "2.13"),
    ("dashboard_client", "2.13"),
    ("plan_updateable", "2.13"),
    ("plans", "2.13"),
    ("instances_retrievable", "2.14"),
    ("bindings_retrievable", "2.14"),
];
const PLAN: [(&str, &str); 8] = [
    ("id", "2.13"),
    ("name", "2.13"),
    ("description", "2.13"),
    ("metadata", "2.13"),
    ("free", "2.13"),
    ("bindable", "2.13"),
    ("schemas", "2.13"),
    ("maintenance_info", "2.15"),
];

/// Fields of an offering and its plans that the API did not have in this version.
pub(super) fn newer_than(version: &str, offering: &Value) -> Vec<String> {
    let newer = |value: &Value, known: &[(&str, &str)]| -> Vec<String> {
        let is_known = |key: &str| {
            known
                .iter()
                .any(|(name, from)| *name == key && *from <= version)
        };
        keys(value)
            .filter(|key| !is_known(key))
            .map(str::to_owned)
            .collect()
    };
    let plans = offering["plans"].as_array().unwrap();
    let mut found = newer(offering, &OFFERING);
    found.extend(plans.iter().flat_map(|plan| newer(plan, &PLAN)));
    found
}
