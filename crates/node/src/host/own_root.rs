//! Refuses to change the root that this process itself runs in. A node's root is always mounted below it; a program that is
//! given `/` would change the container, or in a test the machine. A test once removed `/etc` that way.

use std::{os::unix::fs::MetadataExt, path::Path};

use program::error::{Error, Result};

/// Programs that only look: they may run in any root.
const READERS: [&str; 6] = ["blkid", "df", "ls", "nproc", "printf", "true"];

/// Fails if `root` is the root of this process, by whatever path: what is compared is the directory, not its name.
pub(super) fn refuse(root: &Path, what: &str) -> Result<()> {
    if !is_own(root) {
        return Ok(());
    }
    Err(Error::Permanent(format!(
        "refused to {what}: {} is the root of this process, not of a node; mount the node's root elsewhere and name it with --host-root",
        root.display()
    )))
}

/// The same for a program that is to be run for a node.
pub(super) fn refuse_program(root: &Path, program: &str) -> Result<()> {
    let name = Path::new(program).file_name().unwrap_or_default();
    if READERS.iter().any(|reader| name == *reader) {
        return Ok(());
    }
    refuse(root, &format!("run {program}"))
}

fn is_own(root: &Path) -> bool {
    let directory = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    directory(root).is_some_and(|found| directory(Path::new("/")) == Some(found))
}

#[cfg(test)]
mod tests {
    use super::super::{
        HostRoot,
        tools::{Call, Chroot, HostTools},
    };

    #[test]
    fn the_root_of_this_process_is_never_changed_by_whatever_name() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("kept");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(inside.join("file"), "kept").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        for root in ["/".into(), "/..".into(), "/proc/self/root".into(), link] {
            let root = HostRoot::new(root);
            let path = inside.to_str().unwrap();
            for refused in [
                root.remove_dir(path).map(drop),
                root.remove(&format!("{path}/file")).map(drop),
                root.write(&format!("{path}/file"), b"new", 0o644).map(drop),
                root.make_dir(&format!("{path}/more")).map(drop),
                root.copy_in(&inside.join("file"), &format!("{path}/copy"), 0o644),
            ] {
                let error = refused.unwrap_err().to_string();
                assert!(error.contains("is the root of this process"), "{error}");
            }
        }
        assert_eq!(std::fs::read_to_string(inside.join("file")).unwrap(), "kept");
        assert_eq!(std::fs::read_dir(&inside).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn programs_that_change_a_machine_do_not_run_in_the_root_of_this_process() {
        for program in [
            "mount",
            "umount",
            "reboot",
            "/usr/sbin/reboot",
            "systemctl",
            "elemental",
            "fallocate",
        ] {
            for call in [Call::host(program, &["--help"]), Call::container(program, &["--help"])] {
                let error = Chroot::new("/").run(&call).await.unwrap_err().to_string();
                assert!(error.contains("is the root of this process"), "{error}");
            }
        }
    }
}
