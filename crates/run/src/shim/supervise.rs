//! The shim's life beside its action: signals, logs, clocks and limits, and the end of the tree.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions};

use super::launch::{Launched, launch};
use super::usage::Usage;
use super::{Shim, results, signals};
use crate::clock;
use crate::faults;
use crate::files;
use crate::folder::OUT;
use crate::frame::{self, Kind};
use crate::logs::{LogWriter, STDERR, STDOUT};
use crate::proc;
use crate::record::{ExitRecord, RunEnd, Sender};
use crate::spec::{Containment, Limits, RunSpec};

/// How often the shim looks around where the kernel enforces the limits, and where it does not.
const TICK_MS: i64 = 500;
const BUSY_TICK_MS: i64 = 100;
/// The most patience that can be asked for.
const MAX_GRACE_MS: u64 = 10 * 60_000;
/// How long a tree may take to die of SIGKILL before the end is recorded as unproven.
const END_MS: i64 = 30_000;
/// How much of a log is taken at once, so that a flood does not keep the shim from its clocks.
const PUMP_CHUNK: usize = 64 << 10;
const PUMP_CHUNKS: usize = 16;

/// Runs the action to its end and tells how that was. Whatever happens, there is a record.
pub(super) fn run(shim: &Shim) -> ExitRecord {
    let spec = match shim.folder.spec() {
        Ok(Some(spec)) => spec,
        Ok(None) => return failed(shim, "the run has no spec".to_owned()),
        Err(error) => return failed(shim, error.to_string()),
    };
    let asked = signals::asked_to_end(&shim.signals);
    let stop_wished = shim.stop_wish().is_some();
    if stop_wished || asked.is_some() {
        return ExitRecord {
            stop_wished,
            stopped_by: asked.map(|by| by.told(shim.folder.attempt_id())),
            ..shim.blank_record(RunEnd::Stopped)
        };
    }
    if spec
        .deadline_at_ms
        .is_some_and(|deadline| deadline <= clock::unix_ms())
    {
        return shim.blank_record(RunEnd::DeadlinePassed);
    }
    // Held from before the action starts: what it puts in the folder's place is nothing to us.
    let out = match files::open_dir_at(&shim.dir, OUT) {
        Ok(out) => out,
        Err(error) => return failed(shim, format!("cannot open the output folder: {error}")),
    };
    let host_oom_before = proc::host_oom_kills();
    let launched = match launch(shim, &spec) {
        Ok(launched) => launched,
        Err(message) => return failed(shim, message),
    };
    let mut run = match Run::new(shim, &spec, launched, out) {
        Ok(run) => run,
        Err(error) => {
            let mut record = failed(shim, format!("cannot keep the action's log: {error}"));
            record.tree_ended = shim.folder.end_own_tree();
            return record;
        }
    };
    run.watch();
    faults::hit_with("shim.ended.before", || shim.folder.about());
    let tree_ended = run.end_tree();
    faults::hit_with("shim.ended.after", || shim.folder.about());
    run.record(tree_ended, host_oom_before)
}

fn failed(shim: &Shim, message: String) -> ExitRecord {
    let message = message.chars().take(2000).collect();
    shim.blank_record(RunEnd::SpawnFailed { message })
}

/// How the main process ended.
#[derive(Clone, Copy)]
pub(super) enum Main {
    Exited(i32),
    Signalled {
        signal: i32,
        /// The kernel wrote a core.
        core: bool,
    },
}

pub(super) struct Run<'a> {
    pub(super) shim: &'a Shim,
    pub(super) spec: &'a RunSpec,
    pub(super) launched: Launched,
    pub(super) out: OwnedFd,
    pub(super) stdout: LogWriter,
    pub(super) stderr: LogWriter,
    pub(super) stdout_open: bool,
    pub(super) stderr_open: bool,
    pub(super) status_open: bool,
    pub(super) status_text: Vec<u8>,
    pub(super) usage: Usage,
    pub(super) tick_ms: i64,
    pub(super) next_tick: i64,
    pub(super) times_out_at: i64,
    /// Why the shim ends the run; the first reason stays.
    pub(super) cause: Option<RunEnd>,
    /// Who sent the SIGTERM that made us end it, and whether a broker had left its wish.
    pub(super) stopped_by: Option<Sender>,
    pub(super) stop_wished: bool,
    /// When patience with a tree that got SIGTERM ends.
    pub(super) kill_at: Option<i64>,
    pub(super) main: Option<Main>,
    pub(super) leader_gone: bool,
    pub(super) spawn_error: Option<String>,
    pub(super) progress_bytes: u64,
    pub(super) last_progress: Option<String>,
}

