//! The forked side: the namespace's init, and the action up to its exec.
//!
//! Children are given their descriptors under fixed numbers and everything else is closed, so that
//! nothing of the shim (its lock above all) lives on in them. They tell the shim on the status pipe,
//! a line each: `R` ready, `S STATUS` the main process ended (as in wait(2)), `E MESSAGE` it could
//! not be started.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use rustix::io::FdFlags;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{Gid, Pid, Resource, Rlimit, Signal, Uid, WaitOptions};
use rustix::thread::UnshareFlags;

use crate::cgroup;
use crate::spec::{Limits, RunAs};
use crate::sys;

const GO: i32 = 3;
const STATUS: i32 = 4;
const TREE_LOCK: i32 = 5;

/// What a child that told why it failed, or was not let go, ends with; nobody looks at it.
const FAILED: i32 = 127;

/// Seconds between SIGXCPU and SIGKILL for a process that takes the first one lightly.
const CPU_GRACE_SECS: u64 = 5;
/// An action goes before its shim, and before the broker, if the host runs out of memory.
const OOM_SCORE_ADJ: &str = "500";

/// Everything that a child needs to know, made before the fork.
pub(super) struct Plan {
    pub(super) program: CString,
    /// As in the spec, for messages.
    pub(super) program_text: String,
    pub(super) argv: Vec<CString>,
    pub(super) envp: Vec<CString>,
    pub(super) work: PathBuf,
    pub(super) limits: Limits,
    pub(super) run_as: Option<RunAs>,
    pub(super) groups: Vec<PathBuf>,
    /// Folders that the action shall not change.
    pub(super) read_only: Vec<PathBuf>,
    pub(super) pid_namespace: bool,
}

/// The child's ends; all of them above the fixed numbers.
pub(super) struct Ends {
    pub(super) null: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) go: OwnedFd,
    pub(super) status: OwnedFd,
    pub(super) tree_lock: Option<OwnedFd>,
}

/// What a forked child does. Never returns into the shim's code, not even by a panic.
pub(super) fn main(plan: &Plan, ends: &Ends) -> ! {
    let never = catch_unwind(AssertUnwindSafe(|| match settle_in(plan, ends) {
        Ok(true) if plan.pid_namespace => init(plan),
        Ok(true) => action(plan),
        Ok(false) => {}
        Err(error) => tell(&format!("E cannot prepare the action's process: {error}")),
    }));
    drop(never);
    sys::exit_now(FAILED)
}

/// Takes the fixed descriptors and waits for the shim's word; `false` if the shim is dead.
fn settle_in(plan: &Plan, ends: &Ends) -> io::Result<bool> {
    for (end, number) in [
        (&ends.null, 0),
        (&ends.stdout, 1),
        (&ends.stderr, 2),
        (&ends.go, GO),
        (&ends.status, STATUS),
    ] {
        sys::install(as_fd(end), number)?;
    }
    if let Some(lock) = &ends.tree_lock {
        sys::install(as_fd(lock), TREE_LOCK)?;
    }
    sys::close_from(if ends.tree_lock.is_some() {
        TREE_LOCK + 1
    } else {
        TREE_LOCK
    })?;
    if plan.pid_namespace {
        // The shim may be dead by now, and then no signal will come; its parent's id says nothing
        // in here. But it lets us go only after it heard that the signal is armed, and if it died
        // before that, the pipe ends.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    tell("R");
    let mut word = [0; 1];
    let read = rustix::io::retry_on_intr(|| rustix::io::read(sys::borrow(GO), &mut word))?;
    Ok(read == 1)
}

fn as_fd(end: &OwnedFd) -> BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(end)
}

fn tell(line: &str) {
    let line: String = line
        .chars()
        .map(|c| if c == '\n' { ' ' } else { c })
        .take(1000)
        .collect();
    rustix::io::write(sys::borrow(STATUS), format!("{line}\n").as_bytes()).ok();
}

