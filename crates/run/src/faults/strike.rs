//! Doing what a rule says. The deaths are real ones: no signal is sent where the processor, the
//! stack or the allocator can be made to fail.

use std::hint::black_box;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use super::rules::Fault;

/// What `oom` takes at once, and at most: more than any control group of a test allows.
const OOM_STEP: usize = 64 << 20;
const OOM_STEPS: usize = 32;

/// What `alloc` asks for at once: every host would give it, so that only a limit refuses it.
const ALLOC_ROOM: usize = 1 << 30;

impl Fault {
    /// Whether the point only waits.
    pub fn waits(&self) -> bool {
        matches!(self, Self::Hold(_) | Self::Delay(_))
    }

    /// Does it.
    ///
    /// # Panics
    /// If that is what the rule says, or if it makes no sense at this point.
    #[track_caller]
    pub fn strike(&self, point: &str) {
        match self {
            Self::Kill => {
                kill_process(getpid(), Signal::KILL).expect("a process may signal itself");
                std::thread::park();
            }
            Self::Stop => stop_here(),
            Self::Abort => {
                // The last words that its warden keeps.
                let said = format!("aborted at {point}\n");
                rustix::io::write(rustix::stdio::stderr(), said.as_bytes()).ok();
                std::process::abort();
            }
            Self::Exit => std::process::exit(0),
            Self::Segv => write_nowhere(),
            Self::Overflow => {
                black_box(deeper(black_box(0)));
            }
            Self::Alloc => {
                drop(black_box(Vec::<u8>::with_capacity(black_box(ALLOC_ROOM))));
                panic!("{point}: nothing refused this process {ALLOC_ROOM} bytes");
            }
            Self::Oom => take_memory(point),
            Self::Panic => panic!("fault injected at {point}"),
            Self::DropPanic => drop(Bomb { point }),
            Self::DoublePanic => {
                let _bomb = Bomb { point };
                panic!("fault injected at {point}, the first of two");
            }
            Self::PanicLocked => {
                static LOCK: Mutex<()> = Mutex::new(());
                let _held = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
                panic!("fault injected at {point}, with a lock held");
            }
            Self::Wedge => loop {
                std::thread::park();
            },
            Self::Hold(file) => hold(file, point),
            Self::Delay(time) => std::thread::sleep(*time),
            Self::Error(_) | Self::Lost => {
                panic!("EVENKEEL_FAULTS: {self:?} is for calls of the store, not for {point}")
            }
        }
    }
}

struct Bomb<'a> {
    point: &'a str,
}

impl Drop for Bomb<'_> {
    fn drop(&mut self) {
        panic!("fault injected at {}, in a destructor", self.point);
    }
}

/// Sent to this very thread: one for the process may stop another first, and this one goes on past
/// the point meanwhile.
#[expect(unsafe_code, reason = "a signal for one thread has no safe form")]
fn stop_here() {
    // SAFETY: it takes a number, and the kernel does what it says.
    let raised = unsafe { libc::raise(libc::SIGSTOP) };
    assert_eq!(raised, 0, "a thread may signal itself");
}

#[expect(unsafe_code, reason = "a segmentation fault has no safe form")]
fn write_nowhere() {
    // SAFETY: none, on purpose: nothing is mapped in the first page, and the process dies of it.
    unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
}

#[expect(unconditional_recursion, reason = "it is to use up the stack")]
fn deeper(depth: u64) -> u64 {
    let room = black_box([depth; 512]);
    deeper(room[0] + 1) + black_box(room)[511]
}

fn take_memory(point: &str) {
    let mut taken = Vec::new();
    for _ in 0..OOM_STEPS {
        // Ones, or the kernel would hand out the same page of zeros again and again.
        taken.push(black_box(vec![1_u8; OOM_STEP]));
    }
    panic!("{point}: nothing ended this process for {OOM_STEPS} times {OOM_STEP} bytes");
}

fn hold(file: &Path, point: &str) {
    let reached = file.with_added_extension("reached");
    std::fs::write(reached, point).expect("the hold file's folder is there");
    while !file.exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests that have a broker die of it set a limit, and it is the limit that kills.
    #[test]
    #[should_panic(expected = "nothing refused this process")]
    fn an_allocation_that_no_limit_refuses_ends_nobody_and_is_told() {
        Fault::Alloc.strike("here");
    }
}
