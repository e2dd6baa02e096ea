//! The few system calls that have no safe form: fork and exec, the signal mask, `wait4`, taking
//! over a descriptor. The warden has one thread, and [`start`] relies on it.
#![expect(
    unsafe_code,
    reason = "fork, exec, the signal mask and wait4 have no safe form"
)]

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;

use rustix::process::Pid;

/// The first descriptor that is passed on (sd_listen_fds(3)).
const FIRST_PASSED: RawFd = 3;
/// As a shell says that a program could not be run.
const CANNOT_RUN: libc::c_int = 127;
/// `si_code` of a signal that the kernel itself sent, as a terminal's Ctrl-C.
const SI_KERNEL: i32 = 0x80;

/// What the warden waits for.
const SIGNALS: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGCHLD];

/// Signals that wait to be read, and the mask from before.
pub(super) struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

/// One signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Caught {
    pub(super) signal: i32,
    /// The kernel's own, for the whole foreground group: a terminal's.
    pub(super) by_terminal: bool,
}

/// The end of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reaped {
    pub(super) pid: i32,
    pub(super) exit_code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) core_dumped: bool,
    /// In bytes.
    pub(super) peak_memory: u64,
    pub(super) cpu_millis: u64,
}

/// A program to be run.
pub(super) struct Program {
    pub(super) path: CString,
    pub(super) argv: Vec<CString>,
    /// `NAME=value`, without `LISTEN_PID`: only the child knows its own id.
    pub(super) env: Vec<CString>,
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

impl Signals {
    /// From now on the signals are read, and do nothing by themselves.
    pub(super) fn catch() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initialises the set that the others read, `sigprocmask` the other
        // one; the descriptor is new and nobody else's; no handler of ours is replaced.
        unsafe {
            // Inherited as ignored it would have the kernel reap our children behind our back.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            libc::sigemptyset(set.as_mut_ptr());
            for signal in SIGNALS {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            check(libc::sigprocmask(
                libc::SIG_BLOCK,
                set.as_ptr(),
                before.as_mut_ptr(),
            ))?;
            let fd = check(libc::signalfd(
                -1,
                set.as_ptr(),
                libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
            ))?;
            Ok(Self {
                fd: OwnedFd::from_raw_fd(fd),
                before: before.assume_init(),
            })
        }
    }

    /// The next one that waits.
    pub(super) fn next(&self) -> io::Result<Option<Caught>> {
        // struct signalfd_siginfo: ssi_signo, ssi_errno, ssi_code, 4 bytes each; 128 in all.
        let mut info = [0_u8; 128];
        match rustix::io::read(&self.fd, &mut info) {
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let word =
            |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
        Ok(Some(Caught {
            signal: word(0),
            by_terminal: word(8) == SI_KERNEL,
        }))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Takes the next dead child off the kernel's list, whoever's it was.
pub(super) fn reap() -> io::Result<Option<Reaped>> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both are valid for writes; the structure is valid when zeroed.
    let (pid, usage) = unsafe {
        let pid = libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr());
        (pid, usage.assume_init())
    };
    if pid < 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ECHILD) {
            Ok(None)
        } else {
            Err(error)
        };
    }
    if pid == 0 {
        return Ok(None);
    }
    let millis = |time: libc::timeval| {
        u64::try_from(time.tv_sec.saturating_mul(1000) + time.tv_usec / 1000).unwrap_or(0)
    };
    Ok(Some(Reaped {
        pid,
        exit_code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        core_dumped: libc::WIFSIGNALED(status) && libc::WCOREDUMP(status),
        peak_memory: u64::try_from(usage.ru_maxrss)
            .unwrap_or(0)
            .saturating_mul(1024),
        cpu_millis: millis(usage.ru_utime).saturating_add(millis(usage.ru_stime)),
    }))
}

/// Starts a child that has `passed` as its descriptors from 3 on, and `stderr` as its standard
/// error; its signals are as this process's were before it caught them.
///
/// # Errors
/// There are several threads: the child would have only one of them, and every lock that another
/// one held for ever. Or what the operating system says.
pub(super) fn start(
    program: &Program,
    passed: &[BorrowedFd<'_>],
    stderr: BorrowedFd<'_>,
    signals: &Signals,
) -> io::Result<Pid> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the warden must have a single thread"));
    }
    // SAFETY: there is one thread, so no lock is held by a thread that the child lacks.
    if let Some(child) = Pid::from_raw(check(unsafe { libc::fork() })?) {
        return Ok(child);
    }
    let error = become_program(program, passed, stderr, signals);
    let said = format!("the broker could not be run: {error}\n");
    // Its standard error is all that it has left.
    rustix::io::write(stderr, said.as_bytes()).ok();
    // SAFETY: takes a number, returns never. The parent's registered ends must not run here.
    unsafe { libc::_exit(CANNOT_RUN) }
}

/// In the child: returns only if it fails.
fn become_program(
    program: &Program,
    passed: &[BorrowedFd<'_>],
    stderr: BorrowedFd<'_>,
    signals: &Signals,
) -> io::Error {
    let arranged = || -> io::Result<()> {
        let count = RawFd::try_from(passed.len()).unwrap_or(RawFd::MAX);
        // Out of the way first: a source may have a number that is a target.
        let above = FIRST_PASSED.saturating_add(count);
        let aside = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, above);
        let passed: Vec<OwnedFd> = passed
            .iter()
            .map(|fd| aside(*fd))
            .collect::<Result<_, _>>()?;
        let stderr = aside(stderr)?;
        for (target, fd) in (FIRST_PASSED..).zip(&passed) {
            // SAFETY: this process is about to become another one; whoever owned the number in it
            // will not use it again. A copy stays open across exec.
            check(unsafe { libc::dup2(fd.as_raw_fd(), target) })?;
        }
        rustix::stdio::dup2_stderr(&stderr)?;
        // A wish to read the bundles again that comes before the broker can hear it must not end
        // it: it is about to read them anyway.
        // SAFETY: no handler of ours is replaced; the mask is one that the kernel gave.
        unsafe {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            check(libc::sigprocmask(
                libc::SIG_SETMASK,
                &raw const signals.before,
                ptr::null_mut(),
            ))?;
        }
        Ok(())
    };
    if let Err(error) = arranged() {
        return error;
    }
    let own = format!("LISTEN_PID={}", std::process::id());
    let Ok(own) = CString::new(own) else {
        return io::ErrorKind::InvalidInput.into();
    };
    let pointers = |list: &mut dyn Iterator<Item = &CString>| {
        list.map(|one| one.as_ptr())
            .chain([ptr::null()])
            .collect::<Vec<_>>()
    };
    let argv = pointers(&mut program.argv.iter());
    let envp = pointers(&mut program.env.iter().chain([&own]));
    evenkeel_engine::faults::hit("warden.child");
    // SAFETY: both lists end with null, and their strings outlive the call.
    unsafe { libc::execve(program.path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

/// Takes over a descriptor that a parent passed to this process.
pub(crate) fn own(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: asked first whether it is open. It is named once, by the protocol that this process
    // was started with, and nobody else here knows of it.
    let fd = unsafe {
        check(libc::fcntl(fd, libc::F_GETFD))?;
        OwnedFd::from_raw_fd(fd)
    };
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
    Ok(fd)
}
