//! What the kernel says of processes that it ended for want of memory, for whoever waits for a
//! process that is no run.

use crate::{cgroup, proc};

/// How often it has been since the counters began: only differences tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OomKills {
    /// In the control group that this process is in.
    pub own_group: u64,
    /// On the whole host.
    pub host: u64,
}

impl OomKills {
    /// The counters as they stand; what the kernel does not say is 0.
    pub fn now() -> Self {
        Self {
            own_group: cgroup::oom_kills_here(),
            host: proc::host_oom_kills().unwrap_or(0),
        }
    }
}
