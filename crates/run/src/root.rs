//! The run root: the folder of all runs of a host. Its random id is the host's identity.
//!
//! ```text
//! ROOT/format              run/1
//! ROOT/id                  the root's id, once and for all
//! ROOT/boots/BOOT_ID.lock  held for life by the broker process of that boot
//! ROOT/boots/BOOT_ID.new   the same, until it is locked
//! ROOT/boots/BOOT_ID.box   its black box
//! ROOT/runs/ATTEMPT_ID/    one run
//! ROOT/logs/ATTEMPT_ID/    the log of a run that was concluded
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock, fstatvfs, statfs};

use crate::dispose::remove_tree;
use crate::error::{Context, Result, RunError};
use crate::faults;
use crate::files;
use crate::folder::RunFolder;

/// The format of everything in a run root.
pub const FORMAT: &str = "run/1";

/// How the name of a boot's lock file ends, and before it is locked.
const LOCK: &str = ".lock";
const NEW: &str = ".new";

/// A run root that is ours and in a format that we read.
#[derive(Clone, Debug)]
pub struct RunRoot {
    path: PathBuf,
    id: String,
}

/// A boot's lock, held as long as this lives.
#[derive(Debug)]
pub struct BootLock {
    _file: File,
}

/// The runs of a root.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// Names of run folders, in order.
    pub names: Vec<String>,
    /// How many entries bear a name that no run has.
    pub ignored: usize,
    /// Whether there are more than were asked for.
    pub truncated: bool,
}

impl RunRoot {
    /// Opens a run root, and makes it first if there is none. `new_id` (a fresh UUID) becomes the
    /// id of a new root; an existing root keeps its own.
    ///
    /// # Errors
    /// A network or FUSE file system, a foreign owner, another format, or what the operating
    /// system says.
    pub fn open(path: &Path, new_id: &str) -> Result<Self> {
        check_name("run root id", new_id)?;
        private_dir(path)?;
        let path = path.canonicalize().context("resolve", path)?;
        refuse_remote(&path)?;
        claim_privately(&path)?;
        let format = once(&path, "format", FORMAT)?;
        if format != FORMAT {
            return Err(RunError::Format {
                path,
                found: format.chars().take(32).collect(),
            });
        }
        let id = once(&path, "id", new_id)?;
        check_name("run root id", &id)?;
        for name in ["boots", "runs", "logs"] {
            private_dir(&path.join(name))?;
        }
        Ok(Self { path, id })
    }

