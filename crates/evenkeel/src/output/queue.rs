//! A bounded queue between those who log and a stream whose reader may stall: a terminal at
//! Ctrl-S, a full pipe, a stuck journal. Whoever logs never waits; lines that find no room are
//! dropped and counted, and that is told as soon as somebody reads again.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// What may wait; as much again may be on its way to the stream.
const LIMIT_BYTES: usize = 1 << 20;

/// The writers' end; the other one is a thread.
#[derive(Clone, Debug)]
pub(super) struct Queue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stream: File,
    state: Mutex<State>,
    /// Something waits to be written.
    filled: Condvar,
    /// Nothing is left to be written.
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    /// Lines without room since the last ones were told of.
    dropped: u64,
    writing: bool,
}

impl Queue {
    /// A queue in front of `stream`. `tell` is told on the queue's own thread how many lines were
    /// dropped.
    ///
    /// # Errors
    /// There can be no further thread.
    pub(super) fn start(stream: File, tell: impl Fn(u64) + Send + 'static) -> io::Result<Self> {
        let queue = Self(Arc::new(Shared {
            stream,
            state: Mutex::default(),
            filled: Condvar::new(),
            emptied: Condvar::new(),
        }));
        let shared = Arc::clone(&queue.0);
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                loop {
                    let dropped = shared.write_what_waits();
                    if dropped > 0 {
                        tell(dropped);
                    }
                }
            })?;
        Ok(queue)
    }

    pub(super) fn stream(&self) -> &File {
        &self.0.stream
    }

    /// Waits until all is written, or for `limit`.
    pub(super) fn flush(&self, limit: Duration) {
        let left = |state: &mut State| state.writing || !state.waiting.is_empty();
        drop(
            self.0
                .emptied
                .wait_timeout_while(self.0.state(), limit, left),
        );
    }
}

impl Write for &Queue {
    /// Takes it whole or not at all, so that a line is to be written in one piece.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.0.state();
        if state.waiting.len() + line.len() > LIMIT_BYTES {
            state.dropped = state.dropped.saturating_add(1);
        } else {
            state.waiting.extend_from_slice(line);
            self.0.filled.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something and writes it, however long that takes. How many lines were dropped
    /// meanwhile: they came after these.
    fn write_what_waits(&self) -> u64 {
        let batch = {
            let waiting = self
                .filled
                .wait_while(self.state(), |state| state.waiting.is_empty());
            let mut state = waiting.unwrap_or_else(PoisonError::into_inner);
            state.writing = true;
            std::mem::take(&mut state.waiting)
        };
        // A stream that is gone has no reader who could miss anything.
        write_all(&self.stream, &batch).ok();
        let mut state = self.state();
        state.writing = false;
        if state.waiting.is_empty() {
            self.emptied.notify_all();
        }
        std::mem::take(&mut state.dropped)
    }
}

/// Also where the stream does not block, because whoever shares it wants it so.
fn write_all(stream: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(stream, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut fds = [PollFd::new(stream, PollFlags::OUT)];
                match poll(&mut fds, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_reader_that_has_stopped_stops_no_writer_and_gets_what_there_was_room_for_and_the_count() {
        for blocks in [true, false] {
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            rustix::io::ioctl_fionbio(&writer, !blocks).unwrap();
            let writer = File::from(writer);
            let told = writer.try_clone().unwrap();
            let tell =
                move |lines| write_all(&told, format!("dropped {lines}\n").as_bytes()).unwrap();
            let queue = Queue::start(writer, tell).unwrap();
            // More than the queue, what is on its way, and the pipe together have room for.
            let text = "x".repeat(1000);
            let sent = 4 * LIMIT_BYTES / text.len();
            for n in 0..sent {
                (&queue)
                    .write_all(format!("{n} {text}\n").as_bytes())
                    .unwrap();
            }
            queue.flush(Duration::from_millis(1));
            {
                // The thread may have come late, and taken all that waited in one go.
                let state = queue.0.state();
                assert!(state.writing || !state.waiting.is_empty(), "nobody reads");
            }

            let (mut next, mut read, mut dropped) = (0, 0, 0);
            let mut lines = BufReader::new(File::from(reader)).lines();
            // Each line is read or counted, and none is both.
            while read + dropped < sent {
                let line = lines.next().unwrap().unwrap();
                let (first, second) = line.split_once(' ').unwrap();
                if first == "dropped" {
                    dropped += second.parse::<usize>().unwrap();
                } else {
                    let number = first.parse::<usize>().unwrap();
                    assert!(number >= next && second == text, "in order and whole");
                    next = number + 1;
                    read += 1;
                }
            }
            assert_eq!(read + dropped, sent);
            assert!(read > 0 && dropped > 0, "{read} read, {dropped} dropped");
            queue.flush(LONG);
            assert!(queue.0.state().waiting.is_empty());
        }
    }

    #[test]
    fn a_reader_that_is_gone_stops_nobody_either() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let queue = Queue::start(File::from(writer), |_| {}).unwrap();
        (&queue).write_all(b"to nobody\n").unwrap();
        queue.flush(LONG);
        assert!(queue.0.state().waiting.is_empty());
    }
}
