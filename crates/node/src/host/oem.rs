//! Files in `/oem`, which the boot of the operating system reads. The texts are pure.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;

use program::error::{Error, Result};

use super::HostRoot;

/// What the node was installed with.
const HARVESTER_CONFIG: &str = "/oem/harvester.config";
const MODE: u32 = 0o600;

/// Removes the kubelet's record of processors at every boot: the root file system goes back to what it was, and a record
/// that does not fit keeps a kubelet with static processors from starting.
const CLEAN_KUBELET: &str = "\
name: \"Forget how the kubelet assigned processors before the reboot\"
stages:
  initramfs:
  - commands:
    - rm -f /var/lib/kubelet/cpu_manager_state
";

/// Longhorn's own disks are not for multipathd.
const LONGHORN_BLACKLIST: &str = "\
blacklist {
  device {
    vendor \"IET\"
    product \"VIRTUAL-DISK\"
  }
}
";

/// multipathd as Harvester runs it: it reads its configuration when Longhorn's rule is there.
const MULTIPATHD_UNIT: &str = "\
[Unit]
Description=Device-Mapper Multipath Device Controller
Wants=systemd-udevd-kernel.socket modprobe@dm_multipath.service
After=systemd-udevd-kernel.socket modprobe@dm_multipath.service
After=multipathd.socket systemd-remount-fs.service
Before=initrd-cleanup.service
Before=lvm2-activation-early.service
Before=local-fs-pre.target blk-availability.service shutdown.target
Conflicts=initrd-cleanup.service
Conflicts=shutdown.target
DefaultDependencies=no
ConditionKernelCommandLine=!nompath
ConditionVirtualization=!container

[Service]
Type=notify
NotifyAccess=main
ExecStart=/usr/sbin/multipathd -d -s
ExecReload=/usr/sbin/multipathd reconfigure
TasksMax=infinity
LimitRTPRIO=10
CPUWeight=1000

[Install]
WantedBy=sysinit.target
";

/// Has the kubelet's record of processors removed at every boot.
///
/// # Errors
/// When the file cannot be written.
pub fn clean_kubelet_state(root: &HostRoot) -> Result<()> {
    root.write("/oem/91_cleanup_kubelet.yaml", CLEAN_KUBELET.as_bytes(), MODE)
        .map(drop)
}

/// Keeps multipathd off Longhorn's disks.
///
/// # Errors
/// When the file cannot be written.
pub fn keep_multipathd_off_longhorn(root: &HostRoot) -> Result<()> {
    root.write("/oem/99_disable_lh_multipathd.yaml", multipath_text().as_bytes(), MODE)
        .map(drop)
}

fn multipath_text() -> String {
    // 420 is the mode 0644, in a form that every version of YAML reads alike.
    format!(
        "name: \"Keep multipathd off Longhorn volumes\"\n\
         stages:\n  initramfs:\n  - directories:\n    - path: /etc/multipath/conf.d\n      permissions: 420\n    \
         files:\n    - path: /etc/multipath/conf.d/99-longhorn.conf\n      permissions: 420\n      encoding: base64\n      \
         content: {}\n    - path: /etc/systemd/system/multipathd.service\n      permissions: 420\n      encoding: base64\n      \
         content: {}\n",
        STANDARD.encode(LONGHORN_BLACKLIST),
        STANDARD.encode(MULTIPATHD_UNIT),
    )
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct HarvesterConfig {
    os: Os,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Os {
    externalstorage: ExternalStorage,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ExternalStorage {
    enabled: bool,
}

/// Whether the node uses disks of a storage network; `None` when nothing says how it was installed.
///
/// # Errors
/// When the configuration cannot be read. A node whose disks are reached over several paths does not boot when
/// multipath is turned off, so this is not guessed.
pub fn uses_external_storage(root: &HostRoot) -> Result<Option<bool>> {
    let Some(text) = root.read_text(HARVESTER_CONFIG)? else {
        return Ok(None);
    };
    let config: HarvesterConfig = serde_saphyr::from_str(&text)
        .map_err(|error| Error::Permanent(format!("failed to read {HARVESTER_CONFIG}: {error}")))?;
    Ok(Some(config.os.externalstorage.enabled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_gets_back_what_is_readable_here() {
        let document: serde_json::Value = serde_saphyr::from_str(&multipath_text()).unwrap();
        let stage = &document["stages"]["initramfs"][0];
        assert_eq!(stage["directories"][0]["permissions"], 0o644);
        let decoded = |number: usize| {
            let content = stage["files"][number]["content"].as_str().unwrap();
            String::from_utf8(STANDARD.decode(content).unwrap()).unwrap()
        };
        assert_eq!(decoded(0), LONGHORN_BLACKLIST);
        assert_eq!(decoded(1), MULTIPATHD_UNIT);
        let document: serde_json::Value = serde_saphyr::from_str(CLEAN_KUBELET).unwrap();
        assert_eq!(
            document["stages"]["initramfs"][0]["commands"][0],
            "rm -f /var/lib/kubelet/cpu_manager_state"
        );
    }

    #[test]
    fn how_a_node_was_installed_is_read_and_not_guessed() {
        let directory = tempfile::tempdir().unwrap();
        let root = HostRoot::new(directory.path());
        assert_eq!(uses_external_storage(&root).unwrap(), None);
        for (text, expected) in [
            ("os:\n  externalstorage:\n    enabled: true\n  hostname: a\n", true),
            ("os:\n  hostname: a\ninstall: {}\n", false),
        ] {
            root.write(HARVESTER_CONFIG, text.as_bytes(), 0o600).unwrap();
            assert_eq!(uses_external_storage(&root).unwrap(), Some(expected), "{text}");
        }
        root.write(HARVESTER_CONFIG, b"os: [1", 0o600).unwrap();
        assert!(!uses_external_storage(&root).unwrap_err().is_transient());
    }
}
