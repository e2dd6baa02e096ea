//! What is fuzzed, with what must hold for any bytes: [`wire`] has what platforms and brokers send,
//! [`runs`] what a run leaves on the disk, [`bundles`] what authors of bundles write.
//!
//! Each target is a function that takes what the fuzzer made and panics where a promise is broken.
//! The test suite replays the seeds and the regressions through the same functions, without a
//! sanitizer and on every run ([`replay`]).

mod any_record;
pub mod bundles;
mod folders;
pub mod replay;
pub mod runs;
pub mod wire;
