//! The detector: which VMs of a node cannot migrate. They are recorded, when they are to be started again later, and
//! stopped.

use std::{collections::BTreeSet, sync::Arc};

use api::{
    foreign::{condition_is, kubevirt::VirtualMachineInstance},
    labels, names, reasons,
};
use checks::migration;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::{
    context::{is_witness, label},
    error::Result,
    events::{Report, record},
    plan_seen::UpgradePlan,
    watched::key_of,
};

use super::{Call, NODE_LABEL};

pub(super) async fn run(call: &Call<'_>) -> Result<()> {
    let stuck = stuck(call);
    let plan = call.world.upgrade_plans.get("", call.plan);
    if let Some(plan) = plan.filter(|plan| plan.spec.restore_vm == Some(true)) {
        remember(call, &plan, &stuck).await?;
    }
    let (mut stopped, mut failed) = (0, 0);
    for vmi in &stuck {
        // An instance is named after its VM; one without a VM cannot be stopped.
        match call
            .world
            .vms
            .patch(&key_of(vmi.as_ref()), &json!({"spec": {"runStrategy": "Halted"}}))
            .await?
        {
            Some(_) => stopped += 1,
            None => failed += 1,
        }
    }
    let total = stuck.len();
    let message = format!(
        "Shutdown completed for {total} VM(s) on node {}, success: {stopped}, failed: {failed}",
        call.node
    );
    report(call, reasons::VM_SHUTDOWN_COMPLETED, &message).await
}

async fn report(call: &Call<'_>, reason: &str, message: &str) -> Result<()> {
    let report = Report {
        plan: call.plan,
        node: call.node,
        source: reasons::SOURCE_DETECTOR,
        warning: false,
        reason,
        message,
    };
    record(call.world, &report).await
}

/// The instances of the node that cannot go elsewhere.
fn stuck(call: &Call<'_>) -> Vec<Arc<VirtualMachineInstance>> {
    let nodes = call.world.nodes.select(|node| !is_witness(node));
    let hosts: Vec<&Node> = nodes.iter().map(AsRef::as_ref).collect();
    call.world
        .vmis
        .select(|vmi| label(&vmi.metadata, NODE_LABEL) == Some(call.node) && migration::is_stuck(vmi, &hosts))
}

/// Adds VMs to the list of those to start again. A VM that was paused is not started again.
async fn remember(call: &Call<'_>, plan: &UpgradePlan, stuck: &[Arc<VirtualMachineInstance>]) -> Result<()> {
    let name = names::restore_config_map(call.plan);
    let key = (names::HARVESTER_NAMESPACE.to_owned(), name.clone());
    let paused =
        |vmi: &VirtualMachineInstance| condition_is(&vmi.status.conditions.clone().unwrap_or_default(), "Paused");
    let mut listed: BTreeSet<String> = stuck
        .iter()
        .filter(|vmi| paused(vmi) != Some(true))
        .map(|vmi| key_of(vmi.as_ref()))
        .map(|(namespace, name)| format!("{namespace}/{name}"))
        .collect();
    if let Some(existing) = call.world.config_maps.at(&key) {
        // A Job that runs again finds fewer VMs; those it stopped before stay on the list.
        let before = existing.data.as_ref().and_then(|data| data.get(call.node)).cloned();
        listed.extend(
            before
                .iter()
                .flat_map(|list| list.split(','))
                .filter(|entry| !entry.is_empty())
                .map(str::to_owned),
        );
        let list = listed.into_iter().collect::<Vec<_>>().join(",");
        if before.as_ref() != Some(&list) {
            call.world
                .config_maps
                .patch(&key, &json!({"data": {call.node: list}}))
                .await?;
        }
        return Ok(());
    }
    let list = listed.into_iter().collect::<Vec<_>>().join(",");
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": name, "namespace": names::HARVESTER_NAMESPACE, "labels": {labels::UPGRADE_PLAN: call.plan},
            "ownerReferences": [{
                "apiVersion": <UpgradePlan as kube::Resource>::api_version(&()), "kind": "UpgradePlan",
                "name": call.plan, "uid": plan.metadata.uid,
            }],
        },
        "data": {call.node: list},
    });
    if call.world.config_maps.create(&config_map).await? {
        let message = format!("ConfigMap {}/{name} created", names::HARVESTER_NAMESPACE);
        return report(call, reasons::RESTORE_VM_CONFIG_MAP_CREATED, &message).await;
    }
    // Another node's Job was faster; add to its list.
    call.world
        .config_maps
        .patch(&key, &json!({"data": {call.node: list}}))
        .await
        .map(drop)
}
