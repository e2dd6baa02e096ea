//! One broker process, as its warden sees it.

use std::ffi::{CString, OsString};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use evenkeel_core::boot::DeathRecord;
use evenkeel_core::ids::BootId;
use evenkeel_engine::faults;
use evenkeel_engine::world::{RealWorld, World as _};
use evenkeel_run::OomKills;
use rustix::process::{Pid, Signal, kill_process};

use super::files::Stderr;
use super::sys::{self, Program, Reaped, Signals};
use super::watchdog::Watchdog;
use crate::config::Source;
use crate::fail::Exit;
use crate::serve::listen::Sockets;

/// Holds the boot's id.
pub(crate) const BOOT: &str = "EVENKEEL_BOOT";
/// Holds how many brokers this warden had before.
pub(crate) const RESTARTS: &str = "EVENKEEL_RESTARTS";
/// What the passed descriptors are called: the sockets as a unit of systemd names them, the line
/// to the warden, the standard error that the log goes to, and the configuration.
pub(crate) const NAMES: [&str; 5] = ["osb", "admin", "warden", "log", "config"];

/// What is this process's own, or the broker's by other means.
const NOT_INHERITED: [&str; 9] = [
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    BOOT,
    RESTARTS,
    "LISTEN_FDS_FIRST_FD",
];

/// A broker that has been started.
pub(super) struct Broker {
    boot: BootId,
    pid: Pid,
    /// None once the broker has closed its end.
    line: Option<UnixStream>,
    stderr: Option<Stderr>,
    started: Instant,
    dog: Watchdog,
    /// The counters two rounds ago and one: one may have been read between a kill and its death.
    oom: [OomKills; 2],
}

/// Signals that a process brings upon itself, whatever was asked of it.
const CRASHES: [i32; 5] = [
    libc::SIGSEGV,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
];

/// How it ended.
pub(super) struct End {
    pub(super) boot: BootId,
    pub(super) record: DeathRecord,
    pub(super) lived: Duration,
}

impl End {
    /// Whether the next broker would only end in the same way.
    pub(super) fn is_final(&self) -> bool {
        let code = self
            .record
            .exit_code
            .and_then(|code| u8::try_from(code).ok());
        code.is_some_and(Exit::is_final)
    }
}

impl Broker {
    pub(super) fn start(
        boot: BootId,
        restarts: u64,
        source: &Source,
        stderr: Option<Stderr>,
        sockets: &Sockets,
        signals: &Signals,
        watchdog: Option<Duration>,
    ) -> io::Result<Self> {
        let (line, theirs) = UnixStream::pair()?;
        line.set_nonblocking(true)?;
        let log = io::stderr();
        let [osb, admin] = sockets.fds();
        let config = source.to_file()?;
        let passed: [BorrowedFd<'_>; NAMES.len()] =
            [osb, admin, theirs.as_fd(), log.as_fd(), config.as_fd()];
        let raw = stderr
            .as_ref()
            .map_or(log.as_fd(), |stderr| stderr.file.as_fd());
        let oom = OomKills::now();
        let program = program(boot, restarts)?;
        faults::hit("warden.spawn.before");
        let pid = sys::start(&program, &passed, raw, signals)?;
        faults::hit("warden.spawn.after");
        Ok(Self {
            boot,
            pid,
            line: Some(line),
            stderr,
            started: Instant::now(),
            dog: Watchdog::new(watchdog),
            oom: [oom; 2],
        })
    }

    pub(super) fn line(&self) -> Option<BorrowedFd<'_>> {
        self.line.as_ref().map(UnixStream::as_fd)
    }

    pub(super) fn is(&self, dead: &Reaped) -> bool {
        dead.pid == self.pid.as_raw_nonzero().get()
    }

    /// Takes the beats that have come.
    pub(super) fn hear(&mut self) {
        let Some(line) = &mut self.line else { return };
        match line.read(&mut [0; 64]) {
            Ok(0) => self.line = None,
            Ok(_) => self.dog.beat(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.line = None,
        }
    }

    /// One more round without its end.
    pub(super) fn round(&mut self) {
        if let Some(signal) = self.dog.round() {
            self.send(signal);
        }
        if let Some(stderr) = &self.stderr {
            stderr.cap();
        }
        self.oom = [self.oom[1], OomKills::now()];
    }

    /// Passes a signal on.
    pub(super) fn signal(&self, number: i32) {
        if let Some(signal) = Signal::from_named_raw(number) {
            self.send(signal);
        }
    }

    /// Its id is its own until it is reaped, which is when this value ends.
    fn send(&self, signal: Signal) {
        kill_process(self.pid, signal).ok();
    }

    pub(super) fn end(self, dead: &Reaped, asked_to_end: bool) -> End {
        let killed = dead.signal == Some(libc::SIGKILL) && !self.dog.bit();
        let crashed = dead.signal.is_some_and(|signal| CRASHES.contains(&signal));
        let (before, now) = (self.oom[0], OomKills::now());
        let mut record = DeathRecord {
            ended_at: RealWorld.now(),
            exit_code: dead.exit_code,
            signal: dead.signal,
            core_dumped: dead.core_dumped,
            // A broker that crashes on its way out was not ended by whoever asked.
            asked_to_end: asked_to_end && !crashed && !self.dog.bit(),
            killed_by_watchdog: self.dog.bit() && dead.signal.is_some(),
            peak_memory: dead.peak_memory,
            cpu_millis: dead.cpu_millis,
            own_oom: killed && now.own_group > before.own_group,
            host_oom: killed && now.host > before.host,
            last_words: String::new(),
        };
        if let Some(mut stderr) = self.stderr {
            record.last_words = stderr.last_words();
            if record.last_words.is_empty() {
                stderr.remove();
            }
        }
        End {
            boot: self.boot,
            record,
            lived: self.started.elapsed(),
        }
    }
}

/// This very program, with the same arguments: a file that was put in its place since is not it.
fn program(boot: BootId, restarts: u64) -> io::Result<Program> {
    let text = |text: OsString| CString::new(text.into_vec()).map_err(io::Error::other);
    let own = [
        format!("LISTEN_FDS={}", NAMES.len()),
        format!("LISTEN_FDNAMES={}", NAMES.join(":")),
        format!("{BOOT}={boot}"),
        format!("{RESTARTS}={restarts}"),
    ];
    let inherited = std::env::vars_os()
        .filter(|(name, _)| !NOT_INHERITED.iter().any(|not| name == not))
        .map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            name
        });
    Ok(Program {
        path: c"/proc/self/exe".to_owned(),
        argv: std::env::args_os().map(text).collect::<Result<_, _>>()?,
        env: inherited
            .chain(own.into_iter().map(OsString::from))
            .map(text)
            .collect::<Result<_, _>>()?,
    })
}
