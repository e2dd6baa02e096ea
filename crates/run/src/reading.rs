//! Reading a run's folder while others may be writing it. What these answers mean together only
//! [`RunFolder::probe`] can tell.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use crate::cgroup;
use crate::clock;
use crate::error::{Context, Result, RunError};
use crate::faults;
use crate::files;
use crate::folder::{EXIT, HEARTBEAT, LAST_PROGRESS, LOCK, RunFolder, SPEC, STARTED};
use crate::frame::{self, Kind};
use crate::line::clean;
use crate::proc;
use crate::record::{ExitRecord, LockRecord, StartedRecord};
use crate::spec::RunSpec;

const MAX_SPEC_BYTES: u64 = 1 << 20;
/// The most that is read of any record; an exit record carries the action's output.
const MAX_RECORD_BYTES: u64 = 16 << 20;

/// What is left to tell of a run whose shim left no exit record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Remains {
    /// When the action could run its first instruction, and how its tree was held.
    pub started: Option<StartedRecord>,
    /// The last line of progress.
    pub last_progress: Option<String>,
    /// How long ago the shim last showed itself, in milliseconds.
    pub last_sign_ms_ago: Option<u64>,
    /// Whether the host has ended a process for want of memory since the run started.
    pub host_oom: Option<bool>,
    /// How many processes of the run's own cgroup were ended for want of memory, if it is there
    /// still.
    pub own_oom_kills: Option<u64>,
    /// The most memory that the run's own cgroup had, in bytes, if it is there still.
    pub peak_memory_bytes: Option<u64>,
    /// What the run was allowed, in bytes.
    pub memory_limit_bytes: Option<u64>,
}

impl RunFolder {
    /// The spec that the run was prepared with; `None` if it never was.
    ///
    /// # Errors
    /// It cannot be read or understood.
    pub fn spec(&self) -> Result<Option<RunSpec>> {
        let path = self.path().join(SPEC);
        let Some(dir) = self.open()? else {
            return Ok(None);
        };
        let Some(bytes) = files::read_bounded(&dir, self.path(), SPEC, MAX_SPEC_BYTES)? else {
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
    /// The record cannot be read or understood: it is torn, or of another run.
    pub fn exit_record(&self) -> Result<Option<ExitRecord>> {
        let mut record: Option<ExitRecord> = self.read_record(EXIT, Kind::Exit)?;
        if let Some(record) = &mut record {
            if record.attempt_id != self.attempt_id() {
                return Err(RunError::Content {
                    path: self.path().join(EXIT),
                    message: "it tells the end of another run".to_owned(),
                });
            }
            let line = record.last_progress.take();
            record.last_progress = line.as_deref().and_then(shown);
        }
        Ok(record)
    }

    /// The last line of progress, bounded and without control characters, whoever wrote the record.
    ///
    /// # Errors
    /// The record cannot be read. A torn one is none: it is about to be written again.
    pub fn last_progress(&self) -> Result<Option<String>> {
        let line: Option<Option<String>> = match self.read_record(LAST_PROGRESS, Kind::Progress) {
            Err(RunError::Record { .. }) => None,
            other => other?,
        };
        Ok(line.flatten().as_deref().and_then(shown))
    }

    /// What is left to tell of a run whose shim left no exit record. Each part is told as far as
    /// it can be: what is torn or gone is left out.
    pub fn remains(&self) -> Remains {
        faults::hit_with("run.remains", || self.about());
        let started = self.started_record().ok().flatten();
        let this_boot = started
            .as_ref()
            .is_some_and(|record| proc::boot_id().is_ok_and(|boot| boot == record.boot_id));
        let grown = |before: u64| proc::host_oom_kills().map(|now| now > before);
        let own_name = cgroup::group_name(self.attempt_id());
        let groups = started.iter().flat_map(|record| &record.cgroups);
        let (peak_memory_bytes, own_oom_kills) = groups
            .map(PathBuf::from)
            .filter(|group| {
                group
                    .file_name()
                    .is_some_and(|name| name == own_name.as_str())
                    && cgroup::is_group(group)
            })
            .map(|group| cgroup::left_of(&group))
            .fold((None, None), |(peak, kills), (more_peak, more_kills)| {
                (peak.max(more_peak), kills.max(more_kills))
            });
        Remains {
            host_oom: started
                .as_ref()
                .and_then(|record| record.host_oom_kills)
                .filter(|_| this_boot)
                .and_then(grown),
            peak_memory_bytes: peak_memory_bytes.filter(|_| this_boot),
            own_oom_kills: own_oom_kills.filter(|_| this_boot),
            memory_limit_bytes: self
                .spec()
                .ok()
                .flatten()
                .and_then(|spec| spec.limits.memory_bytes),
            last_sign_ms_ago: self
                .heartbeat_age()
                .ok()
                .flatten()
                .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            last_progress: self.last_progress().ok().flatten(),
            started,
        }
    }

    /// How long ago the shim last showed itself, for as long as the host's boot lasts; `None` if
    /// that cannot be told.
    ///
    /// # Errors
    /// The record cannot be read. A torn one is none: it is about to be written again.
    pub fn heartbeat_age(&self) -> Result<Option<Duration>> {
        // The clock of the beats began with the host's boot. A shim that has not come to write its
        // name has the starter's beat.
        let boot = match self.lock_record() {
            Err(RunError::Record { .. }) => None,
            other => other?.map(|record| record.boot_id),
        };
        if boot.is_some() && boot != proc::boot_id().ok() {
            return Ok(None);
        }
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
        match files::open_dir(self.path()) {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context("open", self.path()),
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
                path: self.path().join(name),
                message: error.to_string(),
            })
    }

    pub(crate) fn read(&self, dir: &OwnedFd, name: &str, kind: Kind) -> Result<Option<Vec<u8>>> {
        let bytes = files::read_record(dir, self.path(), name, MAX_RECORD_BYTES)?;
        let payload = frame::decode(kind, &bytes);
        payload
            .map(|payload| payload.map(<[u8]>::to_vec))
            .map_err(|source| RunError::Record {
                path: self.path().join(name),
                source,
            })
    }
}

fn shown(line: &str) -> Option<String> {
    Some(clean(line)).filter(|line| !line.is_empty())
}
