//! The action contract's output document (DESIGN §6), read and checked before it counts.
//!
//! What is refused here fails the attempt; what is let through is kept, and handed to platforms
//! for as long as the instance or binding lives. So whatever would make an answer that no
//! platform takes is refused, as far as that can be told without the catalog. Messages name
//! fields and never show values, which may be secret.

use serde_json::Value;

mod requires;

use crate::request::{Object, Outputs};

const FIELDS: [&str; 11] = [
    "credentials",
    "dashboard_url",
    "endpoints",
    "volume_mounts",
    "syslog_drain_url",
    "route_service_url",
    "metadata",
    "expires_at",
    "renew_before",
    "data",
    "error",
];

/// What Cloud Foundry takes of a field, in characters; of objects and lists as JSON. It takes an
/// answer with more as malformed, and deletes what it had asked for.
const MAX_DASHBOARD_URL: usize = 16_000;
const MAX_SYSLOG_DRAIN_URL: usize = 10_000;
const MAX_VOLUME_MOUNTS: usize = 65_535;
const MAX_METADATA: usize = 4_096;

/// Most characters of an unknown field's name in a message.
const SHOWN: usize = 64;

impl Outputs {
    /// What an action's output document says.
    ///
    /// # Errors
    /// It is no object, has a field that the contract does not name, or a field of the wrong
    /// shape; the text names the field.
    pub fn checked(document: Value) -> Result<Self, String> {
        let Value::Object(mut fields) = document else {
            return Err("the output is not a JSON object".to_owned());
        };
        if let Some(unknown) = fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
            let name: String = unknown.chars().take(SHOWN).collect();
            return Err(format!("{name:?} is no field of an action's output"));
        }
        let fields = &mut fields;
        let outputs = Self {
            credentials: object(fields, "credentials")?,
            dashboard_url: text(fields, "dashboard_url")?,
            endpoints: array(fields, "endpoints")?,
            volume_mounts: array(fields, "volume_mounts")?,
            syslog_drain_url: text(fields, "syslog_drain_url")?,
            route_service_url: text(fields, "route_service_url")?,
            metadata: object(fields, "metadata")?,
            expires_at: text(fields, "expires_at")?,
            renew_before: text(fields, "renew_before")?,
            data: take(fields, "data"),
            error_message: match object(fields, "error")? {
                Some(mut error) => {
                    text(&mut error, "message").map_err(|error| format!("`error`: {error}"))?
                }
                None => None,
            },
        };
        outputs.check()?;
        Ok(outputs)
    }

    fn check(&self) -> Result<(), String> {
        let texts = [
            ("dashboard_url", &self.dashboard_url, MAX_DASHBOARD_URL),
            (
                "syslog_drain_url",
                &self.syslog_drain_url,
                MAX_SYSLOG_DRAIN_URL,
            ),
        ];
        for (name, text, limit) in texts {
            at_most(name, text.as_ref().map(|text| text.chars().count()), limit)?;
        }
        let metadata = self.metadata.as_ref().map(json_chars);
        at_most("metadata", metadata, MAX_METADATA)?;
        let mounts = self.volume_mounts.as_ref().map(json_chars);
        at_most("volume_mounts", mounts, MAX_VOLUME_MOUNTS)?;
        for part in ["labels", "attributes"] {
            let part_of = self.metadata.as_ref().and_then(|all| all.get(part));
            if part_of.is_some_and(|value| !value.is_null() && !value.is_object()) {
                return Err(format!("`metadata.{part}` in the output must be an object"));
            }
        }
        each("endpoints", self.endpoints.as_deref(), endpoint)?;
        each("volume_mounts", self.volume_mounts.as_deref(), volume_mount)?;
        let route = said(self.route_service_url.as_deref());
        if route.is_some_and(|url| !is_https(url)) {
            return Err("`route_service_url` must be https:// with a host".to_owned());
        }
        let expires_at = instant("expires_at", self.expires_at.as_deref())?;
        let renew_before = instant("renew_before", self.renew_before.as_deref())?;
        match (renew_before, expires_at) {
            (Some(renew), Some(expires)) if renew > expires => {
                Err("`renew_before` must not be after `expires_at`".to_owned())
            }
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }
}

fn at_most(name: &str, chars: Option<usize>, limit: usize) -> Result<(), String> {
    match chars {
        Some(chars) if chars > limit => Err(format!(
            "`{name}` in the output has {chars} characters, more than the {limit} that platforms take"
        )),
        Some(_) | None => Ok(()),
    }
}

fn json_chars(value: &impl serde::Serialize) -> usize {
    serde_json::to_string(value).map_or(usize::MAX, |json| json.chars().count())
}

/// `null` is as good as nothing.
fn take(fields: &mut Object, name: &str) -> Option<Value> {
    fields.remove(name).filter(|value| !value.is_null())
}

fn object(fields: &mut Object, name: &str) -> Result<Option<Object>, String> {
    match take(fields, name) {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(format!("`{name}` in the output must be an object")),
    }
}

