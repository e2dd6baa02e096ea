//! The tail of SQLite's write-ahead log, as a power cut may leave it
//! (<https://www.sqlite.org/fileformat2.html#walformat>).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// What becomes of the last frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tear {
    /// Only its first half is there.
    Cut,
    /// Its second half is something else.
    Garbled,
    /// It is whole; another one was begun.
    Trailing,
}

impl Tear {
    pub(super) fn apply(self, path: &Path) {
        let bytes = fs::read(path).unwrap();
        let (begin, end) = last_frame(&bytes);
        let middle = begin + (end - begin) / 2;
        let file = File::options().write(true).open(path).unwrap();
        let garbage = vec![0xA5; end - middle];
        match self {
            // What a log that was begun anew still holds from before is no part of it.
            Self::Cut => file.set_len(middle as u64).unwrap(),
            Self::Garbled => file.write_all_at(&garbage, middle as u64).unwrap(),
            Self::Trailing => file.write_all_at(&garbage, end as u64).unwrap(),
        }
    }
}

/// Where the last frame of the present log begins and ends: its salt is the log's own.
fn last_frame(bytes: &[u8]) -> (usize, usize) {
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let page = usize::try_from(number(8)).unwrap();
    let frame = FRAME_HEADER + page;
    let salt = &bytes[16..24];
    let mut end = HEADER;
    while bytes.len() >= end + frame && bytes[end + 8..end + 16] == *salt {
        end += frame;
    }
    assert!(end > HEADER, "the log holds no frame");
    (end - frame, end)
}
