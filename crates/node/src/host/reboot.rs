//! The reboot of a node, after the Job that requested it has ended and the kubelet has reported it.
//!
//! A guard on the node watches the container of the Job, from outside: a one-shot systemd unit with a small POSIX shell
//! script. It is a script, not a copy of this program, since a program that was linked against the container's C library
//! need not run on the node; a script of four tools (`crictl`, `rm`, `sleep`, `reboot`) does.
//!
//! - The container has exited with code 0: after a grace for the kubelet, RKE2's static pods are removed (a kubelet
//!   that finds outdated ones starts them) and the node reboots.
//! - It has exited otherwise: the guard ends. The Job's next try arms another.
//! - Its record was seen and has been gone for a while: containerd's garbage collection was faster; as after code 0,
//!   since arming the guard is the last step of the container.
//! - `crictl` fails, as it does while containerd restarts: that look does not count.
//! - Nothing of this within the time: the guard gives up, and says so in the journal.

use std::fmt::Write as _;

use program::error::Result;

use super::{
    HostRoot,
    tools::{Call, HostTools, must},
};

/// Where the script is on the node: where only root writes, since root runs it. It is gone after the reboot.
pub const SCRIPT: &str = "/run/upgrade-reboot.sh";
/// Where the unit is on the node. It is gone after the reboot.
pub const UNIT: &str = "/run/systemd/system/upgrade-reboot.service";
const UNIT_NAME: &str = "upgrade-reboot.service";

/// Which container to wait for, and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// Seconds between two looks.
    pub pause: u32,
    /// Seconds between the end of the container and the reboot.
    pub grace: u32,
    /// Looks in a row without a record, after there was one, that count as an end.
    pub missing: u32,
    /// Looks at most.
    pub looks: u32,
    /// The prefix of paths; empty on a node.
    pub root: String,
}

impl Guard {
    /// Waits for a container at most half an hour.
    #[must_use]
    pub fn of(namespace: &str, pod: &str, container: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            container: container.to_owned(),
            pause: 10,
            grace: 10,
            missing: 6,
            looks: 180,
            root: String::new(),
        }
    }

    /// The script.
    #[must_use]
    pub fn script(&self) -> String {
        let mut script = String::from(
            "#!/bin/sh\n# Reboots this node once the upgrade's container has ended. Written by upgrade-toolkit.\n",
        );
        for (name, value) in [
            ("namespace", self.namespace.as_str()),
            ("pod", &self.pod),
            ("container", &self.container),
            ("root", &self.root),
        ] {
            // Writing to a string cannot fail.
            let _ = writeln!(script, "{name}={}", quoted(value));
        }
        let numbers = [
            ("pause", self.pause),
            ("grace", self.grace),
            ("missing", self.missing),
            ("looks", self.looks),
        ];
        for (name, value) in numbers {
            let _ = writeln!(script, "{name}={value}");
        }
        script.push_str(BODY);
        script
    }
}

/// Single quotes, in which a shell reads nothing but their end.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

const BODY: &str = r#"
PATH="$PATH:$root/var/lib/rancher/rke2/bin"
CRI_CONFIG_FILE="$root/var/lib/rancher/rke2/agent/etc/crictl.yaml"
export PATH CRI_CONFIG_FILE
# Survives a restart of this script, not one of the node.
seen="$root/run/upgrade-reboot.$pod.seen"

leave() {
    echo "the container has ended ($1): rebooting"
    sleep "$grace"
    rm -f "$root"/var/lib/rancher/rke2/agent/pod-manifests/*
    reboot || exit 1
    rm -f "$seen"
    exit 0
}

absent=0
look=0
while [ "$look" -lt "$looks" ]; do
    look=$((look + 1))
    if ids=$(crictl ps --all --quiet \
        --label "io.kubernetes.pod.namespace=$namespace" \
        --label "io.kubernetes.pod.name=$pod" \
        --label "io.kubernetes.container.name=$container"); then
        # The newest comes first.
        id=${ids%%[!0-9a-f]*}
        if [ -n "$id" ]; then
            absent=0
            : >"$seen"
            state=$(crictl inspect --output go-template --template '{{.status.state}} {{.status.exitCode}}' "$id") || state=unknown
            case "$state" in
            "CONTAINER_EXITED 0") leave "with code 0" ;;
            CONTAINER_EXITED*)
                echo "the container has failed ($state): not rebooting"
                rm -f "$seen"
                exit 0
                ;;
            esac
        elif [ -e "$seen" ]; then
            absent=$((absent + 1))
            [ "$absent" -lt "$missing" ] || leave "its record is gone"
        fi
    fi
    sleep "$pause"
done
echo "the container $namespace/$pod/$container has not ended in time: not rebooting"
rm -f "$seen"
exit 0
"#;

/// The unit. A guard that was killed, or whose reboot was refused, starts again.
fn unit() -> String {
    format!(
        "[Unit]\nDescription=Reboot after the upgrade of the operating system\n\n[Service]\nType=simple\n\
         ExecStart=/bin/sh {SCRIPT}\nRestart=on-failure\nRestartSec=10\n"
    )
}

/// Arms the guard; one that is already armed restarts.
///
/// # Errors
/// When the files cannot be written or systemd does not start it.
pub async fn arm(root: &HostRoot, tools: &dyn HostTools, guard: &Guard) -> Result<()> {
    root.write(SCRIPT, guard.script().as_bytes(), 0o700)?;
    root.write(UNIT, unit().as_bytes(), 0o644)?;
    must(tools, Call::host("systemctl", &["daemon-reload"])).await?;
    // Not just started: the one that runs may be that of an earlier try, which waits for another pod.
    must(tools, Call::host("systemctl", &["restart", UNIT_NAME])).await?;
    tracing::info!(pod = guard.pod, "the node reboots once this container has ended");
    Ok(())
}