fn array(fields: &mut Object, name: &str) -> Result<Option<Vec<Value>>, String> {
    match take(fields, name) {
        None => Ok(None),
        Some(Value::Array(array)) => Ok(Some(array)),
        Some(_) => Err(format!("`{name}` in the output must be an array")),
    }
}

fn text(fields: &mut Object, name: &str) -> Result<Option<String>, String> {
    match take(fields, name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{name}` in the output must be a string")),
    }
}

/// On the wire an empty string is an absent one.
fn said(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn each(
    name: &str,
    items: Option<&[Value]>,
    check: fn(&Object) -> Result<(), String>,
) -> Result<(), String> {
    for (index, item) in items.unwrap_or_default().iter().enumerate() {
        item.as_object()
            .ok_or_else(|| "must be an object".to_owned())
            .and_then(check)
            .map_err(|error| format!("`{name}[{index}]` in the output: {error}"))?;
    }
    Ok(())
}

fn endpoint(fields: &Object) -> Result<(), String> {
    required(fields, "host")?;
    let ports = fields.get("ports").and_then(Value::as_array);
    let fit = ports.is_some_and(|ports| {
        !ports.is_empty() && ports.iter().all(|port| port.as_str().is_some_and(is_ports))
    });
    if !fit {
        return Err(
            "`ports` must be a non-empty array of strings as \"443\" or \"9000-9010\", from 1 to \
             65535"
                .to_owned(),
        );
    }
    match fields.get("protocol") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(word)) if ["", "tcp", "udp", "all"].contains(&word.as_str()) => Ok(()),
        Some(_) => Err("`protocol` must be \"tcp\", \"udp\" or \"all\"".to_owned()),
    }
}

fn volume_mount(fields: &Object) -> Result<(), String> {
    required(fields, "driver")?;
    required(fields, "container_dir")?;
    if !["r", "rw"].contains(&required(fields, "mode")?) {
        return Err("`mode` must be \"r\" or \"rw\"".to_owned());
    }
    if required(fields, "device_type")? != "shared" {
        return Err("`device_type` must be \"shared\"".to_owned());
    }
    let device = fields
        .get("device")
        .and_then(Value::as_object)
        .ok_or("`device` must be an object")?;
    required(device, "volume_id").map_err(|error| format!("`device`: {error}"))?;
    match device.get("mount_config") {
        None | Some(Value::Null | Value::Object(_)) => Ok(()),
        Some(_) => Err("`device`: `mount_config` must be an object".to_owned()),
    }
}

fn required<'a>(fields: &'a Object, name: &str) -> Result<&'a str, String> {
    said(fields.get(name).and_then(Value::as_str))
        .ok_or_else(|| format!("`{name}` must be a non-empty string"))
}

fn is_ports(text: &str) -> bool {
    let port = |digits: &str| {
        // `u16::from_str` would take a leading '+'.
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|port: &u16| plain && *port >= 1)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    matches!((port(first), port(last)), (Some(first), Some(last)) if first <= last)
}

fn is_https(url: &str) -> bool {
    let authority = url
        .strip_prefix("https://")
        .and_then(|rest| rest.split(['/', '?', '#']).next());
    authority.is_some_and(|authority| !authority.is_empty() && !authority.starts_with(':'))
}

/// A text that sorts as the instant does that it names.
fn instant<'a>(name: &str, text: Option<&'a str>) -> Result<Option<&'a str>, String> {
    said(text)
        .map(|text| {
            sort_key(text)
                .ok_or_else(|| format!("`{name}` must be a time in UTC as 2030-01-31T23:59:59.0Z"))
        })
        .transpose()
}

/// The RFC 3339 times that the API's form admits: in UTC, with at most nanoseconds.
fn sort_key(text: &str) -> Option<&str> {
    let text = text.strip_suffix('Z')?;
    let (seconds, fraction) = text.split_at_checked(19)?;
    let fits = match fraction.strip_prefix('.') {
        Some(digits) => {
            (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
        }
        None => fraction.is_empty(),
    };
    let key = if fraction.is_empty() {
        text
    } else {
        text.trim_end_matches('0').trim_end_matches('.')
    };
    (fits && is_date_and_time(seconds)).then_some(key)
}

fn is_date_and_time(text: &str) -> bool {
    let number = |from: usize, after: char, digits: usize| -> Option<u32> {
        let part = text.get(from..from + digits)?;
        let follows = text.get(from + digits..)?.chars().next().unwrap_or('\0') == after;
        let plain = part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse().ok().filter(|_| follows && plain)
    };
    let read = || {
        Some((
            number(0, '-', 4)?,
            number(5, '-', 2)?,
            number(8, 'T', 2)?,
            number(11, ':', 2)?,
            number(14, ':', 2)?,
            number(17, '\0', 2)?,
        ))
    };
    let Some((year, month, day, hour, minute, second)) = read() else {
        return false;
    };
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    // 60 is a leap second (RFC 3339).
    (1..=days).contains(&day) && hour <= 23 && minute <= 59 && second <= 60
}

#[cfg(test)]
mod tests;
