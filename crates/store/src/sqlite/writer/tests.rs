use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};

use super::*;
use crate::sqlite::{SqliteStore, StoreOptions};

/// A writer whose COMMITs go through `commit`.
fn writer(
    folder: &Path,
    queue: usize,
    commit: fn(&Connection) -> rusqlite::Result<()>,
) -> (Writer, Arc<Database>) {
    let opened = SqliteStore::open(StoreOptions::new(folder)).unwrap();
    let SqliteStore {
        readers,
        writer,
        database,
    } = opened.store;
    drop((readers, writer));
    let mut database = Arc::into_inner(database).unwrap();
    database.commit = commit;
    let database = Arc::new(database);
    let conn = database.connect_writer().unwrap();
    let writer = Writer::start(Arc::clone(&database), conn, queue).unwrap();
    (writer, database)
}

fn plainly(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch("COMMIT")
}

fn note(db: &Db<'_>, key: &str) -> Result<(), StoreError> {
    db.execute("INSERT INTO meta (key, value) VALUES (?1, '')", [key])?;
    Ok(())
}

fn notes(database: &Database) -> Vec<String> {
    let conn = database.connect_reader().unwrap();
    let mut keys = conn.prepare("SELECT key FROM meta ORDER BY key").unwrap();
    let found = keys.query_map([], |row| row.get(0)).unwrap();
    found.map(Result::unwrap).collect()
}

fn lost() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC);
    rusqlite::Error::SqliteFailure(code, None)
}

/// A request that holds the writer until the gate opens, so that what is asked meanwhile makes
/// one batch. Resolves as soon as the writer is held.
async fn hold(writer: Arc<Writer>) -> (mpsc::Sender<()>, tokio::task::JoinHandle<()>) {
    let (open, gate) = mpsc::channel();
    let gate = Mutex::new(gate);
    let (held, holds) = tokio::sync::oneshot::channel();
    let held = Mutex::new(Some(held));
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        writer
            .call(move |_| {
                if let Some(held) = held.lock().unwrap().take() {
                    held.send(()).unwrap();
                }
                // The gate opens when its sender is dropped.
                assert!(gate.lock().unwrap().recv().is_err());
                Ok(())
            })
            .await
            .unwrap();
    });
    holds.await.unwrap();
    let handle = tokio::runtime::Handle::current().spawn(async move {
        tasks.join_all().await;
    });
    (open, handle)
}

#[tokio::test]
async fn a_request_that_panics_or_fails_undoes_itself_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, database) = writer(folder.path(), 16, plainly);
    let writer = Arc::new(writer);
    let (gate, held) = hold(Arc::clone(&writer)).await;
    let before = last_commit(&database.connect_reader().unwrap()).unwrap();
    let (one, panicked, failed, two, ()) = tokio::join!(
        writer.call(|db| note(db, "one")),
        writer.call(|db| {
            note(db, "panicked")?;
            panic!("of its own making");
            #[expect(unreachable_code, reason = "gives the closure its type")]
            Ok(())
        }),
        writer.call(|db| {
            note(db, "failed")?;
            note(db, "failed")
        }),
        writer.call(|db| note(db, "two")),
        async { drop(gate) },
    );
    held.await.unwrap();
    one.unwrap();
    two.unwrap();
    assert!(
        matches!(&panicked, Err(StoreError::Panicked(text)) if text == "of its own making"),
        "{panicked:?}"
    );
    assert!(matches!(failed, Err(StoreError::Damaged(_))), "{failed:?}");
    assert_eq!(notes(&database), ["one", "two"]);
    let after = last_commit(&database.connect_reader().unwrap()).unwrap();
    assert_eq!(
        after,
        before + 1,
        "one COMMIT for the four, none for the gate, which changed nothing"
    );
}

#[tokio::test]
async fn a_commit_that_happened_is_read_back_though_its_answer_was_lost() {
    fn lose(conn: &Connection) -> rusqlite::Result<()> {
        conn.execute_batch("COMMIT")?;
        Err(lost())
    }
    let folder = tempfile::tempdir().unwrap();
    let (writer, database) = writer(folder.path(), 16, lose);
    for key in ["a", "b"] {
        writer.call(move |db| note(db, key)).await.unwrap();
    }
    assert_eq!(notes(&database), ["a", "b"]);
}

