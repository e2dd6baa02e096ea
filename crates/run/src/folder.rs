//! One run's folder: how it is laid out, prepared and read.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::clock;
use crate::error::{Context, Result, RunError};
use crate::faults;
use crate::files;
use crate::frame::{self, Kind};
use crate::gate::{Gate, RunLock};
use crate::record::EXIT_OVERHEAD_BYTES;
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

/// The largest output that a spec may allow.
const MAX_OUTPUT_BYTES: u64 = 8 << 20;
const MAX_REQUEST_BYTES: u64 = 16 << 20;
const MAX_SECRET_BYTES: u64 = 1 << 20;
const MAX_SECRETS: u64 = 64;
const SMALL_RECORD_BYTES: u64 = 4096;

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
    lock: RunLock,
    folder: PathBuf,
    // Last: others may look at the run only when our copy of its lock is gone.
    _gate: Gate,
}

impl StartTicket {
    /// The lock's descriptor for the shim, which expects it as its standard input.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn lock_for_shim(&mut self) -> io::Result<OwnedFd> {
        Ok(self.lock.hand_on()?.into())
    }

    /// What [`crate::shim::main`] takes as its argument.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
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

    /// What fault points are told of the run, as far as its folder says.
    pub(crate) fn about(&self) -> String {
        match self.spec() {
            Ok(Some(spec)) => format!("{} {}", spec.about(), self.attempt_id),
            Ok(None) | Err(_) => self.attempt_id.clone(),
        }
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
        let about = || spec.about();
        faults::hit_with("run.folder.before", about);
        let Some(gate) = self.gate(true)? else {
            return Err(RunError::Busy {
                path: self.path.clone(),
                waited_secs: 0,
            });
        };
        faults::hit_with("run.folder.after", about);
        if self.has_tombstone(&gate)? {
            return Err(RunError::Tombstone {
                attempt_id: self.attempt_id.clone(),
            });
        }
        let Some(lock) = self.try_lock(&gate)? else {
            return Ok(Begin::Already);
        };
        faults::hit_with("run.lock.after", about);
        // A torn record is a record: a shim was here. The other two are asked for what spoiled the
        // first.
        for (name, kind) in [
            (LOCK, Kind::Lock),
            (STARTED, Kind::Started),
            (EXIT, Kind::Exit),
        ] {
            if !matches!(self.read(&gate.dir, name, kind), Ok(None)) {
                return Ok(Begin::Already);
            }
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
        let about = || spec.about();
        faults::hit_with("run.room.before", about);
        self.reserve(LOCK, SMALL_RECORD_BYTES)?;
        self.reserve(STARTED, SMALL_RECORD_BYTES)?;
        self.reserve(LAST_PROGRESS, SMALL_RECORD_BYTES)?;
        self.reserve(EXIT, spec.output_max_bytes + EXIT_OVERHEAD_BYTES)?;
        faults::hit_with("run.room.after", about);
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
        if let Some(state) = spec.state.iter().find(|state| !state.read_only) {
            give(&state.path, spec.run_as)?;
        }
        for (name, value) in secrets {
            write_private(&self.path.join(SECRETS).join(name), value, spec.run_as)?;
        }
        write_private(&self.path.join(REQUEST), request, spec.run_as)?;
        faults::hit_with("run.spec.before", about);
        write_private(&self.path.join(SPEC), &encoded, None)?;
        faults::hit_with("run.spec.after", about);
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
