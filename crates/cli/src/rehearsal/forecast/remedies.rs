//! The rehearsed administrator: removes what blocks the upgrade, with the rights of one. Acts on the simulated
//! cluster alone.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use api::{
    UpgradePlan, annotations,
    foreign::{
        kubevirt::VirtualMachine,
        longhorn::{Replica, Volume},
    },
    names,
    node::{is_cordoned, is_witness},
};
use k8s_openapi::api::{core::v1::Node, policy::v1::PodDisruptionBudget};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    super::Rehearsal,
    obstacles::{Obstacle, What},
};

/// What the administrator has done.
#[derive(Default)]
pub(super) struct Administrator {
    /// Obstacles that were removed once. One that comes back cannot be removed.
    removed: BTreeSet<What>,
    /// VMs that are off, and the node that they wait for.
    off: BTreeMap<(String, String), Option<String>>,
    /// All VMs that were shut down.
    stopped: BTreeSet<(String, String)>,
}

impl Administrator {
    /// The obstacle was not removed before.
    pub(super) fn is_new(&self, obstacle: &Obstacle) -> bool {
        !self.removed.contains(&obstacle.what)
    }

    /// All VMs that were shut down.
    pub(super) fn stopped(&self) -> BTreeSet<(String, String)> {
        self.stopped.clone()
    }

    /// Removes an obstacle; what was done, unless nothing can be done.
    pub(super) async fn remove(
        &mut self,
        rehearsal: &Rehearsal,
        plan: &UpgradePlan,
        obstacle: &Obstacle,
    ) -> anyhow::Result<Option<String>> {
        self.removed.insert(obstacle.what.clone());
        match &obstacle.what {
            What::Budget(namespace, name) => {
                let budgets: Api<PodDisruptionBudget> = Api::namespaced(rehearsal.server.client(), namespace);
                let deleted = budgets.delete(name, &DeleteParams::default()).await;
                deleted.with_context(|| format!("failed to delete budget {namespace}/{name}"))?;
                Ok(Some("the budget was deleted.".to_owned()))
            }
            What::Vm(namespace, name) => {
                let key = (namespace.clone(), name.clone());
                set_strategy(rehearsal, &key, "Halted").await?;
                self.off.insert(key.clone(), obstacle.blocker.node.clone());
                self.stopped.insert(key);
                Ok(Some("the VM was shut down until its node was upgraded.".to_owned()))
            }
            What::Copies(volume) => Ok(Some(add_copies(rehearsal, plan, volume).await?)),
        }
    }

    /// Starts VMs again whose node was upgraded.
    pub(super) async fn start_again(&mut self, rehearsal: &Rehearsal, plan: &UpgradePlan) -> anyhow::Result<()> {
        let statuses = plan.status.as_ref().map(|status| &status.node_upgrade_statuses);
        let is_done = |node: &str| {
            let entry = statuses.and_then(|statuses| statuses.get(node));
            entry.is_some_and(|entry| entry.finished_at.is_some())
        };
        let due: Vec<(String, String)> = self
            .off
            .iter()
            .filter(|(_, node)| node.as_deref().is_some_and(is_done))
            .map(|(vm, _)| vm.clone())
            .collect();
        for vm in due {
            self.off.remove(&vm);
            set_strategy(rehearsal, &vm, "Always").await?;
        }
        Ok(())
    }

    /// Starts all others, when the upgrade has ended.
    pub(super) async fn start_all_again(&mut self, rehearsal: &Rehearsal, plan: &UpgradePlan) -> anyhow::Result<()> {
        self.start_again(rehearsal, plan).await?;
        for vm in std::mem::take(&mut self.off).into_keys() {
            set_strategy(rehearsal, &vm, "Always").await?;
        }
        Ok(())
    }
}

async fn set_strategy(
    rehearsal: &Rehearsal,
    (namespace, name): &(String, String),
    strategy: &str,
) -> anyhow::Result<()> {
    let vms: Api<VirtualMachine> = Api::namespaced(rehearsal.server.client(), namespace);
    let patch = json!({"spec": {"runStrategy": strategy}});
    let patched = vms.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched
        .map(drop)
        .with_context(|| format!("failed to set runStrategy of VM {namespace}/{name}"))
}

/// Adds the copies of a volume that are missing, and at least one, on nodes that have none; where there is no such node, the plan
/// gets the annotation to skip the volume.
async fn add_copies(rehearsal: &Rehearsal, plan: &UpgradePlan, volume: &str) -> anyhow::Result<String> {
    let client = rehearsal.server.client();
    let volumes: Api<Volume> = Api::namespaced(client.clone(), names::LONGHORN_NAMESPACE);
    let known = volumes.get(volume).await;
    let known = known.with_context(|| format!("failed to read volume {volume}"))?;
    let copies = rehearsal.objects("longhorn.io", "replicas").into_iter();
    let own: Vec<String> = copies
        .filter(|copy| copy.data["spec"]["volumeName"] == volume)
        .filter_map(|copy| copy.data["spec"]["nodeID"].as_str().map(str::to_owned))
        .collect();
    let there = i64::try_from(own.len()).unwrap_or_default();
    let missing = (known.spec.number_of_replicas.unwrap_or_default() - there).max(1);
    let nodes = rehearsal.objects("", "nodes").into_iter();
    let nodes = nodes.filter_map(|node| node.try_parse::<Node>().ok());
    let free = nodes.filter(|node| !is_witness(node) && !is_cordoned(node));
    let free = free.map(|node| node.name_any()).filter(|node| !own.contains(node));
    let free: Vec<String> = free.take(usize::try_from(missing).unwrap_or(1)).collect();
    if free.is_empty() {
        skip(rehearsal, plan, volume).await?;
        return Ok(
            "no other node can store a replica: the plan got the annotation skip-volumes for the volume.".to_owned(),
        );
    }
    let replicas: Api<Replica> = Api::namespaced(client, names::LONGHORN_NAMESPACE);
    for (number, node) in (there..).zip(&free) {
        let copy: Replica = serde_json::from_value(world::added_copy(volume, number, node))?;
        let created = replicas.create(&PostParams::default(), &copy).await;
        created.with_context(|| format!("failed to add a replica of volume {volume}"))?;
    }
    let wanted = there + i64::try_from(free.len()).unwrap_or_default();
    let patch = json!({"spec": {"numberOfReplicas": wanted}});
    let patched = volumes
        .patch(volume, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched.with_context(|| format!("failed to change volume {volume}"))?;
    Ok(format!("a replica of the volume was added on {}.", free.join(", ")))
}

/// No node waits for the volume.
async fn skip(rehearsal: &Rehearsal, plan: &UpgradePlan, volume: &str) -> anyhow::Result<()> {
    let plans: Api<UpgradePlan> = Api::all(rehearsal.server.client());
    let named = plans.get(&plan.name_any()).await.context("failed to read the plan")?;
    let named = named.annotations().get(annotations::SKIP_VOLUMES).cloned();
    let named = named.map_or_else(|| volume.to_owned(), |named| format!("{named},{volume}"));
    let patch = json!({"metadata": {"annotations": {annotations::SKIP_VOLUMES: named}}});
    let patched = plans
        .patch(&plan.name_any(), &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched.map(drop).context("failed to annotate the plan")
}
