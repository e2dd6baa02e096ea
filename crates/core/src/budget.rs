//! What a target has been charged so far, over all the jobs that tried the same thing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::attempt::Charge;
use crate::policy::Policy;

/// The account of one (instance uid, binding, action): a new job for the same target inherits
/// it. Counters never shrink but by success or by an operator's word.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Budget {
    /// Runs that ended without an outcome while the broker lived.
    pub crashes: u32,
    /// Deaths in isolation.
    pub losses: u32,
    /// Deaths that may have been somebody else's doing: of a broker with or beside the job, or of
    /// its run in company where only one in isolation could convict.
    pub exposures: u32,
    /// Disruptions since the last attempt that finished.
    pub disruptions: u32,
    /// Whether the next run is isolated.
    pub suspect: bool,
    /// The longest that a lost attempt had lived.
    pub longest_lost: Duration,
}

/// Shortest solo window: a suspect shares the replica again after it has outlived this.
pub const SOLO_MIN: Duration = Duration::from_secs(120);

impl Budget {
    /// Whether no further run may start.
    pub fn is_spent(&self, policy: &Policy) -> bool {
        self.crashes >= policy.crash_limit || self.losses >= policy.loss_limit
    }

    /// How long the next run has to be alone, if at all: until it has outlived twice its
    /// longest lost attempt.
    pub fn solo_window(&self) -> Option<Duration> {
        self.suspect
            .then(|| self.longest_lost.saturating_mul(2).max(SOLO_MIN))
    }

    /// Setbacks that were charged so far: the exponent of the backoff.
    pub fn setbacks(&self) -> u32 {
        self.crashes
            .saturating_add(self.losses)
            .saturating_add(self.exposures)
    }

    /// Books a crash and says what was charged.
    ///
    /// Without evidence of its own the charge that would reach the limit counts only if the
    /// attempt ran solo, and is an exposure otherwise; the job becomes a suspect as soon as that
    /// charge is the next one. So with a limit of 1 nothing is charged to a first death in
    /// company that nobody can explain.
    pub fn crash(&mut self, proven: bool, solo: bool, ran: Duration, policy: &Policy) -> Charge {
        let next = self.crashes.saturating_add(1);
        if !(proven || solo || next < policy.crash_limit) {
            self.suspect = true;
            return self.expose(false, ran, policy);
        }
        self.longest_lost = self.longest_lost.max(ran);
        self.crashes = next;
        if !proven && next.saturating_add(1) >= policy.crash_limit {
            self.suspect = true;
        }
        Charge::Crash
    }

    /// Books a death that has no cause of its own to show: a loss where the job was isolated, else
    /// an exposure.
    pub fn expose(&mut self, isolated: bool, ran: Duration, policy: &Policy) -> Charge {
        self.longest_lost = self.longest_lost.max(ran);
        if isolated {
            self.losses = self.losses.saturating_add(1);
            return Charge::Loss;
        }
        self.exposures = self.exposures.saturating_add(1);
        if self.exposures >= policy.suspect_exposures {
            self.suspect = true;
        }
        Charge::Exposure
    }

    /// Books a disruption.
    pub fn disrupt(&mut self, policy: &Policy) -> Charge {
        self.disruptions = self.disruptions.saturating_add(1);
        if self.disruptions >= policy.suspect_disruptions {
            self.suspect = true;
        }
        Charge::Disruption
    }

    /// Notes that an attempt came to an orderly end.
    pub fn finished(&mut self) {
        self.disruptions = 0;
    }

    /// Lifts suspicion, by an operator's word (`jobs clear`): the counters that only make
    /// suspects start again, those that condemn stay.
    pub fn lift_suspicion(&mut self) {
        self.suspect = false;
        self.exposures = 0;
        self.disruptions = 0;
        self.longest_lost = Duration::ZERO;
    }

    /// Forgets everything: success, or an operator's retry.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
