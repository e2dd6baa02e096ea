//! Asking again, where that is what a platform does.

use std::time::Duration;

use super::ClientError;
use crate::headers::RetryAfter;

/// How often, and after which pauses, something is tried again.
///
/// A broker that says how long to wait is listened to, up to [`at_most`](Self::at_most).
///
/// ```
/// use std::time::Duration;
/// use evenkeel_osb::client::Retries;
///
/// let retries = Retries { repeats: 3, pause: Duration::from_millis(500), at_most: Duration::from_secs(30) };
/// assert_eq!(Retries::default().repeats, 0);
/// # drop(retries);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// How often at most, after the first time.
    pub repeats: u32,
    /// Before the first repeat; each further pause is twice as long as the one before.
    pub pause: Duration,
    /// No pause is longer.
    pub at_most: Duration,
}

impl Default for Retries {
    /// None.
    fn default() -> Self {
        Self {
            repeats: 0,
            pause: Duration::from_secs(1),
            at_most: Duration::from_secs(60),
        }
    }
}

impl Retries {
    /// Before repeat number `repeat`, from 0; none when there are no more.
    pub(super) fn pause(&self, repeat: u32, asked: Option<RetryAfter>) -> Option<Duration> {
        if repeat >= self.repeats {
            return None;
        }
        let doubled = self.pause.saturating_mul(2_u32.saturating_pow(repeat));
        let pause = asked.map_or(doubled, RetryAfter::as_duration);
        Some(pause.min(self.at_most))
    }
}

impl ClientError {
    /// Whether the same request can be sent again at once or a little later, because the broker says "not now" or was
    /// never reached: 429, 503, no connection.
    ///
    /// Not after silence: the broker may be at work, and what a platform owes it then is
    /// [orphan mitigation](Self::orphan).
    pub fn is_repeatable(&self) -> bool {
        match self {
            Self::Broker(error) => matches!(error.status, 429 | 503),
            Self::Transport { source, .. } => source.is_connect(),
            Self::BaseUrl { .. }
            | Self::Id(_)
            | Self::Unexpected { .. }
            | Self::Malformed { .. }
            | Self::TooLarge { .. }
            | Self::TimedOut { .. }
            | Self::GaveUp { .. } => false,
        }
    }

    /// When the broker would like to be asked again.
    pub fn retry_after(&self) -> Option<RetryAfter> {
        self.broker().and_then(|error| error.retry_after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_a_broker_that_asks_is_listened_to() {
        let second = Duration::from_secs(1);
        let retries = Retries {
            repeats: 40,
            pause: second,
            at_most: 10 * second,
        };
        let pauses: Vec<_> = (0..5).map(|repeat| retries.pause(repeat, None)).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 10].map(|n| Some(n * second)));
        assert_eq!(retries.pause(39, None), Some(10 * second));
        assert_eq!(retries.pause(40, None), None);
        let asked = |seconds| retries.pause(0, Some(RetryAfter::seconds(seconds)));
        assert_eq!(asked(3), Some(3 * second));
        assert_eq!(asked(0), Some(Duration::ZERO));
        assert_eq!(asked(86_400), Some(10 * second));
        assert_eq!(Retries::default().pause(0, None), None);
    }
}
