//! The process executor over real shims.

#[cfg(test)]
mod runs;
#[cfg(test)]
mod world;
