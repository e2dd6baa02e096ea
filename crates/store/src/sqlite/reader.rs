//! Readers beside the writer: a few threads with a connection each. A read sees one committed
//! state of the database, whatever is written meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::db::Db;
use super::open::Database;
use super::worker::Worker;
use super::writer::panic_text;
use crate::error::StoreError;

type Work = Box<dyn FnOnce(&mut Option<Connection>, &Database) + Send>;

/// The handle to the reader threads. Dropping it waits for the reads that were taken on,
/// unless the disk hangs.
pub(crate) struct Readers {
    queue: Option<SyncSender<Work>>,
    threads: Vec<Worker>,
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readers")
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}

impl Readers {
    pub(crate) fn start(
        database: &Arc<Database>,
        threads: usize,
        queue: usize,
    ) -> Result<Self, StoreError> {
        let (sender, receiver) = sync_channel::<Work>(queue.max(1));
        let receiver = Arc::new(Mutex::new(receiver));
        let threads = (0..threads.max(1))
            .map(|nth| {
                let receiver = Arc::clone(&receiver);
                let database = Arc::clone(database);
                let name = format!("store-read-{nth}");
                Worker::start(&name, move || serve(&database, &receiver))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            queue: Some(sender),
            threads,
        })
    }

    /// Runs `work` on one committed state.
    pub(crate) async fn call<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Db<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let gone = || StoreError::Unavailable("the store's readers have ended".to_owned());
        let task: Work = Box::new(move |conn, database| {
            drop(reply.send(read(conn, database, work)));
        });
        match self.queue.as_ref().ok_or_else(gone)?.try_send(task) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(StoreError::Overloaded),
            Err(TrySendError::Disconnected(_)) => return Err(gone()),
        }
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        drop(self.queue.take());
        Worker::join(self.threads.drain(..));
    }
}

fn serve(database: &Database, queue: &Mutex<Receiver<Work>>) {
    let mut conn = None;
    loop {
        // The lock is held while waiting: one reader waits on the queue, the others on the lock.
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(work) = next else { return };
        work(&mut conn, database);
    }
}

fn read<T>(
    conn: &mut Option<Connection>,
    database: &Database,
    work: impl FnOnce(&Db<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    database.in_place()?;
    let open = match conn.take() {
        Some(open) => open,
        None => database.connect_reader()?,
    };
    open.execute_batch("BEGIN")?;
    let db = Db {
        conn: &open,
        sealer: &database.sealer,
        policy: &database.policy,
    };
    let found = catch_unwind(AssertUnwindSafe(|| work(&db)))
        .unwrap_or_else(|panic| Err(StoreError::Panicked(panic_text(panic.as_ref()))));
    // A connection that cannot end its transaction is dropped, and with it the transaction.
    if open.execute_batch("COMMIT").is_ok() {
        *conn = Some(open);
    }
    found
}
