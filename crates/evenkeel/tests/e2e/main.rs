//! The real binary: real processes, real SQLite, a real PostgreSQL, real kills.
//!
//! Built with `--features faults`, which gives tests named points at which to kill, hold or panic
//! the broker (`crates/engine/src/faults.rs`).

#![cfg(feature = "faults")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bundles;
mod cluster;
mod conformance;
mod crossings;
mod disk;
mod harness;
mod kills;
mod kills_asked;
mod kills_shutdown;
mod operator;
mod operator_acts;
mod operator_secrets;
mod operator_terminal;
mod panics;
mod platforms;
mod poison;
mod postgres;
mod random_requests;
mod requests;
mod requests_again;
mod requests_life;
mod shims;
mod stage;
mod startup;
mod unreadable;
mod workspace;
