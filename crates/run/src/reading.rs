//! Reading a run's folder while others may be writing it. What these answers mean together only
//! [`RunFolder::probe`] can tell.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::clock;
use crate::error::{Context, Result, RunError};
use crate::files;
use crate::folder::{EXIT, HEARTBEAT, LAST_PROGRESS, LOCK, RunFolder, SPEC, STARTED};
use crate::frame::{self, Kind};
use crate::proc;
use crate::record::{ExitRecord, LockRecord, StartedRecord};
use crate::spec::RunSpec;

const MAX_SPEC_BYTES: u64 = 1 << 20;
/// The most that is read of any record; an exit record carries the action's output.
const MAX_RECORD_BYTES: u64 = 16 << 20;

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