#[tokio::test]
async fn a_commit_that_did_not_happen_is_done_again_one_by_one() {
    static FAILED: AtomicBool = AtomicBool::new(false);
    fn fail_once(conn: &Connection) -> rusqlite::Result<()> {
        let held: i64 = conn.query_row("SELECT count(*) FROM meta", [], |row| row.get(0))?;
        if held > 1 && !FAILED.swap(true, Ordering::SeqCst) {
            conn.execute_batch("ROLLBACK")?;
            return Err(lost());
        }
        conn.execute_batch("COMMIT")
    }
    let folder = tempfile::tempdir().unwrap();
    let (writer, database) = writer(folder.path(), 16, fail_once);
    let writer = Arc::new(writer);
    let (gate, held) = hold(Arc::clone(&writer)).await;
    let (one, two, ()) = tokio::join!(
        writer.call(|db| note(db, "one")),
        writer.call(|db| note(db, "two")),
        async { drop(gate) },
    );
    held.await.unwrap();
    one.unwrap();
    two.unwrap();
    assert!(FAILED.load(Ordering::SeqCst));
    assert_eq!(notes(&database), ["one", "two"]);
}

#[tokio::test]
async fn a_commit_that_never_happens_is_an_error_and_changes_nothing() {
    fn refuse(conn: &Connection) -> rusqlite::Result<()> {
        conn.execute_batch("ROLLBACK")?;
        let full = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
        Err(rusqlite::Error::SqliteFailure(full, None))
    }
    let folder = tempfile::tempdir().unwrap();
    let (writer, database) = writer(folder.path(), 16, refuse);
    let answer = writer.call(|db| note(db, "a")).await;
    assert!(matches!(answer, Err(StoreError::Full(_))), "{answer:?}");
    assert!(notes(&database).is_empty());
}

#[tokio::test]
async fn a_commit_that_cannot_be_read_back_is_unknown_and_the_writer_goes_on() {
    static HIDDEN: AtomicBool = AtomicBool::new(false);
    fn hide_once(conn: &Connection) -> rusqlite::Result<()> {
        conn.execute_batch("COMMIT")?;
        if HIDDEN.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let path = conn.path().unwrap();
        std::fs::rename(path, format!("{path}.away")).unwrap();
        Err(lost())
    }
    let folder = tempfile::tempdir().unwrap();
    let (writer, database) = writer(folder.path(), 16, hide_once);
    let answer = writer.call(|db| note(db, "a")).await;
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    let path = folder.path().join("evenkeel.db");
    std::fs::rename(folder.path().join("evenkeel.db.away"), &path).unwrap();
    writer.call(|db| note(db, "b")).await.unwrap();
    assert_eq!(notes(&database), ["a", "b"]);
}

#[tokio::test]
async fn a_writer_that_dies_is_replaced_by_its_owner_and_told() {
    static DIED: AtomicBool = AtomicBool::new(false);
    fn die_once(conn: &Connection) -> rusqlite::Result<()> {
        if DIED.swap(true, Ordering::SeqCst) {
            return conn.execute_batch("COMMIT");
        }
        panic!("the writer itself");
    }
    let folder = tempfile::tempdir().unwrap();
    let (writer, database) = writer(folder.path(), 16, die_once);
    tokio::select! {
        biased;
        () = writer.broken() => panic!("it has not died yet"),
        () = tokio::task::yield_now() => {}
    }
    let answer = writer.call(|db| note(db, "a")).await;
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    writer.call(|db| note(db, "b")).await.unwrap();
    assert_eq!(notes(&database), ["b"]);
    writer.broken().await;
}

#[tokio::test]
async fn a_full_queue_is_overload_and_a_caller_that_leaves_cancels_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, database) = writer(folder.path(), 1, plainly);
    let writer = Arc::new(writer);
    let (gate, held) = hold(Arc::clone(&writer)).await;
    {
        let mut leaves = Box::pin(writer.call(|db| note(db, "left")));
        // Polled once, it is in the queue; then its caller goes away.
        let polled = std::future::poll_fn(|context| {
            std::task::Poll::Ready(leaves.as_mut().poll(context).is_pending())
        });
        assert!(polled.await);
    }
    let answer = writer.call(|db| note(db, "refused")).await;
    assert!(matches!(answer, Err(StoreError::Overloaded)), "{answer:?}");
    drop(gate);
    held.await.unwrap();
    // The queue of one is free again as soon as the writer has taken what is in it.
    let since = std::time::Instant::now();
    while let Err(error) = writer.call(|db| note(db, "next")).await {
        assert!(matches!(error, StoreError::Overloaded), "{error:?}");
        assert!(since.elapsed() < std::time::Duration::from_secs(30));
        tokio::task::yield_now().await;
    }
    assert_eq!(notes(&database), ["left", "next"]);
}
