//! From a key to its place in the file, and back.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where every key and value of a document stands.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<Place>);

#[derive(Debug)]
struct Place {
    /// As `jobs.concurrency` or `osb.users[0].name`.
    path: String,
    span: Range<usize>,
}

impl Places {
    /// Of a document as far as it can be read.
    pub(super) fn of(text: &str) -> Self {
        let (document, _) = DeTable::parse_recoverable(text);
        let mut places = Self::default();
        places.table("", document.get_ref());
        places
    }

    /// The key that the span is about: the smallest key or value around it.
    pub(super) fn path_at(&self, span: &Range<usize>) -> Option<&str> {
        let around = |place: &&Place| place.span.start <= span.start && span.end <= place.span.end;
        let smallest = self
            .0
            .iter()
            .filter(around)
            .min_by_key(|place| place.span.len())?;
        Some(&smallest.path)
    }

    /// Where the key's value stands, or the nearest table above it.
    pub(super) fn span_of(&self, path: &str) -> Option<Range<usize>> {
        let mut path = path;
        loop {
            if let Some(place) = self.0.iter().rev().find(|place| place.path == path) {
                return Some(place.span.clone());
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }

    /// Whether the document has the key.
    pub(super) fn has(&self, path: &str) -> bool {
        self.0.iter().any(|place| place.path == path)
    }

    fn table(&mut self, above: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let name = key.get_ref();
            let path = if above.is_empty() {
                name.to_string()
            } else {
                format!("{above}.{name}")
            };
            self.0.push(Place {
                path: path.clone(),
                span: key.span(),
            });
            self.value(path, value);
        }
    }

    fn value(&mut self, path: String, value: &Spanned<DeValue<'_>>) {
        self.0.push(Place {
            path: path.clone(),
            span: value.span(),
        });
        match value.get_ref() {
            DeValue::Table(table) => self.table(&path, table),
            DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(format!("{path}[{index}]"), item);
                }
            }
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_) => {}
        }
    }
}

/// Line and column of an offset, both from 1, the column in characters.
pub(super) fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset)];
    let line = before.matches('\n').count() + 1;
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (line, before[line_start..].chars().count() + 1)
}
