//! The operating system on a node: what runs, and what is on the disk for the next boot.

use serde::{Deserialize, Serialize};

use crate::error::Result;

use super::{HostRoot, UPGRADE_DIR};

/// Where the image of the new system lies until it is installed.
pub const IMAGE: &str = "/usr/local/upgrade_tmp/rootfs.squashfs";
/// The image in the repository.
pub const IMAGE_IN_REPOSITORY: &str = "rootfs.squashfs";

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

fn boot(root: &HostRoot) -> Result<String> {
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
    // After a boot that brought the old system back, what was installed has not proven itself: install it anew.
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

/// The name of a system, as people see it and as its kubelet reports it.
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
