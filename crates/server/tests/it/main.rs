//! The server over a real engine and a real store; only runs are of the tests' own making.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod admin;
mod bindings;
mod broker;
mod catalog;
mod deletes;
mod headers;
mod isolation;
mod lifecycle;
mod limits;
mod listener;
mod offers;
mod order;
mod panics;
mod refusals;
mod rotation;
mod runs;
mod snapshots;
mod updates;
mod wire;
