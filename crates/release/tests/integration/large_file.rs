//! A file of more than 4 GiB, in an image made by hand: ISO 9660 has it in several extents, and every extent but the last
//! is as large as a record can say. The file has holes, so that neither time nor disk is needed.

use crate::support;
use std::{
    fs::File,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use crate::support::Running;
use release::{
    iso::{Iso, IsoError},
    repo::Limits,
};

const BLOCK: u64 = 2048;
/// What a record can say, in whole blocks.
const LARGEST_EXTENT: u64 = (1 << 32) - BLOCK;
/// Three extents.
const SIZE: u64 = 2 * LARGEST_EXTENT + 123_457;
/// Blocks between two extents: a reader that ignores extents reads something else.
const GAP: u64 = 1;
const NAME: &str = "huge.tar.zst";
const RELEASE: &[u8] = b"harvester: v1\n";

const ROOT_BLOCK: u32 = 18;
const FOLDER_BLOCK: u32 = 19;
const RELEASE_BLOCK: u32 = 20;
const HUGE_BLOCK: u32 = 21;

/// A number in both byte orders.
fn both(number: u32) -> Vec<u8> {
    [number.to_le_bytes(), number.to_be_bytes()].concat()
}

/// A directory record: where, how much, flags, the short name, and what Rock Ridge adds.
fn record(block: u32, size: u32, flags: u8, name: &[u8], system_use: &[u8]) -> Vec<u8> {
    let padding = usize::from(name.len().is_multiple_of(2));
    let mut record = vec![0, 0];
    record.extend(both(block));
    record.extend(both(size));
    record.extend([126, 3, 13, 3, 57, 9, 0, flags, 0, 0, 1, 0, 0, 1]);
    record.push(u8::try_from(name.len()).unwrap());
    record.extend(name);
    record.resize(record.len() + padding, 0);
    record.extend(system_use);
    record.resize(record.len().next_multiple_of(2), 0);
    record[0] = u8::try_from(record.len()).unwrap();
    record
}

/// The real name.
fn named(name: &str) -> Vec<u8> {
    let mut entry = b"NM".to_vec();
    entry.extend([u8::try_from(name.len() + 5).unwrap(), 1, 0]);
    entry.extend(name.as_bytes());
    entry
}

const DIRECTORY: u8 = 2;
const MORE_EXTENTS: u8 = 0x80;

/// The records of the large file, in order.
fn huge() -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let (mut block, mut left) = (HUGE_BLOCK, SIZE);
    while left > 0 {
        let length = left.min(LARGEST_EXTENT);
        left -= length;
        let flags = if left > 0 { MORE_EXTENTS } else { 0 };
        let size = u32::try_from(length).unwrap();
        records.push(record(block, size, flags, b"HUGE.ZST;1", &named(NAME)));
        block += u32::try_from(length.div_ceil(BLOCK) + GAP).unwrap();
    }
    records
}

fn directory(block: u32, system_use: &[u8], entries: Vec<Vec<u8>>) -> Vec<u8> {
    let size = u32::try_from(BLOCK).unwrap();
    let own = record(block, size, DIRECTORY, &[0], system_use);
    let parent = record(ROOT_BLOCK, size, DIRECTORY, &[1], &[]);
    [vec![own, parent], entries].concat().concat()
}

/// Where a byte of the large file is in the image.
fn place(at: u64) -> u64 {
    u64::from(HUGE_BLOCK) * BLOCK + at + at / LARGEST_EXTENT * GAP * BLOCK
}

