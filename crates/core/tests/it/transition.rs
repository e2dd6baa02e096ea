//! The transition function: laws that hold over every history, and the rules of charging.

mod charging;
mod exposing;
mod laws;
mod stopping;
mod waiting;
