//! KubeVirt's migrations: every migration moves its instance to another node, in the time that the instance's memory takes,
//! or fails. [`super::evacuation`] decides which VMs have to leave.

use std::{sync::Arc, time::Duration};

use api::{
    foreign::kubevirt::{VirtualMachineInstance, VirtualMachineInstanceMigration},
    labels,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use rules::{
    evacuation::{MIGRATION_JOB_LABEL, is_over},
    quantity::amount,
};
use serde_json::{Value, json};

use crate::{
    cluster::vms,
    context::{Context, after, node_of},
    error::Result,
    inbox::{Inbox, Key, Kind},
    index,
    troubles::MigrationTrouble,
    watched::key_of,
};

use super::kubevirt::pick_node;

/// How soon a migration without a target is tried again.
const PAUSE: Duration = Duration::from_secs(30);
const GIB: f64 = 1_073_741_824.0;
const MOST_GIBIBYTES: f64 = 65_536.0;

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.migrations.subscribe(&inbox);
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = migrate(&world, &inbox, &key).await;
        inbox.settle("migrations", (kind, key), outcome);
    }
}

/// All migrations of an instance that there are.
pub(super) fn migrations_of(world: &Context, key: &Key) -> Vec<Arc<VirtualMachineInstanceMigration>> {
    world.migrations.found(&index::of_instance(key))
}

/// When a migration ended.
pub(super) fn ended(migration: &VirtualMachineInstanceMigration) -> Option<Timestamp> {
    time(migration.status.migration_state.as_ref()?.end_timestamp.as_ref())
}

fn time(text: Option<&String>) -> Option<Timestamp> {
    text?.parse().ok()
}

async fn migrate(world: &Context, inbox: &Inbox, key: &Key) -> Result<()> {
    let Some(migration) = world.migrations.at(key).filter(|migration| !is_over(migration)) else {
        // The target of one that was cancelled goes with it.
        return remove_waiting_target(world, key).await;
    };
    let vmi_key = (key.0.clone(), migration.spec.vmi_name.clone().unwrap_or_default());
    let Some(vmi) = world.vmis.at(&vmi_key) else {
        return world
            .migrations
            .patch_status(
                key,
                &json!({"phase": "Failed", "migrationState": {"endTimestamp": world.stamp()}}),
            )
            .await
            .map(drop);
    };
    let state = migration.status.migration_state.as_ref();
    let began = state.and_then(|state| time(state.start_timestamp.as_ref()));
    let (Some("Running"), Some(began)) = (migration.status.phase.as_deref(), began) else {
        return begin(world, inbox, key, &vmi_key, &vmi, &migration).await;
    };
    let troubles = world.troubles();
    let trouble = troubles.migrations.get(&format!("{}/{}", vmi_key.0, vmi_key.1));
    if trouble == Some(&MigrationTrouble::Stuck) {
        return Ok(());
    }
    let due = after(began, duration(world, &vmi));
    if world.clock.now() < due {
        inbox.later(Kind::VirtualMachineInstanceMigration, key.clone(), due);
        return Ok(());
    }
    let failures = migrations_of(world, &vmi_key)
        .iter()
        .filter(|past| past.status.phase.as_deref() == Some("Failed"))
        .count();
    let failed = matches!(trouble, Some(MigrationTrouble::Fails(times)) if failures < usize::try_from(*times).unwrap_or(usize::MAX));
    end(world, key, &vmi_key, &vmi, failed).await
}

/// How long an instance takes to move: a handshake, and its memory through the network.
fn duration(world: &Context, vmi: &VirtualMachineInstance) -> Duration {
    let domain = vmi.spec.domain.as_ref();
    let memory = domain.and_then(|domain| domain.other.get("memory")?.get("guest")?.as_str());
    let bytes = memory.and_then(|memory| amount(&Quantity(memory.to_owned())));
    // No machine has more; what others wrote must not overflow.
    let gibibytes = (bytes.unwrap_or_default() / GIB).clamp(0.0, MOST_GIBIBYTES);
    world.durations.migration + world.durations.migration_per_gib.mul_f64(gibibytes)
}