    /// The host's identity.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Where it is, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the lock of this process's boot. It is held before it can be seen.
    ///
    /// # Errors
    /// The name is taken or malformed, or what the operating system says.
    pub fn lock_boot(&self, boot_id: &str) -> Result<BootLock> {
        let path = self.boot_path(boot_id, LOCK)?;
        let fresh = self.boot_path(boot_id, NEW)?;
        faults::hit("run.boot_lock.before");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&fresh)
            .context("create", &fresh)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).context("lock", &fresh)?;
        fs::hard_link(&fresh, &path).context("create", &path)?;
        fs::remove_file(&fresh).context("remove", &fresh)?;
        faults::hit("run.boot_lock.after");
        Ok(BootLock { _file: file })
    }

    /// Whether the process of that boot is dead: its lock is free, or was never there. A boot id
    /// is never used twice, so the answer `true` stays true.
    ///
    /// # Errors
    /// The name is malformed, or what the operating system says.
    pub fn boot_is_dead(&self, boot_id: &str) -> Result<bool> {
        self.is_free(boot_id, LOCK)
    }

    /// The boots that left a lock file, or one that they had not come to lock, dead or alive, at
    /// most `max` of each kind.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn boots(&self, max: usize) -> Result<Vec<String>> {
        let boots = self.path.join("boots");
        let mut names = list(&boots, LOCK, max)?.names;
        names.extend(list(&boots, NEW, max)?.names);
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Removes the lock files of a dead boot. Repeating it is no error.
    ///
    /// # Errors
    /// The boot is alive ([`RunError::Busy`]), or what the operating system says.
    pub fn forget_boot(&self, boot_id: &str) -> Result<()> {
        for kind in [LOCK, NEW] {
            let path = self.boot_path(boot_id, kind)?;
            if !self.is_free(boot_id, kind)? {
                return Err(RunError::Busy {
                    path,
                    waited_secs: 0,
                });
            }
            faults::hit("run.forget_lock.before");
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).context("remove", &path);
                }
                Ok(()) | Err(_) => {}
            }
            faults::hit("run.forget_lock.after");
        }
        Ok(())
    }

    /// Whether nobody holds a boot's lock under this name of its file.
    fn is_free(&self, boot_id: &str, kind: &str) -> Result<bool> {
        let path = self.boot_path(boot_id, kind)?;
        let dir = files::open_dir(&self.path.join("boots")).context("open", &path)?;
        let name = format!("{boot_id}{kind}");
        let file = match files::open_untrusted(&dir, &name).context("open", &path)? {
            files::Untrusted::Plain(file, _) => file,
            files::Untrusted::Missing => return Ok(true),
            files::Untrusted::Other(found) => {
                return Err(RunError::NotPlain {
                    path,
                    found: found.to_owned(),
                    max_bytes: 0,
                });
            }
        };
        // Shared, so that two who ask at once do not take each other for the boot.
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error).context("lock", &path),
        }
    }

    /// The run folders, at most `max` of them.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn runs(&self, max: usize) -> Result<Listing> {
        list(&self.path.join("runs"), "", max)
    }

    /// A run of this root, whether its folder exists or not.
    ///
    /// # Errors
    /// The attempt id cannot be a file name.
    pub fn run(&self, attempt_id: &str) -> Result<RunFolder> {
        check_name("attempt id", attempt_id)?;
        Ok(RunFolder::new(
            self.path.join("runs").join(attempt_id),
            attempt_id.to_owned(),
        ))
    }

    /// Removes kept logs that were last written before `before_ms` (milliseconds since the Unix
    /// epoch); says how many.
    ///
    /// # Errors
    /// What the operating system says; those removed until then stay removed.
    pub fn forget_logs(&self, before_ms: i64) -> Result<usize> {
        let logs = self.path.join("logs");
        let dir = files::open_dir(&logs).context("open", &logs)?;
        let mut removed = 0;
        for entry in fs::read_dir(&logs).context("list", &logs)? {
            let entry = entry.context("list", &logs)?;
            let Ok(meta) = entry.metadata() else { continue };
            let written_ms = meta
                .mtime()
                .saturating_mul(1000)
                .saturating_add(meta.mtime_nsec() / 1_000_000);
            if written_ms < before_ms {
                faults::hit("run.forget_log.before");
                remove_tree(&dir, entry.file_name().as_bytes())
                    .map_err(io::Error::from)
                    .context("remove", &entry.path())?;
                faults::hit("run.forget_log.after");
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Room left on the run root's disk for this user, in bytes.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn free_bytes(&self) -> Result<u64> {
        let dir = files::open_dir(&self.path).context("open", &self.path)?;
        let stat = fstatvfs(&dir).context("measure", &self.path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// A file of a boot, by how its name ends.
    fn boot_path(&self, boot_id: &str, kind: &str) -> Result<PathBuf> {
        check_name("boot id", boot_id)?;
        Ok(self.path.join("boots").join(format!("{boot_id}{kind}")))
    }

    pub(crate) fn box_path(&self, boot_id: &str) -> Result<PathBuf> {
        self.boot_path(boot_id, ".box")
    }
}

/// Names become file names: letters, digits and hyphens only.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    Err(RunError::Name {
        what,
        value: name.chars().take(80).collect(),
    })
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && !name.starts_with('-')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn private_dir(path: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .context("create", path)
}

/// 0700, or 0711 where actions run as users of their own and must pass.
fn claim_privately(path: &Path) -> Result<()> {
    let meta = fs::metadata(path).context("look at", path)?;
    let us = rustix::process::geteuid().as_raw();
    if meta.uid() != us {
        return Err(RunError::Owner {
            path: path.to_owned(),
            owner: meta.uid(),
            us,
        });
    }
    if meta.mode() & 0o066 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o700)).context("protect", path)?;
    }
    Ok(())
}

fn refuse_remote(path: &Path) -> Result<()> {
    let magic = statfs(path)
        .context("look at the file system of", path)?
        .f_type;
    // Numbers as in statfs(2).
    let filesystem = match magic as u64 & 0xffff_ffff {
        0x6969 => "NFS",
        0x6573_5546 => "FUSE",
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => "SMB",
        _ => return Ok(()),
    };
    Err(RunError::FileSystem {
        path: path.to_owned(),
        filesystem,
    })
}

/// Gives a file its content once: who comes later, or at the same time, reads what the first one
/// wrote.
fn once(dir: &Path, name: &str, content: &str) -> Result<String> {
    let path = dir.join(name);
    if !path.exists() {
        faults::hit_with("run.root.before", || name.to_owned());
        let (mut file, fresh) = files::create_fresh(&path).context("create", &path)?;
        writeln!(file, "{content}").context("write", &fresh)?;
        file.sync_all().context("write", &fresh)?;
        let linked = fs::hard_link(&fresh, &path);
        fs::remove_file(&fresh).context("remove", &fresh)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).context("create", &path);
            }
            Ok(()) | Err(_) => {}
        }
        File::open(dir)
            .and_then(|dir| dir.sync_all())
            .context("write", dir)?;
        faults::hit_with("run.root.after", || name.to_owned());
    }
    let bytes = files::read_bounded(files::open_dir(dir).context("open", dir)?, dir, name, 256)?;
    Ok(String::from_utf8_lossy(&bytes.unwrap_or_default())
        .trim_end()
        .to_owned())
}

fn list(dir: &Path, suffix: &str, max: usize) -> Result<Listing> {
    let mut listing = Listing::default();
    for entry in fs::read_dir(dir).context("list", dir)? {
        let name = entry.context("list", dir)?.file_name();
        match name.to_str().and_then(|name| name.strip_suffix(suffix)) {
            Some(name) if is_name(name) && listing.names.len() < max => {
                listing.names.push(name.to_owned());
            }
            Some(name) if is_name(name) => listing.truncated = true,
            Some(_) | None => listing.ignored += 1,
        }
    }
    listing.names.sort_unstable();
    Ok(listing)
}
