//! Headers: right, missing, odd, and as large as they may be.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::super::description::Parameter;
use super::super::wire::Request;
use super::Generator;

impl Generator {
    pub(super) fn credentials(&mut self, request: &mut Request) {
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

    pub(super) fn header(&mut self, parameter: &Parameter, request: &mut Request) {
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
}