/// Finds a target, starts a pod there, and begins to copy.
async fn begin(
    world: &Context,
    inbox: &Inbox,
    key: &Key,
    vmi_key: &Key,
    vmi: &VirtualMachineInstance,
    migration: &VirtualMachineInstanceMigration,
) -> Result<()> {
    let source = vmi.status.node_name.clone().unwrap_or_default();
    let Some(target) = pick_node(world, vmi_key, &vmi.spec, Some(&source)) else {
        make_waiting_target(world, key, vmi_key, vmi, migration).await?;
        if migration.status.phase.as_deref() != Some("Pending") {
            world.migrations.patch_status(key, &json!({"phase": "Pending"})).await?;
        }
        inbox.later(
            Kind::VirtualMachineInstanceMigration,
            key.clone(),
            after(world.clock.now(), PAUSE),
        );
        return Ok(());
    };
    remove_waiting_target(world, key).await?;
    world
        .pods
        .create(&launcher(key, vmi_key, vmi, &target, migration)?)
        .await?;
    let state = json!({
        "migrationUid": migration.metadata.uid, "sourceNode": source, "targetNode": target,
        "targetPod": target_pod(key), "startTimestamp": world.stamp(), "endTimestamp": null,
        "completed": false, "failed": false,
    });
    world
        .vmis
        .patch_status(vmi_key, &json!({ "migrationState": state }))
        .await?;
    // virt-controller copies the state of the instance into the migration.
    let status = json!({"phase": "Running", "migrationState": state});
    world.migrations.patch_status(key, &status).await.map(drop)
}

/// The pod that the instance moves into.
fn launcher(
    key: &Key,
    vmi_key: &Key,
    vmi: &VirtualMachineInstance,
    node: &str,
    migration: &VirtualMachineInstanceMigration,
) -> Result<Value> {
    let mut pod = vms::Instance {
        namespace: &vmi_key.0,
        name: &vmi_key.1,
        node,
        migratable: true,
        paused: false,
        spec: serde_json::to_value(&vmi.spec)?,
        vm_uid: "",
    }
    .pod();
    pod["metadata"]["name"] = json!(target_pod(key));
    pod["metadata"]["labels"][MIGRATION_JOB_LABEL] = json!(migration.metadata.uid);
    Ok(pod)
}

/// A target that no node takes: its pod waits, and says so in the scheduler's words.
async fn make_waiting_target(
    world: &Context,
    key: &Key,
    vmi_key: &Key,
    vmi: &VirtualMachineInstance,
    migration: &VirtualMachineInstanceMigration,
) -> Result<()> {
    let mut pod = launcher(key, vmi_key, vmi, "", migration)?;
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("nodeName");
    }
    if world.pods.create(&pod).await? {
        let nodes = world.nodes.list().len();
        let message = format!(
            "0/{nodes} nodes are available: no other node matches the rules of placement of the pod and has the processors \
             and the memory that it requests."
        );
        let status = json!({"phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
            "lastTransitionTime": world.stamp(),
        }]});
        world
            .pods
            .patch_status(&(key.0.clone(), target_pod(key)), &status)
            .await?;
    }
    Ok(())
}

async fn remove_waiting_target(world: &Context, key: &Key) -> Result<()> {
    let pod = (key.0.clone(), target_pod(key));
    if world.pods.at(&pod).is_some_and(|pod| node_of(&pod).is_empty()) {
        world.pods.delete(&pod, true).await?;
    }
    Ok(())
}

fn target_pod(key: &Key) -> String {
    let (vmi, number) = key
        .1
        .trim_start_matches("kubevirt-evacuation-")
        .rsplit_once('-')
        .unwrap_or((&key.1, "0"));
    format!("virt-launcher-{vmi}-m{number}")
}

async fn end(world: &Context, key: &Key, vmi_key: &Key, vmi: &VirtualMachineInstance, failed: bool) -> Result<()> {
    let target = vmi
        .status
        .migration_state
        .as_ref()
        .and_then(|state| state.target_node.clone())
        .unwrap_or_default();
    let now = world.stamp();
    if failed {
        world.pods.delete(&(key.0.clone(), target_pod(key)), true).await?;
        let state = json!({"migrationState": {"completed": true, "failed": true, "endTimestamp": now}});
        world.vmis.patch_status(vmi_key, &state).await?;
        let status = json!({"phase": "Failed", "migrationState": state["migrationState"]});
        return world.migrations.patch_status(key, &status).await.map(drop);
    }
    for pod in vms::launchers(world, vmi_key) {
        if pod.metadata.name.as_deref() != Some(&target_pod(key)) {
            world.pods.delete(&key_of(pod.as_ref()), true).await?;
        }
    }
    world
        .vmis
        .patch(vmi_key, &json!({"metadata": {"labels": {labels::VMI_NODE: target}}}))
        .await?;
    let state = json!({
        "nodeName": target, "evacuationNodeName": null,
        "migrationState": {"completed": true, "failed": false, "endTimestamp": now},
    });
    world.vmis.patch_status(vmi_key, &state).await?;
    let status = json!({"phase": "Succeeded", "migrationState": state["migrationState"]});
    world.migrations.patch_status(key, &status).await.map(drop)
}
