//! The superblock of a squashfs: enough to distinguish a system from other bytes, and a whole file from one that is cut off. Pure.

/// How many bytes of the file are looked at.
pub const SUPERBLOCK: usize = 96;

const MAGIC: [u8; 4] = *b"hsqs";
/// The version that Linux mounts.
const MAJOR: u16 = 4;
/// By the number in the superblock, from 1.
const COMPRESSIONS: [&str; 6] = ["gzip", "lzma", "lzo", "xz", "lz4", "zstd"];

/// Why a file is not the image of a system.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SquashfsError {
    /// Other bytes.
    #[error("it is no squashfs: it begins with {0}")]
    NoSquashfs(String),
    /// A version that no kernel mounts.
    #[error("it is a squashfs of version {0}, and Linux mounts version {MAJOR}")]
    Version(u16),
    /// Fields that contradict each other.
    #[error("its superblock is damaged: {0}")]
    Damaged(&'static str),
    /// Less than it should be.
    #[error("it is cut off: it has {size} bytes, and its superblock says {used}")]
    CutOff {
        /// The bytes of the file.
        size: u64,
        /// The bytes of the file system.
        used: u64,
    },
}

/// The compression of a squashfs, by the beginning of a file of `size` bytes.
///
/// # Errors
/// When it is none, or not all of one.
pub fn compression_of(beginning: &[u8], size: u64) -> Result<&'static str, SquashfsError> {
    let bytes = |at: usize, length: usize| beginning.get(at..at + length).unwrap_or_default();
    let number = |at: usize, length: usize| {
        let little_endian = bytes(at, length).iter().rev();
        little_endian.fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    if beginning.len() < SUPERBLOCK || bytes(0, 4) != MAGIC {
        let shown: Vec<String> = beginning.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        return Err(SquashfsError::NoSquashfs(match shown.is_empty() {
            true => "nothing".to_owned(),
            false => shown.join(" "),
        }));
    }
    let major = number(28, 2) as u16;
    if major != MAJOR {
        return Err(SquashfsError::Version(major));
    }
    let (block, log) = (number(12, 4), number(22, 2));
    if !(12..=20).contains(&log) || block != 1 << log {
        return Err(SquashfsError::Damaged("the size of its blocks contradicts itself"));
    }
    let used = number(40, 8);
    if used > size {
        return Err(SquashfsError::CutOff { size, used });
    }
    let index = usize::try_from(number(20, 2)).unwrap_or_default().wrapping_sub(1);
    COMPRESSIONS
        .get(index)
        .copied()
        .ok_or(SquashfsError::Damaged("its compression is unknown"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn superblock() -> Vec<u8> {
        let mut bytes = vec![0; SUPERBLOCK];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[12..16].copy_from_slice(&131_072_u32.to_le_bytes());
        bytes[20..22].copy_from_slice(&4_u16.to_le_bytes());
        bytes[22..24].copy_from_slice(&17_u16.to_le_bytes());
        bytes[28..30].copy_from_slice(&4_u16.to_le_bytes());
        bytes[40..48].copy_from_slice(&5_000_u64.to_le_bytes());
        bytes
    }

    #[test]
    fn a_squashfs_is_recognised_by_its_superblock() {
        assert_eq!(compression_of(&superblock(), 8_192), Ok("xz"));
        assert_eq!(
            compression_of(&superblock(), 4_999),
            Err(SquashfsError::CutOff {
                size: 4_999,
                used: 5_000
            })
        );
    }

    #[test]
    fn other_bytes_are_named() {
        let error = compression_of(&[0x1f, 0x8b, 8, 0, 1], 5).unwrap_err().to_string();
        assert_eq!(error, "it is no squashfs: it begins with 1f 8b 08 00");
        assert!(
            compression_of(&[], 0)
                .unwrap_err()
                .to_string()
                .contains("begins with nothing")
        );
        for (at, value, expected) in [
            (28, 3, "version 3"),
            (22, 16, "size of its blocks"),
            (22, 200, "size of its blocks"),
            (20, 0, "compression is unknown"),
            (20, 7, "compression is unknown"),
        ] {
            let mut bytes = superblock();
            bytes[at] = value;
            let error = compression_of(&bytes, 8_192).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn mksquashfs_makes_what_is_recognised() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "content").unwrap();
        let image = folder.path().join("image");
        let made = std::process::Command::new("mksquashfs")
            .arg(folder.path().join("file"))
            .arg(&image)
            .args(["-comp", "zstd", "-quiet"])
            .output();
        let Ok(made) = made else {
            println!("skipped: mksquashfs is not installed");
            return;
        };
        assert!(made.status.success());
        let bytes = std::fs::read(&image).unwrap();
        assert_eq!(compression_of(&bytes[..SUPERBLOCK], bytes.len() as u64), Ok("zstd"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_squashfs_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200), size: u64) {
            let _ = compression_of(&bytes, size);
        }
    }
}
