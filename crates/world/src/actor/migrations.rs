//! KubeVirt's migrations: instances leave a node that carries the drain taint or when they are asked to, and every migration moves its instance
//! to another node after a while, or fails.

use std::{sync::Arc, time::Duration};

use api::{
    foreign::kubevirt::{VirtualMachineInstance, VirtualMachineInstanceMigration},
    labels,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use node::drain_steps::DRAIN_TAINT;
use serde_json::{Value, json};

use crate::{
    cluster::vms,
    context::{Context, after, annotation, controlled_by},
    error::Result,
    inbox::{Inbox, Key, Kind},
    troubles::MigrationTrouble,
    watched::key_of,
};

use super::kubevirt::pick_node;

/// On an instance: how many migrations it has had, so that each gets a name of its own.
const NUMBER: &str = "world.upgrade-toolkit/migrations";
/// How soon a migration without a target, or a failed evacuation, is tried again.
const PAUSE: Duration = Duration::from_secs(30);

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.nodes.subscribe(&inbox);
    world.vmis.subscribe(&inbox);
    world.migrations.subscribe(&inbox);
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = match kind {
            Kind::Node => {
                if world.nodes.at(&key).is_some_and(|node| has_drain_taint(&node)) {
                    for vmi in world.vmis.select(|vmi| vmi.status.node_name.as_ref() == Some(&key.1)) {
                        inbox.now(Kind::VirtualMachineInstance, key_of(vmi.as_ref()));
                    }
                }
                Ok(())
            }
            Kind::VirtualMachineInstance => evacuate(&world, &inbox, &key).await,
            _ => migrate(&world, &inbox, &key).await,
        };
        inbox.settle("migrations", (kind, key), outcome);
    }
}

fn has_drain_taint(node: &Node) -> bool {
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    taints.iter().any(|taint| taint.key == DRAIN_TAINT)
}

fn is_over(migration: &VirtualMachineInstanceMigration) -> bool {
    matches!(migration.status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

fn migrations_of(world: &Context, key: &Key) -> Vec<Arc<VirtualMachineInstanceMigration>> {
    world.migrations.select(|migration| {
        migration.metadata.namespace.as_ref() == Some(&key.0) && migration.spec.vmi_name.as_ref() == Some(&key.1)
    })
}

fn ended(migration: &VirtualMachineInstanceMigration) -> Option<Timestamp> {
    time(migration.status.migration_state.as_ref()?.end_timestamp.as_ref())
}

fn time(text: Option<&String>) -> Option<Timestamp> {
    text?.parse().ok()
}

/// An instance on a node that is being drained gets a migration, and another one when that failed.
async fn evacuate(world: &Context, inbox: &Inbox, key: &Key) -> Result<()> {
    let Some(vmi) = world
        .vmis
        .at(key)
        .filter(|vmi| vmi.status.phase.as_deref() == Some("Running"))
    else {
        return Ok(());
    };
    let node = vmi.status.node_name.clone().unwrap_or_default();
    let drained = world.nodes.get("", &node).is_some_and(|node| has_drain_taint(&node));
    let leaves = drained || vmi.status.evacuation_node_name.as_ref() == Some(&node);
    let conditions = vmi.status.conditions.clone().unwrap_or_default();
    if !leaves || api::foreign::condition_is(&conditions, "LiveMigratable") != Some(true) {
        return Ok(());
    }
    let number: u64 = annotation(&vmi.metadata, NUMBER)
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    let past = migrations_of(world, key);
    if past.iter().any(|migration| !is_over(migration)) {
        return Ok(());
    }
    if let Some(failed) = past.iter().find(|migration| {
        migration.status.phase.as_deref() == Some("Failed")
            && migration.metadata.name == Some(migration_name(&key.1, number.saturating_sub(1)))
    }) {
        let due = after(ended(failed).unwrap_or(Timestamp::MIN), PAUSE);
        if world.clock.now() < due {
            inbox.later(Kind::VirtualMachineInstance, key.clone(), due);
            return Ok(());
        }
    }
    let migration = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {
            "name": migration_name(&key.1, number), "namespace": key.0,
            "labels": {"kubevirt.io/vmi-name": key.1},
            "annotations": {"kubevirt.io/evacuationMigration": node},
            "ownerReferences": controlled_by(vmi.as_ref()),
        },
        "spec": {"vmiName": key.1},
    });
    world.migrations.create(&migration).await?;
    world
        .vmis
        .patch(
            key,
            &json!({"metadata": {"annotations": {NUMBER: (number + 1).to_string()}}}),
        )
        .await?;
    // KubeVirt keeps a few; here the ones that failed are kept, since their number is what a trouble counts.
    for old in past
        .iter()
        .filter(|migration| migration.status.phase.as_deref() == Some("Succeeded"))
    {
        world.migrations.delete(&key_of(old.as_ref()), false).await?;
    }
    Ok(())
}

fn migration_name(vmi: &str, number: u64) -> String {
    format!("kubevirt-evacuation-{vmi}-{number}")
}

async fn migrate(world: &Context, inbox: &Inbox, key: &Key) -> Result<()> {
    let Some(migration) = world.migrations.at(key).filter(|migration| !is_over(migration)) else {
        return Ok(());
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
    let due = after(began, world.durations.migration);
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
    let Some(target) = pick_node(world, &vmi.spec, Some(&source)) else {
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
    let mut pod = vms::Instance {
        namespace: &vmi_key.0,
        name: &vmi_key.1,
        node: &target,
        migratable: true,
        paused: false,
        spec: Value::Null,
        vm_uid: "",
    }
    .pod();
    pod["metadata"]["name"] = json!(target_pod(key));
    world.pods.create(&pod).await?;
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
