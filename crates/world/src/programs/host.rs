//! Steps of the programs on a node that only its host sees: files, tools, the boot loader.

use std::future::ready;

use futures::FutureExt;
use node::os_steps;
use program::{Result, step::StepContext};

use crate::actor::reboot::boot_id;

use super::{
    Call,
    walk::{Line, UNSEEN},
};

pub(super) const LINES: &[Line] = &[
    ("recover-system-agent", UNSEEN),
    ("remove-canal-config", UNSEEN),
    ("disable-charts", UNSEEN),
    ("set-max-pods", UNSEEN),
    ("reserve-resources", UNSEEN),
    ("set-device-permissions", UNSEEN),
    ("clean-kubelet-state", UNSEEN),
    ("remove-rke2-archives", UNSEEN),
    ("download-os-image", UNSEEN),
    ("repair-state-file", UNSEEN),
    ("shrink-passive-image", UNSEEN),
    ("create-boot-environment", UNSEEN),
    ("set-kernel-arguments", UNSEEN),
    ("keep-multipathd-off-longhorn", UNSEEN),
    ("move-sftp-server", UNSEEN),
    ("remove-os-image", UNSEEN),
    // The reboot itself is the kubelet's, once it has seen the pod's end.
    ("arm-reboot", |call, ctx| ready(arm_reboot(call, ctx)).boxed()),
];

/// A node that runs the new system already says so, and stays up. Another one says in which boot it was armed.
fn arm_reboot(call: &Call, ctx: StepContext<'_>) -> Result<()> {
    if call.runs_new_system()? {
        ctx.report.conclude(&os_steps::no_reboot(&call.release()?.0.os));
    } else if let Some(node) = call.world.nodes.get("", &call.node) {
        ctx.report.conclude(&os_steps::armed_in(boot_id(&node)));
    }
    Ok(())
}
