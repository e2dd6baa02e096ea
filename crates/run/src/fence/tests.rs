//! What a test of whole runs cannot bring about: tombstones that cannot be written.

use std::io::{Error, ErrorKind};

use super::tolerate_no_space;
use crate::root::RunRoot;

/// Whoever cannot leave a tombstone has no answer that stays true.
#[test]
fn a_tombstone_that_cannot_be_left_is_an_error_and_one_that_is_there_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let root = RunRoot::open(&dir.path().join("run"), "root").unwrap();
    let folder = root.run("attempt").unwrap();
    let gate = folder.gate(true).unwrap().unwrap();
    folder.bury(&gate.dir, "once").unwrap();
    folder.bury(&gate.dir, "twice").unwrap();
    std::fs::remove_dir_all(folder.path()).unwrap();
    assert!(folder.bury(&gate.dir, "nowhere").is_err());
}

#[test]
fn a_full_disk_keeps_no_tombstone_from_counting_and_any_other_fault_does() {
    assert!(tolerate_no_space(Error::from(ErrorKind::StorageFull)).is_ok());
    assert!(tolerate_no_space(Error::from_raw_os_error(libc::EIO)).is_err());
}
