//! The fence: what became of a run, answered so that the answer stays true.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;

use crate::census::CENSUS;
use crate::error::{Context, Result, RunError};
use crate::faults;
use crate::folder::{EXIT, RunFolder, SPEC, STARTED, TOMBSTONE, TREE_LOCK};
use crate::frame::Kind;
use crate::gate::{Gate, RunLock};
use crate::record::ExitRecord;

/// Whether a run is over, whatever came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Its shim is there.
    Alive,
    /// Its shim is dead and its tree is not known to be: [`RunFolder::sweep`] it.
    Lingering,
    /// None of it is left, and nothing of it will start.
    Over,
}

/// What became of a run.
#[derive(Clone, PartialEq, Debug)]
pub enum Probe {
    /// No user code of this run ever ran, and none ever will.
    NeverStarted,
    /// Its shim is there.
    Alive,
    /// Its shim is dead and its tree is not known to be: [`RunFolder::sweep`] it.
    Lingering,
    /// It ended, and this is how.
    Exited(Box<ExitRecord>),
    /// It started, its shim and its tree are gone, and nobody wrote down how it ended.
    Vanished,
}

// The fence.
//
// Five facts, each in a place of its own, and the order in which they can become true:
//
//   locked      flock on `lock`. Taken by the starter *before* it spawns and handed to the shim as
//               an open descriptor, so it is held from the shim's first instruction to its last.
//               Nobody else in the tree keeps a copy while user code runs. Outside the gate (a
//               lock on the folder itself, see `Gate`) only starters and shims hold it.
//   taken up    the record in `lock`. Written by the shim, before anything else.
//   started     the record in `started`, durable before the action's first instruction.
//   ended       the record in `exit`, durable, written when the whole tree is gone.
//   tombstone   a file of that name. Written by whoever answers NeverStarted or Vanished, while it
//               holds the lock. Never removed but with the folder.
//
// Invariant: user code of a run can start only in a process that holds `locked`, after that process
// looked for a tombstone *while holding it* and found none. Hence
//
//   * lock free and no `started`: no user code ran, for `started` comes first. With a tombstone
//     written under the lock, none ever will: a shim that was spawned and has not run yet would
//     hold the lock (the descriptor is open in it), so there is none; a starter that comes later
//     finds the tombstone, and so does a shim that it may have spawned nonetheless.
//   * lock free, `started`, no `ended`: the shim died. That says nothing about its tree, whose
//     emptiness is proven by the recorded containment. Empty and without a shim, it can only stay
//     empty: the tombstone keeps shims away.
//   * `ended` is final whatever else is there.
//
// A kernel restart frees the lock, and `started` and `ended` were made durable before what they
// announce; a tree cannot outlive its kernel, so another boot id proves it empty.
impl RunFolder {
    /// Whether the action began, nothing holds the run any more, and there is no record of its end.
    /// Told without a fence and without understanding what was written: for whoever must not look
    /// closer.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn is_lost(&self) -> Result<bool> {
        let Some(gate) = self.gate(false)? else {
            return Ok(false);
        };
        if self.try_lock(&gate)?.is_none() {
            return Ok(false);
        }
        let Some(dir) = self.open()? else {
            return Ok(false);
        };
        let has = |name, kind| match self.read(&dir, name, kind) {
            Ok(found) => Ok(found.is_some()),
            Err(RunError::Record { .. }) => Ok(false),
            Err(error) => Err(error),
        };
        Ok(has(STARTED, Kind::Started)? && !has(EXIT, Kind::Exit)?)
    }

    /// Finds out whether the run is over, without understanding what it left: for one whose record
    /// may be what kills its reader. `Over` stays true.
    ///
    /// # Errors
    /// As [`Self::probe`].
    pub fn standing(&self) -> Result<Standing> {
        let Some((gate, lock)) = self.locked()? else {
            return Ok(Standing::Alive);
        };
        let standing = if matches!(self.read(&gate.dir, EXIT, Kind::Exit), Ok(Some(_))) {
            if self.tree_is_empty()? {
                Standing::Over
            } else {
                Standing::Lingering
            }
        } else {
            match self.settle_without_record(&gate)? {
                Probe::Alive => Standing::Alive,
                Probe::Lingering => Standing::Lingering,
                Probe::NeverStarted | Probe::Exited(_) | Probe::Vanished => Standing::Over,
            }
        };
        drop(lock);
        Ok(standing)
    }

    /// The run's gate and lock; `None` if somebody holds the lock.
    fn locked(&self) -> Result<Option<(Gate, RunLock)>> {
        let Some(gate) = self.gate(true)? else {
            return Err(RunError::Busy {
                path: self.path().to_owned(),
                waited_secs: 0,
            });
        };
        let lock = self.try_lock(&gate)?;
        Ok(lock.map(|lock| (gate, lock)))
    }

    /// Finds out what became of the run. The answers `NeverStarted`, `Exited` and `Vanished` stay
    /// true; `Alive` and `Lingering` were true at one point of the call.
    ///
    /// A folder that does not exist is made, to hold the tombstone.
    ///
    /// # Errors
    /// No answer: something cannot be read, or the tombstone not be written.
    pub fn probe(&self) -> Result<Probe> {
        let Some((gate, lock)) = self.locked()? else {
            return Ok(Probe::Alive);
        };
        let answer = self.settle(&gate)?;
        drop(lock);
        Ok(answer)
    }

    /// The answer about a run whose lock we hold.
    fn settle(&self, gate: &Gate) -> Result<Probe> {
        match self.exit_record() {
            Ok(Some(record)) if record.tree_ended || self.tree_is_empty()? => {
                return Ok(Probe::Exited(Box::new(record)));
            }
            Ok(Some(_)) => return Ok(Probe::Lingering),
            // A torn record: the shim, or the host, died while it was written. Or something that
            // ran as our own user spoiled it, which must not leave the run without an answer.
            Ok(None)
            | Err(RunError::Record { .. } | RunError::Content { .. } | RunError::NotPlain { .. }) =>
                {}
            Err(error) => return Err(error),
        }
        self.settle_without_record(gate)
    }

    fn settle_without_record(&self, gate: &Gate) -> Result<Probe> {
        match self.read(&gate.dir, STARTED, Kind::Started) {
            Ok(None) => {
                if !self.was_prepared() && self.has_processes()? {
                    return Ok(Probe::Lingering);
                }
                self.bury(&gate.dir, "never started")?;
                Ok(Probe::NeverStarted)
            }
            // A torn record was not durable yet, so the action had not been let go. Saying
            // Vanished is the careful answer nonetheless.
            Ok(Some(_)) | Err(RunError::Record { .. } | RunError::NotPlain { .. }) => {
                if !self.tree_is_empty()? {
                    return Ok(Probe::Lingering);
                }
                self.bury(&gate.dir, "vanished")?;
                Ok(Probe::Vanished)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a run was prepared in this very folder. If not, either none ever was, or somebody
    /// took the folder away under one, its action, say, and this one was made to hold the answer.
    fn was_prepared(&self) -> bool {
        self.path().join(SPEC).exists()
    }

    /// Whether a process lives that was started for this attempt, in whatever folder.
    fn has_processes(&self) -> Result<bool> {
        let found = CENSUS
            .has(self.attempt_id())
            .context("look for the processes of", self.path())?;
        Ok(found || self.path().join(TREE_LOCK).exists() && !self.tree_is_empty()?)
    }

    /// Leaves a tombstone. The caller holds the lock.
    pub(crate) fn bury(&self, dir: &OwnedFd, epitaph: &str) -> Result<()> {
        faults::hit_with("run.tombstone.before", || self.about());
        let path = self.path().join(TOMBSTONE);
        let stone = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        let mut stone = match stone {
            Ok(stone) => stone,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
            Err(error) => return Err(error).context("create", &path),
        };
        // The words are for people: on a full disk the name alone does.
        writeln!(stone, "{epitaph}").ok();
        stone
            .sync_all()
            .or_else(tolerate_no_space)
            .context("write", &path)?;
        let dir = File::from(dir.try_clone().context("open", self.path())?);
        dir.sync_all()
            .or_else(tolerate_no_space)
            .context("write", self.path())?;
        faults::hit_with("run.tombstone.after", || self.about());
        Ok(())
    }
}

fn tolerate_no_space(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::StorageFull {
        Ok(())
    } else {
        Err(error)
    }
}

#[cfg(test)]
mod tests;
