//! Parameters from the command line.

use std::io::Read as _;
use std::path::Path;

use serde_json::{Map, Value};

use super::Parameters;
use crate::fail::{Exit, Failure};

/// Brokers take no larger bodies.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// `NAME=VALUE`; clap's way to read one.
pub(super) fn pair(text: &str) -> Result<(String, Value), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            let value =
                serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
            Ok((name.to_owned(), value))
        }
        Some(_) | None => Err("expected NAME=VALUE".to_owned()),
    }
}

impl Parameters {
    /// The file's, overridden by those of the command line.
    pub(super) fn read(&self) -> Result<Map<String, Value>, Failure> {
        let mut parameters = match &self.params {
            Some(path) => object(path)?,
            None => Map::new(),
        };
        parameters.extend(self.param.iter().cloned());
        Ok(parameters)
    }
}

fn object(path: &Path) -> Result<Map<String, Value>, Failure> {
    let wrong = |what: String| Failure::usage(format!("{}: {what}", path.display()));
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin()
            .take(MAX_FILE_BYTES)
            .read_to_string(&mut text)
    } else {
        std::fs::File::open(path)
            .and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text))
    };
    read.map_err(|error| wrong(error.to_string()))?;
    // Where, but not what: the file may hold secrets.
    match serde_json::from_str(&text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(wrong("a JSON object is needed".to_owned())),
        Err(error) => Err(Failure::new(
            Exit::Usage,
            format!(
                "{}:{}:{}: not JSON, or larger than 4 MiB",
                path.display(),
                error.line(),
                error.column()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_that_is_json_is_taken_as_such() {
        let read = |text| pair(text).unwrap().1;
        assert_eq!(read("n=5"), json!(5));
        assert_eq!(read("n=true"), json!(true));
        assert_eq!(read("n={\"a\":[1]}"), json!({"a": [1]}));
        assert_eq!(read("n=five=5"), json!("five=5"));
        assert_eq!(read("n=\"5\""), json!("5"));
        assert_eq!(read("n="), json!(""));
        assert!(pair("n").is_err());
        assert!(pair("=n").is_err());
    }
}
