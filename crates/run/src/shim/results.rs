//! Reading what the action wrote: never through a link, never waiting, never more than a bound.
//! Called when the tree is gone (output), and while it lives (progress). Public for those who try what
//! shims survive.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use serde_json::Value;

use super::Written;
use crate::files::{self, Untrusted};
use crate::folder::{OUTPUT, PROGRESS};
use crate::line::{MAX_LINE_BYTES, clean};
use crate::record::{Output, OutputError};

/// How far back a line of progress is looked for, in bytes.
const PROGRESS_WINDOW_BYTES: u64 = 4 * MAX_LINE_BYTES as u64;

/// The action's output, checked, parsed and bounded by `max_bytes`. No file, or an empty one, is
/// no output. `out` is the folder that the action writes to.
pub fn output(out: impl AsFd, max_bytes: u64) -> Written {
    match read_output(out, max_bytes) {
        Ok(output) => (output, None),
        Err(error) => (None, Some(error)),
    }
}

fn read_output(out: impl AsFd, max_bytes: u64) -> Result<Option<Output>, OutputError> {
    let unreadable = |error: std::io::Error| OutputError::Unreadable {
        message: error.to_string(),
    };
    let (file, size) = match files::open_untrusted(out, OUTPUT).map_err(unreadable)? {
        Untrusted::Missing => return Ok(None),
        Untrusted::Other(found) => {
            return Err(OutputError::NotAFile {
                found: found.to_owned(),
            });
        }
        Untrusted::Plain(file, size) => (file, size),
    };
    if size > max_bytes {
        return Err(OutputError::TooLarge {
            bytes: size,
            max_bytes,
        });
    }
    let mut bytes = Vec::new();
    file.take(max_bytes)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    parse(&bytes, max_bytes).map(Some)
}

/// The parser refuses more than 128 levels of nesting by itself.
pub(super) fn parse(bytes: &[u8], max_bytes: u64) -> Result<Output, OutputError> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| OutputError::NotJson {
        message: error.to_string(),
    })?;
    let found = match &value {
        Value::Object(_) => {
            // Numbers may take more room than the action wrote them in: `1e9`.
            let bytes = value.to_string().len() as u64;
            if bytes > max_bytes {
                return Err(OutputError::TooLarge { bytes, max_bytes });
            }
            return Ok(Output(value));
        }
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
    };
    Err(OutputError::NotAnObject {
        found: found.to_owned(),
    })
}

/// The last line of progress, and how long the file is, in bytes. `out` is the folder that the action
/// writes to.
pub fn progress(out: impl AsFd) -> (Option<String>, u64) {
    match files::open_untrusted(out, PROGRESS) {
        Ok(Untrusted::Plain(file, size)) => (last_line(&file, size), size),
        Ok(Untrusted::Missing | Untrusted::Other(_)) | Err(_) => (None, 0),
    }
}

fn last_line(file: &File, size: u64) -> Option<String> {
    let from = size.saturating_sub(PROGRESS_WINDOW_BYTES);
    let mut bytes = vec![0; usize::try_from(size - from).ok()?];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], from + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(_) => return None,
        }
    }
    bytes[..filled]
        .rsplit(|byte| matches!(byte, b'\n' | b'\r'))
        .map(|line| clean(&String::from_utf8_lossy(line)))
        .find(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_an_output_or_a_typed_error(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let outcome = parse(&bytes, 1000);
            if let Ok(output) = outcome {
                prop_assert!(output.0.is_object());
                prop_assert!(output.0.to_string().len() <= 1000);
            }
        }
    }

    #[test]
    fn deep_nesting_and_growing_numbers_are_refused() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(matches!(
            parse(deep.as_bytes(), 1 << 20),
            Err(OutputError::NotJson { .. })
        ));
        let numbers = format!("{{\"a\":[{}1e15]}}", "1e15,".repeat(1000));
        assert!(matches!(
            parse(numbers.as_bytes(), 6000),
            Err(OutputError::TooLarge { .. })
        ));
    }
}
