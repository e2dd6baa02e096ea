//! Integration tests of the domain.

mod bundle;
mod fixtures;
mod transition;
