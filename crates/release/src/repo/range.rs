//! `Range` of a request, by RFC 9110. Pure.

/// The requested part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it.
    Whole,
    /// So many bytes from there on; at least one.
    Bytes { begin: u64, length: u64 },
    /// Bytes that the file does not have.
    Nothing,
}

/// Reads a range. What is not a single well-formed range of bytes is ignored, as the RFC allows.
pub(super) fn parse(range: &str, size: u64) -> Part {
    let range = range
        .split_once('=')
        .filter(|(unit, _)| unit.eq_ignore_ascii_case("bytes"));
    let Some((begin, end)) = range.and_then(|(_, range)| range.trim().split_once('-')) else {
        return Part::Whole;
    };
    match (begin, end) {
        ("", suffix) => match number(suffix) {
            None => Part::Whole,
            Some(0) => Part::Nothing,
            Some(_) if size == 0 => Part::Nothing,
            Some(suffix) => {
                let length = suffix.min(size);
                let begin = size - length;
                Part::Bytes { begin, length }
            }
        },
        (begin, end) => {
            let Some(begin) = number(begin) else {
                return Part::Whole;
            };
            let last = if end.is_empty() { Some(u64::MAX) } else { number(end) };
            match last {
                None => Part::Whole,
                Some(last) if last < begin => Part::Whole,
                Some(_) if begin >= size => Part::Nothing,
                Some(last) => Part::Bytes {
                    begin,
                    length: last.min(size - 1) - begin + 1,
                },
            }
        }
    }
}

/// Digits only; a number beyond all files is as good as the largest.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn bytes(begin: u64, length: u64) -> Part {
        Part::Bytes { begin, length }
    }

    #[rstest]
    #[case("bytes=0-0", bytes(0, 1))]
    #[case("bytes=2-4", bytes(2, 3))]
    #[case("BYTES=2-4", bytes(2, 3))]
    #[case("bytes=2-", bytes(2, 8))]
    #[case("bytes=2-99", bytes(2, 8))]
    #[case("bytes=-3", bytes(7, 3))]
    #[case("bytes=-99", bytes(0, 10))]
    #[case("bytes=9-99999999999999999999999", bytes(9, 1))]
    #[case("bytes=10-", Part::Nothing)]
    #[case("bytes=99999999999999999999999-", Part::Nothing)]
    #[case("bytes=-0", Part::Nothing)]
    #[case("bytes=4-2", Part::Whole)]
    #[case("bytes=0-1,3-4", Part::Whole)]
    #[case("bytes=", Part::Whole)]
    #[case("bytes=-", Part::Whole)]
    #[case("bytes=+1-2", Part::Whole)]
    #[case("lines=0-1", Part::Whole)]
    #[case("", Part::Whole)]
    fn ranges_of_ten_bytes(#[case] range: &str, #[case] part: Part) {
        assert_eq!(parse(range, 10), part);
    }

    #[test]
    fn an_empty_file_has_no_part() {
        assert_eq!(parse("bytes=0-", 0), Part::Nothing);
        assert_eq!(parse("bytes=-1", 0), Part::Nothing);
    }

    proptest! {
        #[test]
        fn a_part_lies_in_the_file(range in "bytes=[0-9]{0,4}-[0-9]{0,4}", size in 0_u64..2000) {
            if let Part::Bytes { begin, length } = parse(&range, size) {
                prop_assert!(length > 0 && begin + length <= size);
            }
        }
    }
}
