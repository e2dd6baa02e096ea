//! osb
