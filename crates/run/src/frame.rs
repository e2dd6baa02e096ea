//! Records that are written over room allocated beforehand, and read without trust.
//!
//! One header line, then JSON, then whatever the room held before:
//!
//! ```text
//! run/1 exit 0000000123 89abcdef\n{"attempt_id":…}\n
//! ```
//!
//! The number is the length of the JSON in bytes, the last word its CRC-32 (IEEE). A file that
//! begins with 64 zeros, or an empty one, is a record that was never written; anything else that does not check
//! is torn.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, fallocate};

use crate::FORMAT;

/// The longest header that is accepted, in bytes.
pub(crate) const MAX_HEADER: usize = 64;

/// What a record is about; part of its header, so that none can be taken for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Who holds the lock.
    Lock,
    /// That an action may have started, and how its tree is held.
    Started,
    /// How the run ended.
    Exit,
    /// The last line of progress.
    Progress,
    /// That the shim was alive at a point of the monotonic clock.
    Heartbeat,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Started => "started",
            Self::Exit => "exit",
            Self::Progress => "progress",
            Self::Heartbeat => "heartbeat",
        }
    }
}

/// Why bytes are not the record that they should be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// No header of this format.
    #[error("it does not begin with the header of a {expected} record")]
    Header {
        /// The kind that was looked for.
        expected: &'static str,
    },
    /// The record is cut short.
    #[error("it is cut short: {found} of {expected} bytes")]
    Length {
        /// Bytes that the header announces.
        expected: usize,
        /// Bytes that are there.
        found: usize,
    },
    /// The bytes are not those that were written.
    #[error("its checksum is wrong: it was torn or changed")]
    Checksum,
}

/// Takes the payload out of a record; `None` if none was ever written.
///
/// # Errors
/// The bytes are neither blank nor an intact record of this kind.
pub fn decode(kind: Kind, bytes: &[u8]) -> Result<Option<&[u8]>, FrameError> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let bad = || FrameError::Header {
        expected: kind.word(),
    };
    let head = &bytes[..bytes.len().min(MAX_HEADER)];
    let end = head
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or_else(bad)?;
    let header = std::str::from_utf8(&head[..end]).map_err(|_| bad())?;
    let mut words = header.split(' ');
    if words.next() != Some(FORMAT) || words.next() != Some(kind.word()) {
        return Err(bad());
    }
    let length: usize = words
        .next()
        .and_then(|word| word.parse().ok())
        .ok_or_else(bad)?;
    let sum = words
        .next()
        .and_then(|word| u32::from_str_radix(word, 16).ok())
        .ok_or_else(bad)?;
    // The checksum is not over the header: one that the writer would not write is none.
    if header != head_line(kind, length, sum) {
        return Err(bad());
    }
    let body = &bytes[end + 1..];
    let payload = body.get(..length).ok_or(FrameError::Length {
        expected: length,
        found: body.len(),
    })?;
    if crc32(payload) != sum {
        return Err(FrameError::Checksum);
    }
    Ok(Some(payload))
}

fn head_line(kind: Kind, length: usize, sum: u32) -> String {
    format!("{FORMAT} {} {length:010} {sum:08x}", kind.word())
}

/// The bytes of a record with this payload.
pub fn encode(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let header = head_line(kind, payload.len(), crc32(payload));
    let mut bytes = Vec::with_capacity(header.len() + payload.len() + 2);
    bytes.extend_from_slice(header.as_bytes());
    bytes.push(b'\n');
    bytes.extend_from_slice(payload);
    bytes.push(b'\n');
    bytes
}

/// Writes a record at the start of a file; it is not yet durable.
pub(crate) fn write(file: &File, kind: Kind, payload: &[u8]) -> io::Result<()> {
    file.write_all_at(&encode(kind, payload), 0)
}

/// Allocates room for a record, so that writing it later cannot fail for want of space.
pub(crate) fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => {
            let zeros = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
            file.write_all_at(&zeros, 0)
        }
        other => other.map_err(io::Error::from),
    }
}

/// CRC-32 as in IEEE 802.3, bit by bit: records are small and rare.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 1 {
                (sum >> 1) ^ 0xedb8_8320
            } else {
                sum >> 1
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_the_standard_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_record_comes_back_whatever_the_room_held_before() {
        let mut bytes = encode(Kind::Exit, b"{}");
        bytes.extend_from_slice(&[7; 100]);
        assert_eq!(decode(Kind::Exit, &bytes), Ok(Some(&b"{}"[..])));
        assert!(matches!(
            decode(Kind::Lock, &bytes),
            Err(FrameError::Header { .. })
        ));
    }

    #[test]
    fn a_header_that_the_writer_would_not_write_is_none() {
        let read = |header: &str| {
            let bytes = format!("{header}\n{{}}\n").into_bytes();
            decode(Kind::Exit, &bytes).map(|payload| payload.map(<[u8]>::to_vec))
        };
        let right = "run/1 exit 0000000002 a3a6bf43";
        assert_eq!(read(right), Ok(Some(b"{}".to_vec())));
        for header in [
            "run/1 exit 2 a3a6bf43",
            "run/1 exit +000000002 a3a6bf43",
            "run/1 exit 0000000002 A3A6BF43",
            "run/1 exit 0000000002 a3a6bf43 more",
        ] {
            assert!(read(header).is_err(), "{header}");
        }
    }

    #[test]
    fn every_cut_of_a_record_is_told_from_a_whole_one() {
        let whole = encode(Kind::Exit, b"{\"a\":1}");
        for cut in 1..whole.len() - 1 {
            assert!(decode(Kind::Exit, &whole[..cut]).is_err(), "cut at {cut}");
            let mut padded = whole[..cut].to_vec();
            padded.resize(whole.len() + 64, 0);
            assert!(
                decode(Kind::Exit, &padded).is_err(),
                "cut at {cut}, zeros after"
            );
        }
        assert_eq!(decode(Kind::Exit, &[0; 4096]), Ok(None));
        assert_eq!(decode(Kind::Exit, b""), Ok(None));
    }
}
