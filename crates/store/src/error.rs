//! What can go wrong with a store.

use evenkeel_core::transition::IllegalTransition;

/// Why a store could not do what it was asked. Nothing was changed, but for [`Self::Unknown`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached or does not answer; trying again may help.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// There is no room on its disk.
    #[error("the store's disk is full: {0}")]
    Full(String),
    /// More is waiting than it takes on; trying again helps.
    #[error("the store has too many requests waiting")]
    Overloaded,
    /// A COMMIT was not answered and could not be read back: it may have happened.
    #[error("whether the last write happened is unknown: {0}")]
    Unknown(String),
    /// The key does not fit what was sealed.
    #[error("the key file does not belong to this store: {0}")]
    WrongKey(String),
    /// A newer release wrote the schema.
    #[error("the store was written by a newer release: schema {found}, this release knows {known}")]
    NewerSchema {
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// A page or a row is damaged.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// A body authenticates but cannot be decoded.
    #[error("unreadable: {0}")]
    Unreadable(String),
    /// Another process holds the data folder.
    #[error("the data folder {0} is in use by another broker")]
    Locked(String),
    /// The caller asked for what the job's state does not allow.
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    /// The request itself panicked; the others in its batch did not.
    #[error("a store request panicked: {0}")]
    Panicked(String),
}
