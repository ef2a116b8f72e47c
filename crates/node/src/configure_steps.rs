//! Steps that configure RKE2 and the kubelet of a node: the same after a drain and on a cluster of one node.

use futures::future::ready;

use crate::{
    host::{oem, rke2_config},
    limits::Limits,
    node_run::NodeRun,
};
use program::step::Step;

/// The steps, in order.
pub(crate) fn steps(limits: &Limits) -> Vec<Step<NodeRun>> {
    vec![
        Step {
            name: "set-max-pods",
            limit: limits.host,
            run: |run, _| Box::pin(ready(rke2_config::max_pods(&run.root))),
        },
        Step {
            name: "reserve-resources",
            limit: limits.host,
            run: |run, _| Box::pin(rke2_config::reserve_resources(&run.root, run.tools.as_ref())),
        },
        Step {
            name: "set-device-permissions",
            limit: limits.host,
            run: |run, _| Box::pin(ready(rke2_config::device_permissions(&run.root))),
        },
        Step {
            name: "clean-kubelet-state",
            limit: limits.host,
            run: |run, _| Box::pin(ready(oem::clean_kubelet_state(&run.root))),
        },
    ]
}
