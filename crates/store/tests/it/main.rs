//! Tests of the store: one suite for every driver, and what only SQLite has to show.

mod conformance;
mod model;
mod sqlite;
mod world;
