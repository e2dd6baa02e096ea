//! The key file: 32 random bytes in a line of text, readable by its owner alone.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use secrecy::SecretBox;

use crate::error::StoreError;

/// What the line begins with: names the format.
const PREFIX: &str = "evenkeel-key-1 ";
/// Longer files are no key files.
const MAX_BYTES: u64 = 4096;

/// The secret that everything else is derived from.
pub(crate) type Master = SecretBox<[u8; 32]>;

/// Reads the key file; `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<Master>, StoreError> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(path, &error.to_string())),
    };
    let meta = file
        .metadata()
        .map_err(|error| unusable(path, &error.to_string()))?;
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(unusable(
            path,
            &format!(
                "others may read it (mode {mode:04o}); run: chmod 600 '{}'",
                path.display()
            ),
        ));
    }
    let mut text = String::new();
    file.take(MAX_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| unusable(path, &error.to_string()))?;
    let bytes = text
        .trim_end()
        .strip_prefix(PREFIX)
        .and_then(unhex)
        .ok_or_else(|| {
            unusable(
                path,
                "it is not a key file of this program; restore it from a backup",
            )
        })?;
    Ok(Some(SecretBox::new(Box::new(bytes))))
}

/// Makes a key file that is whole and durable, or not there at all. `around`: see
/// [`crate::sqlite::StoreOptions`].
pub(crate) fn create(path: &Path, around: [fn(); 2]) -> Result<Master, StoreError> {
    let mut bytes = Box::new([0; 32]);
    getrandom::fill(bytes.as_mut())
        .map_err(|error| StoreError::Unavailable(format!("no randomness for a key: {error}")))?;
    let [before, after] = around;
    before();
    write(path, bytes.as_ref()).map_err(|error| unusable(path, &error.to_string()))?;
    after();
    Ok(SecretBox::new(bytes))
}

fn write(path: &Path, bytes: &[u8; 32]) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    let mut line = String::from(PREFIX);
    for byte in bytes {
        line.push_str(&format!("{byte:02x}"));
    }
    line.push('\n');
    file.write_all(line.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    fs::File::open(folder)?.sync_all()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

fn unusable(path: &Path, why: &str) -> StoreError {
    StoreError::Unavailable(format!(
        "the key file {} cannot be used: {why}",
        path.display()
    ))
}
