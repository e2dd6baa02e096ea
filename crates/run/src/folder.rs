//! One run's folder: how it is laid out, prepared and read.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock, fstat, stat};

use crate::clock;
use crate::error::{Context, Result, RunError};
use crate::files;
use crate::frame::{self, Kind};
use crate::record::{EXIT_OVERHEAD_BYTES, ExitRecord, LockRecord, StartedRecord};
use crate::spec::{RunAs, RunSpec};

pub(crate) const SPEC: &str = "spec.json";
pub(crate) const LOCK: &str = "lock";
pub(crate) const TREE_LOCK: &str = "tree.lock";
pub(crate) const STARTED: &str = "started";
pub(crate) const EXIT: &str = "exit";
pub(crate) const TOMBSTONE: &str = "tombstone";
pub(crate) const HEARTBEAT: &str = "heartbeat";
pub(crate) const LAST_PROGRESS: &str = "last-progress";
pub(crate) const STOP: &str = "stop";
pub(crate) const REQUEST: &str = "request.json";
pub(crate) const SECRETS: &str = "secrets";
pub(crate) const WORK: &str = "work";
pub(crate) const TMP: &str = "tmp";
/// The folder that the action writes its answers to; its own, so that it may rename in it.
pub(crate) const OUT: &str = "out";
pub(crate) const OUTPUT: &str = "output.json";
pub(crate) const PROGRESS: &str = "progress";

const MAX_SPEC_BYTES: u64 = 1 << 20;
/// The most that is read of any record; an exit record carries the action's output.
const MAX_RECORD_BYTES: u64 = 16 << 20;
/// The largest output that a spec may allow.
const MAX_OUTPUT_BYTES: u64 = 8 << 20;
const MAX_REQUEST_BYTES: u64 = 16 << 20;
const MAX_SECRET_BYTES: u64 = 1 << 20;
const MAX_SECRETS: u64 = 64;
const SMALL_RECORD_BYTES: u64 = 4096;
const GATE_WAIT: Duration = Duration::from_secs(20);

/// A run of a root. Holds no state: every answer comes from the folder.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
    attempt_id: String,
}

/// Where the action finds things.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Surroundings {
    /// Its working directory and `HOME`.
    pub work: PathBuf,
    /// `TMPDIR`.
    pub tmp: PathBuf,
    /// `EVENKEEL_REQUEST`.
    pub request: PathBuf,
    /// `EVENKEEL_SECRETS`.
    pub secrets: PathBuf,
    /// `EVENKEEL_OUTPUT`.
    pub output: PathBuf,
    /// `EVENKEEL_PROGRESS`.
    pub progress: PathBuf,
}

/// Whether there is something to spawn.
#[derive(Debug)]
pub enum Begin {
    /// Spawn the shim with this.
    Ready(StartTicket),
    /// A shim had this run already; nothing is to be spawned.
    Already,
}

/// The right to spawn the shim of a run. Holds the run's lock until it is dropped; the spawned
/// shim then holds it alone.
#[derive(Debug)]
pub struct StartTicket {
    lock: File,
    folder: PathBuf,
    // Last: others may look at the run only when our copy of its lock is gone.
    _gate: Gate,
}

impl StartTicket {
    /// The lock's descriptor for the shim, which expects it as its standard input.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn lock_for_shim(&self) -> io::Result<OwnedFd> {
        Ok(self.lock.try_clone()?.into())
    }

    /// What [`crate::shim::main`] takes as its argument.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The run folder, open, with nobody else at work on it.
///
/// Whoever looks at a run's lock has to try it, and would be taken for the shim meanwhile by the
/// next one who looks. So all of them come through this gate first (a lock on the folder itself),
/// and only shims hold the run's lock outside of it.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) dir: OwnedFd,
}

impl RunFolder {
    pub(crate) fn new(path: PathBuf, attempt_id: String) -> Self {
        Self { path, attempt_id }
    }

    /// The run's folder, whether it exists or not.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run's name.
    pub fn attempt_id(&self) -> &str {
        &self.attempt_id
    }

    /// Where the action of this run will find things.
    pub fn surroundings(&self) -> Surroundings {
        let at = |name: &str| self.path.join(name);
        Surroundings {
            work: at(WORK),
            tmp: at(TMP),
            request: at(REQUEST),
            secrets: at(SECRETS),
            output: at(OUT).join(OUTPUT),
            progress: at(OUT).join(PROGRESS),
        }
    }