impl<'a> Run<'a> {
    fn new(
        shim: &'a Shim,
        spec: &'a RunSpec,
        launched: Launched,
        out: OwnedFd,
    ) -> std::io::Result<Self> {
        let places = shim.folder.surroundings();
        let out_dir = shim.folder.path().join(OUT);
        let polled = Limits {
            memory_bytes: spec
                .limits
                .memory_bytes
                .filter(|_| !launched.groups.limits_memory()),
            processes: spec
                .limits
                .processes
                .filter(|_| !launched.groups.limits_processes()),
            ..spec.limits.clone()
        };
        let state = spec.state.as_ref().map(|state| state.path.clone());
        let helpers = u64::from(launched.containment == Containment::Pidns);
        let usage = Usage::new(
            &polled,
            vec![places.work, places.tmp, out_dir],
            state,
            helpers,
        );
        let tick_ms = if usage.limits_anything() {
            BUSY_TICK_MS
        } else {
            TICK_MS
        };
        let timeout_ms = i64::try_from(spec.timeout_ms).unwrap_or(i64::MAX);
        Ok(Self {
            stdout: LogWriter::new(&shim.dir, STDOUT, spec.log_max_bytes)?,
            stderr: LogWriter::new(&shim.dir, STDERR, spec.log_max_bytes)?,
            shim,
            spec,
            launched,
            out,
            stdout_open: true,
            stderr_open: true,
            status_open: true,
            status_text: Vec::new(),
            usage,
            tick_ms,
            next_tick: clock::boot_ms(),
            times_out_at: clock::boot_ms().saturating_add(timeout_ms),
            cause: None,
            stopped_by: None,
            stop_wished: false,
            kill_at: None,
            main: None,
            leader_gone: false,
            spawn_error: None,
            progress_bytes: 0,
            last_progress: None,
        })
    }

    /// Until the main process has ended, or must be.
    fn watch(&mut self) {
        while self.main.is_none() && !self.leader_gone && self.spawn_error.is_none() {
            let now = clock::boot_ms();
            if self.kill_at.is_some_and(|at| at <= now) {
                return;
            }
            if now >= self.next_tick {
                self.next_tick = now + self.tick_ms;
                self.tick(now);
            }
            self.check_clocks(now);
            let wake = [Some(self.next_tick), self.kill_at, Some(self.times_out_at)];
            let wake = wake.into_iter().flatten().filter(|at| *at > now).min();
            self.wait_for_news(wake.map_or(self.tick_ms, |at| at - now));
            if let Some(by) = signals::asked_to_end(&self.shim.signals)
                && self.cause.is_none()
            {
                // Before the tree is asked to end, while its processes can still be told.
                self.stopped_by = Some(by.told(self.shim.folder.attempt_id()));
                self.ask_to_end(RunEnd::Stopped);
            }
            self.pump();
            self.hear_status();
            self.reap();
        }
    }

    fn tick(&mut self, now: i64) {
        self.shim.beat();
        self.note_progress();
        if let Some(limit) = self.usage.look() {
            // No grace for who takes what belongs to the neighbours.
            self.cause = Some(RunEnd::Limit { limit });
            self.kill_at = Some(now);
        }
    }

    fn check_clocks(&mut self, now: i64) {
        if now >= self.times_out_at {
            self.ask_to_end(RunEnd::TimedOut);
        } else if self
            .spec
            .deadline_at_ms
            .is_some_and(|deadline| deadline <= clock::unix_ms())
        {
            self.ask_to_end(RunEnd::DeadlinePassed);
        }
    }

    /// SIGTERM to the tree, and SIGKILL after the grace. Asking again changes nothing, so that a
    /// second reason neither hides the first nor prolongs its grace.
    fn ask_to_end(&mut self, cause: RunEnd) {
        if self.cause.is_some() {
            return;
        }
        let wish = if cause == RunEnd::Stopped {
            self.shim.stop_wish()
        } else {
            None
        };
        self.stop_wished = wish.is_some();
        let grace = wish
            .flatten()
            .unwrap_or(self.spec.grace_ms)
            .min(MAX_GRACE_MS);
        self.cause = Some(cause);
        self.kill_at = Some(clock::boot_ms() + i64::try_from(grace).unwrap_or(0));
        for process in self.launched.tree.survivors().unwrap_or_default() {
            // The namespace's init is no part of the action.
            let is_init = self.launched.containment == Containment::Pidns
                && process.pid == self.launched.leader.pid;
            if !is_init {
                proc::signal(process, Signal::TERM);
            }
        }
    }

