//! Speaks for Evenkeel: the OSB listener for platforms and the admin listener for operators.

pub mod admin;
