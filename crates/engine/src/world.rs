//! The one place where time, names and chance come from.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evenkeel_core::policy::Chance;
use evenkeel_core::time::Timestamp;
use uuid::Uuid;

/// Where the engine takes time, names and chance from. The real one is [`RealWorld`].
pub trait World: Send + Sync + fmt::Debug {
    /// The wall clock.
    fn now(&self) -> Timestamp;
    /// A fresh UUIDv7.
    fn id(&self) -> Uuid;
    /// A piece of chance.
    fn chance(&self) -> Chance;
}

/// The host's clock and the kernel's random numbers.
#[derive(Clone, Copy, Default, Debug)]
pub struct RealWorld;

impl World for RealWorld {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "the home of the wall clock")]
        let now = SystemTime::now();
        let span = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
    }

    fn id(&self) -> Uuid {
        #[expect(clippy::disallowed_methods, reason = "the home of ids")]
        Uuid::now_v7()
    }

    fn chance(&self) -> Chance {
        Chance(u16::try_from(self.id().as_u128() & 0xffff).unwrap_or(0))
    }
}
