//! What a tree uses, measured by looking: where the kernel sets no limit, this one does, late by
//! one look at most.

use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, statat};

use crate::clock;
use crate::files;
use crate::proc;
use crate::record::Limit;
use crate::spec::Limits;

/// Folders nested deeper, or with more entries, cannot be measured in time and count as over the
/// limit.
const MAX_DEPTH: usize = 128;
const MAX_ENTRIES: usize = 500_000;
/// Measuring disk use takes at most a twentieth of the shim's time.
const REST_FACTOR: i64 = 20;
const DISK_EVERY_MS: i64 = 250;

pub(super) struct Usage {
    memory: Option<u64>,
    processes: Option<u64>,
    disk: Option<u64>,
    folders: Vec<PathBuf>,
    state: Option<PathBuf>,
    state_before: u64,
    disk_due_ms: i64,
    /// Processes below the shim that are not the action's: the namespace's init.
    helpers: u64,
    /// The most memory that was seen, in bytes.
    pub(super) peak_memory: u64,
}

impl Usage {
    /// Limits that the kernel enforces are to be left out of `limits`.
    pub(super) fn new(
        limits: &Limits,
        folders: Vec<PathBuf>,
        state: Option<PathBuf>,
        helpers: u64,
    ) -> Self {
        let state_before = match (&state, limits.disk_bytes) {
            (Some(state), Some(_)) => disk_use(state),
            (Some(_) | None, _) => 0,
        };
        Self {
            memory: limits.memory_bytes,
            processes: limits.processes,
            disk: limits.disk_bytes,
            folders,
            state,
            state_before,
            disk_due_ms: 0,
            helpers,
            peak_memory: 0,
        }
    }

    /// Whether somebody has to look often.
    pub(super) fn limits_anything(&self) -> bool {
        self.memory.is_some() || self.processes.is_some() || self.disk.is_some()
    }

    /// Looks, and tells which limit the tree is over.
    pub(super) fn look(&mut self) -> Option<Limit> {
        let tree = proc::below(rustix::process::getpid().as_raw_nonzero().get());
        let memory = tree.iter().map(|pid| proc::own_memory(*pid)).sum();
        self.peak_memory = self.peak_memory.max(memory);
        if self.memory.is_some_and(|most| memory > most) {
            return Some(Limit::Memory);
        }
        let count = (tree.len() as u64).saturating_sub(self.helpers);
        if self.processes.is_some_and(|most| count > most) {
            return Some(Limit::Processes);
        }
        let most = self.disk?;
        (clock::monotonic_ms() >= self.disk_due_ms && self.disk_grown() > most)
            .then_some(Limit::Disk)
    }

    fn disk_grown(&mut self) -> u64 {
        let before = clock::monotonic_ms();
        let own: u64 = self
            .folders
            .iter()
            .map(|folder| disk_use(folder))
            .fold(0, u64::saturating_add);
        let state = self
            .state
            .as_deref()
            .map_or(0, disk_use)
            .saturating_sub(self.state_before);
        let now = clock::monotonic_ms();
        self.disk_due_ms = now + (REST_FACTOR * (now - before)).max(DISK_EVERY_MS);
        own.saturating_add(state)
    }
}

/// Blocks that a folder's content takes, in bytes. Entries that go while we look count as nothing.
fn disk_use(top: &Path) -> u64 {
    let mut bytes = 0_u64;
    let mut entries = 0;
    let mut waiting = vec![(top.to_owned(), 0)];
    while let Some((folder, depth)) = waiting.pop() {
        let Ok(dir) = files::open_dir(&folder) else {
            continue;
        };
        let Ok(listing) = Dir::read_from(&dir) else {
            continue;
        };
        for entry in listing.flatten() {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(stat) = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            entries += 1;
            bytes = bytes.saturating_add(
                u64::try_from(stat.st_blocks)
                    .unwrap_or(0)
                    .saturating_mul(512),
            );
            if FileType::from_raw_mode(stat.st_mode).is_dir() {
                if depth == MAX_DEPTH || entries > MAX_ENTRIES {
                    return u64::MAX;
                }
                use std::os::unix::ffi::OsStrExt;
                let name = std::ffi::OsStr::from_bytes(name.to_bytes());
                waiting.push((folder.join(name), depth + 1));
            }
        }
        if entries > MAX_ENTRIES {
            return u64::MAX;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_and_holes_and_links_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("data"), vec![1; 1 << 20]).unwrap();
        std::fs::File::create(inner.join("hole"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        std::os::unix::fs::symlink("/", inner.join("link")).unwrap();
        let bytes = disk_use(folder.path());
        assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}");
    }
}
