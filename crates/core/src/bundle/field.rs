//! A value on its way from YAML to meaning: knows its path and reports what is wrong with it.
//!
//! Every reader returns `None` exactly when it has reported an error, so that a caller can read
//! all parts of a whole first and only then give up on the whole.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::Value as Json;

use super::finding::{At, Findings};
use super::names::{nearest, shown};
use super::units;
use super::yaml::{Node, Value};

mod mapping;

pub(super) use mapping::{Entry, Fields};

#[derive(Clone, Debug)]
pub(super) struct Field<'a> {
    node: &'a Node,
    path: String,
    findings: &'a Findings,
}

impl<'a> Field<'a> {
    pub(super) fn root(node: &'a Node, findings: &'a Findings) -> Self {
        Self {
            node,
            path: String::new(),
            findings,
        }
    }

    fn child(&self, name: &str, node: &'a Node) -> Self {
        Self {
            node,
            path: join(&self.path, name),
            findings: self.findings,
        }
    }

    /// Reports an error in this value.
    pub(super) fn error(&self, message: impl Into<String>) {
        self.findings
            .error(self.node.at, &self.path, message.into(), None);
    }

    /// Reports an error in this value, with a way to mend it.
    pub(super) fn error_with(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.findings
            .error(self.node.at, &self.path, message.into(), Some(hint.into()));
    }

    pub(super) fn warn(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.findings
            .warn(self.node.at, &self.path, message.into(), Some(hint.into()));
    }

    fn wrong_kind(&self, wanted: &str) {
        let message = format!("expected {wanted}, found {}", self.node.value.kind());
        match (&self.node.value, wanted) {
            (Value::Bool(_) | Value::Number(_), "a text") => {
                self.error_with(message, "put the value into quotes");
            }
            (Value::Text(text), "a list") => {
                self.error_with(message, format!("write it as a list: [{}]", shown(text)));
            }
            _ => self.error(message),
        }
    }

    /// A text; may be empty.
    pub(super) fn any_text(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::Text(text) if text.contains('\0') => {
                self.error("must not hold the character U+0000");
                None
            }
            Value::Text(text) => Some(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => {
                self.wrong_kind("a text");
                None
            }
        }
    }

