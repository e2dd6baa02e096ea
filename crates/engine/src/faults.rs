//! Named points at which a test can kill, hold or panic this process.
//!
//! Without the cargo feature `faults` every point is empty. With it, `EVENKEEL_FAULTS` holds
//! rules `point=what`, separated by `;`:
//!
//! - `panic`: the point panics;
//! - `kill`: the process ends by SIGKILL, as the kernel would do it;
//! - `hold:FILE`: the point touches `FILE.reached` and waits until `FILE` exists.
//!
//! A rule `point~TEXT=what` applies only where the point's subject (a job's action, say)
//! contains `TEXT`; `point=what@N` only to the first N times that it is reached (in one process).

#[cfg(not(feature = "faults"))]
use std::ffi::OsString;

#[cfg(feature = "faults")]
pub use armed::{environment, hit, hit_about};

/// A point that is always passed.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn hit(_point: &str) {}

/// A point that is always passed; `about` is what is being worked on.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn hit_about(_point: &str, _about: &str) {}

/// Nothing.
#[cfg(not(feature = "faults"))]
pub fn environment() -> Vec<(OsString, OsString)> {
    Vec::new()
}

#[cfg(feature = "faults")]
mod armed {
    use std::ffi::OsString;
    use std::path::Path;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use tokio::runtime::{Handle, RuntimeFlavor};

    const VARIABLE: &str = "EVENKEEL_FAULTS";

    struct Rule {
        point: String,
        about: Option<String>,
        what: String,
        left: AtomicU32,
    }

    fn rules() -> &'static [Rule] {
        static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
        RULES.get_or_init(|| {
            let text = std::env::var(VARIABLE).unwrap_or_default();
            text.split(';')
                .filter(|rule| !rule.trim().is_empty())
                .map(parse)
                .collect()
        })
    }

    fn parse(rule: &str) -> Rule {
        let (point, what) = rule.trim().split_once('=').expect("a rule is point=what");
        let (point, about) = match point.split_once('~') {
            Some((point, about)) => (point, Some(about.to_owned())),
            None => (point, None),
        };
        let (what, times) = match what.rsplit_once('@') {
            Some((what, times)) => (what, times.parse().expect("@N takes a number")),
            None => (what, u32::MAX),
        };
        Rule {
            point: point.to_owned(),
            about,
            what: what.to_owned(),
            left: AtomicU32::new(times),
        }
    }

    /// What a child process needs for its own points to be armed.
    pub fn environment() -> Vec<(OsString, OsString)> {
        std::env::var_os(VARIABLE)
            .map(|rules| (VARIABLE.into(), rules))
            .into_iter()
            .collect()
    }

    /// Reaches a point. A panic is the caller's: each point is a place of its own.
    #[track_caller]
    pub fn hit(point: &str) {
        hit_about(point, "");
    }

    /// Reaches a point; `about` is what is being worked on.
    #[track_caller]
    pub fn hit_about(point: &str, about: &str) {
        for rule in rules() {
            let fits = rule.point == point
                && rule
                    .about
                    .as_deref()
                    .is_none_or(|text| about.contains(text));
            let spend = |left: u32| left.checked_sub(1);
            if fits
                && rule
                    .left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, spend)
                    .is_ok()
            {
                act(&rule.what, point);
            }
        }
    }

    #[track_caller]
    fn act(what: &str, point: &str) {
        if let Some(file) = what.strip_prefix("hold:") {
            std::fs::write(format!("{file}.reached"), point)
                .expect("the hold file's folder is there");
            let file = Path::new(file);
            let wait = || {
                while !file.exists() {
                    std::thread::sleep(Duration::from_millis(2));
                }
            };
            // What else this worker of the runtime has to do goes to another one: only who
            // reached the point is held.
            match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
                Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
                Ok(_) | Err(_) => wait(),
            }
        } else if what == "kill" {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL)
                .expect("a process may kill itself");
            std::thread::park();
        } else if what == "panic" {
            panic!("fault injected at {point}");
        } else {
            panic!("EVENKEEL_FAULTS: {what:?} at {point} is neither panic, kill nor hold:FILE");
        }
    }
}
