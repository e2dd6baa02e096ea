//! The action's standard output and error on disk: the head and the tail, never more than a bound.
//!
//! `stdout` holds the first half of what is kept. Then come segments `stdout.1`, `stdout.2`, … of a
//! quarter each, of which the last two exist. How much is missing between head and first segment
//! follows from its number.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, unlinkat};

use crate::dispose::remove_tree;
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

impl StreamTail {
    /// The bytes as text; what is not UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

impl RunFolder {
    /// The last bytes of both streams, at most `max_bytes` of each; `None` if the run has neither
    /// a folder nor a kept log.
    ///
    /// # Errors
    /// Something cannot be read.
    pub fn log_tail(&self, max_bytes: u64) -> Result<Option<LogTail>> {
        for folder in [self.path().to_owned(), self.kept_log()] {
            let dir = match files::open_dir(&folder) {
                Ok(dir) => dir,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error).context("open", &folder),
            };
            let names = log_files(&folder)?;
            // A folder that only holds a tombstone says nothing about a log that was kept.
            if folder == self.path() && names.is_empty() && self.kept_log().exists() {
                continue;
            }
            return Ok(Some(LogTail {
                stdout: stream_tail(&dir, &folder, STDOUT, max_bytes)?,
                stderr: stream_tail(&dir, &folder, STDERR, max_bytes)?,
            }));
        }
        Ok(None)
    }

    /// Moves the log to where it outlives the run's folder.
    pub(crate) fn keep_log(&self) -> Result<()> {
        let names = log_files(self.path())?;
        if names.is_empty() {
            return Ok(());
        }
        let kept = self.kept_log();
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&kept)
            .context("create", &kept)?;
        for name in names {
            let (from, to) = (self.path().join(&name), kept.join(&name));
            match std::fs::rename(&from, &to) {
                // A run that ends must not be kept for what lies where its log goes.
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                    let dir = files::open_dir(&kept).context("open", &kept)?;
                    remove_tree(&dir, name.as_bytes()).context("clear", &to)?;
                    std::fs::rename(&from, &to)
                }
                done => done,
            }
            .context("keep", &from)?;
        }
        Ok(())
    }

    fn kept_log(&self) -> PathBuf {
        let root = self
            .path()
            .parent()
            .and_then(Path::parent)
            .unwrap_or(self.path());
        root.join("logs").join(self.attempt_id())
    }
}

fn stream_tail(dir: &OwnedFd, folder: &Path, name: &str, max_bytes: u64) -> Result<StreamTail> {
    let mut tail = StreamTail::default();
    let segments = segment_numbers(folder, name)?;
    let left_out = match segments.first() {
        // The head is full by then, and tells how long a segment is.
        Some(first) => {
            let head = std::fs::symlink_metadata(folder.join(name)).map_or(0, |meta| meta.len());
            (first - 1).saturating_mul(segment_bytes(head))
        }
        None => 0,
    };
    let mut pieces = vec![name.to_owned()];
    pieces.extend(segments.iter().map(|number| format!("{name}.{number}")));
    for (index, piece) in pieces.iter().enumerate().rev() {
        let room = max_bytes.saturating_sub(tail.bytes.len() as u64);
        let (mut bytes, cut) = piece_tail(dir, folder, piece, room)?;
        if index == 1 && left_out > 0 && !cut {
            let mut marked = format!("\n[{left_out} bytes were not kept]\n").into_bytes();
            marked.append(&mut bytes);
            bytes = marked;
        }
        tail.cut |= cut;
        bytes.append(&mut tail.bytes);
        tail.bytes = bytes;
    }
    let max = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let surplus = tail.bytes.len().saturating_sub(max);
    tail.bytes.drain(..surplus);
    tail.cut |= surplus > 0 || left_out > 0;
    Ok(tail)
}

fn piece_tail(dir: &OwnedFd, folder: &Path, name: &str, room: u64) -> Result<(Vec<u8>, bool)> {
    let path = folder.join(name);
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

/// The plain files of a log in a folder.
fn log_files(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).context("list", folder)? {
        let entry = entry.context("list", folder)?;
        let plain = entry.file_type().is_ok_and(|kind| kind.is_file());
        let name = entry.file_name().into_string().unwrap_or_default();
        let stem = name.split('.').next().unwrap_or_default();
        if plain && matches!(stem, STDOUT | STDERR) {
            names.push(name);
        }
    }
    Ok(names)
}

fn segment_numbers(folder: &Path, name: &str) -> Result<Vec<u64>> {
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
