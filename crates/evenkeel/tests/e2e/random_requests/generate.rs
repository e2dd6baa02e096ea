//! Requests from the description: most of them meant well, every part of them odd at times.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::chance::Chance;
use super::description::{Description, Operation};
use super::text;
use super::values::{self, Known};
use super::wire::{Reply, Request};

mod headers;
mod targets;

/// Few, so that requests meet what others left behind.
const INSTANCES: usize = 3;
const BINDINGS: usize = 3;

/// A plan of the catalog.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    service_id: String,
    plan_id: String,
    plan: Value,
}

impl Offer {
    pub(super) fn all(catalog: &Value) -> Vec<Self> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let of = |service: Value| {
            let service_id = text(&service, "id");
            list(&service["plans"]).into_iter().map(move |plan| Self {
                service_id: service_id.clone(),
                plan_id: text(&plan, "id"),
                plan,
            })
        };
        list(&catalog["services"])
            .into_iter()
            .flat_map(of)
            .collect()
    }

    /// The schema of its parameters for an operation.
    fn schema(&self, operation: &str) -> Option<&Value> {
        let place = match operation {
            "provision" => "service_instance/create",
            "update" => "service_instance/update",
            _ => "service_binding/create",
        };
        self.plan.pointer(&format!("/schemas/{place}/parameters"))
    }
}

/// Makes the requests of one connection.
#[derive(Debug)]
pub(super) struct Generator {
    chance: Chance,
    number: usize,
    offers: Arc<[Offer]>,
    right: String,
    /// Operations that the broker named.
    operations: Vec<String>,
    /// Entity tags and times that the catalog had.
    catalog: BTreeMap<&'static str, Vec<u8>>,
}

impl Generator {
    pub(super) fn new(chance: Chance, number: usize, offers: Arc<[Offer]>, password: &str) -> Self {
        Self {
            chance,
            number,
            offers,
            right: format!("Basic {}", STANDARD.encode(format!("platform:{password}"))),
            operations: Vec::new(),
            catalog: BTreeMap::new(),
        }
    }

    /// Remembers what later requests can refer to.
    pub(super) fn learn(&mut self, request: &Request, reply: &Reply) {
        if reply.status == 202 {
            let body: Value = serde_json::from_slice(&reply.body).expect("checked before");
            self.operations.push(text(&body, "operation"));
        }
        if request.target.starts_with("/v2/catalog") {
            for (header, condition) in [
                ("etag", "If-None-Match"),
                ("last-modified", "If-Modified-Since"),
            ] {
                if let Some(value) = reply.header(header) {
                    self.catalog.insert(condition, value.to_vec());
                }
            }
        }
    }

    pub(super) fn request(&mut self, description: &Description) -> Request {
        let operations: Vec<_> = description.operations().collect();
        let mut operation = *self.chance.pick(&operations);
        // What removes is asked for less often: the rest needs something to meet.
        if operation.method == "DELETE" && self.chance.one_in(2) {
            operation = *self.chance.pick(&operations);
        }
        let instance = self.chance.below(INSTANCES);
        // An instance has a plan of its own, for most of what is asked of it.
        let home = (self.number + instance) % self.offers.len();
        let offer = match self.chance.below(12) {
            0 => self.chance.below(self.offers.len()),
            _ => home,
        };
        let offer = self.offers[offer].clone();
        let mut request = Request {
            method: self.method(operation),
            target: self.target(operation, instance, &offer),
            headers: Vec::new(),
            body: None,
            authorized: true,
            versioned: true,
            identity: None,
        };
        self.credentials(&mut request);
        let headers = operation
            .parameters
            .iter()
            .filter(|parameter| parameter.place == "header");
        for parameter in headers {
            self.header(parameter, &mut request);
        }
        if let Some(schema) = &operation.body {
            self.body(
                description,
                operation,
                schema,
                &offer,
                instance,
                &mut request,
            );
        } else if self.chance.one_in(10) {
            // Platforms send these with GET and DELETE, too.
            request
                .headers
                .push(("content-type".to_owned(), b"application/json".to_vec()));
            request.body = Some(self.chance.pick(&[&b""[..], b"{}", b"{"]).to_vec());
        }
        request
    }

    fn method(&mut self, operation: &Operation) -> String {
        const OTHERS: [&str; 9] = [
            "TRACE", "HEAD", "OPTIONS", "POST", "GET", "PUT", "PATCH", "DELETE", "BREW",
        ];
        if self.chance.one_in(25) {
            (*self.chance.pick(&OTHERS)).to_owned()
        } else {
            operation.method.clone()
        }
    }

    fn body(
        &mut self,
        description: &Description,
        operation: &Operation,
        schema: &Value,
        offer: &Offer,
        instance: usize,
        request: &mut Request,
    ) {
        let mut known = Known::new();
        for (name, value) in [
            ("service_id", offer.service_id.clone()),
            ("plan_id", offer.plan_id.clone()),
            ("organization_guid", "org".to_owned()),
            ("space_guid", format!("space-{instance}")),
            ("app_guid", "app".to_owned()),
            (
                "predecessor_binding_id",
                format!("b{}", self.chance.below(BINDINGS)),
            ),
        ] {
            known.insert(name.to_owned(), Value::from(value));
        }
        let parameters = match offer.schema(&operation.id) {
            Some(schema) if !self.chance.one_in(20) => {
                values::valid(description, schema, &Known::new(), &mut self.chance)
            }
            _ => json!({}),
        };
        known.insert("parameters".to_owned(), parameters.clone());
        if !self.chance.one_in(3)
            && let Some(info) = offer.plan.get("maintenance_info")
        {
            known.insert("maintenance_info".to_owned(), info.clone());
        }
        let mut body = values::valid(description, schema, &known, &mut self.chance);
        // Else most updates would change nothing.
        if operation.id == "update" && self.chance.one_in(2) {
            let plans = self
                .offers
                .iter()
                .filter(|other| other.service_id == offer.service_id);
            let plans: Vec<_> = plans.map(|other| other.plan_id.clone()).collect();
            body["plan_id"] = Value::from(self.chance.pick(&plans).as_str());
            body["parameters"] = parameters;
        }
        if let Some(object) = body.as_object_mut()
            && self.chance.one_in(4)
        {
            for _ in 0..=self.chance.below(2) {
                values::spoil(object, &mut self.chance);
            }
        }
        let whole = body.to_string().into_bytes();
        request.body = Some(if self.chance.one_in(20) {
            values::broken(&whole, &mut self.chance)
        } else {
            whole
        });
        const TYPES: [&str; 8] = [
            "application/json; charset=UTF-8",
            "APPLICATION/JSON",
            "",
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/jsonish",
            ";;;",
            "\u{fc}",
        ];
        let content_type = match self.chance.below(30) {
            0 => return,
            1 => self.chance.pick(&TYPES),
            _ => "application/json",
        };
        request
            .headers
            .push(("Content-Type".to_owned(), content_type.as_bytes().to_vec()));
    }
}
