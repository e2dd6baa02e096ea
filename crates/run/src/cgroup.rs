//! Control groups of a run's own: found by where this process is, made beneath it, so that no
//! limit above is escaped. Both hierarchies are used where they are: version 2 holds and ends the
//! tree, and either limits memory and processes if its controllers are there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::spec::Limits;

/// Where this process stands in each hierarchy of use, as folders.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Places {
    pub(crate) v2: Option<PathBuf>,
    pub(crate) memory_v1: Option<PathBuf>,
    pub(crate) pids_v1: Option<PathBuf>,
}

/// Reads where this process stands.
pub(crate) fn places() -> Places {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    locate(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
}

/// `mountinfo` and `cgroup` as in proc(5).
pub(crate) fn locate(mountinfo: &str, cgroup: &str) -> Places {
    let mut places = Places::default();
    for line in mountinfo.lines() {
        let Some((mount, super_block)) = line.split_once(" - ") else {
            continue;
        };
        let mut mount = mount.split(' ').skip(3);
        let (Some(root), Some(point)) = (mount.next(), mount.next()) else {
            continue;
        };
        let mut super_block = super_block.split(' ');
        let kind = super_block.next().unwrap_or_default();
        let options = super_block.nth(1).unwrap_or_default();
        let has = |controller| kind == "cgroup" && options.split(',').any(|one| one == controller);
        let at = |controller| place(Path::new(point), root, cgroup, controller);
        if kind == "cgroup2" && places.v2.is_none() {
            places.v2 = at("");
        } else if has("memory") && places.memory_v1.is_none() {
            places.memory_v1 = at("memory");
        } else if has("pids") && places.pids_v1.is_none() {
            places.pids_v1 = at("pids");
        }
    }
    places
}

/// The folder, beneath a mount that shows the hierarchy from `root` down, of the group that this
/// process is in; none if the mount does not show it.
fn place(mount_point: &Path, root: &str, cgroup: &str, controller: &str) -> Option<PathBuf> {
    let group = cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        controllers
            .split(',')
            .any(|one| one == controller)
            .then(|| fields.next())
            .flatten()
    })?;
    let below = Path::new(group).strip_prefix(root).ok()?;
    Some(mount_point.join(below))
}

/// The groups that one run was given.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// Holds the tree, if it is held by a group.
    pub(crate) tree: Option<PathBuf>,
    memory: Option<PathBuf>,
    memory_is_v1: bool,
    pids: Option<PathBuf>,
    oom_before: u64,
}

impl Own {
    /// Makes the groups that a run needs and can have; what cannot be had is left out, and its
    /// limit left to polling. `hold` asks for a version 2 group for the tree.
    pub(crate) fn create(attempt_id: &str, limits: &Limits, hold: bool) -> Self {
        let places = places();
        let name = group_name(attempt_id);
        let make = |parent: &Option<PathBuf>| {
            let path = parent.as_ref()?.join(&name);
            match fs::create_dir(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => None,
                Ok(()) | Err(_) => Some(path),
            }
        };
        let limited = limits.memory_bytes.is_some() || limits.processes.is_some();
        let v2 = (hold || limited).then(|| make(&places.v2)).flatten();
        let mut own = Self::default();
        if let Some(bytes) = limits.memory_bytes {
            own.limit_memory(v2.as_deref(), || make(&places.memory_v1), bytes);
        }
        if let Some(most) = limits.processes {
            own.limit_processes(v2.as_deref(), || make(&places.pids_v1), most);
        }
        if hold {
            own.tree = v2;
        } else if let Some(unused) =
            v2.filter(|v2| own.memory.as_ref() != Some(v2) && own.pids.as_ref() != Some(v2))
        {
            fs::remove_dir(unused).ok();
        }
        own.oom_before = own.oom_kills();
        own
    }

