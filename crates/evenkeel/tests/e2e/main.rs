//! The real binary: real processes, real SQLite, a real PostgreSQL, real kills.
//!
//! Built with `--features faults`, which gives tests named points at which to kill, hold or panic
//! the broker (`crates/engine/src/faults.rs`).

#![cfg(feature = "faults")]

mod harness;
