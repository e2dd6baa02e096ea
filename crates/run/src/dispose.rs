//! Removing a run's folder when its attempt is concluded.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Dir, FileType, Mode, chmodat, renameat, statat, unlinkat};

use crate::error::{Context, Result, RunError};
use crate::faults;
use crate::fence::Probe;
use crate::folder::{EXIT, LOCK, OUT, REQUEST, RunFolder, SECRETS, STARTED, TMP, TOMBSTONE, WORK};

impl RunFolder {
    /// Removes the run's folder, what is secret first, and keeps its log. May be repeated, and
    /// goes on where an earlier call was cut off. Afterwards the run is as if it had never been:
    /// only the caller's own records keep it from being started again.
    ///
    /// # Errors
    /// The run is alive or lingering, or what the operating system says.
    pub fn conclude(&self) -> Result<()> {
        if self.gate(false)?.is_none() {
            return Ok(());
        }
        // The spec, which says it, goes as well.
        let known = if faults::armed() {
            self.about()
        } else {
            String::new()
        };
        let about = || known.clone();
        faults::hit_with("run.conclude.before", about);
        let attempt_id = || self.attempt_id().to_owned();
        match self.probe()? {
            Probe::Alive => {
                return Err(RunError::Alive {
                    attempt_id: attempt_id(),
                });
            }
            Probe::Lingering => {
                return Err(RunError::Lingering {
                    attempt_id: attempt_id(),
                });
            }
            Probe::NeverStarted | Probe::Exited(_) | Probe::Vanished => {}
        }
        let Some(gate) = self.gate(false)? else {
            return Ok(());
        };
        // From now on the exit record cannot vouch for the end any more: the tombstone does.
        self.bury(&gate.dir, "disposed of")?;
        // The tombstone and what it rests on go last.
        let last = [STARTED, LOCK, TOMBSTONE];
        for name in [SECRETS, REQUEST, OUT, EXIT, WORK, TMP] {
            self.remove(&gate.dir, name.as_bytes())?;
        }
        faults::hit_with("run.secrets_gone.after", about);
        self.keep_log()?;
        faults::hit_with("run.log_kept.after", about);
        for name in names(&gate.dir).context("list", self.path())? {
            if !last.iter().any(|last| last.as_bytes() == name) {
                self.remove(&gate.dir, &name)?;
            }
        }
        for name in last {
            self.remove(&gate.dir, name.as_bytes())?;
        }
        faults::hit_with("run.emptied.after", about);
        match std::fs::remove_dir(self.path()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).context("remove", self.path());
            }
            Ok(()) | Err(_) => {}
        }
        faults::hit_with("run.conclude.after", about);
        Ok(())
    }

    fn remove(&self, dir: &OwnedFd, name: &[u8]) -> Result<()> {
        let path = || self.path().join(OsStr::from_bytes(name));
        remove_tree(dir, name)
            .map_err(io::Error::from)
            .context("remove", &path())
    }
}

/// Removes a file or a folder with everything in it, however deeply an action nested it: folders
/// found inside are moved up beside the one being emptied, so neither stack nor descriptors grow.
pub(crate) fn remove_tree(dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    let mut moved = 0_u64;
    let mut waiting = vec![name.to_vec()];
    while let Some(folder) = waiting.pop() {
        // An action may have taken every right from its own folders.
        chmodat(dir, folder.as_slice(), Mode::RWXU, AtFlags::empty())?;
        let inside = rustix::fs::openat(
            dir,
            folder.as_slice(),
            rustix::fs::OFlags::RDONLY
                | rustix::fs::OFlags::DIRECTORY
                | rustix::fs::OFlags::NOFOLLOW
                | rustix::fs::OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        for entry in Dir::read_from(&inside)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = statat(&inside, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode).is_dir() {
                chmodat(&inside, name, Mode::RWXU, AtFlags::empty())?;
                let beside = loop {
                    moved += 1;
                    let beside = format!("removed.{moved}");
                    if statat(dir, beside.as_str(), AtFlags::SYMLINK_NOFOLLOW).is_err() {
                        break beside;
                    }
                };
                renameat(&inside, name, dir, beside.as_str())?;
                waiting.push(beside.into_bytes());
            } else {
                unlinkat(&inside, name, AtFlags::empty())?;
            }
        }
        match unlinkat(dir, folder.as_slice(), AtFlags::REMOVEDIR) {
            // A listing that changes while it is read may leave entries out.
            Err(rustix::io::Errno::NOTEMPTY) => waiting.push(folder),
            other => other?,
        }
    }
    Ok(())
}

fn names(dir: impl AsFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;

    #[test]
    fn a_tree_deeper_than_the_limit_of_open_files_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let top = root.path().join("work");
        std::fs::create_dir(&top).unwrap();
        let mut at = files::open_dir(&top).unwrap();
        for _ in 0..1500 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = files::open_dir_at(&at, "d").unwrap();
        }
        std::fs::write(top.join("file"), "x").unwrap();
        std::os::unix::fs::symlink("/etc", top.join("link")).unwrap();
        remove_tree(&files::open_dir(root.path()).unwrap(), b"work").unwrap();
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
        assert!(std::path::Path::new("/etc/passwd").exists());
    }
}