/// The first process of the namespace: starts the action, reaps what is orphaned, tells how the
/// action ended. When it is ended, the kernel ends everything in the namespace.
fn init(plan: &Plan) {
    rustix::thread::set_name(c"evenkeel-init").ok();
    private_mounts(plan);
    match sys::fork() {
        Ok(None) => {
            if catch_unwind(AssertUnwindSafe(|| action(plan))).is_err() {
                tell(
                    "E the action's process failed before its program; this is a fault of Evenkeel",
                );
            }
            sys::exit_now(FAILED)
        }
        Ok(Some(main)) => {
            // The log ends when the action's processes close it, not when we do.
            for number in [1, 2] {
                sys::install(sys::borrow(0), number).ok();
            }
            reap(main);
        }
        Err(error) => tell(&format!("E cannot fork: {error}")),
    }
}

fn reap(main: Pid) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == main => tell(&format!("S {}", status.as_raw())),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // No child is left. Ending ourselves tells the shim.
            Err(_) => return,
        }
    }
}

/// Becomes the action's program; returns only if that fails, having told why.
fn action(plan: &Plan) {
    if let Err(message) = try_action(plan) {
        tell(&format!("E {message}"));
    }
}

fn try_action(plan: &Plan) -> Result<(), String> {
    let at = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| format!("cannot {what}: {error}")
    };
    for group in &plan.groups {
        cgroup::join(group).map_err(at("join the run's control group"))?;
    }
    fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ).ok();
    rustix::process::setsid().map_err(|error| at("open a session")(error.into()))?;
    if !plan.pid_namespace && !plan.read_only.is_empty() {
        private_mounts(plan);
    }
    set_limits(&plan.limits);
    if let Some(run_as) = plan.run_as {
        become_user(run_as).map_err(at("become the action's user"))?;
    }
    std::env::set_current_dir(&plan.work).map_err(at("enter the work folder"))?;
    for number in [GO, STATUS] {
        rustix::io::fcntl_setfd(sys::borrow(number), FdFlags::CLOEXEC)
            .map_err(|error| at("close descriptors")(error.into()))?;
    }
    sys::default_signals().map_err(at("reset signals"))?;
    let error = sys::exec(&plan.program, &plan.argv, &plan.envp);
    Err(format!(
        "cannot execute `{}`: {error}; check that it is in the bundle, executable, and that the \
         program in its first line exists",
        plan.program_text
    ))
}

/// Hard limits can only be lowered: what is asked for beyond them is left to the host.
fn set_limits(limits: &Limits) {
    let set = |resource: Resource, soft: u64, hard: u64| {
        let host = rustix::process::getrlimit(resource)
            .maximum
            .unwrap_or(u64::MAX);
        let limit = Rlimit {
            current: Some(soft.min(host)),
            maximum: Some(hard.min(host)),
        };
        rustix::process::setrlimit(resource, limit).ok();
    };
    set(Resource::Core, 0, 0);
    if let Some(bytes) = limits.memory_bytes {
        set(Resource::Data, bytes, bytes);
    }
    if let Some(secs) = limits.cpu_secs {
        set(Resource::Cpu, secs, secs.saturating_add(CPU_GRACE_SECS));
    }
    if let Some(files) = limits.open_files {
        set(Resource::Nofile, files, files);
    }
    if let Some(bytes) = limits.disk_bytes {
        set(Resource::Fsize, bytes, bytes);
    }
}

fn become_user(RunAs { uid, gid }: RunAs) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_groups(&[gid])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// A mount namespace of its own with a `/proc` of this PID namespace and folders that cannot be
/// changed; as much of it as the host allows. Nothing rests on it but tidiness.
fn private_mounts(plan: &Plan) {
    if sys::unshare(UnshareFlags::NEWNS).is_err() {
        return;
    }
    // Before any mount, or it would show outside.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    if mount_change("/", private).is_err() {
        return;
    }
    if plan.pid_namespace {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("proc", "/proc", "proc", flags, None).ok();
    }
    for folder in &plan.read_only {
        let Ok(point) = CString::new(folder.as_os_str().as_bytes()) else {
            continue;
        };
        if mount_bind(folder, folder).is_ok() {
            sys::make_read_only(&point).ok();
        }
    }
}

/// Text for exec.
pub(super) fn c_string(text: impl AsRef<OsStr>) -> Result<CString, String> {
    CString::new(text.as_ref().as_bytes())
        .map_err(|_| format!("{:?} holds a zero byte", text.as_ref()))
}
