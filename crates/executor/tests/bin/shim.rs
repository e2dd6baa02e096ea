//! The shim as a program of its own, for tests. In production the one binary branches off to it.

fn main() {
    evenkeel_run::shim::main(std::env::args_os().skip(1))
}
