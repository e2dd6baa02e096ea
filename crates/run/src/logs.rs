//! The action's standard output and error on disk: the head and the tail, never more than a bound.
//!
//! `stdout` holds the first half of what is kept. Then come segments `stdout.1`, `stdout.2`, … of a
//! quarter each, of which the last two exist. How much is missing between head and first segment
//! follows from its number.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, unlinkat};

use crate::error::{Context, Result, RunError};
use crate::files::{self, Untrusted};
use crate::folder::RunFolder;

pub(crate) const STDOUT: &str = "stdout";
pub(crate) const STDERR: &str = "stderr";

/// The end of a run's log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogTail {
    /// Standard output.
    pub stdout: StreamTail,
    /// Standard error.
    pub stderr: StreamTail,
}

/// The end of one stream of a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamTail {
    /// The last bytes, cut to what was asked for. Where bytes in the middle were not kept, a line
    /// says so.
    pub bytes: Vec<u8>,
    /// Whether bytes before these exist, or existed.
    pub cut: bool,
}

impl RunFolder {
    /// The last bytes of both streams, at most `max_bytes` of each.
    ///
    /// # Errors
    /// Something cannot be read. A run without a log has an empty one.
    pub fn log_tail(&self, max_bytes: u64) -> Result<LogTail> {
        let Some(dir) = self.open()? else {
            return Ok(LogTail::default());
        };
        Ok(LogTail {
            stdout: self.stream_tail(&dir, STDOUT, max_bytes)?,
            stderr: self.stream_tail(&dir, STDERR, max_bytes)?,
        })
    }

    fn stream_tail(&self, dir: &OwnedFd, name: &str, max_bytes: u64) -> Result<StreamTail> {
        let half = self
            .spec()
            .ok()
            .flatten()
            .map_or(u64::MAX, |spec| head_bytes(spec.log_max_bytes));
        let mut tail = StreamTail::default();
        let segments = segment_numbers(self.path(), name)?;
        let first = segments.first().copied().unwrap_or(1);
        let left_out = (first - 1).saturating_mul(segment_bytes(half));
        let mut pieces = vec![name.to_owned()];
        pieces.extend(segments.iter().map(|number| format!("{name}.{number}")));
        for (index, piece) in pieces.iter().enumerate().rev() {
            let room = max_bytes.saturating_sub(tail.bytes.len() as u64);
            let (mut bytes, cut) = self.piece_tail(dir, piece, room)?;
            if index == 1 && left_out > 0 && !cut {
                let mut marked = format!("\n[{left_out} bytes were not kept]\n").into_bytes();
                marked.append(&mut bytes);
                bytes = marked;
            }
            tail.cut |= cut;
            bytes.append(&mut tail.bytes);
            tail.bytes = bytes;
        }
        let surplus = tail
            .bytes
            .len()
            .saturating_sub(usize::try_from(max_bytes).unwrap_or(usize::MAX));
        tail.bytes.drain(..surplus);
        tail.cut |= surplus > 0 || left_out > 0;
        Ok(tail)
    }

    fn piece_tail(&self, dir: &OwnedFd, name: &str, room: u64) -> Result<(Vec<u8>, bool)> {
        let path = self.path().join(name);
        match files::open_untrusted(dir, name).context("open", &path)? {
            // The shim may have moved on to another segment meanwhile.
            Untrusted::Missing => Ok((Vec::new(), false)),
            Untrusted::Other(found) => Err(RunError::NotPlain {
                path,
                found: found.to_owned(),
                max_bytes: room,
            }),
            Untrusted::Plain(mut file, size) => {
                let skip = size.saturating_sub(room);
                file.seek(SeekFrom::Start(skip)).context("read", &path)?;
                let mut bytes = Vec::new();
                file.take(room)
                    .read_to_end(&mut bytes)
                    .context("read", &path)?;
                Ok((bytes, skip > 0))
            }
        }
    }
}

fn segment_numbers(folder: &std::path::Path, name: &str) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(folder).context("list", folder)? {
        let entry = entry.context("list", folder)?.file_name();
        let number = entry.to_str().and_then(|entry| {
            entry
                .strip_prefix(name)?
                .strip_prefix('.')?
                .parse::<u64>()
                .ok()
        });
        numbers.extend(number.filter(|number| *number > 0));
    }
    numbers.sort_unstable();
    // Between making a segment and removing the one before the last there are three.
    Ok(numbers.split_off(numbers.len().saturating_sub(2)))
}

fn head_bytes(log_max_bytes: u64) -> u64 {
    (log_max_bytes / 2).max(1)
}

fn segment_bytes(head_bytes: u64) -> u64 {
    (head_bytes / 2).max(1)
}

/// The shim's end of a log stream.
#[derive(Debug)]
pub(crate) struct LogWriter {
    dir: OwnedFd,
    name: &'static str,
    head_bytes: u64,
    /// 0 is the head.
    segment: u64,
    file: Option<File>,
    /// Room left in the file.
    room: u64,
    /// Bytes that came.
    pub(crate) total: u64,
    /// Bytes of them that found no room on the disk.
    pub(crate) lost: u64,
}

impl LogWriter {
    pub(crate) fn new(dir: impl AsFd, name: &'static str, log_max_bytes: u64) -> io::Result<Self> {
        let head_bytes = head_bytes(log_max_bytes);
        Ok(Self {
            dir: dir.as_fd().try_clone_to_owned()?,
            name,
            head_bytes,
            segment: 0,
            file: None,
            room: head_bytes,
            total: 0,
            lost: 0,
        })
    }

    /// Keeps bytes, or counts them as lost: a log never stops a run.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.room == 0 {
                self.next_segment();
            }
            let fits = usize::try_from(self.room).map_or(bytes.len(), |room| room.min(bytes.len()));
            let (now, later) = bytes.split_at(fits);
            if self.file.is_none() {
                self.file = files::open_own(&self.dir, &self.file_name(self.segment)).ok();
            }
            let kept = self
                .file
                .as_mut()
                .is_some_and(|file| file.write_all(now).is_ok());
            self.total += now.len() as u64;
            self.room -= now.len() as u64;
            if !kept {
                self.lost += now.len() as u64;
            }
            bytes = later;
        }
    }

    fn next_segment(&mut self) {
        self.segment += 1;
        self.room = segment_bytes(self.head_bytes);
        self.file = None;
        if let Some(old) = self.segment.checked_sub(2).filter(|old| *old > 0) {
            unlinkat(&self.dir, self.file_name(old).as_str(), AtFlags::empty()).ok();
        }
    }

    fn file_name(&self, segment: u64) -> String {
        if segment == 0 {
            self.name.to_owned()
        } else {
            format!("{}.{segment}", self.name)
        }
    }
}
