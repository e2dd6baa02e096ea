//! The few system calls that have no safe form: fork and exec, signal masks, descriptor ranges,
//! namespaces. Used by the shim only, which is single-threaded; [`fork`] relies on it.
#![expect(
    unsafe_code,
    reason = "fork, exec, signal masks and descriptor ranges have no safe form"
)]

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Splits the process in two: `Some(child)` in the parent, `None` in the child.
///
/// # Errors
/// There are several threads: the child would have only one of them, and every lock that another
/// one held for ever. Or what the operating system says.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the shim must have a single thread"));
    }
    // SAFETY: there is one thread, so no lock is held by a thread that the child lacks.
    Ok(Pid::from_raw(check(unsafe { libc::fork() })?))
}

/// Becomes another program; returns only if that fails.
pub(crate) fn exec(program: &CStr, argv: &[CString], envp: &[CString]) -> io::Error {
    let pointers = |list: &[CString]| {
        list.iter()
            .map(|one| one.as_ptr())
            .chain([ptr::null()])
            .collect::<Vec<_>>()
    };
    let (argv, envp) = (pointers(argv), pointers(envp));
    // SAFETY: both lists end with null, and their strings outlive the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends the process at once: a forked child must not run what its parent registered for its end,
/// and a namespace's init is deaf to its own signals.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: takes a number, returns never.
    unsafe { libc::_exit(code) }
}

/// Keeps signals from doing anything and makes them readable from the descriptor.
pub(crate) fn signals_as_descriptor() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` initialises the set that the others read; the descriptor is new and
    // owned by nobody else. Faults are left out: blocked, they would kill without a trace.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for fault in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGABRT,
        ] {
            libc::sigdelset(set.as_mut_ptr(), fault);
        }
        check(libc::sigprocmask(
            libc::SIG_SETMASK,
            set.as_ptr(),
            ptr::null_mut(),
        ))?;
        let fd = check(libc::signalfd(
            -1,
            set.as_ptr(),
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Undoes [`signals_as_descriptor`] and whatever the Rust runtime set, for a program to be run.
pub(crate) fn default_signals() -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: as above. Resetting what cannot be reset fails without effect.
    unsafe {
        // The C library keeps two signals to itself, so the kernel is asked: a structure of zeros
        // means the default in its layout on every platform.
        let default = [0_u64; 4];
        for signal in 1..=64 {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                ptr::null_mut::<u64>(),
                size_of::<u64>(),
            );
        }
        libc::sigemptyset(set.as_mut_ptr());
        check(libc::sigprocmask(
            libc::SIG_SETMASK,
            set.as_ptr(),
            ptr::null_mut(),
        ))?;
    }
    Ok(())
}

/// Closes every descriptor from `first` on.
pub(crate) fn close_from(first: RawFd) -> io::Result<()> {
    // SAFETY: called where descriptors from `first` on belong to nobody who will use them again.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if result == 0 {
        return Ok(());
    }
    // A kernel before 5.9.
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| *fd >= first) {
        // SAFETY: as above; the folder's own descriptor is closed already, and that is no error.
        unsafe { libc::close(fd) };
    }
    Ok(())
}

/// Makes `fd` available under the number `target`, for good and across exec.
pub(crate) fn install(fd: BorrowedFd<'_>, target: RawFd) -> io::Result<()> {
    // SAFETY: `target` is a number that the caller hands to the program to be run, and nobody in
    // this process owns.
    check(unsafe { libc::dup2(fd.as_raw_fd(), target) }).map(drop)
}

/// The descriptor of that number, as far as it lives.
pub(crate) fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: used for numbers that `install` made, which stay open until exec or exit.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Takes over the descriptor of that number.
pub(crate) fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: used once, for a number that `install` made and nobody owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Leaves namespaces.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: never called with FILES, the one flag that takes descriptors from other threads.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Makes a mount read-only in this mount namespace, keeping its other attributes.
pub(crate) fn make_read_only(mount_point: &CStr) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the string and the structure outlive the call, and the size is the structure's.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            mount_point.as_ptr(),
            0,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// What the children that were reaped have used.
pub(crate) struct ChildUsage {
    /// Processor time of all of them, in milliseconds.
    pub(crate) cpu_ms: u64,
    /// The largest resident memory of one of them, in bytes.
    pub(crate) peak_bytes: u64,
}

pub(crate) fn child_usage() -> ChildUsage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is valid when zeroed and filled by the call.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let ms = |time: libc::timeval| time.tv_sec.saturating_mul(1000) + time.tv_usec / 1000;
    ChildUsage {
        cpu_ms: u64::try_from(ms(usage.ru_utime) + ms(usage.ru_stime)).unwrap_or(0),
        peak_bytes: u64::try_from(usage.ru_maxrss)
            .unwrap_or(0)
            .saturating_mul(1024),
    }
}
