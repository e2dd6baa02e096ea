//! The JSON schemas of parameters.
//!
//! The specification ("Schemas Object") demands `$schema`, at most 64 KiB and no reference that
//! leads out of the schema. Beyond that, the mistakes that make a schema invalid in its own draft
//! are errors, and what Cloud Foundry refuses, which checks every schema against draft 4, is a
//! warning.

use serde_json::Value as Json;

use super::field::{Entry, Field};
use super::names::shown;

/// The largest schema as compact JSON, in bytes ("64kB" of the specification).
const MAX_SCHEMA_BYTES: usize = 65_536;

const DRAFT_4: &str = "http://json-schema.org/draft-04/schema#";

const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Draft {
    D4,
    D6,
    Later,
}

/// Reads the schema in `field`.
pub(super) fn read(field: &Field<'_>) -> Option<Json> {
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
    check(field, &json, draft).then_some(json)
}

fn draft(field: &Field<'_>, entries: &[Entry<'_>]) -> Option<Draft> {
    let Some(entry) = entries.iter().find(|entry| entry.name() == "$schema") else {
        field.error_with("`$schema` is missing", format!("add $schema: {DRAFT_4}"));
        return None;
    };
    let url = entry.value.text()?;
    let plain = url.trim_end_matches('#').trim_start_matches("https://");
    match plain.trim_start_matches("http://") {
        "json-schema.org/draft-04/schema" => Some(Draft::D4),
        "json-schema.org/draft-06/schema" => Some(Draft::D6),
        "json-schema.org/draft-07/schema"
        | "json-schema.org/draft/2019-09/schema"
        | "json-schema.org/draft/2020-12/schema" => {
            entry.value.warn(
                "Cloud Foundry refuses schemas newer than draft 6",
                format!("if it is to be offered there, use {DRAFT_4}"),
            );
            Some(Draft::Later)
        }
        _ => {
            let message = format!("{:?} is no draft of JSON Schema", shown(url));
            entry.value.error_with(message, format!("use {DRAFT_4}"));
            None
        }
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
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => value.list().is_some_and(each),
        "items" if value.is_list() => value.list().is_some_and(each),
        "items"
        | "additionalItems"
        | "additionalProperties"
        | "not"
        | "contains"
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
        _ => true,
    }
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
    match (draft, value.is_flag(), value.is_number()) {
        (Draft::D4, true, false) => true,
        (Draft::D4, _, _) => {
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
        (Draft::D6 | Draft::Later, false, true) => {
            value.warn(
                "Cloud Foundry checks schemas against draft 4, where this must be a boolean",
                "if the plan is to be offered there, use draft 4",
            );
            true
        }
        (Draft::D6 | Draft::Later, _, _) => {
            value.error("must be a number from draft 6 on");
            false
        }
    }
}
