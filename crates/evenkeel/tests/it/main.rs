//! The real binary: its surface here, its life in the `e2e` modules.

mod config;
mod help;
mod tool;
