//! The server over a real engine and a real store; only runs are of the tests' own making.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod admin;
mod broker;
mod lifecycle;
mod listener;
mod offers;
mod order;
mod panics;
mod runs;
mod wire;
