//! The process executor over real shims.

#[cfg(test)]
mod runs;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod world;
