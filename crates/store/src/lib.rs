//! Keeps what Evenkeel knows: jobs, attempts, budgets, instances, bindings, boots.
//!
//! [`seam`] is what the rest of the broker sees; [`SqliteStore`] stands behind it. What is secret
//! is sealed on its way to a database and opened on its way back, here and nowhere else.

pub mod error;
mod key;
mod lock;
mod seal;
pub mod seam;
mod sqlite;

pub use sqlite::{Opened, SqliteStore, StoreOptions};
