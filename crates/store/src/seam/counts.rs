//! What an operator wants at a glance.

/// How many jobs there are in each state, and what else an operator wants at a glance.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Waiting for a slot.
    pub queued: u64,
    /// Under way.
    pub running: u64,
    /// Waiting before the next attempt.
    pub backoff: u64,
    /// Done.
    pub succeeded: u64,
    /// Ended without success.
    pub failed: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// Set aside, and neither retried nor discarded.
    pub quarantined: u64,
    /// Of those that are not final, the suspects.
    pub suspects: u64,
    /// Instances that are not gone.
    pub instances: u64,
    /// Bindings that are not gone.
    pub bindings: u64,
    /// What may have leaked and nobody has looked at.
    pub leaks: u64,
}
