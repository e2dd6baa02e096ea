//! A suspect's turn to run alone, on the wire.

use evenkeel_core::ids::JobId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A suspect's turn to run alone: no other run is started meanwhile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Isolation {
    /// Whose turn it is.
    pub job: JobId,
    /// Whether its run has begun; else the runs under way are waited for.
    pub runs: bool,
    /// When others are started again at the latest; of one whose run has not begun, when it gives
    /// way if it is not alone by then.
    pub until: Timestamp,
}
