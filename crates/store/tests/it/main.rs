//! Tests of the store: one suite for every driver, and what only SQLite has to show.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; helpers are tests too"
)]

mod conformance;
mod model;
mod sqlite;
mod world;
