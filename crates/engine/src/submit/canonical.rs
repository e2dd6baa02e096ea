//! The form of a request that tells requests apart.

use evenkeel_core::action::Action;
use evenkeel_core::admit::Ask;
use evenkeel_core::ids::{PlanId, RequestDigest, ServiceId};
use evenkeel_core::request::Object;
use serde_json::{Number, Value, json};

use crate::service::Shared;

/// Integers up to here are the same number in JSON's grammar and in every program (RFC 8259, 6).
const EXACT: f64 = 9_007_199_254_740_992.0;

/// What makes two orders of an instance the same (OSB.md P4): not the context, whose names
/// change, nor who asks for whom.
#[derive(Debug)]
pub(super) struct Ordered<'a> {
    pub(super) service: &'a ServiceId,
    pub(super) plan: &'a PlanId,
    pub(super) organization_guid: Option<&'a str>,
    pub(super) space_guid: Option<&'a str>,
    pub(super) parameters: &'a Object,
}

impl Ordered<'_> {
    pub(super) fn digest(&self, shared: &Shared) -> RequestDigest {
        let what = json!({
            "service": self.service,
            "plan": self.plan,
            "organization_guid": self.organization_guid,
            "space_guid": self.space_guid,
            "parameters": self.parameters,
        });
        ask(shared, Action::Provision, &what).digest
    }
}

/// What tells requests of an action apart.
pub(super) fn ask(shared: &Shared, action: Action, what: &Value) -> Ask {
    let canonical = canonical(&json!({ "action": action, "what": what }));
    Ask {
        action,
        digest: shared.options.store.digest(&canonical),
    }
}

/// Whether two sets of parameters say the same.
pub(super) fn is_same(one: &Object, other: &Object) -> bool {
    let form = |object: &Object| canonical(&Value::Object(object.clone()));
    form(one) == form(other)
}

/// JSON with sorted keys at every level, and one spelling for each number.
fn canonical(value: &Value) -> Vec<u8> {
    sorted(value).to_string().into_bytes()
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by(|a, b| a.0.cmp(b.0));
            // As pairs, so that the order is kept whatever a JSON map does with it.
            json!([
                "{}",
                entries
                    .into_iter()
                    .map(|(key, value)| json!([key, sorted(value)]))
                    .collect::<Vec<_>>()
            ])
        }
        Value::Array(items) => json!(["[]", items.iter().map(sorted).collect::<Vec<_>>()]),
        Value::Number(number) => number_of(number),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// `1`, `1.0` and `1e0` are one number.
fn number_of(number: &Number) -> Value {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT => {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "an integer, and no larger than an i64 holds"
            )]
            let integer = float as i64;
            Value::from(integer)
        }
        Some(_) | None => Value::Number(number.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<u8> {
        canonical(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn the_canonical_form_does_not_depend_on_the_order_of_keys() {
        assert_eq!(
            read(r#"{"a":{"x":1,"y":[{"p":1,"q":2}]},"b":2}"#),
            read(r#"{"b":2,"a":{"y":[{"q":2,"p":1}],"x":1}}"#)
        );
    }

    #[test]
    fn a_number_is_the_same_however_it_is_written() {
        for same in ["[1.0]", "[1e0]", "[10e-1]"] {
            assert_eq!(read(same), read("[1]"), "{same}");
        }
        assert_eq!(read("[-0.0]"), read("[0]"));
        assert_ne!(read("[1.5]"), read("[1]"));
        assert_ne!(read("[9007199254740993]"), read("[9007199254740992]"));
        assert_ne!(read("[1e300]"), read("[1e301]"));
    }

    #[test]
    fn different_documents_have_different_canonical_forms() {
        let documents = [
            json!({}),
            json!([]),
            json!(["{}", []]),
            json!(["[]", []]),
            json!({ "a": 1 }),
            json!([["a", 1]]),
            json!({ "a": "1" }),
            json!({ "a": { "b": 1 } }),
            json!({ "a": [["b", 1]] }),
            json!([1, 2]),
            json!([2, 1]),
            json!(null),
            json!({ "a": null }),
        ];
        let forms: std::collections::BTreeSet<_> = documents.iter().map(canonical).collect();
        assert_eq!(forms.len(), documents.len());
    }
}
