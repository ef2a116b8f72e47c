//! Puts the new operating system on the node's disk with `elemental`, in the node's own root.
//!
//! All temporary files are in one folder of a fixed name, which is removed at the end, and at the
//! beginning in case the last try was cut off. Mounts live in the container's mount namespace and end with it at the
//! latest.

use std::path::Path;

use clock::Clock;
use serde_json::Value;

use program::error::{Error, Result};

use super::{
    HostRoot, UPGRADE_DIR, mounts, os_image,
    tools::{Call, HostTools, must},
};

/// Temporary files: where only root writes, since root runs some of it.
const WORK_DIR: &str = "/run/upgrade-toolkit";
/// The partition that systems are on.
const STATE_DIR: &str = "/run/initramfs/cos-state";
/// Where it is mounted for `elemental` when its disk is reached over several paths.
const STATE_MOUNT: &str = "/run/cos/state";
const STATE_LABEL: &str = "COS_STATE";
/// MiB for a system: as large as those that Harvester installs.
const CONFIG: &str = "upgrade:\n  system:\n    size: 3072\n";
const SFTP: &str = "/etc/ssh/sshd_config.d/sftp.conf";
/// Where the C library is, in the container and on the node.
const LIBRARIES: [&str; 2] = ["/lib64", "/lib"];
/// How much of a log helps.
const LOG_TAIL: usize = 2000;

/// What to install, where, with what.
#[derive(Clone, Copy)]
pub struct Installation<'a> {
    /// The node.
    pub root: &'a HostRoot,
    /// Its programs.
    pub tools: &'a dyn HostTools,
    /// The clock that names logs.
    pub clock: &'a Clock,
    /// The plan.
    pub plan: &'a str,
    /// The name of the new system.
    pub os: &'a str,
    /// `elemental` in the container; when it is not there, the node's own is used.
    pub elemental: &'a Path,
}

