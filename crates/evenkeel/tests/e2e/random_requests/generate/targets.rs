//! Paths and queries: ids of every kind, parameters repeated, empty and garbled.

use std::fmt::Write as _;

use serde_json::Value;

use super::super::CONNECTIONS;
use super::super::description::{Operation, Parameter};
use super::{BINDINGS, Generator, Offer};

impl Generator {
    pub(super) fn target(
        &mut self,
        operation: &Operation,
        instance: usize,
        offer: &Offer,
    ) -> String {
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
                !self.chance.one_in(6)
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
        // No other connection has the same: a DELETE of one would end a synchronous PUT of
        // another, whose answer is a 500 that nobody is to blame for.
        let number = self.number;
        match self.chance.below(12) {
            0 => format!("{number:02}{}", "x".repeat(1022 + self.chance.below(2))),
            1 => "%C3%BC".repeat(5_000),
            2 => format!("{number:02}{}", encoded(&self.chance.text(30))),
            _ => {
                let own: Vec<_> = ODD.iter().skip(number).step_by(CONNECTIONS).collect();
                (**self.chance.pick(&own)).to_owned()
            }
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
            "accepts_incomplete" => match self.chance.below(4) {
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
