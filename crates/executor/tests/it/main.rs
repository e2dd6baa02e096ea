//! The process executor over real shims.

mod runs;
mod world;