impl Installation<'_> {
    /// Puts a record of installed systems aside that the new `elemental` cannot read.
    ///
    /// # Errors
    /// When the partition cannot be written.
    pub async fn repair_state(&self) -> Result<()> {
        let path = format!("{STATE_DIR}/state.yaml");
        let Some(text) = self.root.read_text(&path)?.filter(|text| !is_readable_state(text)) else {
            return Ok(());
        };
        self.writable_state(async || {
            self.root.write(&format!("{path}.bak"), text.as_bytes(), 0o644)?;
            self.root.remove(&path).map(drop)
        })
        .await
    }

    /// Gives the blocks back that the previous system does not use, so that the new one has room.
    ///
    /// # Errors
    /// When the partition cannot be written.
    pub async fn shrink_passive(&self) -> Result<()> {
        let path = format!("{STATE_DIR}/cOS/passive.img");
        if !self.root.exists(&path)? {
            return Ok(());
        }
        let image = self.root.resolve(&path)?;
        self.writable_state(async || {
            must(
                self.tools,
                Call::container("fallocate", &["--dig-holes", &shown(&image)]),
            )
            .await
            .map(drop)
        })
        .await
    }

    /// Does something while the partition of systems can be written; afterwards it cannot, whatever happened.
    async fn writable_state(&self, work: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
        let at = shown(&self.root.resolve(STATE_DIR)?);
        let remount = |how| Call::container("mount", &["-o", how, &at]);
        must(self.tools, remount("remount,rw")).await?;
        let done = work().await;
        must(self.tools, remount("remount,ro")).await?;
        done
    }

    /// Installs the system from its image, and notes it.
    ///
    /// # Errors
    /// When `elemental` fails; the end of its log is in the message. Its own copy of the system that runs is as it was.
    pub async fn install(&self) -> Result<()> {
        self.clean_up().await?;
        let installed = self.install_from_image().await;
        let cleaned = self.clean_up().await;
        installed.and(cleaned)
    }

    async fn install_from_image(&self) -> Result<()> {
        let mounted = self.root.make_dir(&format!("{WORK_DIR}/rootfs"))?;
        let image = self.root.resolve(os_image::IMAGE)?;
        let mount = ["-t", "squashfs", "-o", "loop,ro", &shown(&image), &shown(&mounted)];
        must(self.tools, Call::container("mount", &mount)).await?;
        self.root
            .write(&format!("{WORK_DIR}/config/config.yaml"), CONFIG.as_bytes(), 0o644)?;
        self.mount_state_of_many_paths().await?;
        let elemental = self.elemental().await?;
        self.root.make_dir(UPGRADE_DIR)?;
        let now = self.clock.now().strftime("%Y%m%d%H%M%S");
        let log = format!("{UPGRADE_DIR}/elemental-upgrade-{now}.log");
        let (from, config) = (format!("{WORK_DIR}/rootfs"), format!("{WORK_DIR}/config"));
        let arguments = [
            "upgrade",
            "--logfile",
            &log,
            "--directory",
            &from,
            "--config-dir",
            &config,
            "--debug",
        ];
        let ended = self.tools.run(&Call::host(&elemental, &arguments)).await?;
        if ended.code != 0 {
            let text = self.root.read(&log)?.unwrap_or_default();
            let tail = String::from_utf8_lossy(&text[text.len().saturating_sub(LOG_TAIL)..]).into_owned();
            return Err(Error::Permanent(format!(
                "elemental failed to install {} with code {}; its log is {log} on the node and ends: {}",
                self.os,
                ended.code,
                tail.trim()
            )));
        }
        os_image::note_installed(self.root, self.plan, self.os)
    }

    /// A disk that is reached over several paths appears several times; `elemental` would take one that it cannot write.
    async fn mount_state_of_many_paths(&self) -> Result<()> {
        let device = self.tools.run(&Call::host("blkid", &["-L", STATE_LABEL])).await?;
        if device.code != 0 || !device.stdout.contains("mapper") {
            return Ok(());
        }
        let at = self.root.make_dir(STATE_MOUNT)?;
        if mounts::is_mounted(&self.tools.mountinfo()?, &at) {
            return Ok(());
        }
        must(self.tools, Call::host("mount", &["-L", STATE_LABEL, STATE_MOUNT]))
            .await
            .map(drop)
    }

    /// The `elemental` to run, as the node names it. It comes with the toolkit, since the node's own is that of the old
    /// system; where the node's C library is too old for it, it gets the container's.
    async fn elemental(&self) -> Result<String> {
        if !self.elemental.exists() {
            tracing::warn!(path = %self.elemental.display(), "the toolkit has no elemental; using the node's own");
            return Ok("elemental".to_owned());
        }
        let path = format!("{WORK_DIR}/elemental");
        self.root.copy_in(self.elemental, &path, 0o755)?;
        let probe = self.tools.run(&Call::host(&path, &["version"])).await?;
        let said = format!("{}{}", probe.stdout, probe.stderr);
        if said
            .lines()
            .any(|line| line.contains("GLIBC") && line.contains("not found"))
        {
            for library in LIBRARIES.into_iter().filter(|library| Path::new(library).exists()) {
                let over = shown(&self.root.resolve(library)?);
                must(self.tools, Call::container("mount", &["--bind", library, &over])).await?;
            }
        }
        Ok(path)
    }

    /// Removes what an attempt leaves behind: mounts first, since what is in them is not ours to remove.
    ///
    /// # Errors
    /// When something stays mounted or cannot be removed.
    pub async fn clean_up(&self) -> Result<()> {
        let rootfs = format!("{WORK_DIR}/rootfs");
        for path in LIBRARIES.into_iter().chain([STATE_MOUNT, &rootfs]) {
            let at = self.root.resolve(path)?;
            if mounts::is_mounted(&self.tools.mountinfo()?, &at) {
                must(self.tools, Call::container("umount", &[&shown(&at)])).await?;
            }
        }
        self.root.remove_dir(WORK_DIR).map(drop)
    }

    /// The new system has its file transfer program elsewhere.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn move_sftp_server(&self) -> Result<()> {
        let Some(text) = self.root.read_text(SFTP)? else {
            return Ok(());
        };
        let moved = text.replace("/usr/lib/ssh/sftp-server", "/usr/libexec/ssh/sftp-server");
        self.root.write(SFTP, moved.as_bytes(), 0o600).map(drop)
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A record of installed systems names the partition that they are on.
fn is_readable_state(text: &str) -> bool {
    let record: Value = serde_saphyr::from_str(text).unwrap_or_default();
    let partition = record.get("state").and_then(Value::as_object);
    partition.is_some_and(|partition| partition.contains_key("label"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_without_the_label_of_its_partition_is_put_aside() {
        assert!(is_readable_state("date: x\nstate:\n  label: COS_STATE\n  active: {}\n"));
        assert!(!is_readable_state("state:\n  active: {}\n"));
        assert!(!is_readable_state("state: 1\n"));
        assert!(!is_readable_state(""));
        assert!(!is_readable_state(": ["));
    }
}
