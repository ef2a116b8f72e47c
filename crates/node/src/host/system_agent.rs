//! rancher-system-agent: the cluster upgrade holds it back with a drop-in; here it is let go again.

use crate::error::Result;

use super::{
    HostRoot,
    tools::{Call, HostTools, must},
};

/// The drop-in that holds it back. It is in memory only.
const DROP_IN: &str = "/run/systemd/system/rancher-system-agent.service.d";
const UNIT: &str = "rancher-system-agent";

/// Takes the drop-in away and restarts the agent. The agent is restarted each time: whether it already runs without the
/// drop-in cannot be told after a crash in between, and a restart only makes it look at its plan again.
///
/// # Errors
/// When systemd does not do it.
pub async fn recover(root: &HostRoot, tools: &dyn HostTools) -> Result<()> {
    root.remove_dir(DROP_IN)?;
    must(tools, Call::host("systemctl", &["daemon-reload"])).await?;
    must(tools, Call::host("systemctl", &["restart", UNIT])).await?;
    Ok(())
}
