//! The defaults of a schema, found once, so that filling them in is bounded and cannot fail.
//!
//! Followed are `properties`, `$ref` within the schema and `allOf`: what holds for every value.
//! Not followed are the branches of `anyOf`, `oneOf` and `if`, and the items of arrays.

use std::collections::BTreeMap;

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::parameters::BadSchema;
use crate::request::Object;

/// Schemas that are looked at for one schema; references may name the same one again and again.
const MAX_VISITS: usize = 10_000;
/// Objects within objects.
const MAX_DEPTH: usize = 32;
/// All defaults of one schema together, in bytes of JSON.
const MAX_BYTES: usize = 1 << 20;

/// What an object gets for the properties that it does not have.
#[derive(Debug, Default)]
pub(super) struct Defaults(BTreeMap<String, Property>);

#[derive(Debug)]
struct Property {
    default: Option<Value>,
    /// JSON pointer to the schema that has the default.
    at: String,
    inner: Defaults,
}

impl Defaults {
    pub(super) fn of(root: &Value, draft: Draft) -> Result<Self, BadSchema> {
        let mut search = Search {
            root,
            // There, `$ref` stands for itself and all beside it is ignored.
            lone_ref: matches!(draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7),
            open: Vec::new(),
            visits: 0,
            bytes: 0,
        };
        let layers = search.layers(String::new(), root)?;
        search.properties(&layers, 0)
    }

    pub(super) fn fill(&self, object: &mut Object) {
        for (name, property) in &self.0 {
            if let (None, Some(default)) = (object.get(name), &property.default) {
                object.insert(name.clone(), default.clone());
            }
            if let Some(Value::Object(inner)) = object.get_mut(name) {
                property.inner.fill(inner);
            }
        }
    }

    /// An object with every default, also of objects that have none themselves; and for each
    /// default the pointer to it in that object, and to its schema.
    pub(super) fn all(&self) -> (Object, Vec<(String, String)>) {
        let (mut object, mut places) = (Object::new(), Vec::new());
        self.collect(&mut object, "", &mut places);
        (object, places)
    }

    fn collect(&self, object: &mut Object, at: &str, places: &mut Vec<(String, String)>) {
        for (name, property) in &self.0 {
            let here = format!("{at}/{}", escaped(name));
            let value = property.default.clone();
            let value = value.unwrap_or_else(|| Value::Object(Object::new()));
            if property.default.is_some() {
                places.push((here.clone(), property.at.clone()));
            }
            let value = object.entry(name.clone()).or_insert(value);
            if let Value::Object(inner) = value {
                property.inner.collect(inner, &here, places);
            }
        }
    }
}

/// A schema in the schema, and the pointer to it.
type Layer<'a> = (String, &'a Map<String, Value>);

struct Search<'a> {
    root: &'a Value,
    lone_ref: bool,
    /// Where the search is within: a schema that leads back to itself is not followed again.
    open: Vec<String>,
    visits: usize,
    bytes: usize,
}

impl<'a> Search<'a> {
    /// The schemas that all hold where `schema` does: itself, what it refers to, `allOf`.
    fn layers(&mut self, at: String, schema: &'a Value) -> Result<Vec<Layer<'a>>, BadSchema> {
        let mut layers: Vec<Layer<'a>> = Vec::new();
        let mut rest = vec![(at, schema)];
        while let Some((at, schema)) = rest.pop() {
            let Value::Object(schema) = schema else {
                continue;
            };
            if self.open.contains(&at) || layers.iter().any(|(known, _)| *known == at) {
                continue;
            }
            self.visits += 1;
            if self.visits > MAX_VISITS {
                return Err(too_many(&at, "too many schemas to look at"));
            }
            let target = schema.get("$ref").and_then(Value::as_str);
            let target = target.and_then(|target| target.strip_prefix('#'));
            let found = target.and_then(|pointer| Some((pointer, self.root.pointer(pointer)?)));
            if let Some((pointer, found)) = found {
                rest.push((pointer.to_owned(), found));
                if self.lone_ref {
                    continue;
                }
            }
            let all = schema.get("allOf").and_then(Value::as_array);
            let all = all.map(Vec::as_slice).unwrap_or_default();
            let all = all.iter().enumerate().rev();
            rest.extend(all.map(|(index, schema)| (format!("{at}/allOf/{index}"), schema)));
            layers.push((at, schema));
        }
        Ok(layers)
    }

    fn properties(&mut self, layers: &[Layer<'a>], depth: usize) -> Result<Defaults, BadSchema> {
        let outside = self.open.len();
        self.open.extend(layers.iter().map(|(at, _)| at.clone()));
        let mut found: BTreeMap<&'a str, Vec<Layer<'a>>> = BTreeMap::new();
        for (at, schema) in layers {
            let properties = schema.get("properties").and_then(Value::as_object);
            for (name, schema) in properties.into_iter().flatten() {
                let at = format!("{at}/properties/{}", escaped(name));
                let layers = self.layers(at, schema)?;
                found.entry(name).or_default().extend(layers);
            }
        }
        let mut defaults = Defaults::default();
        for (name, layers) in found {
            let default = layers
                .iter()
                .find_map(|(at, schema)| Some((at, schema.get("default")?)));
            if let Some((at, default)) = default {
                self.bytes += default.to_string().len();
                if self.bytes > MAX_BYTES {
                    return Err(too_many(at, "more than 1 MiB of defaults"));
                }
            }
            if depth == MAX_DEPTH {
                let at = layers.first().map_or("", |(at, _)| at);
                return Err(too_many(at, "objects nested deeper than 32"));
            }
            let inner = self.properties(&layers, depth + 1)?;
            if default.is_some() || !inner.0.is_empty() {
                let property = Property {
                    default: default.map(|(_, default)| default.clone()),
                    at: default.map_or_else(String::new, |(at, _)| at.clone()),
                    inner,
                };
                defaults.0.insert(name.to_owned(), property);
            }
        }
        self.open.truncate(outside);
        Ok(defaults)
    }
}

fn too_many(at: &str, what: &str) -> BadSchema {
    BadSchema {
        pointer: at.to_owned(),
        message: format!("its defaults cannot be applied: there are {what}"),
    }
}

/// A name as a part of a JSON pointer (RFC 6901).
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
