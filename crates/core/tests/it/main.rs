//! Integration tests of the domain.

mod admit;
mod bundle;
mod classify;
mod explain;
mod fixtures;
mod hold;
mod model;
mod panics;
mod planner;
mod seeds;
mod settle;
mod story;
mod transition;
mod unread;
mod words;
