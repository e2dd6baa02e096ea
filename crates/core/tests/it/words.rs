//! One word for one thing: what is written into columns is what is read from them and told.

use std::fmt::Debug;

use evenkeel_core::attempt::{Charge, Containment};
use evenkeel_core::hold::Cause;
use evenkeel_core::instance::Status;
use serde::Serialize;

fn agree<T: Serialize + Debug + Copy>(all: &[T], word: impl Fn(T) -> &'static str) {
    for one in all {
        let written = serde_json::to_value(one).expect("plain data");
        assert_eq!(written, word(*one), "{one:?}");
    }
}

#[test]
fn the_word_of_a_thing_is_the_one_that_it_is_written_as() {
    agree(&Status::ALL, Status::as_str);
    agree(&Cause::ALL, Cause::as_str);
    agree(
        &[Containment::Pidns, Containment::Cgroup, Containment::Sweep],
        Containment::as_str,
    );
    agree(
        &[
            Charge::None,
            Charge::Crash,
            Charge::Exposure,
            Charge::Loss,
            Charge::Disruption,
        ],
        Charge::as_str,
    );
}
