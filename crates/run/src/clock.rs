//! The clocks of the run's own world: the shim is the one place that reads them for a run, and the
//! age of a heartbeat is measured on the clock that it was written by.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since the Unix epoch.
pub(crate) fn unix_ms() -> i64 {
    ms(ClockId::Realtime)
}

/// Milliseconds of a clock that neither steps nor counts the time that the host slept: a host
/// that wakes up does not find every shim silent.
pub(crate) fn monotonic_ms() -> i64 {
    ms(ClockId::Monotonic)
}

/// Milliseconds of a clock that does not step and counts the time that the host slept.
pub(crate) fn boot_ms() -> i64 {
    ms(ClockId::Boottime)
}

fn ms(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec
        .saturating_mul(1000)
        .saturating_add(now.tv_nsec / 1_000_000)
}
