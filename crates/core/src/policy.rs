//! The numbers that an operator may set and that decisions depend on.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits of charging and the shape of backoff (`[recovery]` of the configuration).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Policy {
    /// Charged crashes after which a job is quarantined; at least 1.
    pub crash_limit: u32,
    /// Deaths in isolation after which a job is quarantined; at least 1.
    pub loss_limit: u32,
    /// Exposures that make a suspect.
    pub suspect_exposures: u32,
    /// Disruptions without a finished attempt that make a suspect.
    pub suspect_disruptions: u32,
    /// The first backoff.
    pub backoff_min: Duration,
    /// The longest backoff.
    pub backoff_max: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            crash_limit: 3,
            loss_limit: 3,
            suspect_exposures: 2,
            suspect_disruptions: 5,
            backoff_min: Duration::from_secs(5),
            backoff_max: Duration::from_secs(600),
        }
    }
}

impl Policy {
    /// The wait before the try that follows the `nth` setback (1 is the first): doubles from
    /// `backoff_min` to `backoff_max`, then takes off up to a quarter by `chance`, so that jobs
    /// that failed together do not return together.
    pub fn backoff(&self, nth: u32, chance: Chance) -> Duration {
        let doublings = nth.saturating_sub(1).min(31);
        let full = self
            .backoff_min
            .saturating_mul(1 << doublings)
            .min(self.backoff_max);
        let off = full.as_millis() / 4 * u128::from(chance.0) / u128::from(u16::MAX);
        full.saturating_sub(Duration::from_millis(
            u64::try_from(off).unwrap_or(u64::MAX),
        ))
    }
}

/// A piece of chance that comes in with an event: uniform over all values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Chance(pub u16);
