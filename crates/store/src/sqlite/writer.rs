//! The one writer: a thread that takes requests in batches and gives each batch one COMMIT.
//!
//! Each request runs in a SAVEPOINT of its own under a panic guard, so that a request that fails
//! or panics undoes itself and nobody else. Nobody is answered before the COMMIT. Each batch
//! writes its number into the row `commits`: when the answer to a COMMIT is an error, the
//! connection is dropped and the row is read over a fresh one. As this process holds the data
//! lock and this thread is its only writer, the row says for certain whether the batch
//! happened; only a row that cannot be read leaves it unknown.
//!
//! A batch that is known not to have happened is done again, one request at a time, so that the
//! one that cannot be done (for want of room, say) does not fail its company.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

use super::db::Db;
use super::fault::about_room;
use super::open::Database;
use super::worker::Worker;
use crate::error::StoreError;

/// Most requests that share a COMMIT: bounds how long the first of them waits.
const MAX_BATCH: usize = 256;

/// A request in the queue. It may run more than once; only the last time counts.
trait Request: Send {
    fn run(&mut self, db: &Db<'_>) -> Result<(), StoreError>;
    fn reply(self: Box<Self>, outcome: Result<(), StoreError>);
}

struct Pending<T, F> {
    work: F,
    value: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Request for Pending<T, F>
where
    T: Send,
    F: Fn(&Db<'_>) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, db: &Db<'_>) -> Result<(), StoreError> {
        self.value = None;
        self.value = Some((self.work)(db)?);
        Ok(())
    }

    fn reply(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { value, reply, .. } = *self;
        let answer = outcome.and_then(|()| {
            value.ok_or_else(|| StoreError::Unavailable("the request was not run".to_owned()))
        });
        // Whoever asked may have gone away; what was written stays written.
        drop(reply.send(answer));
    }
}

/// The handle to the writer thread. Dropping it waits for the requests that were taken
/// on, unless the disk hangs.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: Option<SyncSender<Box<dyn Request>>>,
    owner: Option<Worker>,
    /// Whether the thread has panicked and been replaced.
    broken: watch::Receiver<bool>,
}

impl std::fmt::Debug for dyn Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Request")
    }
}

impl Writer {
    /// Starts the writer and, above it, the thread that owns it and replaces it if it dies.
    pub(crate) fn start(
        database: Arc<Database>,
        first: Connection,
        queue: usize,
    ) -> Result<Self, StoreError> {
        let (sender, receiver) = sync_channel(queue.max(1));
        let (panicked, broken) = watch::channel(false);
        let owner = Worker::start("store-owner", move || {
            own(&database, first, receiver, &panicked);
        })?;
        Ok(Self {
            queue: Some(sender),
            owner: Some(owner),
            broken,
        })
    }

    /// Until the thread has panicked; for ever if it never does.
    pub(crate) async fn broken(&self) {
        let mut broken = self.broken.clone();
        if broken.wait_for(|broken| *broken).await.is_err() {
            std::future::pending().await
        }
    }

    /// Runs `work` in a transaction and answers after its COMMIT. A caller that goes away
    /// cancels nothing.
    pub(crate) async fn call<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Db<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let pending = Box::new(Pending {
            work,
            value: None,
            reply,
        });
        let queue = self.queue.as_ref().ok_or_else(gone)?;
        match queue.try_send(pending) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(StoreError::Overloaded),
            Err(TrySendError::Disconnected(_)) => return Err(gone()),
        }
        // No answer at all: the writer died with the batch in its hands.
        answer.await.unwrap_or_else(|_| {
            Err(StoreError::Unknown(
                "the store's writer died in the middle of it".to_owned(),
            ))
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        Worker::join(self.owner.take());
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable("the store's writer has ended".to_owned())
}

/// Keeps a writer thread going until the queue closes.
fn own(
    database: &Database,
    first: Connection,
    mut queue: Receiver<Box<dyn Request>>,
    panicked: &watch::Sender<bool>,
) {
    let mut conn = Some(first);
    loop {
        let first = conn.take();
        let queue = &mut queue;
        let ended = std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("store-writer".to_owned())
                .spawn_scoped(scope, move || serve(database, first, queue))
                .map(|writer| writer.join().is_ok())
        });
        match ended {
            Ok(true) => return,
            Ok(false) => {
                tracing::error!("the store's writer panicked; another takes its place");
                panicked.send_replace(true);
            }
            Err(error) => {
                tracing::error!(%error, "no thread for the store's writer; trying again");
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
        }
    }
}

fn serve(
    database: &Database,
    mut conn: Option<Connection>,
    queue: &mut Receiver<Box<dyn Request>>,
) {
    while let Ok(first) = queue.recv() {
        let mut batch = vec![first];
        while batch.len() < MAX_BATCH {
            let Ok(next) = queue.try_recv() else { break };
            batch.push(next);
        }
        let answers = run(database, &mut conn, &mut batch);
        for (request, answer) in batch.into_iter().zip(answers) {
            request.reply(answer);
        }
    }
}

