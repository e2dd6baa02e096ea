//! Getting the action started in its containment.
//!
//! The child waits for a word from the shim before any user code runs, and the shim gives it only
//! when the record of how the tree is held is durable. A shim that dies before leaves a child that
//! reads the end of the pipe, and goes.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions};
use rustix::thread::UnshareFlags;

use super::child::{self, Ends, Plan, c_string};
use super::{HIGH, Shim};
use crate::cgroup::Own;
use crate::clock;
use crate::faults;
use crate::files;
use crate::folder::{STARTED, TREE_LOCK};
use crate::frame::{self, Kind};
use crate::proc::{self, Stat};
use crate::record::StartedRecord;
use crate::spec::{Containment, ContainmentWish, RunSpec};
use crate::sweep::Tree;
use crate::sys;

/// How long a forked child may take to its first sign of life.
const READY_SECS: i64 = 10;

/// An action that may run.
pub(super) struct Launched {
    /// The shim's child: the namespace's init, or the action's main process.
    pub(super) leader: Stat,
    pub(super) containment: Containment,
    pub(super) groups: Own,
    pub(super) tree: Tree,
    pub(super) started_at_ms: i64,
    /// Lines from the child.
    pub(super) status: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// Starts the action; the error says why it cannot be, and then no user code ran.
pub(super) fn launch(shim: &Shim, spec: &RunSpec) -> Result<Launched, String> {
    if spec.run_as.is_some() && !rustix::process::geteuid().is_root() {
        return Err("run_as needs a broker that runs as root".to_owned());
    }
    faults::hit_with("shim.contained.before", || shim.folder.about());
    let (containment, groups) = enter(shim, spec)?;
    faults::hit_with("shim.contained.after", || shim.folder.about());
    let launched = start(shim, spec, containment, &groups);
    match launched {
        Ok((leader, tree, started_at_ms, ours)) => Ok(Launched {
            leader,
            containment,
            groups,
            tree,
            started_at_ms,
            status: ours.status,
            stdout: ours.stdout,
            stderr: ours.stderr,
        }),
        Err(message) => {
            while let Ok(Some(_)) = rustix::process::wait(WaitOptions::empty()) {}
            for group in groups.all() {
                crate::cgroup::remove(&group).ok();
            }
            Err(message)
        }
    }
}

/// Chooses the containment, and enters what the shim itself has to enter for it.
fn enter(shim: &Shim, spec: &RunSpec) -> Result<(Containment, Own), String> {
    let id = shim.folder.attempt_id();
    let own = |hold| Own::create(id, &spec.limits, hold);
    let wish = spec.containment;
    if matches!(wish, ContainmentWish::Auto | ContainmentWish::Pidns) {
        match enter_pid_namespace(spec.run_as.is_some()) {
            Ok(()) => return Ok((Containment::Pidns, own(false))),
            Err(error) if wish == ContainmentWish::Pidns => {
                return Err(format!("this host allows no PID namespace: {error}"));
            }
            Err(_) => {}
        }
    }
    if matches!(wish, ContainmentWish::Auto | ContainmentWish::Cgroup) {
        let groups = own(true);
        if groups.tree.is_some() {
            return Ok((Containment::Cgroup, groups));
        }
        if wish == ContainmentWish::Cgroup {
            return Err(
                "this host lets us make no cgroup2 (is one mounted, and writable?)".to_owned(),
            );
        }
    }
    Ok((Containment::Sweep, own(false)))
}

/// The next child will be the init of a new PID namespace. Without the right to one, a user
/// namespace gives it, if the host lets anybody have one: tried in a child first, because there is
/// no way back out of it.
fn enter_pid_namespace(needs_real_root: bool) -> io::Result<()> {
    let refused = match sys::unshare(UnshareFlags::NEWPID) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    if needs_real_root {
        return Err(refused);
    }
    let Some(trial) = sys::fork()? else {
        sys::exit_now(i32::from(enter_user_namespace().is_err()))
    };
    match rustix::process::waitpid(Some(trial), WaitOptions::empty())? {
        Some((_, status)) if status.exit_status() == Some(0) => enter_user_namespace(),
        Some(_) | None => Err(refused),
    }
}

/// A user namespace in which we are who we were.
fn enter_user_namespace() -> io::Result<()> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    sys::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWPID)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))
}

