//! The server over a real engine and a real store; only runs are of the tests' own making.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod admin;
mod broker;
mod catalog;
mod headers;
mod lifecycle;
mod listener;
mod order;
mod panics;
mod refusals;
mod runs;
mod wire;