type Answers = Vec<Result<(), StoreError>>;

fn run(
    database: &Database,
    conn: &mut Option<Connection>,
    batch: &mut [Box<dyn Request>],
) -> Answers {
    match commit(database, conn, batch) {
        Ok(answers) => answers,
        Err(Broken::NotDone(error)) if batch.len() == 1 => vec![Err(error)],
        Err(Broken::NotDone(_)) => batch
            .iter_mut()
            .flat_map(|request| run(database, conn, std::slice::from_mut(request)))
            .collect(),
        Err(Broken::NotBegun(error)) => vec![Err(error); batch.len()],
        Err(Broken::Unknown(error)) => {
            vec![Err(StoreError::Unknown(error.to_string())); batch.len()]
        }
    }
}

/// Why a batch was not committed for certain.
enum Broken {
    /// The transaction could not begin (somebody else holds the lock, say): each request by itself
    /// would wait as long, and fare no better.
    NotBegun(StoreError),
    /// Nothing of it happened.
    NotDone(StoreError),
    /// It may have happened.
    Unknown(StoreError),
}

/// Runs a batch in one transaction. After [`Broken`] the connection is gone.
fn commit(
    database: &Database,
    conn: &mut Option<Connection>,
    batch: &mut [Box<dyn Request>],
) -> Result<Answers, Broken> {
    let not_done = |error| Broken::NotDone(about_room(error, &database.folder));
    database.in_place().map_err(Broken::NotBegun)?;
    let open = match conn.take() {
        Some(open) => open,
        None => database.connect_writer().map_err(not_done)?,
    };
    if let Err(error) = open.execute_batch("BEGIN IMMEDIATE") {
        return Err(Broken::NotBegun(about_room(error.into(), &database.folder)));
    }
    let tried = attempt(database, &open, batch).map_err(not_done)?;
    let (number, answers) = (tried.number, tried.answers);
    if !tried.changed || answers.iter().all(Result::is_err) {
        // Nothing to keep, and so nothing to wait for the disk for.
        if open.execute_batch("ROLLBACK").is_ok() {
            *conn = Some(open);
        }
        return Ok(answers);
    }
    let [before, after] = database.around_commit;
    before();
    let committed = (database.commit)(&open);
    after();
    match committed {
        Ok(()) => {
            *conn = Some(open);
            // Taken away meanwhile: it may be kept, and may be lost.
            database.in_place().map_err(Broken::Unknown)?;
            Ok(answers)
        }
        Err(error) => {
            let error = StoreError::from(error);
            tracing::warn!(%error, "a COMMIT was answered with an error; reading it back");
            drop(open);
            let fresh = database.connect_writer().map_err(Broken::Unknown)?;
            let last = last_commit(&fresh).map_err(|error| Broken::Unknown(error.into()))?;
            *conn = Some(fresh);
            if last == number {
                Ok(answers)
            } else {
                Err(not_done(error))
            }
        }
    }
}

/// A transaction that lacks its COMMIT.
struct Tried {
    number: i64,
    /// Whether any request changed a row.
    changed: bool,
    answers: Answers,
}

/// Runs all requests of a transaction that has begun, up to the COMMIT.
fn attempt(
    database: &Database,
    conn: &Connection,
    batch: &mut [Box<dyn Request>],
) -> Result<Tried, StoreError> {
    let number = last_commit(conn)? + 1;
    let db = Db {
        conn,
        sealer: &database.sealer,
        policy: &database.policy,
    };
    db.execute("UPDATE commits SET last = ?1", [number])?;
    let changes = conn.total_changes();
    let mut answers = Vec::with_capacity(batch.len());
    for request in batch {
        db.execute("SAVEPOINT request", [])?;
        let outcome = catch_unwind(AssertUnwindSafe(|| request.run(&db)))
            .unwrap_or_else(|panic| Err(StoreError::Panicked(panic_text(panic.as_ref()))));
        if conn.is_autocommit() {
            // SQLite itself has given the whole transaction up (no room, say).
            return Err(outcome.err().unwrap_or_else(|| {
                StoreError::Unavailable("the transaction was given up".to_owned())
            }));
        }
        if outcome.is_err() {
            db.execute("ROLLBACK TO request", [])?;
        }
        db.execute("RELEASE request", [])?;
        answers.push(outcome.map_err(|error| about_room(error, &database.folder)));
    }
    Ok(Tried {
        number,
        changed: conn.total_changes() > changes,
        answers,
    })
}

fn last_commit(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached("SELECT last FROM commits")?
        .query_row([], |row| row.get(0))
}

/// What may be told of a panic's words: a literal of the sources. What was put together at run time
/// may hold what a request said, and this text is logged, shown and kept.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let literal = panic.downcast_ref::<&'static str>().copied();
    let literal = literal.unwrap_or("with words that were put together at run time");
    literal.to_owned()
}

#[cfg(test)]
mod tests;
