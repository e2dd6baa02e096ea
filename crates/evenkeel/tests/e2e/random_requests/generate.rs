//! Requests from the description: most of them meant well, every part of them odd at times.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::chance::Chance;
use super::description::{Description, Operation, Parameter};
use super::text;
use super::values::{self, Known};
use super::wire::{Reply, Request};

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

    fn target(&mut self, operation: &Operation, instance: usize, offer: &Offer) -> String {
        let mut target = operation.template.clone();
        for parameter in operation
            .parameters
            .iter()
            .filter(|parameter| parameter.place == "path")
        {
            let id = match parameter.name.as_str() {
                "instance_id" => format!("i{}/{instance} ü", self.number),
                _ => format!("b{}", self.chance.below(BINDINGS)),
            };
            let id = if self.chance.one_in(20) {
                self.odd_id()
            } else {
                encoded(&id)
            };
            target = target.replace(&format!("{{{}}}", parameter.name), &id);
        }
        if self.chance.one_in(60) {
            target = self.odd_path(target);
        }
        let mut pairs = Vec::new();
        for parameter in operation
            .parameters
            .iter()
            .filter(|parameter| parameter.place == "query")
        {
            let present = if parameter.required {
                !self.chance.one_in(15)
            } else {
                !self.chance.one_in(3)
            };
            if present {
                let value = self.query_value(parameter, offer);
                pairs.push(format!("{}={value}", parameter.name));
            }
        }
        if self.chance.one_in(10) {
            let at = self.chance.below(pairs.len() + 1);
            let odd = self.odd_pair();
            pairs.insert(at, odd);
        }
        if pairs.is_empty() && !self.chance.one_in(20) {
            return target;
        }
        format!("{target}?{}", pairs.join("&"))
    }

    fn odd_id(&mut self) -> String {
        const ODD: [&str; 20] = [
            "%2F",
            "%2f%2F",
            "a%252Fb",
            "%00",
            "a%0Ab",
            "%7f",
            "%FF%FE",
            "%",
            "%zz",
            "%F0%9F%9A%A2",
            "a+b",
            "..",
            ".",
            "last_operation",
            "service_bindings",
            "",
            "a/b",
            "%20",
            "a;b=c",
            "~!$&'()*,=:@",
        ];
        match self.chance.below(12) {
            0 => "x".repeat(1024 + self.chance.below(2)),
            1 => "%C3%BC".repeat(5_000),
            2 => encoded(&self.chance.text(30)),
            _ => (*self.chance.pick(&ODD)).to_owned(),
        }
    }

    fn odd_path(&mut self, path: String) -> String {
        match self.chance.below(6) {
            0 => format!("{path}/"),
            1 => path.replacen("/v2", "/v3", 1),
            2 => path.replacen("/v2", "", 1),
            3 => format!("/{path}"),
            4 => "/".to_owned(),
            _ => format!("{path}/more"),
        }
    }

    fn query_value(&mut self, parameter: &Parameter, offer: &Offer) -> String {
        if self.chance.one_in(15) {
            return self.odd_value(&parameter.schema);
        }
        match parameter.name.as_str() {
            "accepts_incomplete" => match self.chance.below(3) {
                0 => "false".to_owned(),
                _ => "true".to_owned(),
            },
            "service_id" => encoded(&offer.service_id),
            "plan_id" => encoded(&offer.plan_id),
            _ if self.operations.is_empty() => "none".to_owned(),
            _ => encoded(self.chance.pick::<String>(&self.operations)),
        }
    }

    fn odd_value(&mut self, schema: &Value) -> String {
        match self.chance.below(8) {
            0 => String::new(),
            1 => "%FF".to_owned(),
            2 => "a=b+c%2B".to_owned(),
            3 => "TRUE".to_owned(),
            // As long as it may be, or by one longer.
            4 => {
                let longest = schema["maxLength"].as_u64().unwrap_or(5);
                "x".repeat(usize::try_from(longest).unwrap() + self.chance.below(2))
            }
            5 => "true&accepts_incomplete=false".to_owned(),
            6 => encoded(&self.chance.text(20)),
            _ => "provision".to_owned(),
        }
    }

    fn odd_pair(&mut self) -> String {
        const ODD: [&str; 8] = [
            "",
            "=",
            "x",
            "%FF=%FF",
            "service_id=",
            "accepts_incomplete",
            "service_id=%FF",
            "plan%5Fid=x&plan_id=y",
        ];
        match self.chance.below(8) {
            0 => format!("operation={}", "y".repeat(30_000)),
            1 => format!("x={}", "&x=".repeat(2_000)),
            _ => (*self.chance.pick(&ODD)).to_owned(),
        }
    }

    fn credentials(&mut self, request: &mut Request) {
        const WRONG: [&str; 7] = [
            "",
            "Basic",
            "Basic !!!",
            "Bearer x",
            "Basic cGxhdGZvcm06d3Jvbmc=",
            "Basic bm9ib2R5OnB3",
            "\u{fc}",
        ];
        let value = if self.chance.one_in(40) {
            request.authorized = false;
            if self.chance.one_in(4) {
                return;
            }
            (*self.chance.pick(&WRONG)).to_owned()
        } else {
            self.right.clone()
        };
        request
            .headers
            .push(("Authorization".to_owned(), value.into_bytes()));
    }

    fn header(&mut self, parameter: &Parameter, request: &mut Request) {
        let value = match parameter.name.as_str() {
            "X-Broker-API-Version" => self.version(request),
            "X-Broker-API-Request-Identity" => self.request_identity(request),
            "X-Broker-API-Originating-Identity" => self.originating_identity(),
            other => self.condition(other),
        };
        request
            .headers
            .extend(value.map(|value| (parameter.name.clone(), value)));
    }

    fn version(&mut self, request: &mut Request) -> Option<Vec<u8>> {
        const SERVED: [&str; 6] = ["2.17", "2.15", "2.14", "2.13", "2.0", "2.999"];
        const OTHERS: [&str; 10] = [
            "",
            "3.0",
            "1.17",
            "two",
            "2",
            "2.",
            ".17",
            "2.-1",
            "2.99999999999",
            "\u{ff}2.17",
        ];
        if !self.chance.one_in(40) {
            return Some(self.chance.pick(&SERVED).as_bytes().to_vec());
        }
        request.versioned = false;
        (!self.chance.one_in(4)).then(|| self.chance.pick(&OTHERS).as_bytes().to_vec())
    }

    fn request_identity(&mut self, request: &mut Request) -> Option<Vec<u8>> {
        let identity = match self.chance.below(12) {
            0 => return None,
            1 => return Some(Vec::new()),
            2 => b"\xff\xfe\x80".to_vec(),
            3 => "with spaces, \"quotes\" and (more)\tünï"
                .as_bytes()
                .to_vec(),
            4 => "x".repeat(8_000).into_bytes(),
            _ => format!("r-{}-{}", self.number, self.chance.below(1_000_000)).into_bytes(),
        };
        if self.chance.one_in(30) {
            // The first one counts.
            let again = (
                "X-Broker-API-Request-Identity".to_owned(),
                b"again".to_vec(),
            );
            request.headers.push(again.clone());
            request.identity = Some(again.1);
            return Some(identity);
        }
        request.identity = Some(identity.clone());
        Some(identity)
    }

    fn originating_identity(&mut self) -> Option<Vec<u8>> {
        let value = |json: &str| format!("cloudfoundry {}", STANDARD.encode(json)).into_bytes();
        Some(match self.chance.below(12) {
            0 => value(r#"{"user_id": "u-1"}"#),
            1 => value(r#"{"username": "u", "uid": 7, "groups": null}"#),
            2 => value("[]"),
            3 => value(&"[".repeat(20_000)),
            4 => value(&format!(r#"{{"user_id": "{}"}}"#, "x".repeat(44_000))),
            5 => b"cloudfoundry".to_vec(),
            6 => b"cloudfoundry !!!".to_vec(),
            7 => b"\xff \xff".to_vec(),
            8 => self
                .chance
                .bytes(60)
                .into_iter()
                .map(|byte| byte | 0x80)
                .collect(),
            _ => return None,
        })
    }

    fn condition(&mut self, name: &str) -> Option<Vec<u8>> {
        match self.chance.below(8) {
            0 | 1 => self.catalog.get(name).cloned(),
            2 => Some(b"*, \"x\", W/\"y\"".to_vec()),
            3 => Some(b"Sun, 06 Nov 1994 08:49:37 GMT".to_vec()),
            4 => Some(b"\xff,,,".to_vec()),
            _ => None,
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
        known.insert("parameters".to_owned(), parameters);
        if !self.chance.one_in(3)
            && let Some(info) = offer.plan.get("maintenance_info")
        {
            known.insert("maintenance_info".to_owned(), info.clone());
        }
        let mut body = values::valid(description, schema, &known, &mut self.chance);
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

/// As it stands in a path or a query.
fn encoded(id: &str) -> String {
    let mut text = String::new();
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(byte))
            }
            _ => write!(text, "%{byte:02X}").expect("a string takes any text"),
        }
    }
    text
}
