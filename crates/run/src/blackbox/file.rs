//! The file of a black box.
//!
//! ```text
//! 0   "run/1 box"            and zeros, 32 bytes
//! 32  1 | 0                  whether an exclusive step is exclusive still
//! 33  1 | 0                  whether an attempt stands at 48; on the disk before its step begins
//! 48  16 bytes               the attempt of an exclusive step that has to outlive the host
//! 64  slots of 32 bytes: state (0 none, 1 shared, 2 exclusive), 15 zeros, the attempt's 16 bytes
//! ```
//!
//! The id is written before the state, and the state is one byte: what a slot says is whole
//! whenever its thread dies.
#![expect(
    unsafe_code,
    reason = "a mapping that outlives the process has no safe form"
)]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

use super::{Named, Wish};
use crate::error::{Context, Result};
use crate::faults;
use crate::files;
use crate::root::RunRoot;

const MAGIC: &[u8; 9] = b"run/1 box";
const EXCLUSIVE_AT: usize = 32;
const THROUGH_AT: usize = 33;
const THROUGH_ID_AT: usize = 48;
const SLOTS_AT: usize = 64;
const SLOT_BYTES: usize = 32;
const ID_AT: usize = 16;
/// More threads than a broker has.
const SLOTS: usize = 1024;
const BYTES: usize = SLOTS_AT + SLOTS * SLOT_BYTES;

const SHARED: u8 = 1;
const EXCLUSIVE: u8 = 2;

/// The mapped file of a process's own box.
#[derive(Debug)]
pub(super) struct Map(NonNull<u8>);

// SAFETY: the mapping lives as long as the value; each slot is written by the one thread that it
// belongs to, the byte about exclusive steps atomically, and nothing is read through it.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    pub(super) fn create(root: &RunRoot, boot_id: &str) -> Result<Self> {
        let path = root.box_path(boot_id)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            // Again, if this boot tries to start for another time: nothing was under way yet.
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .context("create", &path)?;
        // All of it now: a full disk must be an error here, and not a signal at a write.
        match fallocate(&file, FallocateFlags::empty(), 0, BYTES as u64) {
            // Not every file system knows it.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                rustix::io::pwrite(&file, &[0; BYTES], 0).map(drop)
            }
            done => done,
        }
        .context("make room in", &path)?;
        rustix::io::pwrite(&file, MAGIC, 0).context("write", &path)?;
        // SAFETY: a new mapping of a file that has all of these bytes.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        let start = start.context("map", &path)?;
        let start = NonNull::new(start.cast::<u8>());
        let start = start.ok_or_else(|| io::Error::other("mapped at nothing"));
        Ok(Self(start.context("map", &path)?))
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        debug_assert!(at < BYTES, "beyond the box");
        // SAFETY: within the mapping, which lives as long as `self`; a byte has no alignment.
        unsafe { AtomicU8::from_ptr(self.0.as_ptr().add(at)) }
    }

    /// Writes what the thread that the slot belongs to works on.
    pub(super) fn write(&self, slot: usize, wish: Option<Wish>) {
        let at = SLOTS_AT + slot * SLOT_BYTES;
        let state = self.byte(at);
        state.store(0, Ordering::Relaxed);
        let Some(wish) = wish else { return };
        // Whoever reads is another process, after this one's death: what counts is the order of
        // this thread's own writes.
        compiler_fence(Ordering::SeqCst);
        self.write_id(at + ID_AT, wish.attempt);
        let word = if wish.alone.is_some() {
            EXCLUSIVE
        } else {
            SHARED
        };
        state.store(word, Ordering::Release);
    }

    fn write_id(&self, at: usize, attempt: [u8; 16]) {
        for (nth, byte) in attempt.iter().enumerate() {
            self.byte(at + nth).store(*byte, Ordering::Relaxed);
        }
    }

    /// Writes to the disk, before a step and after it, who takes it. That it fails is no reason not
    /// to go on: the death of the process itself is told all the same.
    pub(super) fn write_through(&self, attempt: Option<[u8; 16]>) {
        let there = self.byte(THROUGH_AT);
        there.store(0, Ordering::SeqCst);
        if let Some(attempt) = attempt {
            self.write_id(THROUGH_ID_AT, attempt);
            there.store(1, Ordering::SeqCst);
        }
        // SAFETY: the mapping, whole.
        unsafe { msync(self.0.as_ptr().cast(), BYTES, MsyncFlags::SYNC) }.ok();
    }

    pub(super) fn begin_exclusive(&self) {
        self.byte(EXCLUSIVE_AT).store(1, Ordering::SeqCst);
    }

    /// The exclusive step under way is exclusive no longer.
    pub(super) fn spoil(&self) {
        self.byte(EXCLUSIVE_AT).store(0, Ordering::SeqCst);
        if self.byte(THROUGH_AT).load(Ordering::SeqCst) != 0 {
            self.write_through(None);
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `create` with this length, and nothing borrows it any more.
        unsafe { munmap(self.0.as_ptr().cast(), BYTES) }.ok();
    }
}

