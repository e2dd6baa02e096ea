//! What the warden leaves in the data folder: for each boot the raw standard error and, when it
//! has ended, its death record. A bounded number of both. Room for the record is taken when the boot
//! begins: what a broker dies of may be the full disk.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use evenkeel_core::boot::{DeathRecord, LAST_WORDS_BYTES};
use evenkeel_core::ids::BootId;
use evenkeel_engine::faults;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// The folder's name in the data folder.
const FOLDER: &str = "warden";
/// Boots of which something is kept.
const KEPT_BOOTS: usize = 64;
/// A larger raw standard error is emptied: it is for the last words, not for a log.
const STDERR_CAP_BYTES: u64 = 1 << 20;
/// A larger file is no death record.
const MAX_RECORD_BYTES: u64 = 64 << 10;
/// Room for all that a record says but the last words.
const BARE_ROOM: u64 = 4096;
/// Room for any record: JSON may need six bytes for one of the last words.
const ROOM: u64 = BARE_ROOM + 6 * LAST_WORDS_BYTES as u64;

/// The warden's folder.
#[derive(Clone, Debug)]
pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self(data_dir.join(FOLDER))
    }

    /// Makes the folder if it is missing, and room for one more boot in it. `last` is kept in any
    /// case: how that boot ended is what the next one asks.
    pub(super) fn prepare(&self, last: Option<BootId>) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0)?;
        let mut boots: BTreeMap<BootId, Left> = BTreeMap::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            // What is no boot's is nobody's business here.
            let Some(boot) = boot_of(&entry.path()) else {
                continue;
            };
            let changed = entry.metadata()?.modified()?;
            let left = boots.entry(boot).or_default();
            left.changed = left.changed.max(Some(changed));
            left.files.push(entry.path());
        }
        for file in beyond(boots, last) {
            faults::hit("warden.prune.before");
            match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            faults::hit("warden.prune.after");
        }
        Ok(())
    }

    /// A new file for what a boot writes to its raw standard error.
    pub(super) fn stderr(&self, boot: BootId) -> io::Result<Stderr> {
        let path = self.0.join(format!("{boot}.stderr"));
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        faults::hit("warden.stderr.after");
        Ok(Stderr { path, file })
    }

    /// Takes room on the disk for the death record of a boot that is about to begin; where there is
    /// not enough for any record, for one without last words.
    pub(super) fn draft(&self, boot: BootId) -> io::Result<()> {
        faults::hit("warden.draft.before");
        let draft = self.open_draft(boot)?;
        reserve(&draft, ROOM).or_else(|_| reserve(&draft, BARE_ROOM))?;
        faults::hit("warden.draft.after");
        Ok(())
    }

    /// Writes a death record, whole or not at all, and durable; into the room that was taken for it,
    /// and where there is none it may have come since.
    pub(super) fn record(&self, boot: BootId, record: &DeathRecord) -> io::Result<()> {
        faults::hit("warden.record.before");
        let draft = self.open_draft(boot)?;
        match write_over(&draft, record) {
            // The raw standard error has them still.
            Err(error) if is_full(&error) => write_over(&draft, &record.clone().without_words())?,
            written => written?,
        }
        faults::hit("warden.record.drafted");
        fs::rename(self.draft_path(boot), self.path(boot))?;
        faults::hit("warden.record.renamed");
        File::open(&self.0)?.sync_all()?;
        faults::hit("warden.record.after");
        Ok(())
    }

    fn open_draft(&self, boot: BootId) -> io::Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.draft_path(boot))
    }

    /// The death record of a boot, if its warden left one.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub(crate) fn death(&self, boot: BootId) -> io::Result<Option<DeathRecord>> {
        let file = match File::open(self.path(boot)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(MAX_RECORD_BYTES).read_to_end(&mut bytes)?;
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(io::Error::other)
    }

    fn path(&self, boot: BootId) -> PathBuf {
        self.0.join(format!("{boot}.json"))
    }

    fn draft_path(&self, boot: BootId) -> PathBuf {
        self.path(boot).with_extension("new")
    }
}

fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // Not every file system knows it. There only what is on the disk has its room.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let zeros = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
            file.write_all_at(&zeros, 0)?;
            file.sync_all()
        }
        done => done.map_err(io::Error::from),
    }
}

