//! Processes and addresses of this host.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

/// Living processes: pid and folder in /proc, zombies aside.
pub(super) fn processes() -> impl Iterator<Item = (u32, PathBuf)> {
    fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let folder = entry.ok()?.path();
        let pid = folder.file_name()?.to_str()?.parse().ok()?;
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
        (state != 'Z').then_some((pid, folder))
    })
}

/// Living children of a process, zombies aside.
pub(crate) fn children(of: u32) -> Vec<u32> {
    processes()
        .filter(|(_, folder)| {
            fs::read_to_string(folder.join("stat")).is_ok_and(|stat| {
                let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
                after_name.split_whitespace().nth(1) == Some(&of.to_string())
            })
        })
        .map(|(pid, _)| pid)
        .collect()
}

/// Addresses that were free a moment ago.
pub(crate) fn free_addresses() -> [SocketAddr; 2] {
    let bound: Vec<_> = (0..2)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    [0, 1].map(|n: usize| bound[n].local_addr().unwrap())
}
