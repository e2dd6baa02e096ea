//! The real binary: real processes, real SQLite, a real PostgreSQL, real kills.
//!
//! Built with `--features faults`, which gives tests named points at which to kill, break, hold or
//! slow broker and shims (`crates/run/src/faults.rs`).

#![cfg(feature = "faults")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod blackbox;
mod bundles;
mod casualties;
mod cluster;
mod conformance;
mod crossings;
mod deaths;
mod demo;
mod disk;
mod forensics;
mod harness;
mod held;
mod kills;
mod kills_asked;
mod kills_shutdown;
mod operator;
mod operator_acts;
mod operator_secrets;
mod operator_terminal;
mod panics;
mod platforms;
mod points;
mod poison;
mod postgres;
mod random_requests;
mod requests;
mod requests_again;
mod requests_life;
mod shims;
mod stage;
mod startup;
mod store_faults;
mod store_trouble;
mod storm;
mod terminal;
mod turns;
mod unreadable;
mod warden;
mod warden_activation;
mod warden_deaths;
mod warden_ends;
mod warden_memory;
mod warden_orphans;
mod warden_unrecorded;
mod workspace;
mod writer_panics;
