//! Whose fault a panic is: the job's, or ours (DESIGN §4, "Our own bug").
//!
//! A panic in a driving step is charged to its job. The same panic location in several different
//! jobs within minutes cannot be the doing of each of them: nobody is charged any more, and the
//! broker holds new runs. The ledger is memory of one process; a new process starts afresh.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ids::JobId;
use crate::time::Timestamp;

/// Different jobs that have to panic at one place before it is our bug.
pub const OUR_BUG_JOBS: usize = 3;

/// Within how long.
pub const OUR_BUG_WINDOW: Duration = Duration::from_secs(600);

/// Most locations that are remembered; the one that was silent longest is forgotten first.
pub const MAX_LOCATIONS: usize = 64;

/// Most bytes of a location that are looked at.
pub const MAX_LOCATION_BYTES: usize = 512;

/// Who pays for a panic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PanicVerdict {
    /// The job whose step it was.
    Charge,
    /// Nobody: the broker is at fault, and has to hold new runs.
    OurBug,
}

/// The panics of the last minutes.
#[derive(Clone, Debug, Default)]
pub struct PanicLedger {
    /// The one that panicked last is at the back; at most [`MAX_LOCATIONS`].
    places: VecDeque<Place>,
}

#[derive(Clone, Debug)]
struct Place {
    location: String,
    /// Different jobs, the latest at the back. As many as a verdict takes are enough: if that
    /// many are within the window, so are the latest of them. At most [`OUR_BUG_JOBS`].
    jobs: VecDeque<(JobId, Timestamp)>,
}

impl PanicLedger {
    /// Notes that a step of `job` panicked at `location` (`file:line:column`) and says who pays:
    /// [`PanicVerdict::OurBug`] from the third different job on, for as long as three different
    /// ones, this one included, are less than [`OUR_BUG_WINDOW`] apart.
    pub fn observe(&mut self, location: &str, job: JobId, at: Timestamp) -> PanicVerdict {
        let location = bounded(location);
        let mut place = self.take(location).unwrap_or_else(|| Place {
            location: location.to_owned(),
            jobs: VecDeque::with_capacity(OUR_BUG_JOBS),
        });
        place.jobs.retain(|(known, _)| *known != job);
        if place.jobs.len() == OUR_BUG_JOBS {
            place.jobs.pop_front();
        }
        place.jobs.push_back((job, at));
        let recent = place
            .jobs
            .iter()
            .filter(|(_, when)| is_near(*when, at))
            .count();
        if self.places.len() == MAX_LOCATIONS {
            self.places.pop_front();
        }
        self.places.push_back(place);
        if recent >= OUR_BUG_JOBS {
            PanicVerdict::OurBug
        } else {
            PanicVerdict::Charge
        }
    }

    /// How many locations are remembered.
    pub fn locations(&self) -> usize {
        self.places.len()
    }

    fn take(&mut self, location: &str) -> Option<Place> {
        let found = self
            .places
            .iter()
            .position(|place| place.location == location)?;
        self.places.remove(found)
    }
}

/// Whether two instants are within the window, whichever is the earlier: the clock may have been
/// set back.
fn is_near(one: Timestamp, other: Timestamp) -> bool {
    one.since(other).max(other.since(one)) < OUR_BUG_WINDOW
}

/// The end of a location that is too long: that is where the line and the column are.
fn bounded(location: &str) -> &str {
    let mut start = location.len().saturating_sub(MAX_LOCATION_BYTES);
    while !location.is_char_boundary(start) {
        start += 1;
    }
    &location[start..]
}
