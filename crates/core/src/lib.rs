//! The meaning of Evenkeel, without its means.
//!
//! Ids, bundles, jobs, the one transition function, the recovery planner and the
//! admission rules. Everything here is a pure function from facts to decisions: time,
//! ids and chance come in with the events, and nothing here opens a file, reads a clock
//! or knows a database. What decides is here; what acts is elsewhere.

pub mod action;
pub mod admit;
pub mod attempt;
pub mod boot;
pub mod budget;
pub mod bundle;
pub mod explain;
pub mod forensics;
pub mod hold;
pub mod ids;
pub mod instance;
pub mod job;
mod outputs;
pub mod panics;
pub mod policy;
pub mod recovery;
pub mod request;
pub mod time;
pub mod transition;
