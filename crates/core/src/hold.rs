//! When no new run may start though everything else is served (DESIGN §8, "Held").
//!
//! A broker that dies again and again, with nobody named for it and nothing done in between, would
//! start the same runs each time and die of them again. So after some deaths in a row the next
//! broker starts nothing for a while: what runs goes on, what is asked is accepted and waits.
//!
//! **What is counted.** Ends of brokers, newest first, for as long as they are unclean, unexplained
//! (the black box names nobody: a named job is dealt with by its account) and not forgiven. The
//! oldest of a row is the one whose broker had concluded a job or served for a quiet period: its
//! end counts, but whatever came before is no longer *in a row* with what came after. A boot
//! without a drain mark is an unclean end, whatever ended it: a hold is a pause, and condemns nobody.
//!
//! **When it ends.** After a quiet period without a further death, and then the counted deaths are
//! forgiven: they never count again, or the next death alone would hold the broker once more. A
//! broker that dies *while* it is held has started nothing, so that holding is no help against what
//! kills it: each such death begins the quiet period anew, but a hold never lasts longer than
//! [`MOST_QUIETS`] quiet periods from its beginning. Its beginning is on disk; what waits therefore
//! gets its chance in the end however fast brokers die, and a loop that goes on costs at most as many
//! brokers that start runs as it takes to be held again. A clock that was set back cannot make a hold
//! longer: no boot waits for more than one quiet period of its own.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The longest that a hold by the rule lasts, in quiet periods, when brokers die under it.
pub const MOST_QUIETS: u32 = 6;

/// Most characters of a reason that are kept.
pub const MAX_REASON_CHARS: usize = 500;

/// Why no new run starts. The words are those of the store and of the admin API.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// An operator wants it so: until an operator releases it, over all restarts.
    Hand,
    /// Brokers died in a row: over restarts, until it was quiet.
    Deaths,
    /// One place in the broker panicked for several jobs ([`crate::panics`]): of this process only,
    /// until it was quiet. Another process may be a mended one.
    Panics,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Hand, Self::Deaths, Self::Panics];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hand => "hand",
            Self::Deaths => "deaths",
            Self::Panics => "panics",
        }
    }
}

/// A reason for which no new run starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hold {
    /// What kind of reason.
    pub cause: Cause,
    /// In words; at most [`MAX_REASON_CHARS`].
    pub reason: String,
    /// Who wants it: `operator`, `broker`.
    pub actor: String,
    /// Since when. Of [`Cause::Panics`]: the last of them.
    pub since: Timestamp,
}

impl Hold {
    /// A hold, its reason held to [`MAX_REASON_CHARS`].
    pub fn new(cause: Cause, reason: &str, actor: &str, since: Timestamp) -> Self {
        Self {
            cause,
            reason: reason.chars().take(MAX_REASON_CHARS).collect(),
            actor: actor.to_owned(),
            since,
        }
    }

    /// Why no new run starts, for operators.
    pub fn line(&self) -> String {
        match self.cause {
            Cause::Hand if self.reason.is_empty() => format!("held by the {}", self.actor),
            Cause::Hand => format!("held by the {}: {}", self.actor, self.reason),
            Cause::Deaths | Cause::Panics => self.reason.clone(),
        }
    }
}

/// The life of one earlier broker, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BootEnd {
    /// It was asked to end.
    pub orderly: bool,
    /// Its black box names a job whose step it died in.
    pub named: bool,
    /// A job was concluded under it.
    pub concluded: bool,
    /// From its beginning to its last sign of life.
    pub served: Duration,
    /// A hold that counted it has ended since.
    pub forgiven: bool,
}

/// How many unexplained deaths in a row there are. `ends` are of all brokers before this one,
/// newest first; those beyond the number that is asked about need not be there.
pub fn deaths_in_a_row(ends: &[BootEnd], quiet: Duration) -> u32 {
    let mut deaths = 0;
    for end in ends {
        if end.orderly || end.named || end.forgiven {
            break;
        }
        deaths += 1;
        if end.concluded || end.served >= quiet {
            break;
        }
    }
    deaths
}

/// Whether the broker that starts after these ends is to be held. `limit` is at least 1.
pub fn is_due(ends: &[BootEnd], limit: u32, quiet: Duration) -> bool {
    deaths_in_a_row(ends, quiet) >= limit.max(1)
}

/// How long a hold by the rule lasts from `now` on, if no broker dies under it (any more): `now` is
/// when this process began, or the hold if that was later.
pub fn remaining(since: Timestamp, now: Timestamp, quiet: Duration) -> Duration {
    let most = quiet.saturating_mul(MOST_QUIETS);
    quiet.min(most.saturating_sub(now.since(since)))
}

/// What a hold by the rule says of itself.
pub fn deaths_line(deaths: u32, quiet: Duration) -> String {
    let why = "and nothing names a job as the cause";
    match deaths {
        1 => format!("the last broker process died, {why}"),
        _ => format!(
            "{deaths} broker processes died in a row, without a job concluded or {} s served in \
             between, {why}",
            quiet.as_secs()
        ),
    }
}
