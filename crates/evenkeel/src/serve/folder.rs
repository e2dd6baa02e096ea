//! The data folder, before the store has it.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::fail::{Exit, Failure};

/// Makes the data folder if it is missing, and sees that it can be used. Its path without links.
pub(crate) fn usable(path: &Path) -> io::Result<PathBuf> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| {
        // Something is there, and it is no folder.
        let in_the_way = error.kind() == io::ErrorKind::AlreadyExists;
        if in_the_way {
            io::ErrorKind::NotADirectory.into()
        } else {
            error
        }
    })?;
    let found = path.canonicalize()?;
    access(&found, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)?;
    Ok(found)
}

/// What an error in the data folder means.
pub(super) fn unusable(path: &Path, error: &io::Error) -> Failure {
    let hint = if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        "mount it writable, or set data_dir to another folder"
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        "give the folder to the broker's user, or set data_dir to another one"
    } else if is_full(error) {
        "make room on its disk; the broker goes on by itself"
    } else if is_final(error) {
        "set data_dir to a folder on a local disk that the broker may write"
    } else {
        "the broker tries again by itself"
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

/// Whether it stays so until somebody changes a right, a mount, a path or what stands in a file.
/// Anything else may pass (a full disk, too many open files, a device in trouble), and a broker
/// that waits for that costs nothing.
pub(super) fn is_final(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::InvalidData
    )
}

/// Lets actions that run as a user of their own pass through a folder, which they cannot list;
/// makes it if it is missing.
pub(super) fn let_pass(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o711))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_by_itself_ends_no_broker() {
        for errno in [libc::EACCES, libc::EPERM, libc::EROFS, libc::ENOTDIR] {
            let error = io::Error::from_raw_os_error(errno);
            assert!(is_final(&error), "{error}");
        }
        for errno in [
            libc::ENOSPC,
            libc::EDQUOT,
            libc::EMFILE,
            libc::ENFILE,
            libc::EIO,
            libc::ENOMEM,
            libc::ESTALE,
            libc::EINTR,
            libc::ENOENT,
        ] {
            let error = io::Error::from_raw_os_error(errno);
            assert!(!is_final(&error), "{error}");
        }
    }

    #[test]
    fn a_file_in_the_place_of_the_data_folder_is_no_passing_trouble() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("data");
        fs::write(&file, "").unwrap();
        assert!(is_final(&usable(&file).unwrap_err()));
        assert!(is_final(&usable(&file.join("below")).unwrap_err()));
        assert!(usable(&folder.path().join("made")).is_ok());
    }
}
