//! A boundary that a panic does not cross, and that knows where it happened and how it came there.

use std::fmt::Write as _;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;

use evenkeel_core::forensics::{MAX_BACKTRACE_BYTES, Panic};
use evenkeel_executor::panics::{self, Panicked};

/// The location of a panic of which nothing was noted where it happened.
const UNPLACED: &str = "unknown";

/// A panic that was caught.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Caught {
    /// `file:line:column`.
    pub(crate) location: String,
    /// What may be kept with the attempt, beside the location.
    trace: Trace,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Trace {
    thread: Option<String>,
    said: Option<String>,
    backtrace: String,
}

impl Caught {
    /// Whether the place is known.
    pub(crate) fn is_placed(&self) -> bool {
        self.location != UNPLACED
    }

    /// What may be logged of its words: what was put together at run time may hold what a request
    /// said (I16).
    pub(crate) fn words(&self) -> &str {
        let said = self.trace.said.as_deref();
        said.unwrap_or("(put together at run time: on the broker's raw standard error only)")
    }

    /// What may be kept of it: no word that was put together at run time.
    pub(crate) fn told(&self) -> Panic {
        Panic {
            location: self.location.clone(),
            thread: self.trace.thread.clone(),
            said: self.trace.said.clone(),
            backtrace: self.trace.backtrace.clone(),
        }
    }
}

impl From<Panicked> for Caught {
    fn from(panicked: Panicked) -> Self {
        Self {
            location: panicked.place().unwrap_or(UNPLACED).to_owned(),
            trace: Trace {
                thread: panicked.thread().map(ToOwned::to_owned),
                said: panicked.said().map(ToOwned::to_owned),
                backtrace: condensed(&panicked.backtrace()),
            },
        }
    }
}

/// Polls `task` to its end, or to its panic.
pub(crate) async fn catch<T>(task: AssertUnwindSafe<impl Future<Output = T>>) -> Result<T, Caught> {
    let mut task = pin!(task.0);
    // After a panic the task is never polled again: what it left half done is only dropped.
    poll_fn(
        move |context| match panics::catch(|| task.as_mut().poll(context)) {
            Ok(poll) => poll.map(Ok),
            Err(panicked) => Poll::Ready(Err(panicked.into())),
        },
    )
    .await
}

/// What carries work and its panics: in every backtrace, and of no interest in any.
const CARRIERS: [&str; 4] = [
    "evenkeel_engine::guard::catch",
    "evenkeel_executor::panics::catch",
    "evenkeel_executor::blocking::run",
    "evenkeel_run::blackbox::carried",
];
/// Where it is; a function that was put into another one has a name of no crate.
const OF_CARRIERS: [&str; 3] = [
    "/engine/src/guard.rs:",
    "/executor/src/panics.rs:",
    "/executor/src/blocking.rs:",
];

/// The frames of a backtrace from the panic on, a line each: ours before all others, and no more
/// than is kept.
fn condensed(backtrace: &str) -> String {
    let mut frames: Vec<Frame> = Vec::new();
    for line in backtrace.lines() {
        let line = line.trim_start();
        if let Some(place) = line.strip_prefix("at ") {
            if let Some(frame) = frames.last_mut() {
                // A function that was put into another one has a name without its crate.
                frame.ours |= place.contains("/crates/") && !place.contains("/registry/");
                frame.carrier |= OF_CARRIERS.iter().any(|file| place.contains(file));
                write!(frame.text, " at {}", short(place)).ok();
            }
        } else if let Some((number, name)) = line.split_once(": ")
            && number.bytes().all(|byte| byte.is_ascii_digit())
        {
            if begins_panic(name) {
                // Hooks and what carries a panic say nothing of how it came.
                frames.clear();
                continue;
            }
            frames.push(Frame {
                text: name.to_owned(),
                ours: name.trim_start_matches('<').starts_with("evenkeel"),
                carrier: CARRIERS.iter().any(|carrier| name.contains(carrier)),
            });
        }
    }
    frames.retain(|frame| !frame.carrier);
    frames.sort_by_key(|frame| !frame.ours);
    let mut text = String::new();
    for frame in &frames {
        if text.len() + frame.text.len() + 1 > MAX_BACKTRACE_BYTES {
            break;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&frame.text);
    }
    text
}

/// A function that a panic came through.
struct Frame {
    text: String,
    ours: bool,
    /// See [`CARRIERS`].
    carrier: bool,
}

