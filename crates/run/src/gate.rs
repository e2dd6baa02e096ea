//! Who may look at a run's lock, and how.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock, fstat, stat};

use crate::error::{Context, Result, RunError};
use crate::files;
use crate::folder::{LOCK, RunFolder, TOMBSTONE};

const GATE_WAIT: Duration = Duration::from_secs(20);

/// The run folder, open, with nobody else at work on it.
///
/// Whoever looks at a run's lock has to try it, and would be taken for the shim meanwhile by the
/// next one who looks. So all of them come through this gate first (a lock on the folder itself),
/// and only shims hold the run's lock outside of it.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) dir: OwnedFd,
}

// A lock is given back by saying so, not by closing its descriptor: another thread may be between
// fork and exec, and its child holds a copy of every descriptor until then. A lock that such a
// copy keeps for a moment would be taken for a shim that lives.
impl Drop for Gate {
    fn drop(&mut self) {
        flock(&self.dir, FlockOperation::Unlock).ok();
    }
}

/// The run's lock, held by this process.
#[derive(Debug)]
pub(crate) struct RunLock {
    file: File,
    given_back: bool,
}

impl RunLock {
    /// A copy for the shim. From now on dropping this closes it only, and the shim holds on.
    pub(crate) fn hand_on(&mut self) -> io::Result<File> {
        let copy = self.file.try_clone()?;
        self.given_back = false;
        Ok(copy)
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        if self.given_back {
            flock(&self.file, FlockOperation::Unlock).ok();
        }
    }
}

impl RunFolder {
    /// Opens the folder and keeps others out; `None` if there is none and none is to be made.
    pub(crate) fn gate(&self, create: bool) -> Result<Option<Gate>> {
        let until = Instant::now() + GATE_WAIT;
        loop {
            let dir = match files::open_dir(self.path()) {
                Ok(dir) => dir,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if !create {
                        return Ok(None);
                    }
                    match DirBuilder::new().mode(0o700).create(self.path()) {
                        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                            return Err(error).context("create", self.path());
                        }
                        Ok(()) | Err(_) => continue,
                    }
                }
                Err(error) => return Err(error).context("open", self.path()),
            };
            match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
                // The folder may have been disposed of, and made anew, while we waited for it.
                Ok(()) if self.is_current(&dir) => return Ok(Some(Gate { dir })),
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(error).context("lock", self.path()),
            }
            if Instant::now() >= until {
                let waited_secs = GATE_WAIT.as_secs();
                return Err(RunError::Busy {
                    path: self.path().to_owned(),
                    waited_secs,
                });
            }
        }
    }

    fn is_current(&self, dir: &OwnedFd) -> bool {
        let (Ok(held), Ok(named)) = (fstat(dir), stat(self.path())) else {
            return false;
        };
        (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)
    }

    /// Takes the run's lock; `None` if a shim has it.
    pub(crate) fn try_lock(&self, gate: &Gate) -> Result<Option<RunLock>> {
        let path = self.path().join(LOCK);
        let file = files::open_own(&gate.dir, LOCK).context("open", &path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(RunLock {
                file,
                given_back: true,
            })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error).context("lock", &path),
        }
    }

    pub(crate) fn has_tombstone(&self, gate: &Gate) -> Result<bool> {
        // Its presence is the message: no content could take that back.
        match rustix::fs::statat(&gate.dir, TOMBSTONE, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(error).context("look for", &self.path().join(TOMBSTONE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::fence::Probe;
    use crate::root::RunRoot;

    /// As a child has it that another thread forked and that has not executed its program yet.
    #[test]
    fn a_copy_of_a_descriptor_keeps_no_lock_but_one_that_was_handed_on() {
        let dir = tempfile::tempdir().unwrap();
        let root = RunRoot::open(&dir.path().join("run"), "root").unwrap();
        let folder = root.run("attempt").unwrap();
        let gate = folder.gate(true).unwrap().unwrap();
        let lock = folder.try_lock(&gate).unwrap().unwrap();
        let _copies = (
            gate.dir.try_clone().unwrap(),
            lock.file.try_clone().unwrap(),
        );
        drop(lock);
        drop(gate);
        assert_eq!(folder.probe().unwrap(), Probe::NeverStarted);

        let gate = folder.gate(true).unwrap().unwrap();
        let mut lock = folder.try_lock(&gate).unwrap().unwrap();
        let shims = lock.hand_on().unwrap();
        drop(lock);
        drop(gate);
        assert_eq!(folder.probe().unwrap(), Probe::Alive);
        drop(shims);
        assert_eq!(folder.probe().unwrap(), Probe::NeverStarted);
    }
}
