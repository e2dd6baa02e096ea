//! What `/proc` tells about processes. Everything here is a snapshot: a process may be gone, and
//! its id in use again, before the answer is read; callers tell lives apart by start time.

use std::collections::HashSet;
use std::fs;
use std::io;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process as `/proc/PID/stat` has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stat {
    pub(crate) pid: i32,
    pub(crate) ppid: i32,
    /// `Z` or `X`: dead, waiting to be reaped. Holds nothing and runs nothing.
    pub(crate) dead: bool,
    /// Clock ticks since boot.
    pub(crate) start_time: u64,
}

/// The boot of this host.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// A process, dead or alive; `None` if there is none of that id.
pub(crate) fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name of a program may hold spaces and brackets: fields are counted from the last one.
pub(crate) fn parse_stat(text: &str) -> Option<Stat> {
    let pid = text.split(' ').next()?.parse().ok()?;
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    let ppid = fields.next()?.parse().ok()?;
    let start_time = fields.nth(17)?.parse().ok()?;
    Some(Stat {
        pid,
        ppid,
        dead: matches!(state, "Z" | "X" | "x"),
        start_time,
    })
}

/// Whether the process of that id and start time is there and not dead.
pub(crate) fn is_alive(pid: i32, start_time: u64) -> bool {
    stat(pid).is_some_and(|found| found.start_time == start_time && !found.dead)
}

/// All processes of this PID namespace.
pub(crate) fn all() -> io::Result<Vec<Stat>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if let Some(pid) = name.to_str().and_then(|name| name.parse().ok())
            && let Some(stat) = stat(pid)
        {
            found.push(stat);
        }
    }
    Ok(found)
}

/// Living processes among `all` that descend from one of `roots`, the roots themselves excluded.
pub(crate) fn descendants(all: &[Stat], roots: &HashSet<i32>) -> Vec<Stat> {
    let mut family = roots.clone();
    loop {
        let before = family.len();
        family.extend(
            all.iter()
                .filter(|one| family.contains(&one.ppid))
                .map(|one| one.pid)
                .collect::<Vec<_>>(),
        );
        if family.len() == before {
            break;
        }
    }
    all.iter()
        .filter(|one| !one.dead && family.contains(&one.pid) && !roots.contains(&one.pid))
        .copied()
        .collect()
}

/// Processes below one, by the kernel's own lists: cheap, and exact enough to measure by. Falls
/// back to a look at all processes where the kernel keeps no lists.
pub(crate) fn below(root: i32) -> Vec<i32> {
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", found[next])) else {
            next += 1;
            continue;
        };
        for task in tasks.flatten() {
            match fs::read_to_string(task.path().join("children")) {
                Ok(text) => found.extend(
                    text.split_ascii_whitespace()
                        .filter_map(|pid| pid.parse::<i32>().ok()),
                ),
                Err(_) if found.len() == 1 => {
                    let all = all().unwrap_or_default();
                    return descendants(&all, &HashSet::from([root]))
                        .iter()
                        .map(|one| one.pid)
                        .collect();
                }
                // Gone meanwhile.
                Err(_) => {}
            }
        }
        next += 1;
    }
    found.split_off(1)
}

/// Whether a process was started for this attempt, as its environment tells.
pub(crate) fn is_of_attempt(pid: i32, attempt_id: &str) -> bool {
    attempt_ids(pid).any(|id| id == attempt_id.as_bytes())
}

/// The attempt ids that a process was started with: one, or none, or what it made of that itself.
pub(crate) fn attempt_ids(pid: i32) -> impl Iterator<Item = Vec<u8>> {
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let ids: Vec<_> = environ
        .split(|byte| *byte == 0)
        .filter_map(|entry| entry.strip_prefix(b"EVENKEEL_ATTEMPT_ID="))
        .map(<[u8]>::to_vec)
        .collect();
    ids.into_iter()
}

/// Whether a process has the file of that device and inode open.
pub(crate) fn has_open(pid: i32, file: (u64, u64)) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    entries
        .flatten()
        .any(|entry| fs::metadata(entry.path()).is_ok_and(|meta| (meta.dev(), meta.ino()) == file))
}

/// Memory that is a process's own (resident, not shared), in bytes; 0 if it is gone.
pub(crate) fn own_memory(pid: i32) -> u64 {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/statm")) else {
        return 0;
    };
    let mut pages = text
        .split(' ')
        .skip(1)
        .map(|word| word.parse::<u64>().unwrap_or(0));
    let resident = pages.next().unwrap_or(0);
    let shared = pages.next().unwrap_or(0);
    let page_bytes = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    resident.saturating_sub(shared).saturating_mul(page_bytes)
}

/// How often the host has ended a process for want of memory since boot; `None` if it does not
/// say.
pub(crate) fn host_oom_kills() -> Option<u64> {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill "))
        .and_then(|count| count.trim().parse().ok())
}

/// The name of a process's command, as the process itself may have set it.
pub(crate) fn command(pid: i32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/comm")).ok()
}

/// Sends a signal to one life of a process: never to a later one of the same id, because the
/// descriptor is opened before the start time is compared. Says whether it was sent.
pub(crate) fn signal(process: Stat, signal: Signal) -> bool {
    signal_pid(process.pid, process.start_time, signal)
}

/// As [`signal`], for a life that is known by id and start time.
pub(crate) fn signal_pid(pid: i32, start_time: u64, signal: Signal) -> bool {
    let Some(number) = Pid::from_raw(pid) else {
        return false;
    };
    let Ok(pidfd) = pidfd_open(number, PidfdFlags::empty()) else {
        return false;
    };
    is_alive(pid, start_time) && pidfd_send_signal(&pidfd, signal).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, ppid: i32, dead: bool) -> Stat {
        Stat {
            pid,
            ppid,
            dead,
            start_time: 1,
        }
    }

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let line = "7 (a) S 1 (b) R 3 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        assert_eq!(
            parse_stat(line),
            Some(Stat {
                pid: 7,
                ppid: 3,
                dead: false,
                start_time: 4242
            })
        );
        assert_eq!(parse_stat("7 (a"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn descendants_are_found_through_dead_parents() {
        let all = [
            process(4, 3, false),
            process(3, 2, true),
            process(2, 1, false),
            process(9, 1, false),
        ];
        let mut found: Vec<_> = descendants(&all, &HashSet::from([2]))
            .iter()
            .map(|one| one.pid)
            .collect();
        found.sort_unstable();
        assert_eq!(found, [4]);
    }
}