    /// A text that holds more than white space.
    pub(super) fn text(&self) -> Option<&'a str> {
        let text = self.any_text()?;
        if text.trim().is_empty() {
            self.error("must not be empty");
            return None;
        }
        Some(text)
    }

    pub(super) fn flag(&self) -> Option<bool> {
        if let Value::Bool(flag) = self.node.value {
            return Some(flag);
        }
        let message = format!("expected true or false, found {}", self.node.value.kind());
        let word = self.as_text().map(str::to_lowercase);
        match word.as_deref() {
            Some("yes" | "on" | "true") => self.error_with(message, "write true, without quotes"),
            Some("no" | "off" | "false") => self.error_with(message, "write false, without quotes"),
            Some(_) | None => self.error(message),
        }
        None
    }

    /// One of the words of `choices`, for what it stands for.
    pub(super) fn one_of<T: Copy>(&self, choices: &[(&'static str, T)]) -> Option<T> {
        let text = self.text()?;
        if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == text) {
            return Some(*choice);
        }
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let message = format!("{:?} is not one of: {}", shown(text), words.join(", "));
        match nearest(text, &words) {
            Some(near) => self.error_with(message, format!("did you mean `{near}`?")),
            None => self.error(message),
        }
        None
    }

    pub(super) fn is_flag(&self) -> bool {
        matches!(self.node.value, Value::Bool(_))
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self.node.value, Value::List(_))
    }

    pub(super) fn is_map(&self) -> bool {
        matches!(self.node.value, Value::Map(_))
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self.node.value, Value::Number(_))
    }

    /// A whole number in `range`.
    pub(super) fn whole(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let Value::Number(number) = &self.node.value else {
            self.wrong_kind("a whole number");
            return None;
        };
        let found = number.as_u64().filter(|n| range.contains(n));
        if found.is_none() {
            self.error(format!(
                "must be a whole number from {} to {}, is {number}",
                range.start(),
                range.end()
            ));
        }
        found
    }

    /// The items of a list.
    pub(super) fn list(&self) -> Option<Vec<Self>> {
        let Value::List(items) = &self.node.value else {
            self.wrong_kind("a list");
            return None;
        };
        let item = |(index, node)| Self {
            node,
            path: format!("{}[{index}]", self.path),
            findings: self.findings,
        };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// The entries of a mapping with free keys, the first of each key.
    pub(super) fn entries(&self) -> Option<Vec<Entry<'a>>> {
        let Value::Map(map) = &self.node.value else {
            self.wrong_kind("a mapping");
            return None;
        };
        let mut seen: BTreeMap<&str, At> = BTreeMap::new();
        let mut entries = Vec::with_capacity(map.len());
        for (key, node) in map {
            let value = self.child(&key.name, node);
            if let Some(first) = seen.get(key.name.as_str()) {
                let message = format!("the key is there twice, first in line {}", first.line);
                self.findings.error(key.at, &value.path, message, None);
                continue;
            }
            seen.insert(&key.name, key.at);
            entries.push(Entry { key, value });
        }
        Some(entries)
    }

    /// The fields of a mapping whose keys are all in `known`.
    pub(super) fn fields(&self, known: &'static [&'static str]) -> Option<Fields<'a>> {
        let mut fields = BTreeMap::new();
        for entry in self.entries()? {
            if !known.contains(&entry.key.name.as_str()) {
                entry.unknown("unknown field", known);
            } else if matches!(entry.value.node.value, Value::Null) {
                let hint = "write a value, or leave the field out";
                entry.value.error_with("has no value", hint);
                fields.insert(entry.key.name.as_str(), None);
            } else {
                fields.insert(entry.key.name.as_str(), Some(entry.value));
            }
        }
        Some(Fields {
            whole: self.clone(),
            fields,
        })
    }

    /// The value under `name` if this is a mapping that has it; reports nothing.
    pub(super) fn peek(&self, name: &str) -> Option<Self> {
        let Value::Map(map) = &self.node.value else {
            return None;
        };
        let (_, node) = map.iter().find(|(key, _)| key.name == name)?;
        Some(self.child(name, node))
    }

    /// What a JSON pointer (RFC 6901) leads to, or the last place on its way that is there.
    pub(super) fn descend(&self, pointer: &str) -> Self {
        let mut place = self.clone();
        for part in pointer.split('/').skip(1) {
            let name = part.replace("~1", "/").replace("~0", "~");
            let next = match &place.node.value {
                Value::Map(_) => place.peek(&name),
                Value::List(items) => name.parse().ok().and_then(|index: usize| {
                    Some(Self {
                        node: items.get(index)?,
                        path: format!("{}[{index}]", place.path),
                        findings: place.findings,
                    })
                }),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => None,
            };
            let Some(next) = next else { break };
            place = next;
        }
        place
    }

    /// The text, if it is one; reports nothing.
    pub(super) fn as_text(&self) -> Option<&'a str> {
        if let Value::Text(text) = &self.node.value {
            Some(text)
        } else {
            None
        }
    }

    /// Whether the value is `true`; reports nothing.
    pub(super) fn is_true(&self) -> bool {
        matches!(self.node.value, Value::Bool(true))
    }

    /// Whether the value is `false`; reports nothing.
    pub(super) fn is_false(&self) -> bool {
        matches!(self.node.value, Value::Bool(false))
    }

    /// A time in `range`, such as `10m`.
    pub(super) fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        if let Value::Number(number) = &self.node.value {
            let hint = format!("write the unit: {number}s, or {number}m");
            self.error_with("a duration needs a unit", hint);
            return None;
        }
        match units::duration(self.any_text()?) {
            Ok(time) if range.contains(&time) => Some(time),
            Ok(time) => {
                let [min, max, is] = [*range.start(), *range.end(), time].map(units::spoken);
                self.error(format!("must be from {min} to {max}, is {is}"));
                None
            }
            Err(message) => {
                self.error(message);
                None
            }
        }
    }

    /// A number of bytes in `range`, such as `128Mi`, or a plain number.
    pub(super) fn size(&self, range: RangeInclusive<u64>) -> Option<u64> {
        if self.is_number() {
            return self.whole(range);
        }
        match units::bytes(self.any_text()?) {
            Ok(size) if range.contains(&size) => Some(size),
            Ok(size) => {
                let (min, max) = range.into_inner();
                self.error(format!("must be from {min} to {max} bytes, is {size}"));
                None
            }
            Err(message) => {
                self.error(message);
                None
            }
        }
    }

    /// The value as JSON, whatever it is.
    pub(super) fn json(&self) -> Option<Json> {
        match &self.node.value {
            Value::Null => Some(Json::Null),
            Value::Bool(flag) => Some(Json::Bool(*flag)),
            Value::Number(number) => Some(Json::Number(number.clone())),
            Value::Text(text) => Some(Json::String(text.clone())),
            Value::List(_) => {
                let items: Vec<_> = self.list()?.iter().map(Self::json).collect();
                items
                    .into_iter()
                    .collect::<Option<Vec<_>>>()
                    .map(Json::Array)
            }
            Value::Map(_) => self.json_object().map(Json::Object),
        }
    }

    /// The value as a JSON object.
    pub(super) fn json_object(&self) -> Option<serde_json::Map<String, Json>> {
        let entries = self.entries()?;
        let all = entries
            .iter()
            .map(|e| Some((e.key.name.clone(), e.value.json()?)));
        all.collect::<Vec<_>>().into_iter().collect()
    }
}

fn join(path: &str, name: &str) -> String {
    let name = shown(name);
    let plain = name
        .chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '/'));
    match (path.is_empty(), plain && !name.is_empty()) {
        (true, true) => name,
        (false, true) => format!("{path}.{name}"),
        (_, false) => format!("{path}[{name:?}]"),
    }
}
