//! Keeps what Evenkeel knows: jobs, attempts, budgets, instances, bindings, boots.

pub mod error;
pub mod seam;
