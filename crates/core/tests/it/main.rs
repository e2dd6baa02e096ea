//! Integration tests of the domain.

mod bundle;
