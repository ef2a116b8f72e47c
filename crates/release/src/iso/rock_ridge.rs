//! What SUSP and Rock Ridge add to a directory record: real names, symbolic links, relocated directories.

use super::{IsoError, ReadAt, bytes, walk::Budget};

/// Continuation areas of one record. Names of 255 bytes need one, long link targets a few.
const MOST_CONTINUATIONS: usize = 32;
/// A name in a Unix file system.
const LONGEST_NAME: usize = 255;
/// A path in a Unix file system.
const LONGEST_TARGET: usize = 4096;

const NAME_OR_LINK_CONTINUES: u8 = 1;
const CURRENT: u8 = 2;
const PARENT: u8 = 4;
const ROOT: u8 = 8;

/// What Rock Ridge says about one record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RockRidge {
    /// The real name.
    pub(super) name: Option<Vec<u8>>,
    /// The target of a symbolic link.
    pub(super) link: Option<Vec<u8>>,
    /// This is a directory, and it is at that block.
    pub(super) child: Option<u64>,
    /// This directory is shown elsewhere.
    pub(super) relocated: bool,
    /// File type and permissions.
    pub(super) mode: Option<u32>,
    /// The data is compressed or has holes: not stored as a file's bytes.
    pub(super) transformed: bool,
    /// Whether a component of the link's target is still open.
    link_is_open: bool,
}

/// How many bytes precede the entries of every record, if the image has any; from the root's own record.
pub(super) fn skip(system_use: &[u8]) -> Option<usize> {
    // CD-ROM XA puts 14 bytes before.
    [0, 14].into_iter().find_map(|at| match system_use.get(at..at + 7)? {
        [b'S', b'P', 7, _, 0xBE, 0xEF, skip] => Some(usize::from(*skip)),
        _ => None,
    })
}

/// Reads the entries of a record, following continuation areas.
pub(super) fn read<S: ReadAt + ?Sized>(
    source: &S,
    block: u64,
    system_use: &[u8],
    path: &str,
    budget: &mut Budget,
) -> Result<RockRidge, IsoError> {
    let mut found = RockRidge::default();
    let mut next = found.area(system_use, path)?;
    for _ in 0..MOST_CONTINUATIONS {
        let Some(continuation) = next else {
            return Ok(found);
        };
        budget.spend(u64::from(continuation.length), path)?;
        let mut area = vec![0; continuation.length as usize];
        super::read_exact(
            source,
            &mut area,
            u64::from(continuation.block) * block + u64::from(continuation.offset),
        )?;
        next = found.area(&area, path)?;
    }
    Err(IsoError::damaged(path, "the continuation areas of a record do not end"))
}

/// Where the entries of a record continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Continuation {
    block: u32,
    offset: u32,
    length: u32,
}

impl RockRidge {
    /// Takes in the entries of one area.
    fn area(&mut self, mut area: &[u8], path: &str) -> Result<Option<Continuation>, IsoError> {
        let mut next = None;
        while let [a, b, length, _, ..] = *area {
            let length = usize::from(length);
            // What is too short to be an entry is padding.
            let Some(entry) = area.get(..length).filter(|entry| entry.len() >= 4) else {
                break;
            };
            area = area.get(length..).unwrap_or_default();
            let data = entry.get(4..).unwrap_or_default();
            match &[a, b] {
                b"ST" => break,
                b"CE" => next = continuation(data),
                b"NM" => self.name_part(data, path)?,
                b"SL" => self.link_part(data, path)?,
                b"PX" => self.mode = bytes::u32_at(data, 0),
                b"CL" => self.child = bytes::u32_at(data, 0).map(u64::from),
                b"RE" => self.relocated = true,
                b"ZF" | b"SF" => self.transformed = true,
                _ => {}
            }
        }
        Ok(next)
    }

    fn name_part(&mut self, data: &[u8], path: &str) -> Result<(), IsoError> {
        let Some((flags, part)) = data.split_first() else {
            return Ok(());
        };
        if flags & (CURRENT | PARENT) != 0 {
            return Ok(());
        }
        let name = self.name.get_or_insert_default();
        name.extend_from_slice(part);
        if name.len() > LONGEST_NAME {
            return Err(IsoError::damaged(path, "a name has more than 255 bytes"));
        }
        Ok(())
    }

    fn link_part(&mut self, data: &[u8], path: &str) -> Result<(), IsoError> {
        let mut components = data.get(1..).unwrap_or_default();
        let link = self.link.get_or_insert_default();
        while let [flags, length, rest @ ..] = components {
            let Some((content, rest)) = rest.split_at_checked(usize::from(*length)) else {
                return Err(IsoError::damaged(path, "the target of a link is cut off"));
            };
            components = rest;
            if !link.is_empty() && !self.link_is_open && link.last() != Some(&b'/') {
                link.push(b'/');
            }
            match flags & (CURRENT | PARENT | ROOT) {
                CURRENT => link.push(b'.'),
                PARENT => link.extend_from_slice(b".."),
                ROOT => link.push(b'/'),
                _ => link.extend_from_slice(content),
            }
            self.link_is_open = flags & NAME_OR_LINK_CONTINUES != 0;
            if link.len() > LONGEST_TARGET {
                return Err(IsoError::damaged(path, "the target of a link has more than 4096 bytes"));
            }
        }
        Ok(())
    }
}

fn continuation(data: &[u8]) -> Option<Continuation> {
    Some(Continuation {
        block: bytes::u32_at(data, 0)?,
        offset: bytes::u32_at(data, 8)?,
        length: bytes::u32_at(data, 16)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(signature: &[u8; 2], data: &[u8]) -> Vec<u8> {
        let mut entry = signature.to_vec();
        entry.extend([u8::try_from(data.len()).unwrap() + 4, 1]);
        entry.extend(data);
        entry
    }

    fn read_area(area: &[u8]) -> Result<RockRidge, IsoError> {
        read(&[] as &[u8], 2048, area, "x", &mut Budget::new())
    }

    #[test]
    fn a_name_may_come_in_parts() {
        let area = [entry(b"NM", b"\x01long"), entry(b"NM", b"\x00name")].concat();
        assert_eq!(read_area(&area).unwrap().name.unwrap(), b"longname");
    }

    #[test]
    fn a_link_may_come_in_parts_and_components() {
        let first = entry(b"SL", b"\x01\x04\x00\x01\x03abc");
        let second = entry(b"SL", b"\x00\x00\x02de\x00\x01f");
        assert_eq!(
            read_area(&[first, second].concat()).unwrap().link.unwrap(),
            b"../abcde/f"
        );
        let root = entry(b"SL", b"\x00\x08\x00\x00\x03etc");
        assert_eq!(read_area(&root).unwrap().link.unwrap(), b"/etc");
    }

    #[test]
    fn a_record_that_continues_in_itself_ends_in_an_error() {
        // Block 0, offset 0, 28 bytes: this very entry.
        let mut data = [0; 24];
        data[16] = 28;
        let area = entry(b"CE", &data);
        let error = read(&area[..], 2048, &area, "x", &mut Budget::new()).unwrap_err();
        assert!(error.to_string().contains("do not end"), "{error}");
    }

    #[test]
    fn a_continuation_of_four_gigabytes_is_refused_before_it_is_read() {
        let data = [0xff; 24];
        let error = read_area(&entry(b"CE", &data)).unwrap_err();
        assert!(matches!(error, IsoError::TooMuch { .. }), "{error}");
    }
}