struct Ours {
    status: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

type Started = (Stat, Tree, i64, Ours);

fn start(
    shim: &Shim,
    spec: &RunSpec,
    containment: Containment,
    groups: &Own,
) -> Result<Started, String> {
    let plan = plan(shim, spec, containment, groups)?;
    let say = |error: io::Error| format!("cannot prepare the action's process: {error}");
    let (stdout, child_stdout) = high_pipe().map_err(say)?;
    let (stderr, child_stderr) = high_pipe().map_err(say)?;
    let (status, child_status) = high_pipe().map_err(say)?;
    let (child_go, go) = high_pipe().map_err(say)?;
    let tree_lock = match containment {
        Containment::Sweep => Some(inherited_lock(shim).map_err(say)?),
        Containment::Pidns | Containment::Cgroup => None,
    };
    let tree_lock_file = tree_lock.as_ref().map(|(_, file)| *file);
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(say)?;
    let ends = Ends {
        null: high(null).map_err(say)?,
        stdout: child_stdout,
        stderr: child_stderr,
        go: child_go,
        status: child_status,
        tree_lock: tree_lock.map(|(lock, _)| lock),
    };
    let Some(child) = sys::fork().map_err(|error| format!("cannot fork: {error}"))? else {
        child::main(&plan, &ends)
    };
    // With these gone, the pipes end when the child and its descendants do.
    drop(ends);
    wait_until_ready(&status)?;
    let leader = stat_of(child)?;
    let all = groups.all();
    let started_at_ms = clock::unix_ms();
    let record = StartedRecord {
        boot_id: shim.boot_id.clone(),
        containment,
        leader_pid: leader.pid,
        leader_start_time: leader.start_time,
        cgroups: all
            .iter()
            .filter_map(|group| Some(group.to_str()?.to_owned()))
            .collect(),
        started_at_ms,
        host_oom_kills: proc::host_oom_kills(),
    };
    faults::hit_with("shim.started.before", || shim.folder.about());
    make_durable(shim, &record)
        .map_err(|error| format!("cannot write down that the action starts: {error}"))?;
    faults::hit_with("shim.started.after", || shim.folder.about());
    rustix::io::write(&go, b"g").map_err(|error| say(error.into()))?;
    faults::hit_with("shim.go.after", || shim.folder.about());
    let tree = Tree::of_shim(
        shim.folder.attempt_id(),
        containment,
        leader,
        all,
        tree_lock_file,
    );
    for pipe in [&status, &stdout, &stderr] {
        rustix::io::ioctl_fionbio(pipe, true).map_err(|error| say(error.into()))?;
    }
    Ok((
        leader,
        tree,
        started_at_ms,
        Ours {
            status,
            stdout,
            stderr,
        },
    ))
}

fn plan(
    shim: &Shim,
    spec: &RunSpec,
    containment: Containment,
    groups: &Own,
) -> Result<Plan, String> {
    let name = spec.command.first().ok_or("the command is empty")?;
    let program = find_program(spec, name)?;
    let mut argv = vec![c_string(&program)?];
    for argument in &spec.command[1..] {
        argv.push(c_string(argument)?);
    }
    let mut env = spec.env.clone();
    // The sweep finds a tree by it: not left to whoever wrote the spec.
    env.insert(
        "EVENKEEL_ATTEMPT_ID".to_owned(),
        shim.folder.attempt_id().to_owned(),
    );
    let envp: Result<_, _> = env
        .iter()
        .map(|(name, value)| c_string(format!("{name}={value}")))
        .collect();
    let mut read_only = vec![spec.bundle_dir.clone()];
    read_only.extend(
        spec.state
            .iter()
            .filter(|state| state.read_only)
            .map(|state| state.path.clone()),
    );
    Ok(Plan {
        program: c_string(&program)?,
        program_text: name.clone(),
        argv,
        envp: envp?,
        work: shim.folder.surroundings().work,
        limits: spec.limits.clone(),
        run_as: spec.run_as,
        groups: groups.all(),
        read_only,
        pid_namespace: containment == Containment::Pidns,
    })
}

/// `./provision` lies in the bundle, `psql` on the `PATH` that the action gets.
fn find_program(spec: &RunSpec, name: &str) -> Result<PathBuf, String> {
    if name.contains('/') {
        let inside = Path::new(name);
        return Ok(spec
            .bundle_dir
            .join(inside.strip_prefix(".").unwrap_or(inside)));
    }
    let path = spec.env.get("PATH").map_or("", String::as_str);
    path.split(':')
        .filter(|folder| !folder.is_empty())
        .map(|folder| Path::new(folder).join(name))
        .find(|candidate| {
            fs::metadata(candidate).is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0)
        })
        .ok_or_else(|| {
            format!("`{name}` is not on the action's PATH ({path}); write `./{name}` for a file of the bundle")
        })
}

fn high(fd: impl AsFd) -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(fd, HIGH)?)
}

fn high_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((high(read)?, high(write)?))
}

/// A lock that the whole tree inherits: whoever has it open belongs to the tree, whatever it did
/// to its parents, session and environment.
fn inherited_lock(shim: &Shim) -> io::Result<(OwnedFd, (u64, u64))> {
    let file = files::open_own(&shim.dir, TREE_LOCK)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let meta = file.metadata()?;
    Ok((high(file)?, (meta.dev(), meta.ino())))
}

fn wait_until_ready(status: &OwnedFd) -> Result<(), String> {
    let timeout = Timespec {
        tv_sec: READY_SECS,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(status, PollFlags::IN)];
    let ready = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&timeout)));
    if !matches!(ready, Ok(1)) {
        return Err(format!(
            "the action's process showed no life within {READY_SECS} s"
        ));
    }
    let mut line = [0; 1024];
    let length = rustix::io::read(status, &mut line).map_err(|error| error.to_string())?;
    match line[..length].split_first() {
        Some((b'R', _)) => Ok(()),
        Some((_, message)) => Err(String::from_utf8_lossy(message).trim().to_owned()),
        None => Err("the action's process died before its program".to_owned()),
    }
}

fn stat_of(child: Pid) -> Result<Stat, String> {
    proc::stat(child.as_raw_nonzero().get())
        .ok_or_else(|| "the action's process cannot be seen in /proc".to_owned())
}

/// The file, its name, and the name of the run's folder: after a power cut, the record must not be
/// missing beside effects of the action.
fn make_durable(shim: &Shim, record: &StartedRecord) -> io::Result<()> {
    let file = files::open_own(&shim.dir, STARTED)?;
    frame::write(&file, Kind::Started, &serde_json::to_vec(record)?)?;
    file.sync_all()?;
    rustix::fs::fsync(&shim.dir)?;
    if let Some(runs) = shim.folder.path().parent() {
        File::open(runs)?.sync_all()?;
    }
    Ok(())
}