/// Puts a record in the place of whatever is in the file, and gives back the room that is left.
fn write_over(file: &File, record: &DeathRecord) -> io::Result<()> {
    let bytes = serde_json::to_vec(record).map_err(io::Error::other)?;
    file.write_all_at(&bytes, 0)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// What a boot has left.
#[derive(Debug, Default)]
struct Left {
    /// When something of it changed last.
    changed: Option<SystemTime>,
    files: Vec<PathBuf>,
}

/// The boot whose file it is.
fn boot_of(path: &Path) -> Option<BootId> {
    path.file_stem()?.to_str()?.parse().ok()
}

/// The files of boots that are too many, those of long ago. By their times and not by their ids,
/// which a clock that was set back would put in another order.
fn beyond(boots: BTreeMap<BootId, Left>, last: Option<BootId>) -> Vec<PathBuf> {
    let too_many = boots.len().saturating_sub(KEPT_BOOTS - 1);
    let mut boots: Vec<_> = boots.into_iter().collect();
    boots.sort_by_key(|(boot, left)| (Some(*boot) == last, left.changed));
    let gone = boots.into_iter().take(too_many);
    gone.flat_map(|(_, left)| left.files).collect()
}

/// The raw standard error of one boot.
#[derive(Debug)]
pub(super) struct Stderr {
    path: PathBuf,
    pub(super) file: File,
}

impl Stderr {
    /// Empties it if it has grown beyond its cap; whoever writes goes on at its new end.
    pub(super) fn cap(&self) {
        if self
            .file
            .metadata()
            .is_ok_and(|meta| meta.len() > STDERR_CAP_BYTES)
        {
            // Without success it is tried again at the next look.
            self.file.set_len(0).ok();
        }
    }

    /// The end of what was written.
    pub(super) fn last_words(&mut self) -> String {
        let words = self.tail().unwrap_or_default();
        // Half a character at the cut is none.
        let text = String::from_utf8_lossy(&words).replace('\u{fffd}', "?");
        let mut text = text.trim();
        while text.len() > LAST_WORDS_BYTES {
            text = &text[text.chars().next().map_or(0, char::len_utf8)..];
        }
        text.to_owned()
    }

    fn tail(&mut self) -> io::Result<Vec<u8>> {
        let most = LAST_WORDS_BYTES as u64;
        let length = self.file.metadata()?.len();
        self.file
            .seek(SeekFrom::Start(length.saturating_sub(most)))?;
        let mut words = Vec::new();
        (&self.file).take(most).read_to_end(&mut words)?;
        Ok(words)
    }

    /// Nothing was said: nothing is kept.
    pub(super) fn remove(self) {
        fs::remove_file(&self.path).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::MetadataExt as _;
    use uuid::Uuid;

    fn boot(n: u128) -> BootId {
        BootId(Uuid::from_u128(n))
    }

    fn record() -> DeathRecord {
        DeathRecord {
            signal: Some(11),
            peak_memory: 1,
            cpu_millis: 2,
            last_words: "stack overflow".to_owned(),
            ..DeathRecord::at(evenkeel_core::time::Timestamp(7))
        }
    }

    #[test]
    fn a_record_is_read_back_and_a_torn_one_is_told() {
        let data = tempfile::tempdir().unwrap();
        let files = Files::of(data.path());
        files.prepare(None).unwrap();
        assert_eq!(files.death(boot(1)).unwrap(), None);
        files.record(boot(1), &record()).unwrap();
        assert_eq!(files.death(boot(1)).unwrap(), Some(record()));
        fs::write(files.path(boot(2)), "{\"signal\":").unwrap();
        assert!(files.death(boot(2)).is_err());
    }

    #[test]
    fn the_room_that_a_draft_takes_holds_any_record_and_what_is_left_is_given_back() {
        let data = tempfile::tempdir().unwrap();
        let files = Files::of(data.path());
        files.prepare(None).unwrap();
        files.draft(boot(1)).unwrap();
        let taken = fs::metadata(files.draft_path(boot(1))).unwrap();
        assert!(taken.blocks() * 512 >= ROOM, "{taken:?}");
        let numbers = DeathRecord {
            ended_at: evenkeel_core::time::Timestamp(i64::MIN),
            exit_code: Some(i32::MIN),
            signal: Some(i32::MIN),
            peak_memory: u64::MAX,
            cpu_millis: u64::MAX,
            ..record()
        };
        let largest = DeathRecord {
            last_words: "\u{1}".repeat(LAST_WORDS_BYTES),
            ..numbers.clone()
        };
        let length = |record: &DeathRecord| serde_json::to_vec(record).unwrap().len() as u64;
        assert!(length(&largest) <= ROOM);
        assert!(length(&numbers.without_words()) <= BARE_ROOM);
        for record in [largest, record()] {
            files.record(boot(1), &record).unwrap();
            assert_eq!(files.death(boot(1)).unwrap().as_ref(), Some(&record));
            let kept = fs::metadata(files.path(boot(1))).unwrap().len();
            assert_eq!(kept, length(&record));
            assert!(!files.draft_path(boot(1)).exists());
        }
    }

    #[test]
    fn a_draft_that_nobody_came_to_use_is_removed_with_its_boot() {
        let data = tempfile::tempdir().unwrap();
        let files = Files::of(data.path());
        for n in 1..=100 {
            files.prepare(None).unwrap();
            files.draft(boot(n)).unwrap();
        }
        assert_eq!(fs::read_dir(&files.0).unwrap().count(), KEPT_BOOTS);
        assert_eq!(files.death(boot(100)).unwrap(), None);
    }

    #[test]
    fn the_end_of_the_raw_standard_error_is_kept_and_its_size_bounded() {
        let data = tempfile::tempdir().unwrap();
        let files = Files::of(data.path());
        files.prepare(None).unwrap();
        let mut stderr = files.stderr(boot(1)).unwrap();
        assert_eq!(stderr.last_words(), "");
        let mut writer = stderr.file.try_clone().unwrap();
        writer.write_all(&[b'x'; 9000]).unwrap();
        writer.write_all("\u{e9}nd\n".as_bytes()).unwrap();
        let words = stderr.last_words();
        assert!(words.ends_with("x\u{e9}nd") && words.len() <= LAST_WORDS_BYTES);
        writer.write_all(&vec![b'y'; 2 << 20]).unwrap();
        stderr.cap();
        writer.write_all(b"after").unwrap();
        assert_eq!(stderr.last_words(), "after");
        writer.write_all(&vec![0xff; 9000]).unwrap();
        assert!(stderr.last_words().len() <= LAST_WORDS_BYTES);
    }

    /// Leaves both files of a boot, changed so many seconds after the epoch.
    fn leave(files: &Files, n: u128, changed: u64) {
        let changed = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(changed);
        let stderr = files.stderr(boot(n)).unwrap();
        files.record(boot(n), &record()).unwrap();
        let record = File::options().write(true).open(files.path(boot(n)));
        for file in [stderr.file, record.unwrap()] {
            file.set_modified(changed).unwrap();
        }
    }

    #[test]
    fn what_was_left_longest_ago_is_removed_whatever_the_ids_say() {
        let data = tempfile::tempdir().unwrap();
        let files = Files::of(data.path());
        for n in 1..=100 {
            files.prepare(None).unwrap();
            // Later boots have lower ids.
            leave(&files, 1000 - n, u64::try_from(n).unwrap());
        }
        let kept = fs::read_dir(&files.0).unwrap().count();
        assert_eq!(kept, 2 * KEPT_BOOTS);
        assert!(files.death(boot(1000 - 37)).unwrap().is_some());
        assert!(files.death(boot(1000 - 36)).unwrap().is_none());
    }

    #[test]
    fn the_boot_that_ended_last_is_kept_though_the_clock_was_set_back_and_so_is_what_is_no_boots() {
        let data = tempfile::tempdir().unwrap();
        let files = Files::of(data.path());
        files.prepare(None).unwrap();
        for name in ["00-notes.txt", "notes"] {
            fs::write(files.0.join(name), "").unwrap();
        }
        for n in 2..=100 {
            leave(&files, n, 1000);
        }
        leave(&files, 1, 1);
        files.prepare(Some(boot(1))).unwrap();
        assert!(files.death(boot(1)).unwrap().is_some());
        let kept = fs::read_dir(&files.0).unwrap().count();
        assert_eq!(kept, 2 * (KEPT_BOOTS - 1) + 2);
    }
}
