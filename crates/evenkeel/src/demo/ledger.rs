//! What the demo's customers were promised and what came of it, counted on their side of the wire.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How an accepted operation ended, as its customer was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Told {
    /// Nothing final so far.
    Nothing,
    Succeeded,
    /// With what was said.
    Failed(String),
}

/// An operation that was answered with 202.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Accepted {
    /// As `provision of customer-7`.
    pub(super) what: String,
    pub(super) told: Told,
}

/// Everything that was counted.
#[derive(Clone, Default, Debug)]
pub(super) struct Counts {
    /// By operation, which is the job's id.
    pub(super) operations: BTreeMap<String, Accepted>,
    /// Connections that were tried for no other reason than to see whether one is refused.
    pub(super) connections: u64,
    pub(super) refused: u64,
    /// Requests of customers that broke off with their broker, and were sent again.
    pub(super) broken_off: u64,
    /// Brokers that the demo itself killed.
    pub(super) killed: Vec<u32>,
    /// From such a death to the next answer.
    pub(super) gaps: Vec<Duration>,
    /// The operations that are bad on purpose, by plan.
    pub(super) bad: BTreeMap<&'static str, String>,
    /// Answers that no broker may give.
    pub(super) wrong: Vec<String>,
}

impl Counts {
    /// Operations whose end their customer knows.
    pub(super) fn ended(&self) -> usize {
        let ended = |accepted: &&Accepted| accepted.told != Told::Nothing;
        self.operations.values().filter(ended).count()
    }
}

/// Shared by all who count.
#[derive(Default, Debug)]
pub(super) struct Ledger(Mutex<Counts>);

impl Ledger {
    /// For as long as it takes to write something down.
    pub(super) fn open(&self) -> MutexGuard<'_, Counts> {
        // Each entry is one assignment: a panic leaves none half written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn accepted(&self, operation: &str, what: &str) {
        let new = Accepted {
            what: what.to_owned(),
            told: Told::Nothing,
        };
        self.open()
            .operations
            .entry(operation.to_owned())
            .or_insert(new);
    }

    pub(super) fn told(&self, operation: &str, told: Told) {
        if let Some(accepted) = self.open().operations.get_mut(operation) {
            accepted.told = told;
        }
    }
}
