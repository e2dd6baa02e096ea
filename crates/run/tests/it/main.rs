//! Runs with a real shim, at each level of containment.

#[cfg(test)]
mod ends;
#[cfg(test)]
mod fence;
mod forensics;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod hygiene;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod outputs;
#[cfg(test)]
mod readers;
#[cfg(test)]
mod root;
#[cfg(test)]
mod silent;
#[cfg(test)]
mod spoiled;
#[cfg(test)]
mod standing;
#[cfg(test)]
mod trees;
