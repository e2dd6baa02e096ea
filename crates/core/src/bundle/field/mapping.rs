//! Mappings: with keys that the author chooses, or with fields that the format knows.

use std::collections::BTreeMap;

use super::{Field, join};
use crate::bundle::names::nearest;
use crate::bundle::yaml::Key;

/// One entry of a mapping with free keys.
#[derive(Debug)]
pub(in crate::bundle) struct Entry<'a> {
    pub(super) key: &'a Key,
    pub(in crate::bundle) value: Field<'a>,
}

impl<'a> Entry<'a> {
    pub(in crate::bundle) fn name(&self) -> &'a str {
        &self.key.name
    }

    /// Reports an error in the key.
    pub(in crate::bundle) fn error(&self, message: impl Into<String>, hint: Option<String>) {
        self.value
            .findings
            .error(self.key.at, &self.value.path, message.into(), hint);
    }

    pub(in crate::bundle) fn warn(&self, message: impl Into<String>, hint: impl Into<String>) {
        let hint = Some(hint.into());
        self.value
            .findings
            .warn(self.key.at, &self.value.path, message.into(), hint);
    }

    /// Reports that the key is none of the known ones.
    pub(in crate::bundle) fn unknown(&self, what: &str, known: &[&'static str]) {
        let hint = match (self.name(), nearest(self.name(), known)) {
            ("service_instance", _) => {
                "name the schemas by their actions, `provision` and `update`, without `parameters`"
                    .to_owned()
            }
            ("service_binding", _) => {
                "name the schema by its action, `bind`, without `parameters`".to_owned()
            }
            (_, Some(near)) => format!("did you mean `{near}`?"),
            (_, None) => format!("known here: {}", known.join(", ")),
        };
        self.error(what, Some(hint));
    }
}

/// A mapping with known fields. A field without a value is reported and counts as there.
#[derive(Debug)]
pub(in crate::bundle) struct Fields<'a> {
    /// The mapping itself.
    pub(in crate::bundle) whole: Field<'a>,
    pub(super) fields: BTreeMap<&'a str, Option<Field<'a>>>,
}

impl<'a> Fields<'a> {
    pub(in crate::bundle) fn get(&self, name: &str) -> Option<Field<'a>> {
        self.fields.get(name).cloned().flatten()
    }

    /// A field that must be there.
    pub(in crate::bundle) fn need(&self, name: &str) -> Option<Field<'a>> {
        if !self.fields.contains_key(name) {
            let path = join(&self.whole.path, name);
            let at = self.whole.node.at;
            self.whole
                .findings
                .error(at, &path, "is missing".to_owned(), None);
        }
        self.get(name)
    }

    /// Reads a field that may be absent: `Some(None)` then, `None` after an error.
    pub(in crate::bundle) fn maybe<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Field<'a>) -> Option<T>,
    ) -> Option<Option<T>> {
        match self.get(name) {
            Some(field) => read(&field).map(Some),
            None => Some(None),
        }
    }
}
