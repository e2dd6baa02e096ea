//! The JSON schemas of parameters.
//!
//! The specification ("Schemas Object") demands `$schema`, at most 64 KiB and no reference that
//! leads out of the schema. Beyond that, a schema that is invalid in its own draft, or that cannot
//! be compiled, is an error; what Cloud Foundry refuses, which checks every schema against
//! draft 4, is a warning. Common mistakes are found by hand first, for the sake of a hint.

use std::cell::RefCell;

use jsonschema::{Draft, draft4, draft6, draft7, draft201909, draft202012};
use serde_json::Value as Json;

use super::field::{Entry, Field};
use super::names::shown;
use super::parameters::{BadSchema, ParameterSchema, draft_of};

/// The largest schema as compact JSON, in bytes ("64kB" of the specification).
const MAX_SCHEMA_BYTES: usize = 65_536;

const DRAFT_4: &str = "http://json-schema.org/draft-04/schema#";

const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];

/// Reads the schema in `field`.
pub(super) fn read(field: &Field<'_>, seen: &Seen) -> Option<ParameterSchema> {
    let entries = field.entries()?;
    let json = Json::Object(field.json_object()?);
    let draft = draft(field, &entries)?;
    let size = json.to_string().len();
    if size > MAX_SCHEMA_BYTES {
        field.error(format!(
            "the schema has {size} bytes as JSON, more than the {MAX_SCHEMA_BYTES} allowed"
        ));
        return None;
    }
    if !check(field, &json, draft) {
        return None;
    }
    let schema = seen.equal_to(ParameterSchema::new(json));
    // Compiling checks the draft's rules too, but tells the first breach only.
    if let Err(error) = schema.check() {
        if is_valid(field, schema.json(), draft) {
            say(field, &error);
        }
        return None;
    }
    warn_draft_4(field, schema.json(), draft);
    Some(schema)
}

/// The schemas of one bundle: plans mostly have the same, and equal ones are compiled once.
#[derive(Debug, Default)]
pub(super) struct Seen(RefCell<Vec<ParameterSchema>>);

impl Seen {
    fn equal_to(&self, schema: ParameterSchema) -> ParameterSchema {
        let mut seen = self.0.borrow_mut();
        if let Some(known) = seen.iter().find(|known| **known == schema) {
            return known.clone();
        }
        seen.push(schema.clone());
        schema
    }
}

/// Whether the defaults of the schema can be handed to actions.
pub(super) fn check_defaults(field: &Field<'_>, schema: &ParameterSchema) -> Option<()> {
    match schema.bad_defaults() {
        Ok(bad) => {
            for (pointer, message) in &bad {
                field.descend(pointer).error_with(
                    format!("does not fit its own schema: {}", shown(message)),
                    "with apply_defaults this is what actions get",
                );
            }
            bad.is_empty().then_some(())
        }
        Err(error) => {
            say(field, &error);
            None
        }
    }
}

fn say(field: &Field<'_>, error: &BadSchema) {
    refuse(field, &error.pointer, &error.message);
}

/// Reports what is wrong at a place of the schema in `field`.
fn refuse(field: &Field<'_>, pointer: &str, message: &str) {
    let place = field.descend(pointer);
    if pointer.ends_with("/pattern") || pointer.contains("/patternProperties") {
        place.error_with(
            format!("is no pattern that can be used: {}", shown(message)),
            "patterns are matched in linear time: without look-around and back-references, and \
             not too large",
        );
    } else {
        place.error(format!("is no valid schema: {}", shown(message)));
    }
}

fn draft(field: &Field<'_>, entries: &[Entry<'_>]) -> Option<Draft> {
    let Some(entry) = entries.iter().find(|entry| entry.name() == "$schema") else {
        field.error_with("`$schema` is missing", format!("add $schema: {DRAFT_4}"));
        return None;
    };
    let url = entry.value.text()?;
    let Some(draft) = draft_of(url) else {
        let message = format!("{:?} is no draft of JSON Schema", shown(url));
        entry.value.error_with(message, format!("use {DRAFT_4}"));
        return None;
    };
    if !matches!(draft, Draft::Draft4 | Draft::Draft6) {
        entry.value.warn(
            "Cloud Foundry refuses schemas newer than draft 6",
            format!("if it is to be offered there, use {DRAFT_4}"),
        );
    }
    Some(draft)
}

/// What the draft says of schemas.
fn is_valid(field: &Field<'_>, json: &Json, draft: Draft) -> bool {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the enum is open, and `draft_of` knows these five"
    )]
    let rules = match draft {
        Draft::Draft4 => draft4::meta::validator(),
        Draft::Draft6 => draft6::meta::validator(),
        Draft::Draft7 => draft7::meta::validator(),
        Draft::Draft201909 => draft201909::meta::validator(),
        _ => draft202012::meta::validator(),
    };
    let mut good = true;
    for error in rules.iter_errors(json) {
        good = false;
        let place = error.instance_path().as_str();
        refuse(field, place, &error.masked().to_string());
    }
    good
}

