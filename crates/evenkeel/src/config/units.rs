//! Numbers and times of the configuration, checked while they are read, so that an error knows
//! its line and column.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest time that any key takes: ten years.
const LONGEST: Duration = Duration::from_secs(3650 * 86_400);

/// The largest count that any key takes.
const LARGEST: u32 = 100_000;

const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// A time above zero, as `50s`, `1h30m` or `30d`: whole numbers with the units d, h, m, s, ms,
/// each at most once, from the largest to the smallest (the grammar of bundles).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Time(Duration);

impl Time {
    pub(crate) const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    pub(crate) const fn get(self) -> Duration {
        self.0
    }

    fn parse(text: &str) -> Result<Self, String> {
        let malformed = || format!("{text:?} is not a time such as \"50s\", \"10m\" or \"1h30m\"");
        let mut rest = text;
        let mut units = UNITS.as_slice();
        let mut millis = 0_u64;
        while !rest.is_empty() {
            let (number, after) = split_off(rest, |c| c.is_ascii_digit());
            let (unit, after) = split_off(after, |c| c.is_ascii_alphabetic());
            let number = number.parse::<u64>().map_err(|_| malformed())?;
            let place = units
                .iter()
                .position(|(name, _)| *name == unit)
                .ok_or_else(malformed)?;
            millis = number
                .checked_mul(units[place].1)
                .and_then(|part| millis.checked_add(part))
                .ok_or_else(|| format!("{text:?} is too long: at most 3650d"))?;
            units = &units[place + 1..];
            rest = after;
        }
        let time = Duration::from_millis(millis);
        if text.is_empty() {
            Err(malformed())
        } else if time.is_zero() {
            Err("must be longer than zero".to_owned())
        } else if time > LONGEST {
            Err(format!("{text:?} is too long: at most 3650d"))
        } else {
            Ok(Self(time))
        }
    }
}

/// The start of `text` as far as `belongs` holds, and the rest.
fn split_off(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let whole = |length: u64| millis.is_multiple_of(u128::from(length));
        let (unit, length) = UNITS
            .into_iter()
            .find(|(_, length)| whole(*length))
            .unwrap_or(("ms", 1));
        write!(f, "{}{unit}", millis / u128::from(length))
    }
}

impl From<Duration> for Time {
    fn from(time: Duration) -> Self {
        Self(time)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsTime;
        impl Visitor<'_> for AsTime {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time in quotes such as \"50s\", \"10m\" or \"1h30m\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Time, E> {
                Time::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(AsTime)
    }
}

/// A time, or `0s` for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimeOrNone(Option<Time>);

impl TimeOrNone {
    pub(crate) const fn from_secs(secs: u64) -> Self {
        Self(Some(Time::from_secs(secs)))
    }

    pub(crate) const fn get(self) -> Option<Time> {
        self.0
    }
}

impl From<Option<Duration>> for TimeOrNone {
    fn from(time: Option<Duration>) -> Self {
        Self(time.map(Time))
    }
}

impl Serialize for TimeOrNone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(time) => time.serialize(serializer),
            None => serializer.serialize_str("0s"),
        }
    }
}

impl<'de> Deserialize<'de> for TimeOrNone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsTimeOrNone;
        impl Visitor<'_> for AsTimeOrNone {
            type Value = TimeOrNone;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time in quotes such as \"60s\", or \"0s\" for none")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<TimeOrNone, E> {
                if text == "0s" {
                    return Ok(TimeOrNone(None));
                }
                Time::parse(text)
                    .map(|time| TimeOrNone(Some(time)))
                    .map_err(E::custom)
            }
        }
        deserializer.deserialize_str(AsTimeOrNone)
    }
}

/// A count of at least 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Count(NonZeroU32);

impl Count {
    pub(crate) const fn new(count: NonZeroU32) -> Self {
        Self(count)
    }

    pub(crate) const fn get(self) -> u32 {
        self.0.get()
    }

    /// A quarter, but at least 1.
    pub(crate) fn quarter_of(whole: Self) -> Self {
        Self(NonZeroU32::new(whole.get() / 4).unwrap_or(NonZeroU32::MIN))
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsCount;
        impl Visitor<'_> for AsCount {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number from 1 to 100000")
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Count, E> {
                u32::try_from(number)
                    .ok()
                    .filter(|number| *number <= LARGEST)
                    .and_then(NonZeroU32::new)
                    .map(Count)
                    .ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
            }
        }
        deserializer.deserialize_i64(AsCount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_shown_reads_as_itself() {
        for text in ["50s", "1h", "30d", "90s", "500ms", "90m"] {
            let time = Time::parse(text).unwrap();
            assert_eq!(Time::parse(&time.to_string()), Ok(time), "{text}");
        }
        assert_eq!(
            Time::parse("1h30m").unwrap().get(),
            Duration::from_secs(5400)
        );
    }

    #[test]
    fn what_is_no_time_above_zero_is_refused() {
        for text in [
            "", "0s", "5", "s", "1.5h", "-1s", "30m1h", "1m1m", "10 m", "4000d",
        ] {
            assert!(Time::parse(text).is_err(), "{text}");
        }
        assert!(Time::parse("18446744073709551615d").is_err());
    }
}
