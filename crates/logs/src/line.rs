//! Lines as the API shows them with `timestamps=true`, and the lines that we add ourselves.

use std::fmt::Write as _;

use jiff::Timestamp;

/// Nanoseconds since the epoch: what timestamps of lines are compared by.
pub type Nanos = i64;

/// Nanoseconds of a second.
pub const SECOND: Nanos = 1_000_000_000;
/// Longer lines are cut: a line is the unit that is in memory.
pub const LONGEST: usize = 256 * 1024;
/// What lines of ours begin with, after their timestamp.
pub const MARK: &str = "---";

/// The timestamp that a line begins with, and the rest.
#[must_use]
pub fn split(line: &str) -> Option<(Nanos, &str)> {
    let (time, text) = line.split_once(' ').unwrap_or((line, ""));
    Some((parse(time)?, text))
}

/// A timestamp as the kubelet writes it. UTC is read without the general parser: it is in every line.
fn parse(text: &str) -> Option<Nanos> {
    quick(text).or_else(|| {
        let time: Timestamp = text.parse().ok()?;
        Some(nanos(time))
    })
}

fn quick(text: &str) -> Option<Nanos> {
    let bytes = text.as_bytes();
    let punctuation = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if bytes.len() < 20 || punctuation.iter().any(|(at, byte)| bytes[*at] != *byte) {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = bytes[from..to].iter();
        digits.into_iter().try_fold(0_i64, |sum, digit| {
            digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0'))
        })
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let fraction = match bytes[19] {
        b'Z' if bytes.len() == 20 => 0,
        b'.' if bytes[bytes.len() - 1] == b'Z' && (22..=30).contains(&bytes.len()) => {
            let digits = bytes.len() - 21;
            number(20, bytes.len() - 1)? * 10_i64.pow(9 - u32::try_from(digits).ok()?)
        }
        _ => return None,
    };
    // Days since the epoch in the civil calendar, with years that begin in March.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    seconds.checked_mul(SECOND)?.checked_add(fraction)
}

/// A moment in nanoseconds, bounded by what the type can have.
#[must_use]
pub fn nanos(time: Timestamp) -> Nanos {
    i64::try_from(time.as_nanosecond()).unwrap_or(if time.as_nanosecond() < 0 { i64::MIN } else { i64::MAX })
}

/// Nanoseconds as a moment.
#[must_use]
pub fn timestamp(nanos: Nanos) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Which line it is, within one log file: its timestamp and its text. The value is kept on volumes, so it must not change
/// with the compiler.
#[must_use]
pub fn identity(line: &str) -> u64 {
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    let (words, rest) = line.as_bytes().as_chunks::<8>();
    let sum = words
        .iter()
        .fold(line.len() as u64, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    let sum = rest.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte)));
    sum ^ (sum >> 31)
}

/// A line of ours, in place of lines that are missing.
pub fn add_mark(text: &mut String, at: Nanos, what: &str) {
    // Writing to a text does not fail.
    let _ = writeln!(text, "{} {MARK} {what}", timestamp(at));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_of_lines_are_read_as_the_general_parser_reads_them() {
        for text in [
            "2026-03-13T03:57:09.123456789Z",
            "2026-03-13T03:57:09.1Z",
            "2026-12-31T23:59:59Z",
            "2024-02-29T00:00:00.000000001Z",
            "1970-01-01T00:00:00Z",
            "2100-03-01T12:00:00.5Z",
        ] {
            let time: Timestamp = text.parse().unwrap();
            assert_eq!(quick(text), Some(nanos(time)), "{text}");
            assert_eq!(timestamp(nanos(time)), time);
        }
        assert_eq!(
            split("2026-03-13T05:57:09+02:00 a b"),
            split("2026-03-13T03:57:09Z a b")
        );
    }

    #[test]
    fn a_line_without_a_timestamp_has_none() {
        for text in [
            "failed to get container status",
            "",
            "2026-13-13T03:57:09Z x",
            "2026-03-13 x",
        ] {
            assert_eq!(split(text), None, "{text}");
        }
        let empty = split("2026-03-13T03:57:09Z").unwrap();
        assert_eq!(empty.1, "");
    }

    #[test]
    fn a_line_of_ours_has_a_timestamp_like_others() {
        let mut text = String::new();
        add_mark(&mut text, 5 * SECOND, "gap: lines are missing");
        assert_eq!(text, "1970-01-01T00:00:05Z --- gap: lines are missing\n");
    }
}
