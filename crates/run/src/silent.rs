//! Speaking to a shim that lives, and ending one that does not answer. A process id alone proves
//! nothing: it is checked with start time and boot id, through a descriptor of that one life, and
//! for ending one also with the lock known to be held.

use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::dispose::remove_tree;
use crate::error::{Context, Result, RunError};
use crate::faults;
use crate::files;
use crate::folder::{LOCK, RunFolder, STOP};
use crate::proc;

/// How long a shim that got SIGKILL may take to be gone.
const KILL_TIME: Duration = Duration::from_secs(5);

/// A shim that was there, as a descriptor that becomes readable when it is gone.
#[derive(Debug)]
pub struct ShimHandle {
    /// A pidfd (`pidfd_open(2)`).
    pub pidfd: OwnedFd,
    /// Its process id, for people.
    pub pid: i32,
}

/// What became of an attempt to end a silent shim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SilentEnd {
    /// There is no shim: probe the run.
    NotAlive,
    /// It showed itself recently.
    NotSilent {
        /// How long ago.
        age: Duration,
    },
    /// It was ended: sweep and probe the run.
    Ended,
    /// It got SIGKILL and is still there, or could not be told from other processes.
    StillThere,
}

impl RunFolder {
    /// The run's shim, if one took the run up and lives.
    ///
    /// # Errors
    /// The lock's record cannot be read, or what the operating system says.
    pub fn shim(&self) -> Result<Option<ShimHandle>> {
        let Some(record) = self.lock_record()? else {
            return Ok(None);
        };
        let boot_id = proc::boot_id().context("read the boot id for", self.path())?;
        let Some(pid) = Pid::from_raw(record.pid).filter(|_| record.boot_id == boot_id) else {
            return Ok(None);
        };
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error).context("watch the shim of", self.path()),
        };
        // Compared after opening: the descriptor is of a life that began then, or of none.
        let alive = proc::is_alive(record.pid, record.start_time);
        Ok(alive.then_some(ShimHandle {
            pidfd,
            pid: record.pid,
        }))
    }

    /// Asks the shim to stop the run: the action's tree gets SIGTERM, and SIGKILL after `grace`
    /// (the spec's without one). The end is told by the exit record. A run whose shim has not
    /// come to its first instruction yet is stopped before it starts anything; for one that is
    /// over, nothing happens.
    ///
    /// # Errors
    /// The wish cannot be written, or what the operating system says.
    pub fn request_stop(&self, grace: Option<Duration>) -> Result<()> {
        if self.open()?.is_none() {
            return Ok(());
        }
        // The wish first, then the signal: the shim writes its record first and then looks for the
        // wish, so at least one of us sees the other.
        faults::hit_with("run.stop.before", || self.about());
        self.write_stop(grace)?;
        faults::hit_with("run.stop.after", || self.about());
        match self.shim() {
            Ok(Some(shim)) => match pidfd_send_signal(&shim.pidfd, Signal::TERM) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
                Err(error) => Err(error).context("signal the shim of", self.path()),
            },
            // A torn record is being written at this moment.
            Ok(None) | Err(RunError::Record { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn write_stop(&self, grace: Option<Duration>) -> Result<()> {
        let path = self.path().join(STOP);
        let (mut file, fresh) = files::create_fresh(&path).context("create", &path)?;
        let text = grace.map_or_else(String::new, |grace| grace.as_millis().to_string());
        // Without room for the words an empty wish is as good: the spec's grace.
        if let Err(error) = file.write_all(text.as_bytes())
            && error.kind() != std::io::ErrorKind::StorageFull
        {
            return Err(error).context("write", &fresh);
        }
        match fs::rename(&fresh, &path) {
            // Something that ran as our own user put it there.
            Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => {
                let dir = files::open_dir(self.path()).context("open", self.path())?;
                remove_tree(&dir, STOP.as_bytes()).context("clear", &path)?;
                fs::rename(&fresh, &path)
            }
            done => done,
        }
        .context("write", &path)
    }

    /// Ends the shim if it has been silent (stopped, stuck) for `stale_after`. Its tree may be
    /// left: sweep it.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn end_silent(&self, stale_after: Duration) -> Result<SilentEnd> {
        let Some(gate) = self.gate(false)? else {
            return Ok(SilentEnd::NotAlive);
        };
        if self.try_lock(&gate)?.is_some() {
            return Ok(SilentEnd::NotAlive);
        }
        // From here on the lock is known to be held: by the shim of this run, and nobody else
        // while we keep the gate.
        if let Some(age) = self.heartbeat_age()?.filter(|age| *age < stale_after) {
            return Ok(SilentEnd::NotSilent { age });
        }
        let shims = match self.shim() {
            Ok(Some(shim)) => vec![shim],
            // It has not written its record, or died in the middle of it and left the lock to
            // a child that has yet to run.
            Ok(None) | Err(RunError::Record { .. }) => self.holders()?,
            Err(error) => return Err(error),
        };
        for shim in &shims {
            pidfd_send_signal(&shim.pidfd, Signal::KILL).ok();
        }
        let gone = !shims.is_empty() && shims.iter().all(|shim| is_gone_within(shim, KILL_TIME));
        Ok(if gone {
            SilentEnd::Ended
        } else {
            SilentEnd::StillThere
        })
    }

    /// Processes that have the lock open and were started for this folder.
    fn holders(&self) -> Result<Vec<ShimHandle>> {
        let meta = fs::metadata(self.path().join(LOCK)).context("look at", self.path())?;
        let lock = (meta.dev(), meta.ino());
        let ourselves = rustix::process::getpid().as_raw_nonzero().get();
        let mut holders = Vec::new();
        for process in proc::all().context("look for the shim of", self.path())? {
            let started_for_us = || {
                fs::read(format!("/proc/{}/cmdline", process.pid)).is_ok_and(|line| {
                    let path = self.path().as_os_str().as_encoded_bytes();
                    line.split(|byte| *byte == 0).any(|word| word == path)
                })
            };
            if process.pid == ourselves || !started_for_us() {
                continue;
            }
            let Some(pid) = Pid::from_raw(process.pid) else {
                continue;
            };
            let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else {
                continue;
            };
            if proc::has_open(process.pid, lock) && proc::is_alive(process.pid, process.start_time)
            {
                holders.push(ShimHandle {
                    pidfd,
                    pid: process.pid,
                });
            }
        }
        Ok(holders)
    }
}

fn is_gone_within(shim: &ShimHandle, time: Duration) -> bool {
    let timeout = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(&shim.pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
}
