//! The real binary: its surface here, its life in the `e2e` modules.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod asks;
mod config;
mod fake;
mod help;
mod shows;
mod tool;
