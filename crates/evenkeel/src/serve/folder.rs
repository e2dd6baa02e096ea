//! The data folder, before the store has it.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::fail::{Exit, Failure};

/// Makes the data folder if it is missing, and sees that it can be used. Its path without links.
pub(super) fn usable(path: &Path) -> Result<PathBuf, Failure> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .and_then(|()| path.canonicalize())
        .and_then(|found| {
            access(&found, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)?;
            Ok(found)
        })
        .map_err(|error| unusable(path, &error))
}

/// What an error in the data folder means.
pub(super) fn unusable(path: &Path, error: &io::Error) -> Failure {
    let hint = if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        "mount it writable, or set data_dir to another folder"
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        "give the folder to the broker's user, or set data_dir to another one"
    } else if is_full(error) {
        "make room on its disk"
    } else {
        "set data_dir to a folder on a local disk that the broker may write"
    };
    Failure::new(
        Exit::DataDir,
        format!("cannot use the data folder {}: {error}", path.display()),
    )
    .hint(hint)
}

/// Whether room on the disk would help.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Lets actions that run as a user of their own pass through a folder, which they cannot list;
/// makes it if it is missing.
pub(super) fn let_pass(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o711))
}
