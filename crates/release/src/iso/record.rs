//! A directory record, as ISO 9660 has it.

use jiff::{Timestamp, civil::DateTime, tz::Offset};

use super::bytes;

/// Bytes of a record before its name.
const FIXED: usize = 33;
const DIRECTORY: u8 = 0x02;
const ASSOCIATED: u8 = 0x04;
const MORE_EXTENTS: u8 = 0x80;

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct BadRecord(pub(super) &'static str);

/// One record: a file, or one extent of a large one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    extent: u32,
    extended_attributes: u8,
    /// Bytes of data.
    pub(super) size: u32,
    flags: u8,
    /// The name as the standard wants it; Rock Ridge has a better one.
    pub(super) name: &'a [u8],
    /// What extensions say.
    pub(super) system_use: &'a [u8],
    /// When the data was modified.
    pub(super) modified: Option<Timestamp>,
}

impl<'a> Record<'a> {
    /// Reads a record that has exactly these bytes.
    pub(super) fn parse(record: &'a [u8]) -> Result<Self, BadRecord> {
        const SHORT: BadRecord = BadRecord("a directory record is too short");
        let byte = |at: usize| record.get(at).copied().ok_or(SHORT);
        let name_length = usize::from(byte(32)?);
        let name = record.get(FIXED..FIXED + name_length).ok_or(SHORT)?;
        if byte(26)? != 0 || byte(27)? != 0 {
            return Err(BadRecord("an interleaved file"));
        }
        // The name is padded to an even length of the whole.
        let system_use = FIXED + name_length + usize::from(name_length.is_multiple_of(2));
        Ok(Self {
            extent: bytes::u32_at(record, 2).ok_or(SHORT)?,
            extended_attributes: byte(1)?,
            size: bytes::u32_at(record, 10).ok_or(SHORT)?,
            flags: byte(25)?,
            name,
            system_use: record.get(system_use..).unwrap_or_default(),
            modified: record.get(18..25).and_then(timestamp),
        })
    }

    /// Where the data begins, in blocks.
    pub(super) fn block(&self) -> u64 {
        u64::from(self.extent) + u64::from(self.extended_attributes)
    }

    pub(super) fn is_directory(&self) -> bool {
        self.flags & DIRECTORY != 0
    }

    /// Belongs to another file and is not shown.
    pub(super) fn is_associated(&self) -> bool {
        self.flags & ASSOCIATED != 0
    }

    /// The next record continues this file.
    pub(super) fn has_more_extents(&self) -> bool {
        self.flags & MORE_EXTENTS != 0
    }

    /// The directory itself or its parent.
    pub(super) fn is_dot(&self) -> bool {
        matches!(self.name, [0 | 1])
    }
}

/// Seven bytes: years since 1900, month, day, hour, minute, second, quarters of an hour east of Greenwich.
fn timestamp(date: &[u8]) -> Option<Timestamp> {
    let &[year, month, day, hour, minute, second, zone] = date else {
        return None;
    };
    let small = |n: u8| i8::try_from(n).ok();
    let (month, day, hour) = (small(month)?, small(day)?, small(hour)?);
    let when = DateTime::new(
        1900 + i16::from(year),
        month,
        day,
        hour,
        small(minute)?,
        small(second)?,
        0,
    );
    let zone = Offset::from_seconds(i32::from(zone.cast_signed()) * 15 * 60).ok()?;
    zone.to_timestamp(when.ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_knows_its_zone() {
        // 2026-03-13 03:57:09 at UTC+02:00.
        let when = timestamp(&[126, 3, 13, 3, 57, 9, 8]).unwrap();
        assert_eq!(when.to_string(), "2026-03-13T01:57:09Z");
        assert_eq!(timestamp(&[126, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(timestamp(&[126, 13, 40, 99, 0, 0, 0]), None);
        assert_eq!(timestamp(&[1]), None);
    }
}
