//! Proving that a dead shim's tree is empty, and making it so.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cgroup;
use crate::error::{Context, Result, RunError};
use crate::faults;
use crate::folder::{RunFolder, TREE_LOCK};
use crate::proc::{self, Stat};
use crate::record::StartedRecord;
use crate::spec::Containment;

/// How long a tree may take to die. A process that waits for a disk in the kernel takes longer,
/// and is reported as left over.
const SWEEP_TIME: Duration = Duration::from_secs(5);

impl RunFolder {
    /// Ends what a dead shim left behind and says whether the tree is now known to be empty;
    /// removes its cgroups then. May be repeated.
    ///
    /// # Errors
    /// The run is alive, or what the operating system says.
    pub fn sweep(&self) -> Result<bool> {
        let Some(gate) = self.gate(false)? else {
            return Ok(true);
        };
        let Some(_lock) = self.try_lock(&gate)? else {
            return Err(RunError::Alive {
                attempt_id: self.attempt_id().to_owned(),
            });
        };
        faults::hit_with("run.sweep.before", || self.about());
        let tree = Tree::of(self)?;
        let empty = tree
            .end(SWEEP_TIME)
            .context("end the processes of", self.path())?;
        if empty {
            tree.remove_groups();
        }
        faults::hit_with("run.sweep.after", || self.about());
        Ok(empty)
    }

    /// Ends the tree below this very process, a shim that lost its way; says whether it is empty.
    pub(crate) fn end_own_tree(&self) -> bool {
        let Ok(mut tree) = Tree::of(self) else {
            return false;
        };
        tree.subreaper = Some(rustix::process::getpid().as_raw_nonzero().get());
        let ended = tree.end(SWEEP_TIME).unwrap_or(false);
        if ended {
            tree.remove_groups();
        }
        ended
    }

    /// Whether the tree is known to be empty. The caller holds the lock.
    pub(crate) fn tree_is_empty(&self) -> Result<bool> {
        let tree = Tree::of(self)?;
        Ok(tree
            .survivors()
            .context("look for the processes of", self.path())?
            .is_empty())
    }
}

/// How a run's processes are told from all others.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) containment: Containment,
    /// Init of the namespace or main process: id and start time.
    pub(crate) leader: Option<(i32, u64)>,
    pub(crate) groups: Vec<PathBuf>,
    pub(crate) attempt_id: String,
    /// Device and inode of the lock that the tree inherited.
    pub(crate) tree_lock: Option<(u64, u64)>,
    /// A process that adopts what is orphaned: everything below it belongs to the tree.
    pub(crate) subreaper: Option<i32>,
    /// Whether the kernel that it lived in is this one.
    this_boot: bool,
}

impl Tree {
    fn of(folder: &RunFolder) -> Result<Self> {
        let boot_id = proc::boot_id().context("read the boot id for", folder.path())?;
        let record: Option<StartedRecord> = match folder.started_record() {
            Ok(record) => record,
            // Spoiled: the environment and the inherited lock still tell.
            Err(RunError::Record { .. } | RunError::Content { .. } | RunError::NotPlain { .. }) => {
                None
            }
            Err(error) => return Err(error),
        };
        let own_name = cgroup::group_name(folder.attempt_id());
        Ok(Self {
            containment: record
                .as_ref()
                .map_or(Containment::Sweep, |record| record.containment),
            leader: record
                .as_ref()
                .map(|record| (record.leader_pid, record.leader_start_time)),
            groups: record
                .iter()
                .flat_map(|record| record.cgroups.iter().map(PathBuf::from))
                .filter(|group| {
                    group
                        .file_name()
                        .is_some_and(|name| name == own_name.as_str())
                        && cgroup::is_group(group)
                })
                .collect(),
            attempt_id: folder.attempt_id().to_owned(),
            // The shim's own file, and no other one that was put, or linked, in its place: whoever
            // has that open is no process of this run.
            tree_lock: std::fs::symlink_metadata(folder.path().join(TREE_LOCK))
                .ok()
                .filter(|meta| meta.is_file() && meta.nlink() == 1)
                .map(|meta| (meta.dev(), meta.ino())),
            subreaper: None,
            this_boot: record
                .as_ref()
                .is_none_or(|record| record.boot_id == boot_id),
        })
    }

    pub(crate) fn of_shim(
        attempt_id: &str,
        containment: Containment,
        leader: Stat,
        groups: Vec<PathBuf>,
        tree_lock: Option<(u64, u64)>,
    ) -> Self {
        Self {
            containment,
            leader: Some((leader.pid, leader.start_time)),
            groups,
            attempt_id: attempt_id.to_owned(),
            tree_lock,
            subreaper: Some(rustix::process::getpid().as_raw_nonzero().get()),
            this_boot: true,
        }
    }

    /// Living processes of the tree. The dead that wait to be reaped do not count.
    pub(crate) fn survivors(&self) -> io::Result<Vec<Stat>> {
        if !self.this_boot {
            return Ok(Vec::new());
        }
        let leader = self.leader.and_then(|(pid, start_time)| {
            proc::stat(pid).filter(|found| found.start_time == start_time && !found.dead)
        });
        // A namespace's init turns into a zombie only after the kernel has ended and reaped
        // everything else in the namespace.
        if self.containment == Containment::Pidns && leader.is_none() && self.leader.is_some() {
            return Ok(Vec::new());
        }
        let ourselves = rustix::process::getpid().as_raw_nonzero().get();
        let all = proc::all()?;
        let mut seeds: HashSet<i32> = leader.iter().map(|leader| leader.pid).collect();
        seeds.extend(self.groups.iter().flat_map(|group| cgroup::members(group)));
        seeds.extend(
            all.iter()
                .filter(|one| self.is_marked(one))
                .map(|one| one.pid),
        );
        seeds.remove(&ourselves);
        let mut found: Vec<Stat> = all
            .iter()
            .filter(|one| !one.dead && seeds.contains(&one.pid))
            .copied()
            .collect();
        seeds.extend(self.subreaper);
        found.extend(proc::descendants(&all, &seeds));
        Ok(found)
    }

    fn is_marked(&self, process: &Stat) -> bool {
        !process.dead
            && self.containment != Containment::Pidns
            && (proc::is_of_attempt(process.pid, &self.attempt_id)
                || self
                    .tree_lock
                    .is_some_and(|lock| proc::has_open(process.pid, lock)))
    }

    /// Sends SIGKILL to everything in the tree, once; says whether there was nothing.
    pub(crate) fn kill(&self) -> io::Result<bool> {
        if let (Containment::Pidns, Some((pid, start_time)), true) =
            (self.containment, self.leader, self.this_boot)
        {
            // The kernel does the rest, and better than any list could.
            return Ok(!proc::is_alive(pid, start_time) || {
                proc::signal_pid(pid, start_time, Signal::KILL);
                false
            });
        }
        let survivors = self.survivors()?;
        if survivors.is_empty() {
            return Ok(true);
        }
        for group in &self.groups {
            cgroup::kill(group);
        }
        for process in survivors {
            proc::signal(process, Signal::KILL);
        }
        Ok(false)
    }

    fn end(&self, time: Duration) -> io::Result<bool> {
        let until = Instant::now() + time;
        while !self.kill()? {
            if Instant::now() >= until {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(true)
    }

    /// Removes the run's groups, which are empty. One that is not yet stays for the next sweep.
    pub(crate) fn remove_groups(&self) {
        for group in &self.groups {
            cgroup::remove(group).ok();
        }
    }
}
