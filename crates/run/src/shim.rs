//! The shim: the small supervisor of one run. It outlives the broker, holds the run's lock, and
//! writes down how the run ended.
//!
//! Single-threaded and without a runtime: it forks, and a death signal follows the thread that
//! forked. It must be the first thing that a program does. It knows no database and no key.

mod child;
mod ending;
mod launch;
pub mod results;
mod signals;
mod supervise;
mod usage;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, flock, fstat, statat};
use rustix::io::fcntl_dupfd_cloexec;

use crate::clock;
use crate::faults;
use crate::files;
use crate::folder::{self, EXIT, HEARTBEAT, LAST_PROGRESS, LOCK, RunFolder, STOP, TOMBSTONE};
use crate::frame::{self, Kind};
use crate::proc;
use crate::record::{ExitRecord, LockRecord, Output, OutputError, RunEnd};
use crate::sys;

/// The run is over and its exit record durable.
const DONE: i32 = 0;
/// Not started as a shim: the argument or the lock on standard input is missing.
const USAGE: i32 = 64;
/// There is a tombstone, or another shim took the run up before: nothing was done.
const NOT_OURS: i32 = 65;
/// The folder could not be used, and the record not be written.
const NO_RECORD: i32 = 74;

/// Descriptors of the shim lie above the numbers that its children are given.
const HIGH: i32 = 20;

/// Runs one run: `args` is the path of its folder, and standard input the run's lock, held (see
/// [`crate::StartTicket`]). Call it before anything else is started in the process.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ! {
    let mut args = args.into_iter();
    let code = match (args.next(), args.next()) {
        (Some(folder), None) => run(Path::new(&folder)).unwrap_or_else(|failure| failure.code()),
        (_, _) => USAGE,
    };
    std::process::exit(code)
}

/// Why a shim ends without having had its run.
enum Failure {
    NotAShim,
    NotOurs,
    Io,
}

impl Failure {
    fn code(&self) -> i32 {
        match self {
            Self::NotAShim => USAGE,
            Self::NotOurs => NOT_OURS,
            Self::Io => NO_RECORD,
        }
    }
}

impl<E: Into<io::Error>> From<E> for Failure {
    fn from(_: E) -> Self {
        Self::Io
    }
}

/// What the parts of the shim share.
struct Shim {
    folder: RunFolder,
    dir: OwnedFd,
    exit: File,
    heartbeat: File,
    last_progress: File,
    signals: OwnedFd,
    boot_id: String,
    /// Held until the process ends.
    _lock: OwnedFd,
}

fn run(path: &Path) -> Result<i32, Failure> {
    let lock = only_descriptor()?;
    // Before the record in the lock gives our process id away: a stop must not kill us.
    let signals = fcntl_dupfd_cloexec(sys::signals_as_descriptor()?, HIGH)?;
    // Fails for a leader of a process group only, which has left its parent's already.
    rustix::process::setsid().ok();
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::thread::set_name(c"evenkeel-shim").ok();
    let shim = Shim::take_up(path, lock, signals)?;
    let result = catch_unwind(AssertUnwindSafe(|| supervise::run(&shim)));
    let record = result.unwrap_or_else(|_| shim.after_panic());
    shim.write_exit(&record)?;
    Ok(DONE)
}

/// Closes every descriptor but the lock that came as standard input.
fn only_descriptor() -> Result<OwnedFd, Failure> {
    const KEPT: i32 = 3;
    sys::install(rustix::stdio::stdin(), KEPT).map_err(|_| Failure::NotAShim)?;
    sys::close_from(KEPT + 1)?;
    let kept = sys::own(KEPT);
    let lock = fcntl_dupfd_cloexec(&kept, HIGH)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    for standard in 0..3 {
        sys::install(null.as_fd(), standard)?;
    }
    Ok(lock)
}

