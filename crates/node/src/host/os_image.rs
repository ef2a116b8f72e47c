//! The operating system on a node: what runs, and what is on the disk for the next boot.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use release::bundle::Promise;
use serde::{Deserialize, Serialize};

use program::error::{Error, Result};
use release::archive::has_sum;

use super::{HostRoot, UPGRADE_DIR};

/// Where the image of the new system lies until it is installed.
pub const IMAGE: &str = "/usr/local/upgrade_tmp/rootfs.squashfs";
/// The image in the repository.
pub const IMAGE_IN_REPOSITORY: &str = "rootfs.squashfs";

/// The first bytes of every squashfs.
const MAGIC: &[u8] = b"hsqs";
/// Where its superblock says how many bytes it has.
const BYTES_USED: std::ops::Range<usize> = 40..48;

const OS_RELEASE: &str = "/etc/os-release";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How far a node is with its new operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It runs.
    Running,
    /// It is on the disk, and the node has not been rebooted since.
    Installed,
    /// Neither.
    Missing,
}

/// What is left on the node once the system is on its disk. Installing it a second time before the reboot would push the
/// system that runs out of its place as the one to fall back to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt {
    plan: String,
    os: String,
    boot: String,
}

fn receipt_path() -> String {
    format!("{UPGRADE_DIR}/os-installed.json")
}

/// The boot that the node runs; empty when it does not say.
pub(crate) fn boot(root: &HostRoot) -> Result<String> {
    Ok(root.read_text(BOOT_ID)?.unwrap_or_default().trim().to_owned())
}

/// How far a node is with a system of that name, for a plan.
///
/// # Errors
/// When the node cannot be read.
pub fn progress(root: &HostRoot, plan: &str, os: &str) -> Result<Progress> {
    let release = root.read_text(OS_RELEASE)?.unwrap_or_default();
    if pretty_name(&release) == Some(os) {
        return Ok(Progress::Running);
    }
    let wanted = Receipt {
        plan: plan.to_owned(),
        os: os.to_owned(),
        boot: boot(root)?,
    };
    let there = root
        .read(&receipt_path())?
        .and_then(|content| serde_json::from_slice::<Receipt>(&content).ok());
    // After a boot into the old system, what was installed may be broken: install it again.
    Ok(if there.is_some_and(|there| there == wanted) {
        Progress::Installed
    } else {
        Progress::Missing
    })
}

/// Notes that the system is on the disk.
///
/// # Errors
/// When that cannot be written.
pub fn note_installed(root: &HostRoot, plan: &str, os: &str) -> Result<()> {
    let receipt = Receipt {
        plan: plan.to_owned(),
        os: os.to_owned(),
        boot: boot(root)?,
    };
    let content = serde_json::to_vec(&receipt).unwrap_or_default();
    root.write(&receipt_path(), &content, 0o600).map(drop)
}

/// The marker next to the image of a system once it is on the node, complete and checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FetchedImage {
    plan: String,
    os: String,
    boot: String,
    bytes: u64,
    sha256: Option<String>,
}

/// Next to the image, with the prefix of the download's files: it is removed with those.
fn fetched_path() -> String {
    format!("{UPGRADE_DIR}/.{IMAGE_IN_REPOSITORY}.checked")
}

/// What would be noted about the image on the node now; nothing where there is none, or not the one that is promised.
fn image_there(root: &HostRoot, plan: &str, os: &str, promise: &Promise) -> Result<Option<FetchedImage>> {
    let found = std::fs::symlink_metadata(root.resolve(IMAGE)?);
    let Some(bytes) = found.ok().filter(|found| found.is_file()).map(|found| found.len()) else {
        return Ok(None);
    };
    Ok(promise.size.is_none_or(|size| size == bytes).then_some(FetchedImage {
        plan: plan.to_owned(),
        os: os.to_owned(),
        boot: boot(root)?,
        bytes,
        sha256: promise.sha256.as_ref().map(|sum| sum.as_str().to_owned()),
    }))
}

/// Whether the image of a system is on the node already, for this plan and since this boot. Then no request is needed:
/// on a cluster of one node the repository is down by the time it is needed.
///
/// # Errors
/// When the node cannot be read.
pub fn is_fetched(root: &HostRoot, plan: &str, os: &str, promise: &Promise) -> Result<bool> {
    let noted = root
        .read(&fetched_path())?
        .and_then(|content| serde_json::from_slice::<FetchedImage>(&content).ok());
    Ok(noted.is_some() && noted == image_there(root, plan, os, promise)?)
}

/// Notes that the image is on the node, whole and checked.
///
/// # Errors
/// When that cannot be written.
pub fn note_fetched(root: &HostRoot, plan: &str, os: &str, promise: &Promise) -> Result<()> {
    let Some(there) = image_there(root, plan, os, promise)? else {
        return Ok(());
    };
    let content = serde_json::to_vec(&there).unwrap_or_default();
    root.write(&fetched_path(), &content, 0o600).map(drop)
}

