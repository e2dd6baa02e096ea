//! A bundle folder's content: read whole and bounded, named by digest, copied once.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use evenkeel_core::bundle::{self, Bundle};
use evenkeel_core::ids::BundleDigest;

use crate::faults;

/// Files in one bundle.
const MAX_FILES: usize = 10_000;
/// Bytes in one bundle.
const MAX_BYTES: u64 = 256 << 20;
/// Folders within folders.
const MAX_DEPTH: usize = 32;

/// One regular file of a bundle.
#[derive(Debug)]
pub(super) struct Entry {
    /// Relative to the bundle, `/`-separated.
    pub(super) path: String,
    pub(super) executable: bool,
    pub(super) bytes: Vec<u8>,
}

/// Reads all files below `folder`, in the order of their paths.
///
/// # Errors
/// What cannot be read or does not belong into a bundle, and where it is.
pub(super) fn read(folder: &Path) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let mut bytes = 0;
    walk(folder, "", 0, &mut entries, &mut bytes)?;
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

fn walk(
    folder: &Path,
    prefix: &str,
    depth: usize,
    entries: &mut Vec<Entry>,
    total: &mut u64,
) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!(
            "{}: folders are nested deeper than {MAX_DEPTH}",
            folder.display()
        ));
    }
    let at = |path: &Path, error: &io::Error| format!("{}: {error}", path.display());
    for item in fs::read_dir(folder).map_err(|error| at(folder, &error))? {
        let item = item.map_err(|error| at(folder, &error))?;
        let path = item.path();
        let name = item.file_name();
        let name = name
            .to_str()
            .ok_or_else(|| format!("{}: not UTF-8", path.display()))?;
        let relative = if prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{prefix}/{name}")
        };
        let kind = item.file_type().map_err(|error| at(&path, &error))?;
        if kind.is_dir() {
            walk(&path, &relative, depth + 1, entries, total)?;
        } else if kind.is_file() {
            if entries.len() == MAX_FILES {
                return Err(format!("{}: more than {MAX_FILES} files", folder.display()));
            }
            let entry = read_file(&path, relative, MAX_BYTES - *total)?;
            *total += entry.bytes.len() as u64;
            entries.push(entry);
        } else {
            return Err(format!(
                "{}: only files and folders belong into a bundle, not links, pipes or devices",
                path.display()
            ));
        }
    }
    Ok(())
}

fn read_file(path: &Path, relative: String, room: u64) -> Result<Entry, String> {
    let fail = |error: io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(fail)?;
    let executable = file.metadata().map_err(fail)?.permissions().mode() & 0o111 != 0;
    let mut bytes = Vec::new();
    file.take(room + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > room {
        return Err(format!(
            "{}: the bundle is larger than {} MiB",
            path.display(),
            MAX_BYTES >> 20
        ));
    }
    Ok(Entry {
        path: relative,
        executable,
        bytes,
    })
}

/// The name of this content.
pub(super) fn digest(entries: &[Entry]) -> Result<BundleDigest, String> {
    let parts = entries
        .iter()
        .map(|entry| (entry.path.as_str(), entry.executable, &entry.bytes));
    bundle::digest(parts).map_err(|error| error.to_string())
}

/// Where the copy of this content is, below `store`.
pub(super) fn copy_of(store: &Path, digest: BundleDigest) -> PathBuf {
    store.join(digest.to_string())
}

/// Copies the content to its place below `store`, read-only, unless it is there.
///
/// The copy appears whole or not at all: it is made under another name and renamed.
pub(super) fn keep(
    store: &Path,
    digest: BundleDigest,
    entries: &[Entry],
    bundle: &Bundle,
) -> io::Result<PathBuf> {
    let place = copy_of(store, digest);
    let snapshot = snapshot_of(store, digest);
    if place.is_dir() && snapshot.is_file() {
        return Ok(place);
    }
    fs::create_dir_all(store)?;
    let draft = store.join(format!(".{digest}.new"));
    remove(&draft)?;
    if !place.is_dir() {
        for entry in entries {
            let path = draft.join(&entry.path);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            // bundle.yml may hold the secret of a dashboard client, and no action needs it.
            let mode = match (entry.path.as_str(), entry.executable) {
                ("bundle.yml", _) => 0o400,
                (_, true) => 0o555,
                (_, false) => 0o444,
            };
            write_new(&path, mode, &entry.bytes)?;
        }
        seal_folders(&draft)?;
        faults::hit("engine.copy.before");
        fs::rename(&draft, &place)?;
        faults::hit("engine.copy.after");
    }
    let draft = store.join(format!(".{digest}.json.new"));
    remove(&draft)?;
    write_new(&draft, 0o600, &serde_json::to_vec(bundle)?)?;
    faults::hit("engine.snapshot.before");
    fs::rename(&draft, &snapshot)?;
    File::open(store)?.sync_all()?;
    faults::hit("engine.snapshot.after");
    Ok(place)
}

fn snapshot_of(store: &Path, digest: BundleDigest) -> PathBuf {
    store.join(format!("{digest}.json"))
}

/// The checked bundle as it was when the copy was made: a later release must not judge it again.
pub(super) fn snapshot(store: &Path, digest: BundleDigest) -> io::Result<Bundle> {
    let bytes = fs::read(snapshot_of(store, digest))?;
    serde_json::from_slice(&bytes).map_err(io::Error::from)
}

fn write_new(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn seal_folders(folder: &Path) -> io::Result<()> {
    for item in fs::read_dir(folder)? {
        let item = item?;
        if item.file_type()?.is_dir() {
            seal_folders(&item.path())?;
        }
    }
    File::open(folder)?.sync_all()?;
    fs::set_permissions(folder, Permissions::from_mode(0o755))
}

fn remove(path: &Path) -> io::Result<()> {
    let gone = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match gone {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