/// An image with these records in its folder `bundle`.
fn image(folder: &Path, entries: Vec<Vec<u8>>) -> PathBuf {
    let path = folder.join("release.iso");
    let file = File::create_new(&path).unwrap();
    let length = place(SIZE).next_multiple_of(BLOCK);
    file.set_len(length).unwrap();
    let put = |bytes: &[u8], at: u64| file.write_all_at(bytes, at).unwrap();
    let block = |number: u32| u64::from(number) * BLOCK;

    let mut primary = vec![0; 2048];
    primary[..7].copy_from_slice(b"\x01CD001\x01");
    primary[40..72].fill(b' ');
    primary[80..88].copy_from_slice(&both(u32::try_from(length / BLOCK).unwrap()));
    primary[128..130].copy_from_slice(&2048_u16.to_le_bytes());
    let root = record(ROOT_BLOCK, 2048, DIRECTORY, &[0], &[]);
    primary[156..156 + root.len()].copy_from_slice(&root);
    put(&primary, block(16));
    put(b"\xffCD001\x01", block(17));

    let rock_ridge = b"SP\x07\x01\xbe\xef\x00";
    let files = vec![
        record(FOLDER_BLOCK, 2048, DIRECTORY, b"BUNDLE", &named("bundle")),
        record(
            RELEASE_BLOCK,
            u32::try_from(RELEASE.len()).unwrap(),
            0,
            b"RELEASE.YAM;1",
            &named("harvester-release.yaml"),
        ),
    ];
    put(&directory(ROOT_BLOCK, rock_ridge, files), block(ROOT_BLOCK));
    put(&directory(FOLDER_BLOCK, &[], entries), block(FOLDER_BLOCK));
    put(RELEASE, block(RELEASE_BLOCK));
    for (text, at) in MARKS {
        for (byte, at) in text.iter().zip(at..) {
            put(&[*byte], place(at));
        }
    }
    for border in [LARGEST_EXTENT, 2 * LARGEST_EXTENT] {
        put(&[b'?'; BLOCK as usize], place(border) - GAP * BLOCK);
    }
    let taken = file.metadata().unwrap().blocks() * 512;
    assert!(taken < 1 << 20, "the image takes {taken} bytes of the disk");
    path
}

/// What stands in the file: at its begin, over both borders between extents, over 4 GiB, and at its end.
const MARKS: [(&[u8], u64); 5] = [
    (b"first", 0),
    (b"edge", LARGEST_EXTENT - 2),
    (b"four", (4 << 30) - 2),
    (b"rim!", 2 * LARGEST_EXTENT - 1),
    (b"last", SIZE - 4),
];

#[tokio::test]
async fn a_file_of_more_than_4_gib_is_served_to_its_last_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = image(folder.path(), huge());
    let content = Iso::open(&path).unwrap();
    let content = content.file("bundle/huge.tar.zst").unwrap();
    assert_eq!((content.size(), content.extents().len()), (SIZE, 3));

    let running = Running::start(&path, Limits::REPOSITORY).await;
    let url = "/harvester-iso/bundle/huge.tar.zst";
    for (text, at) in MARKS {
        let range = format!("Range: bytes={at}-{}\r\n", at + text.len() as u64 - 1);
        let reply = running.get(url, &range).await;
        assert_eq!((reply.status, reply.body.as_slice()), (206, text), "at {at}");
        let expected = format!("bytes {at}-{}/{SIZE}", at + text.len() as u64 - 1);
        assert_eq!(reply.header("content-range"), Some(expected.as_str()));
    }
    // A download that broke near its end resumes there, across the border of two extents.
    let from = 2 * LARGEST_EXTENT - 10;
    let rest = running.get(url, &format!("Range: bytes={from}-\r\n")).await;
    assert_eq!(rest.body.len() as u64, SIZE - from);
    assert_eq!(&rest.body[9..13], b"rim!");
    assert!(rest.body.ends_with(b"last"));
    let whole = support::ask(running.address, "HEAD", url, "").await;
    assert_eq!(whole.header("content-length"), Some(SIZE.to_string().as_str()));
}

#[test]
fn a_large_file_whose_last_extent_is_missing_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let mut records = huge();
    records.pop();
    let error = Iso::open(&image(folder.path(), records)).unwrap_err();
    assert!(matches!(error, IsoError::Damaged { .. }), "{error}");
    assert!(
        error.to_string().contains("the last extent of a file is missing"),
        "{error}"
    );
}
