//! Opening: lock the folder, look before touching, bring the schema up, prove the key.

use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::policy::Policy;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::fault::about_room;
use super::reader::Readers;
use super::writer::Writer;
use super::{Opened, SqliteStore};
use crate::error::StoreError;
use crate::key;
use crate::lock::DataLock;
use crate::seal::{Place, Sealer};

mod embedded {
    refinery::embed_migrations!("src/migrations");
}

const CANARY: &[u8] = b"evenkeel canary";
const CANARY_PLACE: Place<'static> = Place {
    table: "canary",
    row: "1",
    column: "sealed",
};

/// How to open a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The data folder; made (0700) if it is missing. Its lock is held for life.
    pub data_dir: PathBuf,
    /// The database file; relative to `data_dir`.
    pub database: PathBuf,
    /// The key file; relative to `data_dir`. Made (0600) with a new database.
    pub key_file: PathBuf,
    /// The numbers that decisions depend on.
    pub policy: Policy,
    /// How long to wait for a data lock that another process holds.
    pub lock_wait: Duration,
    /// Reader threads, each with a connection.
    pub readers: usize,
    /// Requests that may wait, for the writer and for the readers each; more are `Overloaded`.
    pub queue: usize,
    /// Called by the writer's own thread right before and right after each COMMIT: where tests end
    /// or break the process.
    pub around_commit: [fn(); 2],
    /// The same for the making of a key file.
    pub around_key: [fn(); 2],
}

impl StoreOptions {
    /// The usual options for a data folder.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            database: "evenkeel.db".into(),
            key_file: "store.key".into(),
            policy: Policy::default(),
            lock_wait: Duration::ZERO,
            readers: 4,
            queue: 1024,
            around_commit: [|| {}; 2],
            around_key: [|| {}; 2],
        }
    }
}

/// Device and inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileId(u64, u64);

impl FileId {
    fn of(path: &Path) -> std::io::Result<Self> {
        let meta = std::fs::metadata(path)?;
        Ok(Self(meta.dev(), meta.ino()))
    }
}

/// What the threads share: how to connect, and what requests need besides a connection.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) folder: PathBuf,
    path: PathBuf,
    /// The file that this process has opened.
    file: FileId,
    pub(crate) sealer: Sealer,
    pub(crate) policy: Policy,
    /// Ends a transaction; tests replace it to lose the answer.
    pub(crate) commit: fn(&Connection) -> rusqlite::Result<()>,
    /// See [`StoreOptions`].
    pub(crate) around_commit: [fn(); 2],
    // Dropped with the last thread that may still write.
    _lock: DataLock,
}

impl Database {
    /// That the database's path still names the file that was opened. A file that was removed or
    /// moved away goes on to take writes through descriptors that are open, and SQLite does not
    /// look: what is answered then would be gone with this process.
    ///
    /// # Errors
    /// `Unavailable`, with what to do; over as soon as the file is back in its place.
    pub(crate) fn in_place(&self) -> Result<(), StoreError> {
        let path = self.path.display();
        match FileId::of(&self.path) {
            Ok(found) if found == self.file => Ok(()),
            Ok(_) => Err(StoreError::Unavailable(format!(
                "{path} is another file than the one that this broker opened; put that one back, or \
                 restart the broker to use this one"
            ))),
            Err(error) => Err(StoreError::Unavailable(format!(
                "{path} is no longer there: {error}; put it back"
            ))),
        }
    }

    pub(crate) fn connect_writer(&self) -> Result<Connection, StoreError> {
        self.in_place()?;
        connect_writer(&self.path)
    }

    pub(crate) fn connect_reader(&self) -> Result<Connection, StoreError> {
        let conn = Connection::open_with_flags(
            &self.path,
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        conn.busy_timeout(BUSY)?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS);
        conn.execute_batch("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF;")?;
        conn.execute_batch(NO_TEMPORARY_FILES)?;
        Ok(conn)
    }
}

/// Somebody else may hold the database for a moment (a backup, an operator's shell).
const BUSY: Duration = Duration::from_secs(5);
/// There are about as many distinct statements.
const STATEMENTS: usize = 256;

