//! What is written to the log: in a process of its own, since which events are of interest is
//! known once for a process, and other tests have none.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "../it/broker.rs"]
#[expect(dead_code, reason = "a part of what the other tests need")]
mod broker;
mod logs;
#[path = "../it/runs.rs"]
#[expect(dead_code, reason = "a part of what the other tests need")]
mod runs;
