//! Runs with a real shim, at each level of containment.

mod ends;
mod fence;
mod harness;
mod hygiene;
mod limits;
mod outputs;
mod readers;
mod root;
mod silent;
mod trees;
