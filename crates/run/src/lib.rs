//! The run folder: format `run/1`, the lock and tombstone fence, containment, the exit record and
//! the shim.
//!
//! A *run* is what an attempt does outside the broker: a contained process tree with a small
//! supervisor, the *shim*, that outlives the broker. The run's folder is the only truth about it.
//! Synchronous and small, because the shim is made of it; nothing here reads a database, a network
//! or a configuration. `FORMAT.md` beside this crate describes the folder for other releases.
//!
//! The broker's side: [`RunRoot`], [`RunFolder::begin`], [`RunFolder::probe`]. The other side:
//! [`shim::main`].

pub mod blackbox;
mod census;
mod cgroup;
mod clock;
mod dispose;
mod error;
pub mod faults;
mod fence;
mod files;
mod folder;
mod frame;
mod gate;
mod line;
mod logs;
mod oom;
mod proc;
mod reading;
mod record;
mod root;
pub mod shim;
mod silent;
mod spec;
mod sweep;
mod sys;

pub use error::RunError;
pub use fence::{Probe, Standing};
pub use folder::{Begin, RunFolder, StartTicket, Surroundings};
pub use frame::{FrameError, Kind, decode, encode};
pub use logs::{LogTail, StreamTail};
pub use oom::OomKills;
pub use reading::Remains;
pub use record::{
    ExitRecord, Limit, LockRecord, Output, OutputError, RunEnd, Sender, StartedRecord,
};
pub use root::{BootLock, FORMAT, Listing, RunRoot};
pub use silent::{ShimHandle, SilentEnd};
pub use spec::{Containment, ContainmentWish, Limits, RunAs, RunSpec, StateDir};
pub use spec::{DEFAULT_GRACE_MS, DEFAULT_LOG_MAX_BYTES, DEFAULT_OUTPUT_MAX_BYTES};