impl Shim {
    /// The run is ours if we hold its lock, nobody buried it, and no shim was here before.
    fn take_up(path: &Path, lock: OwnedFd, signals: OwnedFd) -> Result<Self, Failure> {
        let attempt_id = path
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or(Failure::NotAShim)?;
        let folder = RunFolder::new(PathBuf::from(path), attempt_id.to_owned());
        let dir = fcntl_dupfd_cloexec(files::open_dir(path).map_err(|_| Failure::NotAShim)?, HIGH)?;
        let held = fstat(&lock)?;
        let named = statat(&dir, LOCK, AtFlags::SYMLINK_NOFOLLOW).map_err(|_| Failure::NotAShim)?;
        if (held.st_dev, held.st_ino) != (named.st_dev, named.st_ino) {
            return Err(Failure::NotAShim);
        }
        // It is held already, through the very description that we were handed.
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| Failure::NotAShim)?;
        if statat(&dir, TOMBSTONE, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(Failure::NotOurs);
        }
        if !matches!(folder.read(&dir, LOCK, Kind::Lock), Ok(None)) {
            return Err(Failure::NotOurs);
        }
        let boot_id = proc::boot_id()?;
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let start_time = proc::stat(pid).ok_or(Failure::Io)?.start_time;
        let record = LockRecord {
            pid,
            start_time,
            boot_id: boot_id.clone(),
        };
        let payload = serde_json::to_vec(&record).map_err(|_| Failure::Io)?;
        faults::hit_with("shim.taken_up.before", || folder.about());
        // Through its name: the descriptor that we were handed may be good for locking only.
        frame::write(&files::open_own(&dir, LOCK)?, Kind::Lock, &payload)?;
        faults::hit_with("shim.taken_up.after", || folder.about());
        let shim = Self {
            exit: files::open_own(&dir, EXIT)?,
            heartbeat: files::open_own(&dir, HEARTBEAT)?,
            last_progress: files::open_own(&dir, LAST_PROGRESS)?,
            folder,
            dir,
            signals,
            boot_id,
            _lock: lock,
        };
        shim.beat();
        Ok(shim)
    }

    /// A heartbeat that cannot be written makes us look silent, which is for the broker to judge.
    fn beat(&self) {
        faults::hit_with("shim.beat.before", || self.folder.about());
        folder::beat(&self.heartbeat).ok();
        faults::hit_with("shim.beat.after", || self.folder.about());
    }

    /// The grace of a wish to stop, in milliseconds; the outer `None` if there is no wish.
    fn stop_wish(&self) -> Option<Option<u64>> {
        let bytes = files::read_bounded(&self.dir, self.folder.path(), STOP, 64)
            .ok()
            .flatten()?;
        Some(String::from_utf8_lossy(&bytes).trim().parse().ok())
    }

    /// Makes the record durable, in room that was allocated for it.
    fn write_exit(&self, record: &ExitRecord) -> io::Result<()> {
        let payload = serde_json::to_vec(record)?;
        faults::hit_with("shim.exit.before", || self.folder.about());
        frame::write(&self.exit, Kind::Exit, &payload)?;
        faults::hit_with("shim.exit.written", || self.folder.about());
        self.exit.sync_all()?;
        faults::hit_with("shim.exit.after", || self.folder.about());
        // What is left of the room; should this be lost, the record is as good.
        let used = frame::encode(Kind::Exit, &payload).len() as u64;
        self.exit.set_len(used).ok();
        Ok(())
    }

    /// A record without anything known but that the run did not get anywhere.
    fn blank_record(&self, end: RunEnd) -> ExitRecord {
        ExitRecord {
            attempt_id: self.folder.attempt_id().to_owned(),
            end,
            exit_code: None,
            signal: None,
            core_dumped: false,
            namespace_killed: false,
            stopped_by: None,
            stop_wished: false,
            started_at_ms: None,
            ended_at_ms: clock::unix_ms(),
            boot_id: self.boot_id.clone(),
            containment: None,
            peak_memory_bytes: None,
            peak_own_bytes: None,
            memory_limit_bytes: None,
            cpu_ms: None,
            own_oom: false,
            own_oom_kills: 0,
            host_oom: false,
            output: None,
            output_error: None,
            last_progress: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
            log_lost_bytes: 0,
            tree_ended: true,
        }
    }

    /// A fault of ours: the tree is ended by what the folder says about it.
    fn after_panic(&self) -> ExitRecord {
        let ended = self.folder.end_own_tree();
        let message = "the shim failed; this is a fault of Evenkeel".to_owned();
        let mut record = self.blank_record(RunEnd::SpawnFailed { message });
        record.tree_ended = ended;
        record
    }
}

/// What an action wrote, as two fields of the exit record.
pub type Written = (Option<Output>, Option<OutputError>);
