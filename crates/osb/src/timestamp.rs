//! Times as the specification writes them.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// A time in UTC, `yyyy-mm-ddThh:mm:ss.sZ`.
///
/// Read with or without a fraction, written always with one and without needless zeros, so that equal times are
/// equal texts. Kept as text: this crate takes no side between the
/// libraries for time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Timestamp(String);

/// A text that is no such time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a time in UTC as 2030-01-31T23:59:59.0Z")]
pub struct TimestampError;

impl Timestamp {
    /// As on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    // Without the `Z`, which sorts after digits, the texts sort by time.
    fn sort_key(&self) -> &str {
        self.0.trim_end_matches('Z')
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        let (seconds, fraction) = text.split_at_checked(19).ok_or(TimestampError)?;
        let fraction = fraction.strip_suffix('Z').ok_or(TimestampError)?;
        let digits = match fraction.strip_prefix('.') {
            Some(digits)
                if (1..=9).contains(&digits.len())
                    && digits.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                digits.trim_end_matches('0')
            }
            None if fraction.is_empty() => "",
            Some(_) | None => return Err(TimestampError),
        };
        if !is_date_and_time(seconds.as_bytes()) {
            return Err(TimestampError);
        }
        let digits = if digits.is_empty() { "0" } else { digits };
        Ok(Self(format!("{seconds}.{digits}Z")))
    }
}

fn is_date_and_time(text: &[u8]) -> bool {
    let shape = b"dddd-dd-ddTdd:dd:dd";
    let fits = |(&byte, &shape): (&u8, &u8)| {
        if shape == b'd' {
            byte.is_ascii_digit()
        } else {
            byte == shape
        }
    };
    if text.len() != shape.len() || !text.iter().zip(shape).all(fits) {
        return false;
    }
    let number = |from: usize, digits: usize| {
        text[from..from + digits]
            .iter()
            .fold(0_u32, |number, &digit| {
                number * 10 + u32::from(digit - b'0')
            })
    };
    let year = number(0, 4);
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match number(5, 2) {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    // 60 is a leap second (RFC 3339).
    (1..=days).contains(&number(8, 2))
        && number(11, 2) <= 23
        && number(14, 2) <= 59
        && number(17, 2) <= 60
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sort_key().cmp(other.sort_key())
    }
}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