    /// Takes the run's lock and prepares its folder. May be repeated: whatever an earlier caller
    /// left half done is done again, and a run that a shim has taken up is left alone.
    ///
    /// # Errors
    /// A tombstone, sizes beyond the limits, no room for the folder *and* its exit record, or what
    /// the operating system says. Nothing was started then.
    pub fn begin(
        &self,
        spec: &RunSpec,
        request: &[u8],
        secrets: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Begin> {
        self.check_sizes(spec, request, secrets)?;
        let Some(gate) = self.gate(true)? else {
            return Err(RunError::Busy {
                path: self.path.clone(),
                waited_secs: 0,
            });
        };
        if self.has_tombstone(&gate)? {
            return Err(RunError::Tombstone {
                attempt_id: self.attempt_id.clone(),
            });
        }
        let Some(lock) = self.try_lock(&gate)? else {
            return Ok(Begin::Already);
        };
        // A torn lock record is a record: a shim was here.
        if !matches!(self.read(&gate.dir, LOCK, Kind::Lock), Ok(None)) {
            return Ok(Begin::Already);
        }
        self.prepare(spec, request, secrets)?;
        Ok(Begin::Ready(StartTicket {
            lock,
            folder: self.path.clone(),
            _gate: gate,
        }))
    }

    fn check_sizes(
        &self,
        spec: &RunSpec,
        request: &[u8],
        secrets: &BTreeMap<String, Vec<u8>>,
    ) -> Result<()> {
        let check = |what, bytes, max_bytes| {
            if bytes <= max_bytes {
                return Ok(());
            }
            Err(RunError::TooLarge {
                what,
                attempt_id: self.attempt_id.clone(),
                bytes,
                max_bytes,
            })
        };
        check("output limit", spec.output_max_bytes, MAX_OUTPUT_BYTES)?;
        check("request", request.len() as u64, MAX_REQUEST_BYTES)?;
        check("number of secrets", secrets.len() as u64, MAX_SECRETS)?;
        for (name, value) in secrets {
            check("secret", value.len() as u64, MAX_SECRET_BYTES)?;
            let plain =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
            if name.is_empty()
                || name.len() > 128
                || name.starts_with('.')
                || !name.bytes().all(plain)
            {
                return Err(RunError::Name {
                    what: "secret name",
                    value: name.clone(),
                });
            }
        }
        Ok(())
    }

    fn prepare(
        &self,
        spec: &RunSpec,
        request: &[u8],
        secrets: &BTreeMap<String, Vec<u8>>,
    ) -> Result<()> {
        let encoded = serde_json::to_vec_pretty(spec).map_err(|error| RunError::Content {
            path: self.path.join(SPEC),
            message: error.to_string(),
        })?;
        self.reserve(LOCK, SMALL_RECORD_BYTES)?;
        self.reserve(STARTED, SMALL_RECORD_BYTES)?;
        self.reserve(LAST_PROGRESS, SMALL_RECORD_BYTES)?;
        self.reserve(EXIT, spec.output_max_bytes + EXIT_OVERHEAD_BYTES)?;
        let heartbeat = self.reserve(HEARTBEAT, SMALL_RECORD_BYTES)?;
        beat(&heartbeat).context("write", &self.path.join(HEARTBEAT))?;
        for name in [SECRETS, WORK, TMP, OUT] {
            let path = self.path.join(name);
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path)
                .context("create", &path)?;
            give(&path, spec.run_as)?;
        }
        for (name, value) in secrets {
            write_private(&self.path.join(SECRETS).join(name), value, spec.run_as)?;
        }
        write_private(&self.path.join(REQUEST), request, spec.run_as)?;
        write_private(&self.path.join(SPEC), &encoded, None)?;
        if spec.run_as.is_some() {
            // The user must be able to pass, not to look around: run root, `runs`, this folder.
            for path in self.path.ancestors().take(3) {
                let mode = Permissions::from_mode(0o711);
                std::fs::set_permissions(path, mode).context("open to the action's user", path)?;
            }
        }
        Ok(())
    }

    fn reserve(&self, name: &str, bytes: u64) -> Result<File> {
        let path = self.path.join(name);
        let dir = files::open_dir(&self.path).context("open", &self.path)?;
        let file = files::open_own(&dir, name).context("create", &path)?;
        frame::reserve(&file, bytes).context("allocate room for", &path)?;
        Ok(file)
    }

