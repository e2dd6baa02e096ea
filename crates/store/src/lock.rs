//! The data lock: one broker for one data folder. Held for life, freed by the kernel at the
//! holder's death whatever it dies of.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::error::StoreError;

/// How often a lock that is held is asked for again.
const RETRY: Duration = Duration::from_millis(50);

/// The held lock.
#[derive(Debug)]
pub(crate) struct DataLock {
    _file: File,
}

impl DataLock {
    /// Makes the folder (0700) if it is missing, and takes its lock, waiting up to `wait`.
    pub(crate) fn take(folder: &Path, wait: Duration) -> Result<Self, StoreError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| no_folder(folder, &error))?;
        let path = folder.join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| no_folder(folder, &error))?;
        let since = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if since.elapsed() < wait => {
                    std::thread::sleep(RETRY.min(wait));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(StoreError::Locked(held(folder, &mut file)));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(no_folder(folder, &error.into())),
            }
        }
        // For people only: the lock is the truth, and a full disk must not keep it from us.
        if let Err(error) = note_pid(&mut file) {
            tracing::warn!(path = %path.display(), %error, "the holder's pid could not be noted");
        }
        Ok(Self { _file: file })
    }
}

fn note_pid(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn held(folder: &Path, file: &mut File) -> String {
    let mut pid = String::new();
    let known = file.take(32).read_to_string(&mut pid).is_ok() && !pid.trim().is_empty();
    if known {
        format!("{} (held by process {})", folder.display(), pid.trim())
    } else {
        folder.display().to_string()
    }
}

fn no_folder(folder: &Path, error: &std::io::Error) -> StoreError {
    let path = folder.display();
    let kind = error.kind();
    if matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
        return StoreError::Full(format!(
            "the data folder {path} cannot be written: {error}; make room on its disk"
        ));
    }
    let remedy = if kind == ErrorKind::ReadOnlyFilesystem {
        "mount it writable or set data_dir to another folder"
    } else if kind == ErrorKind::PermissionDenied {
        "give it to the broker's user or set data_dir to another folder"
    } else {
        "set data_dir to a folder that can be"
    };
    StoreError::Unavailable(format!(
        "the data folder {path} cannot be used: {error}; {remedy}"
    ))
}