    fn limit_memory(
        &mut self,
        v2: Option<&Path>,
        make_v1: impl FnOnce() -> Option<PathBuf>,
        bytes: u64,
    ) {
        if let Some(v2) = v2 {
            enable(v2, "+memory");
            if put(v2, "memory.max", bytes).is_ok() {
                put(v2, "memory.swap.max", 0).ok();
                put(v2, "memory.oom.group", 1).ok();
                self.memory = Some(v2.to_owned());
                return;
            }
        }
        let Some(v1) = make_v1() else { return };
        if put(&v1, "memory.limit_in_bytes", bytes).is_ok() {
            put(&v1, "memory.memsw.limit_in_bytes", bytes).ok();
            self.memory = Some(v1);
            self.memory_is_v1 = true;
        } else {
            fs::remove_dir(v1).ok();
        }
    }

    fn limit_processes(
        &mut self,
        v2: Option<&Path>,
        make_v1: impl FnOnce() -> Option<PathBuf>,
        most: u64,
    ) {
        if let Some(v2) = v2 {
            enable(v2, "+pids");
            if put(v2, "pids.max", most).is_ok() {
                self.pids = Some(v2.to_owned());
                return;
            }
        }
        let Some(v1) = make_v1() else { return };
        if put(&v1, "pids.max", most).is_ok() {
            self.pids = Some(v1);
        } else {
            fs::remove_dir(v1).ok();
        }
    }

    /// Every group, once.
    pub(crate) fn all(&self) -> Vec<PathBuf> {
        let mut all: Vec<_> = [&self.tree, &self.memory, &self.pids]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether the kernel limits memory, so that polling need not.
    pub(crate) fn limits_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Whether the kernel limits processes.
    pub(crate) fn limits_processes(&self) -> bool {
        self.pids.is_some()
    }

    /// The most memory that the tree had, in bytes.
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        let group = self.memory.as_ref()?;
        number(
            group,
            if self.memory_is_v1 {
                "memory.max_usage_in_bytes"
            } else {
                "memory.peak"
            },
        )
    }

    /// How many of this run's processes were ended for the group's own limit. The kernel counts
    /// those that it ended for the host's sake in the same place, so a limit that was never
    /// reached proves that the count is not the run's own doing.
    pub(crate) fn own_oom_kills(&self) -> u64 {
        let Some(group) = &self.memory else { return 0 };
        let reached = if self.memory_is_v1 {
            // Whether failed charges are counted depends on the kernel; that the group was full
            // shows in its peak, up to what the kernel charges ahead for each processor.
            const AHEAD_BYTES: u64 = 4 << 20;
            let peak = self.peak_memory().unwrap_or(0);
            number(group, "memory.limit_in_bytes").is_some_and(|most| peak + AHEAD_BYTES >= most)
        } else {
            keyed(group, "memory.events", "max").unwrap_or(0) > 0
        };
        if reached {
            self.oom_kills().saturating_sub(self.oom_before)
        } else {
            0
        }
    }

    fn oom_kills(&self) -> u64 {
        self.memory
            .as_ref()
            .map_or(0, |group| oom_kills(group, self.memory_is_v1))
    }
}

fn oom_kills(group: &Path, is_v1: bool) -> u64 {
    let file = if is_v1 {
        "memory.oom_control"
    } else {
        "memory.events"
    };
    keyed(group, file, "oom_kill").unwrap_or(0)
}

/// How many processes of the group that this process is in were ended for want of memory. Groups
/// beneath it, as those of runs, are left out where the kernel tells them apart.
pub(crate) fn oom_kills_here() -> u64 {
    let places = places();
    let own = places
        .v2
        .as_ref()
        .and_then(|group| keyed(group, "memory.events.local", "oom_kill"));
    match (own, &places.v2, &places.memory_v1) {
        (Some(kills), _, _) => kills,
        (None, _, Some(group)) => oom_kills(group, true),
        (None, Some(group), None) => oom_kills(group, false),
        (None, None, None) => 0,
    }
}

