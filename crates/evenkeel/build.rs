//! The binary carries the example bundles: a file that is added to them has to be seen.

fn main() {
    println!("cargo::rerun-if-changed=../../examples/bundles");
}
