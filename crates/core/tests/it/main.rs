//! Integration tests of the domain.

mod admit;
mod bundle;
mod classify;
mod explain;
mod fixtures;
mod model;
mod panics;
mod planner;
mod settle;
mod transition;
