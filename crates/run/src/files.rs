//! Opening files in a folder that an action may have touched: never through a link, never waiting
//! for a pipe, never more than a bound.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{self, CWD, FileType, Mode, OFlags};

use crate::error::{Context, Result, RunError};
use crate::frame::MAX_HEADER;

/// Opens a folder by its path, which must not be a link.
pub(crate) fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    Ok(fs::openat(CWD, path, DIR, Mode::empty())?)
}

/// Opens a folder in a folder.
pub(crate) fn open_dir_at(dir: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    Ok(fs::openat(dir, name, DIR, Mode::empty())?)
}

const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens, or makes with mode 0600, a file of our own.
pub(crate) fn open_own(dir: impl AsFd, name: &str) -> io::Result<File> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(fs::openat(
        dir,
        name,
        flags,
        Mode::RUSR | Mode::WUSR,
    )?))
}

/// Makes a file beside `path`, with mode 0600 and under a name that nobody else uses, to be renamed
/// or linked to `path` when it is complete.
pub(crate) fn create_fresh(path: &Path) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let fresh = path.with_added_extension(format!("{}.{number}", std::process::id()));
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh);
        match made {
            Ok(file) => return Ok((file, fresh)),
            // Left by a process of the same number that died.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// A file that was opened without trust.
pub(crate) enum Untrusted {
    /// Nothing of that name.
    Missing,
    /// A plain file of this size.
    Plain(File, u64),
    /// Something else, in a word.
    Other(&'static str),
}

/// Opens what somebody else wrote.
pub(crate) fn open_untrusted(dir: impl AsFd, name: &str) -> io::Result<Untrusted> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = match fs::openat(&dir, name, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::NOENT) => return Ok(Untrusted::Missing),
        Err(rustix::io::Errno::LOOP) => return Ok(Untrusted::Other("a symbolic link")),
        // A socket, or a device without a driver, cannot even be opened.
        Err(rustix::io::Errno::NXIO | rustix::io::Errno::NODEV) => {
            return Ok(Untrusted::Other("a socket or a device"));
        }
        Err(error) => return Err(error.into()),
    };
    let stat = fs::fstat(&fd)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Untrusted::Plain(File::from(fd), size),
        FileType::Directory => Untrusted::Other("a folder"),
        FileType::Fifo => Untrusted::Other("a pipe"),
        FileType::Symlink => Untrusted::Other("a symbolic link"),
        FileType::Socket => Untrusted::Other("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Untrusted::Other("a device"),
        FileType::Unknown => Untrusted::Other("of an unknown kind"),
    })
}

/// Reads a file of the run folder; `None` if there is none.
pub(crate) fn read_bounded(
    dir: impl AsFd,
    folder: &Path,
    name: &str,
    max_bytes: u64,
) -> Result<Option<Vec<u8>>> {
    read(dir, folder, name, max_bytes, false)
}

/// Reads a record of the run folder: nothing if there is none, and no more than the head of the
/// room for one that was not written.
pub(crate) fn read_record(
    dir: impl AsFd,
    folder: &Path,
    name: &str,
    max_bytes: u64,
) -> Result<Vec<u8>> {
    Ok(read(dir, folder, name, max_bytes, true)?.unwrap_or_default())
}

fn read(
    dir: impl AsFd,
    folder: &Path,
    name: &str,
    max_bytes: u64,
    is_record: bool,
) -> Result<Option<Vec<u8>>> {
    let path = folder.join(name);
    let not_plain = |found: String| RunError::NotPlain {
        path: path.clone(),
        found,
        max_bytes,
    };
    match open_untrusted(dir, name).context("open", &path)? {
        Untrusted::Missing => Ok(None),
        Untrusted::Other(found) => Err(not_plain(found.to_owned())),
        Untrusted::Plain(_, size) if size > max_bytes => Err(not_plain(format!("of {size} bytes"))),
        Untrusted::Plain(file, _) => {
            let mut bytes = Vec::new();
            let head = (&file).take(MAX_HEADER as u64).read_to_end(&mut bytes);
            head.context("read", &path)?;
            if !is_record || bytes.iter().any(|byte| *byte != 0) {
                let rest = file.take(max_bytes).read_to_end(&mut bytes);
                rest.context("read", &path)?;
            }
            Ok(Some(bytes))
        }
    }
}
