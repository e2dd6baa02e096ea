//! What a catalog must obey beyond its shape: uniqueness and sizes of the specification, and those limits of Cloud
//! Foundry that are stricter.

use std::collections::HashSet;
use std::fmt;

use serde_json::{Map, Value};

use super::{Catalog, Plan, ServiceOffering};

/// What is wrong with a catalog, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {message}")]
pub struct CatalogProblem {
    /// JSON pointer into the catalog as it is written.
    pub pointer: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Catalog {
    /// Everything that a platform may refuse this catalog for. An empty catalog is none of it.
    pub fn problems(&self) -> Vec<CatalogProblem> {
        let mut check = Check::default();
        for (index, service) in self.services.iter().enumerate() {
            check.service(&format!("/services/{index}"), service);
        }
        check.problems
    }
}

#[derive(Default)]
struct Check<'a> {
    problems: Vec<CatalogProblem>,
    /// (kind, text) seen so far.
    seen: HashSet<(&'static str, &'a str)>,
}

impl<'a> Check<'a> {
    fn service(&mut self, at: &str, service: &'a ServiceOffering) {
        self.name_and_description(at, &service.name, &service.description);
        self.id(at, &service.id);
        self.unique(
            &format!("{at}/name"),
            "service offering's name",
            &service.name,
        );
        self.at_most(
            &format!("{at}/tags"),
            "characters in all",
            service.tags.join("").chars().count(),
            2_048,
        );
        if let Some(client) = &service.dashboard_client {
            self.unique(
                &format!("{at}/dashboard_client/id"),
                "dashboard client's id",
                &client.id,
            );
            for (name, text) in [
                ("id", Some(&client.id)),
                ("secret", Some(&client.secret)),
                ("redirect_uri", client.redirect_uri.as_ref()),
            ] {
                if text.is_none_or(|text| text.trim().is_empty()) {
                    self.problem(format!("{at}/dashboard_client/{name}"), "is missing");
                }
            }
        }
        if service.plans.is_empty() {
            self.problem(
                format!("{at}/plans"),
                "is empty: a service offering has at least one plan",
            );
        }
        let mut names = HashSet::new();
        for (index, plan) in service.plans.iter().enumerate() {
            let at = format!("{at}/plans/{index}");
            self.plan(&at, plan);
            if !names.insert(&plan.name) {
                self.problem(
                    format!("{at}/name"),
                    "is taken by another plan of the same service offering",
                );
            }
        }
    }

    fn plan(&mut self, at: &str, plan: &'a Plan) {
        self.name_and_description(at, &plan.name, &plan.description);
        self.id(at, &plan.id);
        let schemas = [
            ("service_instance/create", &plan.schemas.provision),
            ("service_instance/update", &plan.schemas.update),
            ("service_binding/create", &plan.schemas.bind),
        ];
        for (name, schema) in schemas {
            if let Some(schema) = schema {
                self.schema(&format!("{at}/schemas/{name}/parameters"), schema);
            }
        }
        if let Some(info) = &plan.maintenance_info {
            let at = format!("{at}/maintenance_info");
            if !is_semantic_version(&info.version) {
                self.problem(
                    format!("{at}/version"),
                    "must be a semantic version as 1.2.3",
                );
            }
            self.at_most(&at, "characters as JSON", json_size(info), 2_000);
        }
    }

    fn schema(&mut self, at: &str, schema: &Map<String, Value>) {
        if !schema.get("$schema").is_some_and(Value::is_string) {
            self.problem(
                format!("{at}/$schema"),
                "is missing: name the draft of JSON Schema",
            );
        }
        self.at_most(at, "bytes as JSON", json_size(schema), 65_536);
        // A stack of its own: a schema built in memory may be nested as deep as it likes.
        let mut rest: Vec<&Value> = schema.values().collect();
        let root = schema.get("$ref").into_iter();
        let mut references: Vec<&Value> = root.collect();
        while let Some(value) = rest.pop() {
            match value {
                Value::Object(object) => {
                    references.extend(object.get("$ref"));
                    rest.extend(object.values());
                }
                Value::Array(array) => rest.extend(array),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        // A `$ref` that is no string is a property of that name.
        if references
            .iter()
            .filter_map(|reference| reference.as_str())
            .any(|reference| !reference.starts_with('#'))
        {
            self.problem(
                at.to_owned(),
                "has a $ref that leaves the schema: only \"#…\" is allowed",
            );
        }
    }

    fn name_and_description(&mut self, at: &str, name: &str, description: &str) {
        self.not_blank(&format!("{at}/name"), name);
        self.at_most(
            &format!("{at}/name"),
            "characters",
            name.chars().count(),
            255,
        );
        self.not_blank(&format!("{at}/description"), description);
        self.at_most(
            &format!("{at}/description"),
            "characters",
            description.chars().count(),
            10_000,
        );
    }

    fn id(&mut self, at: &str, id: &'a str) {
        let at = format!("{at}/id");
        self.not_blank(&at, id);
        self.at_most(&at, "characters", id.chars().count(), 255);
        // Offerings and plans share one set: ids are globally unique.
        self.unique(&at, "service offering's or plan's id", id);
    }

    fn unique(&mut self, at: &str, kind: &'static str, text: &'a str) {
        if !self.seen.insert((kind, text)) {
            self.problem(at.to_owned(), format!("is another {kind} already"));
        }
    }

    fn not_blank(&mut self, at: &str, text: &str) {
        if text.trim().is_empty() {
            self.problem(at.to_owned(), "is empty");
        }
    }

    fn at_most(&mut self, at: &str, unit: &str, size: usize, limit: usize) {
        if size > limit {
            self.problem(
                at.to_owned(),
                format!("has {size} {unit}: at most {limit} are allowed"),
            );
        }
    }

    fn problem(&mut self, pointer: String, message: impl fmt::Display) {
        self.problems.push(CatalogProblem {
            pointer,
            message: message.to_string(),
        });
    }
}

fn json_size(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |json| json.len())
}

/// Semantic Versioning 2.0.0: `1.2.3`, `1.2.3-rc.1`, `1.2.3+build`.
fn is_semantic_version(text: &str) -> bool {
    let (text, build) = text
        .split_once('+')
        .map_or((text, None), |(text, build)| (text, Some(build)));
    let (core, pre) = text
        .split_once('-')
        .map_or((text, None), |(core, pre)| (core, Some(pre)));
    let is_number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let is_identifier = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_pre_release = |part: &str| {
        is_identifier(part) && (!part.bytes().all(|byte| byte.is_ascii_digit()) || is_number(part))
    };
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && pre.is_none_or(|pre| pre.split('.').all(is_pre_release))
        && build.is_none_or(|build| build.split('.').all(is_identifier))
}
