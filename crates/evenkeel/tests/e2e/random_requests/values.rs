//! Values by a schema, and what can go wrong with them.

use serde_json::{Map, Value, json};

use super::chance::Chance;
use super::description::Description;

/// How deep a body may be nested; one more is refused.
const MAX_DEPTH: usize = 64;

/// Values for fields of certain names, where the schema alone would lead nowhere.
pub(super) type Known = Map<String, Value>;

/// A value that is valid by the schema.
pub(super) fn valid(
    description: &Description,
    schema: &Value,
    known: &Known,
    chance: &mut Chance,
) -> Value {
    let schema = description.resolved(schema);
    if let Some(either) = schema["anyOf"].as_array() {
        // Mostly the first: the others are for rarer needs.
        let choice = if chance.one_in(8) {
            chance.below(either.len())
        } else {
            0
        };
        return valid(description, &either[choice], known, chance);
    }
    if let Some(values) = schema["enum"].as_array() {
        return chance.pick(values).clone();
    }
    if !schema["example"].is_null() && !chance.one_in(10) {
        return schema["example"].clone();
    }
    match schema["type"].as_str() {
        Some("object") => object(description, schema, known, chance),
        Some("array") => {
            let count = chance.below(3);
            (0..count)
                .map(|_| valid(description, &schema["items"], known, chance))
                .collect()
        }
        Some("integer" | "number") => Value::from(chance.below(100)),
        Some("boolean") => Value::from(chance.one_in(2)),
        Some(_) | None => Value::from(format!("x{}", chance.text(12))),
    }
}

fn object(description: &Description, schema: &Value, known: &Known, chance: &mut Chance) -> Value {
    let Some(properties) = schema["properties"].as_object() else {
        return free(chance, 2);
    };
    let required: Vec<_> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let mut made = Map::new();
    for (name, schema) in properties {
        let is_required = required.iter().any(|required| *required == name);
        // Most optional fields decide nothing; this one is refused unless it fits.
        let seldom = if name == "maintenance_info" { 12 } else { 3 };
        if is_required || chance.one_in(seldom) {
            let value = match known.get(name) {
                Some(value) => value.clone(),
                None => valid(description, schema, known, chance),
            };
            made.insert(name.clone(), value);
        }
    }
    Value::Object(made)
}

/// Any JSON.
pub(super) fn any(chance: &mut Chance, depth: usize) -> Value {
    match chance.below(if depth == 0 { 6 } else { 8 }) {
        0 => Value::Null,
        1 => Value::from(chance.one_in(2)),
        2 => Value::from(chance.below(1000)),
        3 => json!(-1.5e300),
        4 => Value::from(u64::MAX),
        5 => Value::from(chance.text(20)),
        6 => {
            let count = chance.below(4);
            (0..count).map(|_| any(chance, depth - 1)).collect()
        }
        _ => free(chance, depth - 1),
    }
}

fn free(chance: &mut Chance, depth: usize) -> Value {
    let count = chance.below(3);
    let members = (0..count).map(|_| (chance.text(6), any(chance, depth)));
    Value::Object(members.collect())
}

/// Makes one thing of an object odd.
pub(super) fn spoil(object: &mut Map<String, Value>, chance: &mut Chance) {
    let names: Vec<_> = object.keys().cloned().collect();
    let name = if names.is_empty() {
        String::from("x")
    } else {
        chance.pick(&names).clone()
    };
    match chance.below(8) {
        0 => drop(object.remove(&name)),
        1 => drop(object.insert(name, Value::Null)),
        2 => drop(object.insert(name, Value::from(""))),
        3 => drop(object.insert(name, any(chance, 2))),
        4 => drop(object.insert(chance.text(10), any(chance, 2))),
        5 => drop(object.insert(name, Value::from(chance.text(3000)))),
        6 => {
            let depth = MAX_DEPTH - 4 + chance.below(8);
            drop(object.insert("parameters".to_owned(), nested(depth)));
        }
        _ => match object.get_mut(&name) {
            Some(Value::Object(inner)) => spoil(inner, chance),
            Some(_) | None => drop(object.insert(name, json!({}))),
        },
    }
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!({}), |inner, _| json!({ "a": inner }))
}

/// Bytes that are no JSON object, or more of it than is read.
pub(super) fn broken(whole: &[u8], chance: &mut Chance) -> Vec<u8> {
    match chance.below(12) {
        0 => Vec::new(),
        1 => whole[..chance.below(whole.len())].to_vec(),
        2 => [whole, b" {}"].concat(),
        3 => b"[]".to_vec(),
        4 => Value::from(chance.text(10)).to_string().into_bytes(),
        5 => chance.bytes(300),
        6 => "[".repeat(10_000).into_bytes(),
        7 => {
            let deep = format!("{}{}", "{\"a\":".repeat(5_000), "1");
            format!("{deep}{}", "}".repeat(5_000)).into_bytes()
        }
        8 => "{\"service_id\": \"\\ud800\", \"plan_id\": \"\\u0000\"}"
            .as_bytes()
            .to_vec(),
        _ => large(if chance.one_in(3) { 300_000 } else { 1_100_000 }),
    }
}

fn large(bytes: usize) -> Vec<u8> {
    json!({ "service_id": "x", "parameters": { "blob": "x".repeat(bytes) } })
        .to_string()
        .into_bytes()
}