/// Frames of the standard library between a panic and its hook.
fn begins_panic(name: &str) -> bool {
    name.contains("begin_panic")
        || name.contains("rust_begin_unwind")
        || name.contains("begin_unwind")
        || name.starts_with("core::panicking::")
}

/// A place without the folders of the machine that built it.
fn short(place: &str) -> &str {
    if let Some(start) = place.rfind("/crates/") {
        return &place[start + 1..];
    }
    let registry = place
        .split_once("/registry/src/")
        .and_then(|(_, rest)| rest.split_once('/'));
    let rust = place
        .strip_prefix("/rustc/")
        .and_then(|rest| rest.split_once('/'));
    match registry.or(rust) {
        Some((_, rest)) => rest,
        None => place.trim_start_matches("./"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::step_blocking;

    #[tokio::test]
    async fn a_panic_is_caught_with_its_place_and_its_words() {
        panics::install_hook();
        let task = async {
            tokio::task::yield_now().await;
            panic!("on purpose");
        };
        let caught = catch::<()>(AssertUnwindSafe(task)).await.unwrap_err();
        assert_eq!(caught.words(), "on purpose");
        assert!(caught.location.contains("guard.rs:"), "{caught:?}");
        let told = caught.told();
        assert!(!told.backtrace.is_empty());
        for of_no_use in ["install_hook", "guard::catch", "begin_panic"] {
            assert!(!told.backtrace.contains(of_no_use), "{told:?}");
        }
        assert_eq!(told.thread.as_deref(), std::thread::current().name());
    }

    #[tokio::test]
    async fn a_panic_of_blocking_work_is_caught_with_its_own_place_and_way() {
        panics::install_hook();
        let line = line!() + 1;
        let task = step_blocking(|| panic!("on purpose"));
        let caught = catch::<()>(AssertUnwindSafe(task)).await.unwrap_err();
        assert_eq!(caught.words(), "on purpose");
        let place = format!("guard.rs:{line}:");
        assert!(caught.location.contains(&place), "{caught:?}");
        let told = caught.told();
        assert!(!told.backtrace.is_empty());
        for carrier in CARRIERS {
            assert!(!told.backtrace.contains(carrier), "{told:?}");
        }
    }

    /// I16: what a panic says may hold what a request said.
    #[tokio::test]
    async fn only_the_literal_words_of_a_panic_are_kept() {
        panics::install_hook();
        let parameter = "hunter2";
        let task = async { panic!("no such thing: {parameter}") };
        let caught = catch::<()>(AssertUnwindSafe(task)).await.unwrap_err();
        assert!(!caught.words().contains(parameter), "{caught:?}");
        let told = caught.told();
        assert_eq!(told.said, None);
        assert!(!format!("{told:?}").contains(parameter), "{told:?}");
        let task = async { panic!("a literal") };
        let told = catch::<()>(AssertUnwindSafe(task))
            .await
            .unwrap_err()
            .told();
        assert_eq!(told.said.as_deref(), Some("a literal"));
    }

    #[test]
    fn frames_of_ours_come_first_and_what_is_kept_is_bounded() {
        let text = "   0: evenkeel_server::panics::note_places::{{closure}}\n   \
            1: std::panicking::panic_with_hook\n             at /rustc/0a1b/library/std/src/x.rs:1:2\n   \
            2: std::panicking::begin_panic_handler\n             at /rustc/0a1b/library/std/src/x.rs:1:2\n   \
            3: core::ops::function::call<evenkeel_engine::F>\n             at /rustc/0a1b/library/core/src/y.rs:5:6\n   \
            4: tokio::run\n             at /root/.cargo/registry/src/index-1/tokio-1.0/src/z.rs:7:8\n   \
            5: evenkeel_engine::attempt::drive::{{closure}}\n             at /home/me/crates/engine/src/attempt.rs:3:4\n   \
            6: <evenkeel_engine::A as B>::c\n             at ./src/a.rs:9:1\n   7: main\n";
        assert_eq!(
            condensed(text),
            "evenkeel_engine::attempt::drive::{{closure}} at crates/engine/src/attempt.rs:3:4\n\
             <evenkeel_engine::A as B>::c at src/a.rs:9:1\n\
             core::ops::function::call<evenkeel_engine::F> at library/core/src/y.rs:5:6\n\
             tokio::run at tokio-1.0/src/z.rs:7:8\nmain"
        );
        let many: String = (0..10_000)
            .map(|n| format!("{n}: evenkeel::f{n}\n"))
            .collect();
        assert!(condensed(&many).len() <= MAX_BACKTRACE_BYTES);
        assert_eq!(condensed("disabled backtrace"), "");
    }
}
