//! The lenient reader under every type of this crate: unknown fields are ignored, `null`, `""` and `{}` count as
//! absent (Go and Ruby platforms send them for "nothing"), and what is wrong is named by its JSON pointer.

use std::fmt;

use serde_json::{Map, Value};

use crate::body::{BadRequest, kind, parse_body};

/// A type that is read from a JSON object.
///
/// ```
/// use evenkeel_osb::{BadRequest, Fields, FromObject};
///
/// // An extension of a broker's own, read as leniently and told as exactly as the rest.
/// struct Quota {
///     size_gib: u64,
/// }
///
/// impl FromObject for Quota {
///     fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest> {
///         let size_gib = fields.integer("size_gib")?.ok_or_else(|| fields.bad("size_gib", "is missing"))?;
///         Ok(Self { size_gib })
///     }
/// }
///
/// assert_eq!(Quota::from_body(br#"{"size_gib": 5, "colour": "blue"}"#)?.size_gib, 5);
/// assert_eq!(Quota::from_body(br#"{"size_gib": null}"#).err().unwrap().to_string(), "/size_gib: is missing");
/// # Ok::<(), BadRequest>(())
/// ```
pub trait FromObject: Sized {
    /// Reads it from an object at some place of a document.
    ///
    /// # Errors
    /// A required field that is missing, or a field of the wrong type.
    fn from_fields(fields: &Fields<'_>) -> Result<Self, BadRequest>;

    /// Reads it from an object that is the whole document.
    ///
    /// # Errors
    /// As [`from_fields`](Self::from_fields).
    fn from_object(object: &Map<String, Value>) -> Result<Self, BadRequest> {
        Self::from_fields(&Fields::new(object))
    }

    /// Reads it from a body.
    ///
    /// # Errors
    /// As [`parse_body`] and [`from_fields`](Self::from_fields).
    fn from_body(body: &[u8]) -> Result<Self, BadRequest> {
        Self::from_object(&parse_body(body)?)
    }
}

/// The fields of one JSON object, and where in the document it stands.
#[derive(Clone)]
pub struct Fields<'a> {
    object: &'a Map<String, Value>,
    pointer: String,
}

impl<'a> Fields<'a> {
    /// The fields of a whole document.
    pub fn new(object: &'a Map<String, Value>) -> Self {
        Self {
            object,
            pointer: String::new(),
        }
    }

    /// The object itself.
    pub fn object(&self) -> &'a Map<String, Value> {
        self.object
    }

    /// JSON pointer to a field of this object.
    pub fn pointer_to(&self, name: &str) -> String {
        format!(
            "{}/{}",
            self.pointer,
            name.replace('~', "~0").replace('/', "~1")
        )
    }

    /// An error about a field of this object.
    pub fn bad(&self, name: &str, message: impl Into<String>) -> BadRequest {
        BadRequest::new(self.pointer_to(name), message)
    }

    /// A value; `null` is none.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// A string; `null` and `""` are none.
    ///
    /// # Errors
    /// When it is not a string.
    pub fn text(&self, name: &str) -> Result<Option<String>, BadRequest> {
        let text = self.typed(name, "a string", Value::as_str)?;
        Ok(text.filter(|text| !text.is_empty()).map(str::to_owned))
    }

    /// A string that must be there.
    ///
    /// # Errors
    /// When it is absent, `null`, `""` or not a string.
    pub fn required_text(&self, name: &str) -> Result<String, BadRequest> {
        self.text(name)?
            .ok_or_else(|| self.bad(name, "is missing: a non-empty string is required"))
    }

    /// A boolean; `null` is none.
    ///
    /// # Errors
    /// When it is not a boolean.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, BadRequest> {
        self.typed(name, "a boolean", Value::as_bool)
    }

    /// A non-negative integer; `null` is none.
    ///
    /// # Errors
    /// When it is not a number, negative or has a fraction.
    pub fn integer(&self, name: &str) -> Result<Option<u64>, BadRequest> {
        self.typed(name, "a non-negative integer", Value::as_u64)
    }

    /// An object, `{}` included; `null` is none.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn map(&self, name: &str) -> Result<Option<Map<String, Value>>, BadRequest> {
        Ok(self.typed(name, "an object", Value::as_object)?.cloned())
    }

    /// An object to read further; `null` and `{}` are none.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn nested(&self, name: &str) -> Result<Option<Fields<'a>>, BadRequest> {
        let object = self
            .typed(name, "an object", Value::as_object)?
            .filter(|object| !object.is_empty());
        Ok(object.map(|object| Fields {
            object,
            pointer: self.pointer_to(name),
        }))
    }

    /// A typed object; `null` and `{}` are none.
    ///
    /// # Errors
    /// When it is not an object, or not such an object.
    pub fn read<T: FromObject>(&self, name: &str) -> Result<Option<T>, BadRequest> {
        self.nested(name)?
            .map(|fields| T::from_fields(&fields))
            .transpose()
    }

    /// An array of typed objects; absent and `null` are empty.
    ///
    /// # Errors
    /// When it is not an array, or one of its elements is not such an object.
    pub fn list<T: FromObject>(&self, name: &str) -> Result<Vec<T>, BadRequest> {
        self.elements(name, "an object", |value, pointer| {
            value
                .as_object()
                .map(|object| T::from_fields(&Fields { object, pointer }))
        })
    }

    /// An array of strings; absent and `null` are empty.
    ///
    /// # Errors
    /// When it is not an array, or one of its elements is not a string.
    pub fn texts(&self, name: &str) -> Result<Vec<String>, BadRequest> {
        self.elements(name, "a string", |value, _| {
            value.as_str().map(|text| Ok(text.to_owned()))
        })
    }

    fn elements<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl Fn(&'a Value, String) -> Option<Result<T, BadRequest>>,
    ) -> Result<Vec<T>, BadRequest> {
        let array = self
            .typed(name, "an array", Value::as_array)?
            .map_or(&[][..], Vec::as_slice);
        let element = |(index, value)| {
            let pointer = format!("{}/{index}", self.pointer_to(name));
            read(value, pointer.clone())
                .unwrap_or_else(|| Err(wrong_type(pointer, expected, value)))
        };
        array.iter().enumerate().map(element).collect()
    }

    fn typed<T>(
        &self,
        name: &str,
        expected: &str,
        cast: fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, BadRequest> {
        self.value(name)
            .map(|value| {
                cast(value).ok_or_else(|| wrong_type(self.pointer_to(name), expected, value))
            })
            .transpose()
    }
}

// By hand, since values can be secrets.
impl fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fields")
            .field("pointer", &self.pointer)
            .field("fields", &self.object.len())
            .finish()
    }
}

fn wrong_type(pointer: String, expected: &str, value: &Value) -> BadRequest {
    // A negative or fractional number is a number all the same: say what is wrong with it.
    let message = match value {
        Value::Number(_) => format!("must be {expected}"),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            format!("must be {expected}, not {}", kind(value))
        }
    };
    BadRequest::new(pointer, message)
}
