//! What an operator and a platform's user can do from the command line.

pub(crate) mod boots;
pub(crate) mod config;
pub(crate) mod hold;
pub(crate) mod jobs;
pub(crate) mod osb;
pub(crate) mod status;

mod address;
pub(crate) mod admin;
mod local;