/// Whether a file is an image of a system, and all of it: what it says about itself, and what is promised.
///
/// # Errors
/// When it cannot be read.
pub fn flaw(path: &Path, promise: &Promise) -> Result<Option<String>> {
    let failed = |error| Error::file("read", path, error);
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut head = Vec::new();
    (&file)
        .take(BYTES_USED.end as u64)
        .read_to_end(&mut head)
        .map_err(failed)?;
    let flaw = flaw_of(&head, length, promise.size);
    let Some(sum) = promise.sha256.as_ref().filter(|_| flaw.is_none()) else {
        return Ok(flaw);
    };
    let is_right = has_sum(rewound(file).map_err(failed)?, sum).map_err(failed)?;
    Ok((!is_right).then(|| format!("its SHA-256 is not {}", sum.as_str())))
}

fn rewound(mut file: File) -> io::Result<File> {
    io::Seek::rewind(&mut file)?;
    Ok(file)
}

/// What is wrong with an image that begins like this and is so long.
fn flaw_of(head: &[u8], length: u64, promised: Option<u64>) -> Option<String> {
    if let Some(promised) = promised.filter(|promised| *promised != length) {
        return Some(format!("it has {length} bytes, {promised} are promised"));
    }
    let used = head.get(BYTES_USED).and_then(|bytes| bytes.try_into().ok());
    match used.map(u64::from_le_bytes) {
        Some(used) if head.starts_with(MAGIC) => {
            (used > length).then(|| format!("it has {length} bytes, and its superblock says {used}"))
        }
        _ => Some("it is no squashfs".to_owned()),
    }
}

/// The name of a system, as users see it and as its kubelet reports it.
fn pretty_name(os_release: &str) -> Option<&str> {
    let mut lines = os_release.lines();
    let value = lines.find_map(|line| line.trim().strip_prefix("PRETTY_NAME="))?.trim();
    let bare = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let bare = bare.or_else(|| value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')));
    Some(bare.unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_system_is_read_with_or_without_quotes() {
        assert_eq!(
            pretty_name("NAME=x\nPRETTY_NAME=\"Harvester v1.8.0\"\n"),
            Some("Harvester v1.8.0")
        );
        assert_eq!(pretty_name("PRETTY_NAME='a b'"), Some("a b"));
        assert_eq!(pretty_name("PRETTY_NAME=a"), Some("a"));
        assert_eq!(pretty_name("NAME=a"), None);
    }

    /// A squashfs that says it has so many bytes.
    fn image(used: u64, length: usize) -> Vec<u8> {
        let mut image = vec![7; length];
        image[..4].copy_from_slice(MAGIC);
        image[BYTES_USED].copy_from_slice(&used.to_le_bytes());
        image
    }

    #[test]
    fn an_image_that_is_cut_off_or_none_is_distinguished_from_a_whole_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let flaw = |content: &[u8], promise: &Promise| {
            std::fs::write(&path, content).unwrap();
            flaw(&path, promise).unwrap().unwrap_or_default()
        };
        let any = Promise::default();
        assert_eq!(flaw(&image(4000, 4096), &any), "", "padded to whole pages");
        assert_eq!(
            flaw(&image(4097, 4096), &any),
            "it has 4096 bytes, and its superblock says 4097"
        );
        assert_eq!(
            flaw(&[0; 4096], &any),
            "it is no squashfs",
            "zeros are what a crash leaves of a file"
        );
        assert_eq!(flaw(b"hsqs", &any), "it is no squashfs");
        let promised = Promise {
            size: Some(4096),
            // Of `image(4000, 4096)`.
            sha256: Some(sum_of(&image(4000, 4096))),
        };
        assert_eq!(flaw(&image(4000, 4096), &promised), "");
        assert_eq!(
            flaw(&image(4000, 8192), &promised),
            "it has 8192 bytes, 4096 are promised"
        );
        let mut damaged = image(4000, 4096);
        damaged[2000] ^= 1;
        assert!(flaw(&damaged, &promised).starts_with("its SHA-256 is not "));
    }

    fn sum_of(content: &[u8]) -> release::bundle::Sha256Sum {
        use sha2::Digest;
        let digits: String = sha2::Sha256::digest(content)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        digits.try_into().unwrap()
    }

    #[test]
    fn a_system_counts_as_installed_until_the_next_boot_and_for_its_plan() {
        let directory = tempfile::tempdir().unwrap();
        let root = HostRoot::new(directory.path());
        let state = |plan: &str, os: &str| progress(&root, plan, os).unwrap();
        root.write(OS_RELEASE, b"PRETTY_NAME=\"Harvester v1.7.1\"\n", 0o644)
            .unwrap();
        root.write(BOOT_ID, b"one\n", 0o444).unwrap();
        assert_eq!(state("up", "Harvester v1.8.0"), Progress::Missing);
        note_installed(&root, "up", "Harvester v1.8.0").unwrap();
        assert_eq!(state("up", "Harvester v1.8.0"), Progress::Installed);
        assert_eq!(state("other", "Harvester v1.8.0"), Progress::Missing);
        assert_eq!(state("up", "Harvester v1.8.1"), Progress::Missing);
        root.write(BOOT_ID, b"two\n", 0o444).unwrap();
        assert_eq!(
            state("up", "Harvester v1.8.0"),
            Progress::Missing,
            "the node fell back to the old system"
        );
        assert_eq!(state("up", "Harvester v1.7.1"), Progress::Running);
    }
}
