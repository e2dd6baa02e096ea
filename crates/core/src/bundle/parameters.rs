//! The schema of an action's parameters, compiled when it is first needed and kept with it.
//!
//! No reference leaves a schema: the validator is built without any way to fetch one. Patterns
//! are matched in linear time, so that no parameter of a platform can make one slow.

use std::fmt;
use std::sync::{Arc, OnceLock};

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::defaults::Defaults;
use crate::request::Object;

/// The largest compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// A JSON schema of parameters. Equal, and written, as the JSON that it is; clones share what was
/// compiled.
#[derive(Clone)]
pub struct ParameterSchema {
    json: Value,
    compiled: Arc<Compiled>,
}

#[derive(Default)]
struct Compiled {
    validator: OnceLock<Result<Validator, BadSchema>>,
    defaults: OnceLock<Result<Defaults, BadSchema>>,
}

/// Why a schema cannot be used. A bundle that has passed [`Bundle::parse`](super::Bundle::parse)
/// of this release has none; one that an older release has pinned may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the schema cannot be used: {message}")]
pub struct BadSchema {
    /// JSON pointer to the place in the schema.
    pub pointer: String,
    /// What is wrong there.
    pub message: String,
}

/// Where parameters break their schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer into the parameters; empty for the whole.
    pub pointer: String,
    /// What the schema demands. Names properties; never shows a value, which may be a secret.
    pub message: String,
}

impl ParameterSchema {
    pub(super) fn new(json: Value) -> Self {
        Self {
            json,
            compiled: Arc::default(),
        }
    }

    /// The schema itself; an object in every bundle that was checked.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// The first place where `parameters` break the schema.
    ///
    /// # Errors
    /// The schema cannot be compiled.
    pub fn violation(&self, parameters: &Object) -> Result<Option<Violation>, BadSchema> {
        let value = Value::Object(parameters.clone());
        let error = self.validator()?.iter_errors(&value).next();
        Ok(error.map(|error| Violation {
            pointer: error.instance_path().to_string(),
            message: told(&error, &value),
        }))
    }

    /// Puts the schema's `default`s where `parameters` have nothing: for its properties, and for
    /// those of objects that are there.
    ///
    /// # Errors
    /// The schema nests too deep, or has too many defaults.
    pub fn fill(&self, parameters: &mut Object) -> Result<(), BadSchema> {
        self.defaults()?.fill(parameters);
        Ok(())
    }

    /// Each default that breaks the schema: JSON pointer into the schema, and what it demands.
    ///
    /// # Errors
    /// As of [`Self::violation`] and [`Self::fill`].
    pub(super) fn bad_defaults(&self) -> Result<Vec<(String, String)>, BadSchema> {
        let (filled, places) = self.defaults()?.all();
        let filled = Value::Object(filled);
        let mut bad = Vec::new();
        for error in self.validator()?.iter_errors(&filled) {
            let met = error.instance_path().as_str();
            let inside = |place: &str| {
                met.strip_prefix(place)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            // The innermost: a default may lie in the object of another one.
            let place = places.iter().filter(|(place, _)| inside(place));
            if let Some((_, at)) = place.max_by_key(|(place, _)| place.len()) {
                bad.push((format!("{at}/default"), error.masked().to_string()));
            }
        }
        Ok(bad)
    }

    pub(super) fn compile(&self) {
        // Kept with the schema, the error too.
        drop(self.validator());
        drop(self.defaults());
    }

    /// Compiles the schema unless that was done before.
    pub(super) fn check(&self) -> Result<(), BadSchema> {
        self.validator().map(drop)
    }

    fn validator(&self) -> Result<&Validator, BadSchema> {
        let validator = &self.compiled.validator;
        let validator = validator.get_or_init(|| compile(&self.json, draft(&self.json)?));
        validator.as_ref().map_err(Clone::clone)
    }

    fn defaults(&self) -> Result<&Defaults, BadSchema> {
        let defaults = &self.compiled.defaults;
        let defaults = defaults.get_or_init(|| Defaults::of(&self.json, draft(&self.json)?));
        defaults.as_ref().map_err(Clone::clone)
    }
}

/// The draft that a `$schema` names.
pub(super) fn draft_of(url: &str) -> Option<Draft> {
    let plain = url.trim_end_matches('#').trim_start_matches("https://");
    match plain.trim_start_matches("http://") {
        "json-schema.org/draft-04/schema" => Some(Draft::Draft4),
        "json-schema.org/draft-06/schema" => Some(Draft::Draft6),
        "json-schema.org/draft-07/schema" => Some(Draft::Draft7),
        "json-schema.org/draft/2019-09/schema" => Some(Draft::Draft201909),
        "json-schema.org/draft/2020-12/schema" => Some(Draft::Draft202012),
        _ => None,
    }
}

fn draft(json: &Value) -> Result<Draft, BadSchema> {
    let url = json.get("$schema").and_then(Value::as_str);
    url.and_then(draft_of).ok_or_else(|| BadSchema {
        pointer: "/$schema".to_owned(),
        message: "names no draft of JSON Schema".to_owned(),
    })
}

fn compile(json: &Value, draft: Draft) -> Result<Validator, BadSchema> {
    let patterns = PatternOptions::regex()
        .size_limit(MAX_PATTERN_BYTES)
        .dfa_size_limit(MAX_PATTERN_BYTES);
    jsonschema::options()
        .with_draft(draft)
        .with_pattern_options(patterns)
        .offline()
        .build(json)
        .map_err(|error| BadSchema {
            pointer: error.instance_path().to_string(),
            message: error.masked().to_string(),
        })
}

fn told(error: &ValidationError<'_>, parameters: &Value) -> String {
    // `additionalProperties: false` where there are no `properties`: the validator does not name
    // what it met.
    let place = parameters.pointer(error.instance_path().as_str());
    if let (ValidationErrorKind::FalseSchema, Some(Value::Object(met))) = (error.kind(), place) {
        let names: Vec<_> = met.keys().map(|name| format!("{name:?}")).collect();
        return format!("nothing is taken here, not {}", names.join(", "));
    }
    if let ValidationErrorKind::PropertyNames { error } = error.kind() {
        return format!("the name of a property: {}", error.masked());
    }
    // The masked form: a parameter may be a secret, the schema never is.
    error.masked().to_string()
}

impl PartialEq for ParameterSchema {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl fmt::Debug for ParameterSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.json.fmt(f)
    }
}

impl Serialize for ParameterSchema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ParameterSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::new)
    }
}