    /// Opens the folder and keeps others out; `None` if there is none and none is to be made.
    pub(crate) fn gate(&self, create: bool) -> Result<Option<Gate>> {
        let until = Instant::now() + GATE_WAIT;
        loop {
            let dir = match files::open_dir(&self.path) {
                Ok(dir) => dir,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if !create {
                        return Ok(None);
                    }
                    match DirBuilder::new().mode(0o700).create(&self.path) {
                        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                            return Err(error).context("create", &self.path);
                        }
                        Ok(()) | Err(_) => continue,
                    }
                }
                Err(error) => return Err(error).context("open", &self.path),
            };
            match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
                // The folder may have been disposed of, and made anew, while we waited for it.
                Ok(()) if self.is_current(&dir) => return Ok(Some(Gate { dir })),
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(error).context("lock", &self.path),
            }
            if Instant::now() >= until {
                let waited_secs = GATE_WAIT.as_secs();
                return Err(RunError::Busy {
                    path: self.path.clone(),
                    waited_secs,
                });
            }
        }
    }

    fn is_current(&self, dir: &OwnedFd) -> bool {
        let (Ok(held), Ok(named)) = (fstat(dir), stat(&self.path)) else {
            return false;
        };
        (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino)
    }

    /// Takes the run's lock; `None` if a shim has it.
    pub(crate) fn try_lock(&self, gate: &Gate) -> Result<Option<File>> {
        let path = self.path.join(LOCK);
        let file = files::open_own(&gate.dir, LOCK).context("open", &path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error).context("lock", &path),
        }
    }

    pub(crate) fn has_tombstone(&self, gate: &Gate) -> Result<bool> {
        // Its presence is the message: no content could take that back.
        match rustix::fs::statat(&gate.dir, TOMBSTONE, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(error).context("look for", &self.path.join(TOMBSTONE)),
        }
    }

    /// The spec that the run was prepared with; `None` if it never was.
    ///
    /// # Errors
    /// It cannot be read or understood.
    pub fn spec(&self) -> Result<Option<RunSpec>> {
        let path = self.path.join(SPEC);
        let Some(dir) = self.open()? else {
            return Ok(None);
        };
        let Some(bytes) = files::read_bounded(&dir, &self.path, SPEC, MAX_SPEC_BYTES)? else {
            return Ok(None);
        };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| RunError::Content {
                path,
                message: error.to_string(),
            })
    }

    /// Who took the run up last, dead or alive; `None` if no shim ever did.
    ///
    /// # Errors
    /// The record cannot be read or understood.
    pub fn lock_record(&self) -> Result<Option<LockRecord>> {
        self.read_record(LOCK, Kind::Lock)
    }

    /// How the run's tree is held; `None` if no action ever started.
    ///
    /// # Errors
    /// The record cannot be read or understood.
    pub fn started_record(&self) -> Result<Option<StartedRecord>> {
        self.read_record(STARTED, Kind::Started)
    }

    /// How the run ended, as its shim wrote it; `None` if it has not. Only [`Self::probe`] tells
    /// what the absence means.
    ///
    /// # Errors
    /// The record cannot be read or understood: it is torn.
    pub fn exit_record(&self) -> Result<Option<ExitRecord>> {
        self.read_record(EXIT, Kind::Exit)
    }

    /// The last line of progress, bounded and without control characters, as the shim checked it.
    ///
    /// # Errors
    /// The record cannot be read. A torn one is none: it is about to be written again.
    pub fn last_progress(&self) -> Result<Option<String>> {
        match self.read_record(LAST_PROGRESS, Kind::Progress) {
            Err(RunError::Record { .. }) => Ok(None),
            other => other,
        }
    }

    /// How long ago the shim last showed itself, for as long as the host's boot lasts; `None` if
    /// that cannot be told.
    ///
    /// # Errors
    /// The record cannot be read. A torn one is none: it is about to be written again.
    pub fn heartbeat_age(&self) -> Result<Option<Duration>> {
        let beat: Option<i64> = match self.read_record(HEARTBEAT, Kind::Heartbeat) {
            Err(RunError::Record { .. }) => None,
            other => other?,
        };
        let age = beat.map(|at| {
            clock::monotonic_ms()
                .saturating_sub(at)
                .max(0)
                .unsigned_abs()
        });
        Ok(age.map(Duration::from_millis))
    }

    /// The folder without a gate: for reading what others may be writing. `None` if there is none.
    pub(crate) fn open(&self) -> Result<Option<OwnedFd>> {
        match files::open_dir(&self.path) {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context("open", &self.path),
        }
    }

    fn read_record<T: serde::de::DeserializeOwned>(
        &self,
        name: &str,
        kind: Kind,
    ) -> Result<Option<T>> {
        let Some(dir) = self.open()? else {
            return Ok(None);
        };
        let Some(payload) = self.read(&dir, name, kind)? else {
            return Ok(None);
        };
        serde_json::from_slice(&payload)
            .map(Some)
            .map_err(|error| RunError::Content {
                path: self.path.join(name),
                message: error.to_string(),
            })
    }

    pub(crate) fn read(&self, dir: &OwnedFd, name: &str, kind: Kind) -> Result<Option<Vec<u8>>> {
        let bytes = files::read_bounded(dir, &self.path, name, MAX_RECORD_BYTES)?;
        let payload = frame::decode(kind, bytes.as_deref().unwrap_or_default());
        payload
            .map(|payload| payload.map(<[u8]>::to_vec))
            .map_err(|source| RunError::Record {
                path: self.path.join(name),
                source,
            })
    }
}

/// Says that the shim (or who prepared the run for it) is there now.
pub(crate) fn beat(file: &File) -> io::Result<()> {
    frame::write(
        file,
        Kind::Heartbeat,
        clock::monotonic_ms().to_string().as_bytes(),
    )
}

fn write_private(path: &Path, bytes: &[u8], owner: Option<RunAs>) -> Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .context("create", path)?;
    file.write_all(bytes).context("write", path)?;
    give(path, owner)
}

fn give(path: &Path, owner: Option<RunAs>) -> Result<()> {
    let Some(RunAs { uid, gid }) = owner else {
        return Ok(());
    };
    chown(path, Some(uid), Some(gid)).context("give to the action's user", path)
}
