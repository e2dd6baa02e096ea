//! Secrets in files.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// A longer first line is no password or token.
const MAX_BYTES: u64 = 4096;

/// The first line of a file, which must not be empty.
pub(crate) fn read_line(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(MAX_BYTES)
        .read_to_string(&mut text)?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        Some(_) | None => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "its first line is empty",
        )),
    }
}