/// What a group of a dead shim tells: the most memory that it had, in bytes, and how many of its
/// processes were ended for want of memory.
pub(crate) fn left_of(group: &Path) -> (Option<u64>, Option<u64>) {
    let peak = number(group, "memory.max_usage_in_bytes").or_else(|| number(group, "memory.peak"));
    let kills = keyed(group, "memory.oom_control", "oom_kill")
        .or_else(|| keyed(group, "memory.events", "oom_kill"));
    (peak, kills)
}

/// Whether a path from a record leads to a control group at all, of either version.
pub(crate) fn is_group(path: &Path) -> bool {
    // Numbers as in statfs(2).
    const MAGIC: [u64; 2] = [0x0027_e0eb, 0x6367_7270];
    rustix::fs::statfs(path).is_ok_and(|found| MAGIC.contains(&(found.f_type as u64)))
}

/// The name of a run's groups. What is not so named is never ended or removed.
pub(crate) fn group_name(attempt_id: &str) -> String {
    format!("evenkeel-{attempt_id}")
}

/// Moves the calling process into a group.
pub(crate) fn join(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

/// Processes in a group and the groups beneath it.
pub(crate) fn members(group: &Path) -> Vec<i32> {
    subtree(group)
        .iter()
        .filter_map(|group| fs::read_to_string(group.join("cgroup.procs")).ok())
        .flat_map(|text| {
            text.lines()
                .filter_map(|line| line.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Ends everything in a group at once, as far as the kernel knows how (version 2, from 5.14); no
/// process can fork out of it.
pub(crate) fn kill(group: &Path) {
    for group in subtree(group) {
        // Where there is no `cgroup.kill`: no more forks while processes are ended one by one.
        if fs::write(group.join("cgroup.kill"), "1").is_err() {
            fs::write(group.join("pids.max"), "0").ok();
        }
    }
}

/// Removes an empty group and what an action made beneath it.
pub(crate) fn remove(group: &Path) -> io::Result<()> {
    for group in subtree(group) {
        match fs::remove_dir(group) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// A group and those beneath it, innermost first; at most 1,000.
fn subtree(group: &Path) -> Vec<PathBuf> {
    let mut found = vec![group.to_owned()];
    let mut next = 0;
    while next < found.len() && found.len() < 1000 {
        let below = fs::read_dir(&found[next]).into_iter().flatten().flatten();
        found.extend(
            below
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
        next += 1;
    }
    found.reverse();
    found
}

/// Asks the parent to hand a controller down. Refused where processes live beside groups, which
/// only leaves the limit to polling.
fn enable(group: &Path, controller: &str) {
    if let Some(parent) = group.parent() {
        fs::write(parent.join("cgroup.subtree_control"), controller).ok();
    }
}

fn put(group: &Path, file: &str, value: u64) -> io::Result<()> {
    let path = group.join(file);
    if !path.exists() {
        return Err(io::ErrorKind::NotFound.into());
    }
    fs::write(path, value.to_string())
}

fn number(group: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(group.join(file))
        .ok()?
        .trim()
        .parse()
        .ok()
}

fn keyed(group: &Path, file: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(group.join(file)).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";

    #[test]
    fn both_hierarchies_of_a_hybrid_host_are_found() {
        let places = locate(HYBRID, "8:pids:/\n4:memory:/jobs/one\n0::/\n");
        assert_eq!(places.v2, Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(
            places.memory_v1,
            Some("/sys/fs/cgroup/memory/jobs/one".into())
        );
        assert_eq!(places.pids_v1, Some("/sys/fs/cgroup/pids".into()));
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_mount() {
        let mountinfo = "30 23 0:26 /docker/abc /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw";
        let places = locate(mountinfo, "0::/docker/abc/inner\n");
        assert_eq!(places.v2, Some("/sys/fs/cgroup/inner".into()));
        assert_eq!(locate(mountinfo, "0::/elsewhere\n"), Places::default());
    }

    #[test]
    fn nonsense_is_no_place() {
        for text in ["", " - ", "a b c d", "1 2 3 4 5 - cgroup2"] {
            assert_eq!(locate(text, text), Places::default());
        }
    }
}
