//! The SQLite driver: the suite, and what only a file on a disk has to show.

mod disk;
mod kill;
mod neighbours;
mod open;
mod rows;

use std::path::Path;
use std::sync::Arc;

use evenkeel_store::seam::Store;
use evenkeel_store::{SqliteStore, StoreOptions};

use crate::world::World;

pub(crate) fn open(folder: &Path) -> Arc<dyn Store> {
    let opened = SqliteStore::open(StoreOptions::new(folder)).expect("a store");
    Arc::new(opened.store)
}

/// A store in a folder of its own.
pub(crate) fn fresh() -> (tempfile::TempDir, World) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    (folder, World::new(store))
}

/// A connection of somebody else to the database of a store.
pub(crate) fn stranger(folder: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(folder.join("evenkeel.db")).expect("a connection")
}

mod suite {
    crate::conformance::conformance!(crate::sqlite::fresh);
}
