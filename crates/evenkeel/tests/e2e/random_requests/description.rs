//! The description, read into what requests are made from and answers are checked against.

use std::collections::BTreeMap;
use std::fs;

use jsonschema::{Draft, Validator};
use serde_json::{Map, Value, json};

use super::text;
use crate::harness::root;

/// `docs/osb-openapi.yaml`.
#[derive(Debug)]
pub(super) struct Description {
    document: Value,
    /// By path and method.
    paths: BTreeMap<String, BTreeMap<String, Operation>>,
}

#[derive(Debug)]
pub(super) struct Operation {
    pub(super) id: String,
    pub(super) method: String,
    /// As `/v2/service_instances/{instance_id}`.
    pub(super) template: String,
    pub(super) parameters: Vec<Parameter>,
    /// The schema of its body, if it has one.
    pub(super) body: Option<Value>,
    pub(super) responses: BTreeMap<u16, Response>,
}

#[derive(Clone, Debug)]
pub(super) struct Parameter {
    pub(super) name: String,
    /// `path`, `query` or `header`.
    pub(super) place: String,
    pub(super) required: bool,
    pub(super) schema: Value,
}

#[derive(Debug)]
pub(super) struct Response {
    /// None where there is no body.
    pub(super) body: Option<Validator>,
    /// Headers that have to be there, and what their values look like.
    pub(super) headers: Vec<(String, Validator)>,
}

impl Description {
    pub(super) fn read() -> Self {
        let file = fs::read_to_string(root().join("docs/osb-openapi.yaml")).unwrap();
        let document: Value = serde_saphyr::from_str(&file).unwrap();
        let mut paths = BTreeMap::new();
        for (template, item) in object(&document["paths"]) {
            let mut methods = BTreeMap::new();
            for (method, operation) in object(item) {
                if method != "parameters" {
                    let method = method.to_uppercase();
                    let read = Operation::read(&document, template, &method, item, operation);
                    methods.insert(method, read);
                }
            }
            paths.insert(template.clone(), methods);
        }
        Self { document, paths }
    }

    pub(super) fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.paths.values().flat_map(BTreeMap::values)
    }

    /// Each operation's id with each status that it declares.
    pub(super) fn declared(&self) -> impl Iterator<Item = (String, u16)> {
        self.operations().flat_map(|operation| {
            operation
                .responses
                .keys()
                .map(|status| (operation.id.clone(), *status))
        })
    }

    /// The operations of the path that a target leads to, by method.
    pub(super) fn at(&self, target: &str) -> Option<&BTreeMap<String, Operation>> {
        let path = target.split('?').next().unwrap_or_default();
        let segments: Vec<_> = path.split('/').collect();
        let fits = |template: &str| {
            let pattern: Vec<_> = template.split('/').collect();
            pattern.len() == segments.len()
                && pattern.iter().zip(&segments).all(|(pattern, segment)| {
                    pattern == segment || (pattern.starts_with('{') && !segment.is_empty())
                })
        };
        self.paths
            .iter()
            .find(|(template, _)| fits(template))
            .map(|(_, methods)| methods)
    }

    /// What a schema or a reference to one stands for.
    pub(super) fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        resolved(&self.document, value)
    }
}

impl Operation {
    fn read(
        document: &Value,
        template: &str,
        method: &str,
        item: &Value,
        operation: &Value,
    ) -> Self {
        let parameters = [&item["parameters"], &operation["parameters"]]
            .into_iter()
            .filter_map(Value::as_array)
            .flatten()
            .map(|parameter| {
                let parameter = resolved(document, parameter);
                Parameter {
                    name: text(parameter, "name"),
                    place: text(parameter, "in"),
                    required: parameter["required"] == true,
                    schema: parameter["schema"].clone(),
                }
            });
        let responses = object(&operation["responses"])
            .iter()
            .map(|(status, response)| {
                (
                    status.parse().unwrap(),
                    Response::read(document, resolved(document, response)),
                )
            });
        Self {
            id: text(operation, "operationId"),
            method: method.to_owned(),
            template: template.to_owned(),
            parameters: parameters.collect(),
            body: operation
                .pointer("/requestBody/content/application~1json/schema")
                .cloned(),
            responses: responses.collect(),
        }
    }
}

impl Response {
    fn read(document: &Value, response: &Value) -> Self {
        let headers = response["headers"].as_object().into_iter().flatten();
        let needed = headers.map(|(name, header)| (name, resolved(document, header)));
        let needed = needed.filter(|(_, header)| header["required"] == true);
        Self {
            body: response
                .pointer("/content/application~1json/schema")
                .map(|schema| validator(document, schema)),
            headers: needed
                .map(|(name, header)| (name.clone(), validator(document, &header["schema"])))
                .collect(),
        }
    }
}

/// OpenAPI 3.0's schemas are JSON Schema draft 4, as far as this description goes.
fn validator(document: &Value, schema: &Value) -> Validator {
    // Draft 4 ignores what stands beside a reference.
    let whole = json!({ "allOf": [schema], "components": document["components"] });
    jsonschema::options()
        .with_draft(Draft::Draft4)
        .build(&whole)
        .unwrap()
}

fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(reference) => {
            let pointer = reference
                .strip_prefix('#')
                .expect("a reference within the file");
            let target = document.pointer(pointer);
            resolved(
                document,
                target.unwrap_or_else(|| panic!("{reference} leads nowhere")),
            )
        }
        None => value,
    }
}

fn object(value: &Value) -> &Map<String, Value> {
    value
        .as_object()
        .unwrap_or_else(|| panic!("an object is needed, not {value}"))
}
