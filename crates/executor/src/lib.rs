//! Executors: start, find, watch and end runs of each kind.
//!
//! An [`Executor`] knows runs by the id of their attempt and keeps no truth about them in memory:
//! every answer comes from where the run lives, so a broker finds the runs of the one before it.
//! [`ProcessExecutor`] runs actions as contained process trees on this host, over the run folder
//! of `evenkeel-run`; it is the one place that starts processes.
//!
//! Work that may wait for a disk or a lock is done by [`blocking`], whose panics come back to
//! whoever waits for it with what [`panics`] noted where they happened.

pub mod blocking;
mod executor;
pub mod panics;
mod process;

pub use evenkeel_run::{ContainmentWish, LogTail, RunAs, RunError, RunRoot, Standing, StreamTail};
pub use evenkeel_run::{blackbox, faults};
pub use executor::{
    Executor, ExecutorError, Handle, Probe, Remains, RunSpec, StartError, WatchEnd,
};
pub use process::{ProcessExecutor, ProcessOptions, ShimCommand};