fn warn_draft_4(field: &Field<'_>, json: &Json, draft: Draft) {
    if draft == Draft::Draft4 {
        return;
    }
    for error in draft4::meta::validator().iter_errors(json) {
        let place = field.descend(error.instance_path().as_str());
        let message = error.masked().to_string();
        place.warn(
            format!(
                "Cloud Foundry checks schemas against draft 4: {}",
                shown(&message)
            ),
            "if the plan is to be offered there, use draft 4",
        );
    }
}

/// Checks a schema and all schemas in it; false if an error was reported.
fn check(schema: &Field<'_>, root: &Json, draft: Draft) -> bool {
    if schema.is_flag() {
        // `true` and `false` are schemas from draft 6 on, and allowed for some keywords before.
        return true;
    }
    let Some(entries) = schema.entries() else {
        return false;
    };
    let mut good = true;
    for entry in &entries {
        good &= check_keyword(entry.name(), &entry.value, root, draft);
    }
    good
}

fn check_keyword(keyword: &str, value: &Field<'_>, root: &Json, draft: Draft) -> bool {
    let each = |fields: Vec<Field<'_>>| {
        fields
            .iter()
            .fold(true, |good, field| check(field, root, draft) & good)
    };
    match keyword {
        "properties" | "patternProperties" | "definitions" | "$defs" | "dependentSchemas" => value
            .entries()
            .is_some_and(|entries| each(entries.into_iter().map(|e| e.value).collect())),
        // Each is a schema, or a list of names.
        "dependencies" => value.entries().is_some_and(|entries| {
            let values = entries.into_iter().map(|entry| entry.value);
            each(values.filter(|value| !value.is_list()).collect())
        }),
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => value.list().is_some_and(each),
        "items" if value.is_list() => value.list().is_some_and(each),
        "items"
        | "additionalItems"
        | "additionalProperties"
        | "not"
        | "contains"
        | "contentSchema"
        | "propertyNames"
        | "if"
        | "then"
        | "else"
        | "unevaluatedItems"
        | "unevaluatedProperties" => check(value, root, draft),
        "$ref" | "$dynamicRef" | "$recursiveRef" => reference(value, root),
        "required" => required(value),
        "type" => types(value),
        "exclusiveMinimum" | "exclusiveMaximum" => exclusive(keyword, value, draft),
        // Values, not schemas.
        "enum" | "const" | "default" | "examples" => true,
        _ => unknown(value, root),
    }
}

/// A keyword that no draft has may still hold what a reference leads to.
fn unknown(value: &Field<'_>, root: &Json) -> bool {
    if value.is_list() {
        let items = value.list().unwrap_or_default();
        return items
            .iter()
            .fold(true, |good, item| unknown(item, root) & good);
    }
    if !value.is_map() {
        return true;
    }
    let entries = value.entries().unwrap_or_default();
    entries.iter().fold(true, |good, entry| {
        let is_reference = matches!(entry.name(), "$ref" | "$dynamicRef" | "$recursiveRef")
            && entry.value.as_text().is_some();
        let fine = if is_reference {
            reference(&entry.value, root)
        } else {
            unknown(&entry.value, root)
        };
        fine & good
    })
}

fn reference(value: &Field<'_>, root: &Json) -> bool {
    let Some(target) = value.text() else {
        return false;
    };
    let Some(inside) = target.strip_prefix('#') else {
        value.error_with(
            format!("the reference {:?} leads out of the schema", shown(target)),
            "platforms may not fetch references: copy what it names under `definitions` and \
             write #/definitions/NAME",
        );
        return false;
    };
    // A pointer with escapes, or an anchor, is left to the validator.
    let is_plain_pointer = inside.starts_with('/') && !inside.contains('%');
    if is_plain_pointer && root.pointer(inside).is_none() {
        value.error(format!(
            "the reference {:?} points at nothing",
            shown(target)
        ));
        return false;
    }
    true
}

fn required(value: &Field<'_>) -> bool {
    if value.is_flag() {
        value.error_with(
            "must be a list of names",
            "`required: true` on a property was draft 3: list the name in `required` of the \
             object that holds the property",
        );
        return false;
    }
    value
        .list()
        .is_some_and(|names| names.iter().all(|name| name.any_text().is_some()))
}

fn types(value: &Field<'_>) -> bool {
    let known = |field: &Field<'_>| {
        let Some(name) = field.text() else {
            return false;
        };
        let known = TYPES.contains(&name);
        if !known {
            let message = format!("{:?} is no type of JSON", shown(name));
            field.error_with(message, format!("types are {}", TYPES.join(", ")));
        }
        known
    };
    if value.is_list() {
        return value.list().is_some_and(|names| names.iter().all(known));
    }
    known(value)
}

fn exclusive(keyword: &str, value: &Field<'_>, draft: Draft) -> bool {
    match (draft == Draft::Draft4, value.is_flag(), value.is_number()) {
        (true, true, false) | (false, false, true) => true,
        (true, _, _) => {
            let bound = if keyword == "exclusiveMinimum" {
                "minimum"
            } else {
                "maximum"
            };
            value.error_with(
                "must be true or false in draft 4",
                format!("put the number into `{bound}` and write {keyword}: true"),
            );
            false
        }
        (false, _, _) => {
            value.error("must be a number from draft 6 on");
            false
        }
    }
}