    pub(super) fn note_progress(&mut self) {
        let (line, bytes) = results::progress(&self.out);
        if bytes == self.progress_bytes || line.is_none() || line == self.last_progress {
            return;
        }
        self.progress_bytes = bytes;
        self.last_progress = line;
        if let Ok(payload) = serde_json::to_vec(&self.last_progress) {
            frame::write(&self.shim.last_progress, Kind::Progress, &payload).ok();
        }
    }

    fn wait_for_news(&self, ms: i64) {
        let timeout = Timespec {
            tv_sec: ms / 1000,
            tv_nsec: (ms % 1000) * 1_000_000,
        };
        let mut fds = vec![PollFd::new(&self.shim.signals, PollFlags::IN)];
        for (open, fd) in [
            (self.stdout_open, &self.launched.stdout),
            (self.stderr_open, &self.launched.stderr),
            (self.status_open, &self.launched.status),
        ] {
            if open {
                fds.push(PollFd::new(fd, PollFlags::IN));
            }
        }
        // An interruption is news as well: the caller looks at everything anyway.
        poll(&mut fds, Some(&timeout)).ok();
    }

    fn pump(&mut self) {
        let mut buffer = [0; PUMP_CHUNK];
        if self.stdout_open {
            self.stdout_open = pump(&self.launched.stdout, &mut self.stdout, &mut buffer);
        }
        if self.stderr_open {
            self.stderr_open = pump(&self.launched.stderr, &mut self.stderr, &mut buffer);
        }
    }

    fn hear_status(&mut self) {
        let mut buffer = [0; 4096];
        while self.status_open {
            match rustix::io::read(&self.launched.status, &mut buffer) {
                Ok(0) => self.status_open = false,
                Ok(length) => self.status_text.extend_from_slice(&buffer[..length]),
                Err(_) => break,
            }
        }
        while let Some(end) = self.status_text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.status_text.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            match line.trim_end().split_once(' ') {
                Some(("S", status)) => {
                    self.main = status.parse().ok().map(main_end);
                }
                Some(("E", message)) => self.spawn_error = Some(message.to_owned()),
                Some(_) | None => {}
            }
        }
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if pid.as_raw_nonzero().get() != self.launched.leader.pid {
                continue;
            }
            // What the child had to say came before it died.
            self.hear_status();
            self.leader_gone = true;
            if self.launched.containment != Containment::Pidns {
                self.main = Some(main_end(status.as_raw()));
            }
        }
    }

    /// Ends what is left of the tree. Says whether it is known to be empty.
    fn end_tree(&mut self) -> bool {
        let until = clock::boot_ms() + END_MS;
        let mut pause_ms = 1;
        loop {
            let empty = self.launched.tree.kill().unwrap_or(false);
            self.reap();
            self.pump();
            if empty {
                // What the tree wrote before it died is still in the pipes.
                self.pump();
                self.reap();
                return true;
            }
            if clock::boot_ms() >= until {
                return false;
            }
            self.shim.beat();
            self.wait_for_news(pause_ms);
            pause_ms = (pause_ms * 2).min(50);
        }
    }
}

/// A status of wait(2).
fn main_end(status: i32) -> Main {
    match status & 0x7f {
        0 => Main::Exited((status >> 8) & 0xff),
        signal => Main::Signalled {
            signal,
            core: status & 0x80 != 0,
        },
    }
}

/// Moves what is there, up to a bound; `false` when the pipe has ended.
fn pump(pipe: &OwnedFd, log: &mut LogWriter, buffer: &mut [u8]) -> bool {
    for _ in 0..PUMP_CHUNKS {
        match rustix::io::read(pipe.as_fd(), &mut *buffer) {
            Ok(0) => return false,
            Ok(length) => log.write(&buffer[..length]),
            Err(Errno::INTR) => {}
            Err(_) => return true,
        }
    }
    true
}