/// What a boot was working on when it died, or is now. A box that is not there, or not whole,
/// names nobody. `host_too`: the host went down with it, so that only what was written through to
/// the disk is to be believed.
///
/// # Errors
/// The name is malformed, or it cannot be read.
pub fn named_by(root: &RunRoot, boot_id: &str, host_too: bool) -> Result<Vec<Named>> {
    let path = root.box_path(boot_id)?;
    let Some((dir, name)) = path.parent().zip(path.file_name()) else {
        return Ok(Vec::new());
    };
    let name = name.to_string_lossy();
    let folder = files::open_dir(dir).context("open", dir)?;
    let bytes = files::read_bounded(&folder, dir, &name, BYTES as u64)?.unwrap_or_default();
    if !bytes.starts_with(MAGIC) {
        return Ok(Vec::new());
    }
    let is_exclusive = bytes.get(EXCLUSIVE_AT) == Some(&1);
    if host_too {
        let there = is_exclusive && bytes.get(THROUGH_AT) == Some(&1);
        let attempt = bytes.get(THROUGH_ID_AT..SLOTS_AT).filter(|_| there);
        let named = attempt
            .and_then(|id| id.try_into().ok())
            .map(|attempt| Named {
                attempt,
                exclusive: true,
            });
        return Ok(named.into_iter().collect());
    }
    let slots = bytes.get(SLOTS_AT..).unwrap_or_default();
    let named = slots.chunks_exact(SLOT_BYTES).filter_map(|slot| {
        let attempt = slot[ID_AT..].try_into().ok()?;
        match slot[0] {
            SHARED => Some(Named {
                attempt,
                exclusive: false,
            }),
            EXCLUSIVE => Some(Named {
                attempt,
                exclusive: is_exclusive,
            }),
            _ => None,
        }
    });
    Ok(named.collect())
}

/// Removes the box of a boot on whose death the verdict was given. Repeating it is no error.
///
/// # Errors
/// The name is malformed, or it cannot be removed.
pub fn forget(root: &RunRoot, boot_id: &str) -> Result<()> {
    let path = root.box_path(boot_id)?;
    faults::hit("run.forget_box.before");
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).context("remove", &path);
        }
        Ok(()) | Err(_) => {}
    }
    faults::hit("run.forget_box.after");
    Ok(())
}

/// Writes down that a dead boot's exclusive step was not the only thing that went wrong, so that
/// whoever looks again finds it so.
///
/// # Errors
/// The name is malformed, or it cannot be written.
pub fn spoil(root: &RunRoot, boot_id: &str) -> Result<()> {
    let path = root.box_path(boot_id)?;
    // Not through a link, and not waiting for a pipe.
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(&path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => File::from(opened.context("open", &path)?),
    };
    faults::hit("run.spoil.before");
    rustix::io::pwrite(&file, &[0], EXCLUSIVE_AT as u64).context("write", &path)?;
    file.sync_all().context("write", &path)?;
    faults::hit("run.spoil.after");
    Ok(())
}

/// Slots that no living thread has.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A slot for as long as its thread lives.
struct Slot(usize);

impl Drop for Slot {
    fn drop(&mut self) {
        FREE.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(self.0);
    }
}

thread_local! {
    static SLOT: Option<Slot> = {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.or_else(|| {
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            (next < SLOTS).then_some(next)
        })
        .map(Slot)
    };
}

/// The slot of this thread; `None` if there are more threads than slots, or it is ending.
pub(super) fn slot_of_this_thread() -> Option<usize> {
    SLOT.try_with(|slot| slot.as_ref().map(|slot| slot.0))
        .ok()
        .flatten()
}
