//! How long to wait before the next broker: the first one after a death starts at once, those of a
//! broker that keeps dying after pauses that double up to a limit.

use std::time::Duration;

/// A broker that lived as long begins a new account.
const SERVED_A_WHILE: Duration = Duration::from_secs(30);
/// The first pause that is one.
const FIRST: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Pauses {
    longest: Duration,
    next: Duration,
}

impl Pauses {
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            longest,
            next: Duration::ZERO,
        }
    }

    /// After a broker that lived for `lived`.
    pub(super) fn after(&mut self, lived: Duration) -> Duration {
        if lived >= SERVED_A_WHILE {
            self.next = Duration::ZERO;
        }
        let pause = self.next.min(self.longest);
        self.next = (self.next * 2).clamp(FIRST, self.longest.max(FIRST));
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_begin_with_none_double_to_the_limit_and_begin_anew_after_a_while_of_service() {
        let mut pauses = Pauses::new(Duration::from_secs(5));
        let soon = Duration::from_secs(1);
        let millis: Vec<_> = (0..10).map(|_| pauses.after(soon).as_millis()).collect();
        assert_eq!(millis, [0, 50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(pauses.after(SERVED_A_WHILE), Duration::ZERO);
        assert_eq!(pauses.after(soon), FIRST);
    }

    #[test]
    fn a_lower_limit_is_kept_from_the_start() {
        let mut pauses = Pauses::new(Duration::from_millis(10));
        let longest = (0..10).map(|_| pauses.after(Duration::ZERO)).max();
        assert_eq!(longest, Some(Duration::from_millis(10)));
    }
}
