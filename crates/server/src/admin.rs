//! The admin API: what an operator sees and may do.

pub mod types;