/// Opens the store of a data folder; blocks (on the disk, and on the lock if told to wait).
///
/// # Errors
/// `Locked`, `NewerSchema`, `WrongKey`, `Full`, `Damaged`, or `Unavailable` with the path and
/// what to do about it. Nothing is written where the database is not ours to write.
pub(super) fn open(options: StoreOptions) -> Result<Opened, StoreError> {
    let folder = options.data_dir;
    let lock = DataLock::take(&folder, options.lock_wait)?;
    let path = folder.join(&options.database);
    let key_path = folder.join(&options.key_file);
    let explain = |error: StoreError| about_file(about_room(error, &folder), &path);
    let created = !path.exists();
    if created {
        // SQLite gives its log the mode of the database.
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| StoreError::Unavailable(error.to_string()))
            .map_err(explain)?;
    } else {
        refuse_newer(&path).map_err(explain)?;
    }
    let mut conn = connect_writer(&path).map_err(explain)?;
    migrate(&mut conn).map_err(explain)?;
    let canary: Option<Vec<u8>> = conn
        .query_row("SELECT sealed FROM canary", [], |row| row.get(0))
        .optional()
        .map_err(|error| explain(error.into()))?;
    let (master, key_created) = match (key::read(&key_path)?, &canary) {
        (Some(master), _) => (master, false),
        (None, None) => (
            key::create(&key_path, options.around_key).map_err(|e| about_room(e, &folder))?,
            true,
        ),
        (None, Some(_)) => {
            return Err(StoreError::WrongKey(format!(
                "{} is missing, but {} was sealed with it; restore the file from a backup",
                key_path.display(),
                path.display()
            )));
        }
    };
    let sealer = Sealer::new(&master);
    match canary {
        Some(blob) => prove(&sealer, &blob).map_err(|_| {
            StoreError::WrongKey(format!(
                "{} does not open {}; restore the key file that was made with it",
                key_path.display(),
                path.display()
            ))
        })?,
        None => {
            let blob = sealer.seal(CANARY_PLACE, CANARY)?;
            conn.execute("INSERT INTO canary (id, sealed) VALUES (1, ?1)", [blob])
                .map_err(|error| explain(error.into()))?;
        }
    }
    let file = FileId::of(&path)
        .map_err(|error| StoreError::Unavailable(error.to_string()))
        .map_err(explain)?;
    let database = Arc::new(Database {
        folder,
        path,
        file,
        sealer,
        policy: options.policy,
        commit: |conn| conn.execute_batch("COMMIT"),
        around_commit: options.around_commit,
        _lock: lock,
    });
    let readers = Readers::start(&database, options.readers, options.queue)?;
    let writer = Writer::start(Arc::clone(&database), conn, options.queue)?;
    Ok(Opened {
        store: SqliteStore {
            readers,
            writer,
            database,
        },
        created,
        key_created,
    })
}

/// Checks a canary's blob.
pub(super) fn prove(sealer: &Sealer, blob: &[u8]) -> Result<(), StoreError> {
    let plain = sealer.open(CANARY_PLACE, blob)?;
    if plain == CANARY {
        Ok(())
    } else {
        Err(StoreError::Damaged("the canary is not ours".to_owned()))
    }
}

/// A group of writes that is rolled back in parts keeps what was there before, by default in a file
/// in `/var/tmp`: which may be full, or not be there in a container, and is nobody's data folder.
const NO_TEMPORARY_FILES: &str = "PRAGMA temp_store = MEMORY;";

fn connect_writer(path: &Path) -> Result<Connection, StoreError> {
    let conn = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    conn.busy_timeout(BUSY)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.execute_batch(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA trusted_schema = OFF;
         PRAGMA secure_delete = FAST;
         PRAGMA journal_size_limit = 67108864;",
    )?;
    conn.execute_batch(NO_TEMPORARY_FILES)?;
    Ok(conn)
}

/// Looks at the schema's version without changing anything.
fn refuse_newer(path: &Path) -> Result<(), StoreError> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    conn.busy_timeout(BUSY)?;
    let migrated: bool = conn.query_row(
        "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'refinery_schema_history')",
        [],
        |row| row.get(0),
    )?;
    if !migrated {
        return Ok(());
    }
    let found: Option<i64> = conn.query_row(
        "SELECT max(version) FROM refinery_schema_history",
        [],
        |row| row.get(0),
    )?;
    let found = u32::try_from(found.unwrap_or(0)).unwrap_or(u32::MAX);
    let known = known_version();
    if found > known {
        return Err(StoreError::NewerSchema { found, known });
    }
    Ok(())
}

fn known_version() -> u32 {
    let runner = embedded::migrations::runner();
    let versions = runner.get_migrations().iter().map(|step| step.version());
    let newest = versions.max().unwrap_or(0);
    u32::try_from(newest).unwrap_or(0)
}

fn migrate(conn: &mut Connection) -> Result<(), StoreError> {
    let done = embedded::migrations::runner().run(conn);
    done.map(|_| ()).map_err(|error| {
        // The cause's own text is the useful one.
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            if let Some(sqlite) = inner.downcast_ref::<rusqlite::Error>()
                && let Some(code) = sqlite.sqlite_error_code()
            {
                let inner = rusqlite::Error::SqliteFailure(
                    rusqlite::ffi::Error {
                        code,
                        extended_code: 0,
                    },
                    Some(sqlite.to_string()),
                );
                return StoreError::from(inner);
            }
            text = format!("{text}: {inner}");
            cause = inner.source();
        }
        StoreError::Unavailable(format!(
            "the schema could not be brought up to date: {text}"
        ))
    })
}

/// Puts the path before what SQLite says.
fn about_file(error: StoreError, path: &Path) -> StoreError {
    let path = path.display();
    match error {
        StoreError::Unavailable(text) => StoreError::Unavailable(format!("{path}: {text}")),
        StoreError::Full(text) => StoreError::Full(format!("{path}: {text}")),
        StoreError::Damaged(text) => StoreError::Damaged(format!("{path}: {text}")),
        other @ (StoreError::Overloaded
        | StoreError::Unknown(_)
        | StoreError::WrongKey(_)
        | StoreError::NewerSchema { .. }
        | StoreError::Unreadable(_)
        | StoreError::Locked(_)
        | StoreError::Illegal(_)
        | StoreError::Panicked(_)) => other,
    }
}
