//! The primary volume descriptor: what the image says about itself, and where its root is.

use super::{
    IsoError, ReadAt, bytes,
    record::{BadRecord, Record},
};

/// Descriptors have this size and begin after sixteen of them.
const SECTOR: u64 = 2048;
const FIRST_DESCRIPTOR: u64 = 16;
/// An image has three or four descriptors; more than this is none of ours.
const MOST_DESCRIPTORS: u64 = 32;
const PRIMARY: u8 = 1;
const TERMINATOR: u8 = 255;

/// What the primary volume descriptor says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    /// Its name.
    pub(super) id: String,
    /// How many bytes the image says that it has.
    pub(super) declared: u64,
    /// The unit of all addresses, in bytes.
    pub(super) block: u64,
    /// Where the root directory begins, in blocks.
    pub(super) root_block: u64,
    /// Bytes of the root directory.
    pub(super) root_size: u64,
    /// The descriptor itself: it has the dates and names that distinguish images.
    pub(super) descriptor: Vec<u8>,
}

/// Finds and reads the primary volume descriptor.
pub(super) fn read<S: ReadAt + ?Sized>(source: &S) -> Result<Volume, IsoError> {
    for sector in FIRST_DESCRIPTOR..FIRST_DESCRIPTOR + MOST_DESCRIPTORS {
        let mut descriptor = vec![0; SECTOR as usize];
        if sector * SECTOR + SECTOR > source.size() {
            return Err(IsoError::Foreign("it ends before its volume descriptor"));
        }
        super::read_exact(source, &mut descriptor, sector * SECTOR)?;
        if descriptor.get(1..6) != Some(b"CD001".as_slice()) {
            return Err(IsoError::Foreign("it has no volume descriptor"));
        }
        match descriptor.first() {
            Some(&PRIMARY) => return parse(descriptor, source.size()),
            Some(&TERMINATOR) => break,
            _ => {}
        }
    }
    Err(IsoError::Foreign("it has no primary volume descriptor"))
}

/// Reads a primary volume descriptor of an image that has `actual` bytes.
fn parse(descriptor: Vec<u8>, actual: u64) -> Result<Volume, IsoError> {
    let block = u64::from(bytes::u16_at(&descriptor, 128).unwrap_or(0));
    if ![512, 1024, 2048].contains(&block) {
        return Err(IsoError::damaged("", "the volume has an impossible block size"));
    }
    let declared = u64::from(bytes::u32_at(&descriptor, 80).unwrap_or(0)) * block;
    if declared > actual {
        return Err(IsoError::Truncated { declared, actual });
    }
    let root = descriptor.get(156..190).unwrap_or_default();
    let root = Record::parse(root).map_err(|BadRecord(what)| IsoError::damaged("", what))?;
    if !root.is_directory() {
        return Err(IsoError::damaged("", "the root is no directory"));
    }
    let id = String::from_utf8_lossy(descriptor.get(40..72).unwrap_or_default());
    Ok(Volume {
        id: id.trim_end_matches([' ', '\0']).to_owned(),
        declared,
        block,
        root_block: root.block(),
        root_size: u64::from(root.size),
        descriptor,
    })
}
