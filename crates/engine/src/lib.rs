//! Drives jobs: accepts them, claims them, starts their runs, watches and concludes them, and
//! does the same for jobs that an earlier process left behind.
//!
//! Options → [`Service`] → [`Engine`]: `Options` say what is wanted, [`Service::start`] opens the
//! boot and starts the loops, and the [`Engine`] handle is what the rest of the process calls.

pub mod ask;
pub mod catalog;
pub mod engine;
pub mod faults;
pub mod hold;
pub mod options;
pub mod world;

mod attempt;
mod claims;
mod deaths;
mod drivers;
mod guard;
mod housekeeping;
mod operator;
mod parameters;
mod recovery;
mod service;
mod state_folders;
mod steps;
mod submit;

pub use engine::{Engine, EngineStatus, LastDeath};
pub use hold::Held;
pub use options::{Deaths, NoDeaths, OnShutdown, Options};
pub use service::{Service, StartError};
pub use steps::BlackBoxes;
