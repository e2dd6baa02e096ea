//! Durations and sizes as people write them.

use std::time::Duration;

use super::names::shown;

/// Reads `500ms`, `10m`, `1h30m`, `2d`: whole numbers with the units d, h, m, s, ms, each unit
/// at most once, from the largest to the smallest.
///
/// # Errors
/// A text for people, that says what is expected.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 5] = [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    ];
    let malformed = || {
        format!(
            "{:?} is not a duration such as 30s, 10m, 1h30m or 500ms",
            shown(text)
        )
    };
    let mut rest = text;
    let mut units = UNITS.as_slice();
    let mut millis = 0_u64;
    while !rest.is_empty() || units.len() == UNITS.len() {
        let (number, unit, after) = split(rest).ok_or_else(malformed)?;
        let place = units
            .iter()
            .position(|(name, _)| *name == unit)
            .ok_or_else(malformed)?;
        let step = number.checked_mul(units[place].1);
        millis = step
            .and_then(|step| millis.checked_add(step))
            .ok_or_else(|| format!("{:?} is too long a time", shown(text)))?;
        units = &units[place + 1..];
        rest = after;
    }
    Ok(Duration::from_millis(millis))
}

/// Reads `64k`, `128Mi`, `1Gi` or a plain number: bytes, with the units k, M, G, T (powers of
/// 1000) and Ki, Mi, Gi, Ti (powers of 1024).
///
/// # Errors
/// A text for people, that says what is expected.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 9] = [
        ("", 1),
        ("k", 1000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
    ];
    let malformed = || {
        format!(
            "{:?} is not a size such as 64Ki, 128Mi, 1Gi or 500M",
            shown(text)
        )
    };
    let (number, unit, after) = split(text).ok_or_else(malformed)?;
    let factor = UNITS
        .iter()
        .find(|(name, _)| *name == unit && after.is_empty());
    let (_, factor) = factor.ok_or_else(malformed)?;
    number
        .checked_mul(*factor)
        .ok_or_else(|| format!("{:?} is too large a size", shown(text)))
}

/// A number, the letters after it, and the rest.
fn split(text: &str) -> Option<(u64, &str, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let end = rest
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    Some((number.parse().ok()?, unit, rest))
}

/// The shortest text that [`duration`] reads as this time, for messages.
pub(super) fn spoken(time: Duration) -> String {
    let millis = time.as_millis();
    let units = [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
    ];
    let whole = units
        .iter()
        .find(|(_, length)| millis.is_multiple_of(*length));
    let (unit, length) = whole.unwrap_or(&("ms", 1));
    format!("{}{unit}", millis / length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units_in_order_and_once() {
        let good = [
            ("500ms", 500),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("0s", 0),
        ];
        for (text, millis) in good {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        let bad = [
            "", "10", "m", "1.5h", "-1s", "30m1h", "1m1m", "10 m", "10min", "1h ", "５m",
        ];
        for text in bad {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(duration("99999999999999999999s").is_err());
        assert!(duration("18446744073709551615d").is_err());
    }

    #[test]
    fn sizes_tell_powers_of_1000_from_powers_of_1024() {
        let good = [
            ("0", 0),
            ("64k", 64_000),
            ("64Ki", 65_536),
            ("128Mi", 134_217_728),
            ("1Gi", 1 << 30),
        ];
        for (text, size) in good {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for text in [
            "",
            "Mi",
            "1.5Gi",
            "1 Gi",
            "1gi",
            "1GiB",
            "-1k",
            "1Gi1Mi",
            "99999999999Ti",
        ] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_spoken_duration_reads_as_itself() {
        for millis in [1, 500, 1000, 90_000, 3_600_000, 5_400_000, 86_400_000] {
            let time = Duration::from_millis(millis);
            assert_eq!(duration(&spoken(time)), Ok(time));
        }
    }
}
