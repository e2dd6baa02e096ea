//! Named points at which a test can end, break, hold or slow this process.
//!
//! Without the cargo feature `faults` every point is empty. With it, `EVENKEEL_FAULTS` holds rules
//! `point=what`, separated by `;`. What may be done at any point:
//!
//! - `kill`: the process ends by SIGKILL, as the kernel would do it; `abort`; `exit`: it returns 0;
//! - `segv`: it writes where there is no memory; `overflow`: it uses up its stack; `alloc`: it asks
//!   for 1 GiB at once, which a limit is to refuse; `oom`: it takes 64 MiB and 64 MiB, up to 2 GiB,
//!   of which a control group is to have less (either panics where nothing ends the process);
//! - `panic`; `drop-panic`: a destructor panics; `double-panic`: a destructor panics while another
//!   panic unwinds; `panic-locked`: a panic with a lock of the process held;
//! - `stop`: SIGSTOP; `wedge`: the point never returns, nor does any thread of the runtime;
//! - `hold:FILE`: it touches `FILE.reached` and waits until `FILE` exists; `delay:MS`.
//!
//! And at those of the store (`store.NAME.before`, `store.NAME.after`) only:
//!
//! - `error:KIND`: the call is answered so (`unavailable`, `full`, `overloaded`, `damaged`,
//!   `unreadable`, `panicked`), before it is done or after;
//! - `lost`: like a COMMIT whose answer was lost.
//!
//! A rule `point~TEXT=what` applies only where the point's subject contains `TEXT`, or begins with
//! it if it is written `^TEXT`; the subject begins with the job's action, where there is a job, and
//! at points of the engine and of the store goes on with the id of its service offering.
//! `point=what@N` applies to the first N times that it is reached, `point=what+N` from the Nth
//! time on, `point=what+N@M` to M times from the Nth on. These count within a process, or over all
//! processes (the broker's lives and shims) if the first rule is `once=DIR`: the folder then holds
//! a file for each time.

#[cfg(feature = "faults")]
mod rules;
#[cfg(feature = "faults")]
mod strike;

#[cfg(feature = "faults")]
pub use armed::{armed, due, environment, hit, hit_with, watched};
#[cfg(feature = "faults")]
pub use rules::Fault;

/// No rule can apply.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub const fn armed() -> bool {
    false
}

/// A point that is always passed.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn hit(_point: &str) {}

/// A point that is always passed; `about` would say what is being worked on.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn hit_with(_point: &str, _about: impl FnOnce() -> String) {}

#[cfg(feature = "faults")]
mod armed {
    use std::ffi::OsString;
    use std::sync::OnceLock;

    use super::rules::{Fault, Rules};

    const VARIABLE: &str = "EVENKEEL_FAULTS";

    fn rules() -> &'static Rules {
        static PARSED: OnceLock<Rules> = OnceLock::new();
        PARSED.get_or_init(|| Rules::parse(&std::env::var(VARIABLE).unwrap_or_default()))
    }

    /// What a child process needs for its own points to be armed.
    pub fn environment() -> Vec<(OsString, OsString)> {
        std::env::var_os(VARIABLE)
            .map(|rules| (VARIABLE.into(), rules))
            .into_iter()
            .collect()
    }

    /// Whether there is any rule.
    pub fn armed() -> bool {
        !rules().all.is_empty()
    }

    /// Whether a rule is about this point.
    pub fn watched(point: &str) -> bool {
        rules().all.iter().any(|rule| rule.point == point)
    }

    /// What is to be done at a point that has been reached, in the order of the rules.
    pub fn due(point: &str, about: impl FnOnce() -> String) -> Vec<&'static Fault> {
        if !watched(point) {
            return Vec::new();
        }
        let about = about();
        let Rules { all, once } = rules();
        all.iter()
            .filter(|rule| rule.point == point && rule.fits(&about))
            .filter(|rule| rule.takes_turn(once.as_deref()))
            .map(|rule| &rule.fault)
            .collect()
    }

    /// Reaches a point. A panic is the caller's: each point is a place of its own.
    #[track_caller]
    pub fn hit(point: &str) {
        hit_with(point, String::new);
    }

    /// Reaches a point; `about` says what is being worked on.
    #[track_caller]
    pub fn hit_with(point: &str, about: impl FnOnce() -> String) {
        for fault in due(point, about) {
            fault.strike(point);
        }
    }
}
