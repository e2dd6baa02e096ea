//! YAML bytes to a tree that remembers where everything stands.
//!
//! The tree is read before any meaning is given to it, so that one reading can report every
//! mistake with its place. Size, depth, number of nodes and what anchors and aliases may blow up
//! are bounded here; all later stages work on a small tree.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Error, Location, MessageFormatter, Options, Spanned, UserMessageFormatter};

use super::finding::{At, Findings};
use super::names::shown;

/// The largest `bundle.yml`, in bytes.
pub const MAX_BUNDLE_BYTES: usize = 1 << 20;

const MAX_DEPTH: usize = 48;
const MAX_NODES: usize = 50_000;
const MAX_ALIASES: usize = 500;
/// Text after the aliases are put in place.
const MAX_TEXT_BYTES: usize = 4 << 20;

/// A value with its place.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: At,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    /// In the order of the file; keys may repeat.
    Map(Vec<(Key, Node)>),
}

#[derive(Debug)]
pub(super) struct Key {
    pub(super) at: At,
    pub(super) name: String,
}

impl Value {
    /// The kind of the value as an author would call it.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

/// Reads the one document of `bytes`; `None` after reporting why not.
pub(super) fn read(bytes: &[u8], findings: &Findings) -> Option<Node> {
    if bytes.len() > MAX_BUNDLE_BYTES {
        let message = format!(
            "the file has {} bytes, more than the limit of {MAX_BUNDLE_BYTES}",
            bytes.len()
        );
        findings.error(At::default(), "", message, None);
        return None;
    }
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let at = At::after(&bytes[..error.valid_up_to()]);
            findings.error(
                at,
                "",
                "the file is not UTF-8 from here on".to_owned(),
                None,
            );
            return None;
        }
    };
    match serde_saphyr::from_str_with_options::<Node>(text, options()) {
        Ok(node) => Some(node),
        Err(error) => {
            let at = error.location().map_or(At::default(), At::from);
            let (message, hint) = explain(&error);
            findings.error(at, "", message, hint.map(str::to_owned));
            None
        }
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH + 1,
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
            max_recorded_anchor_events: MAX_NODES,
            max_recorded_anchor_bytes: MAX_TEXT_BYTES,
            max_total_scalar_bytes: MAX_TEXT_BYTES,
            max_merge_keys: MAX_ALIASES,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
            max_replay_stack_depth: 16,
        },
        // Repeated keys reach the tree and are reported with their path.
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

fn explain(error: &Error) -> (String, Option<&'static str>) {
    let mut inner = error;
    while let Error::AliasError { error, .. } | Error::WithSnippet { error, .. } = inner {
        inner = error;
    }
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a foreign, non-exhaustive enum"
    )]
    match inner {
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. } => (
            format!(
                "too deep or too large: at most {MAX_DEPTH} levels, {MAX_NODES} values and \
                 {MAX_ALIASES} aliases, counted with what the aliases stand for"
            ),
            None,
        ),
        Error::MultipleDocuments { .. } => (
            "more than one YAML document".to_owned(),
            Some("a bundle is one document: remove the second `---`"),
        ),
        Error::RecursiveReferencesRequireWeakTypes { .. } => (
            "an alias stands inside of what it stands for".to_owned(),
            None,
        ),
        other => {
            let text = UserMessageFormatter.format_message(other);
            (format!("not valid YAML: {}", shown(&text)), None)
        }
    }
}

impl At {
    /// The place right after `bytes`, which are UTF-8.
    fn after(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let last = text.rsplit('\n').next().unwrap_or_default();
        let bounded = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            line: bounded(text.split('\n').count()),
            column: bounded(last.chars().count() + 1),
        }
    }
}

impl From<Location> for At {
    fn from(place: Location) -> Self {
        let bounded = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            line: bounded(place.line()),
            column: bounded(place.column()),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self {
            at: spanned.referenced.into(),
            value: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<String>::deserialize(deserializer)?;
        Ok(Self {
            at: spanned.referenced.into(),
            name: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Value::Map(map))
    }
}
