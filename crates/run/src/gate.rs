//! Who may look at a run's lock, and how.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock, fstat, stat};

use crate::dispose::remove_tree;
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
                // Something that ran as our own user put another thing in its place, and must not keep
                // the run from an end.
                Err(error) if is_another_kind(&error) && Instant::now() < until => {
                    std::fs::remove_file(self.path()).context("clear", self.path())?;
                    continue;
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
        let file = match files::open_own(&gate.dir, LOCK) {
            // As above. Whoever holds the lock that was here is found by the tree that it watches,
            // once that tree has been recorded (`started`).
            Err(error) if is_another_kind(&error) => {
                remove_tree(&gate.dir, LOCK.as_bytes()).context("clear", &path)?;
                files::open_own(&gate.dir, LOCK)
            }
            opened => opened,
        };
        let file = file.context("open", &path)?;
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

/// Not the folder, or not the file, that it should be: a link, a folder, a socket, a device.
fn is_another_kind(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let kinds = [
        Errno::NOTDIR,
        Errno::LOOP,
        Errno::ISDIR,
        Errno::NXIO,
        Errno::NODEV,
    ];
    Errno::from_io_error(error).is_some_and(|error| kinds.contains(&error))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use rustix::io::Errno;

    use super::is_another_kind;
    use crate::fence::Probe;
    use crate::root::RunRoot;

    /// What cannot be opened for another reason may be the lock of a shim that lives.
    #[test]
    fn only_what_is_of_another_kind_is_cleared_away() {
        for (error, another) in [
            (Errno::NOTDIR, true),
            (Errno::LOOP, true),
            (Errno::MFILE, false),
            (Errno::ACCESS, false),
            (Errno::IO, false),
        ] {
            assert_eq!(is_another_kind(&error.into()), another, "{error}");
        }
    }

    #[test]
    fn who_finds_somebody_at_the_gate_waits_for_its_turn() {
        let dir = tempfile::tempdir().unwrap();
        let root = RunRoot::open(&dir.path().join("run"), "root").unwrap();
        let folder = root.run("attempt").unwrap();
        let gate = folder.gate(true).unwrap().unwrap();
        let (told, tell) = mpsc::channel();
        let asks = std::thread::spawn({
            let folder = folder.clone();
            move || {
                told.send(rustix::thread::gettid()).unwrap();
                folder.probe()
            }
        });
        let thread = tell.recv().unwrap().as_raw_nonzero();
        let stat = format!("/proc/self/task/{thread}/stat");
        let until = Instant::now() + Duration::from_secs(60);
        // It sleeps before it looks again; or it has an answer already, which would be wrong.
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") S ")) {
            assert!(Instant::now() < until, "it neither waits nor answers");
        }
        drop(gate);
        assert_eq!(asks.join().unwrap().unwrap(), Probe::NeverStarted);
    }

    /// A lock on what is no longer the run's folder keeps nobody out of it.
    #[test]
    fn a_folder_that_was_made_anew_is_told_from_the_one_that_was_opened() {
        let dir = tempfile::tempdir().unwrap();
        let root = RunRoot::open(&dir.path().join("run"), "root").unwrap();
        let folder = root.run("attempt").unwrap();
        let gate = folder.gate(true).unwrap().unwrap();
        assert!(folder.is_current(&gate.dir));
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert!(!folder.is_current(&gate.dir));
        std::fs::create_dir(folder.path()).unwrap();
        assert!(!folder.is_current(&gate.dir));
    }

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
