//! Starts the VMs again that were stopped because they could not leave their node: the real program, on the simulated
//! KubeVirt.

use std::sync::Arc;

use node::vm::restore::{self, Options};
use program::{Result, report::Reporter};

use super::{Call, kubevirt::SimulatedKubeVirt};

pub(super) async fn run(call: &Call, report: &Reporter) -> Result<()> {
    let options = Options {
        node: call.node.clone(),
        upgrade: call.plan.clone(),
    };
    let kubevirt = Arc::new(SimulatedKubeVirt(call.clone()));
    restore::run_on(&call.client, kubevirt, options, report).await
}
