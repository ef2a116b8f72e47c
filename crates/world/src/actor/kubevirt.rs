//! KubeVirt's VMs: a VM that is to run has an instance, a virt-launcher pod and, when it can migrate, a
//! PodDisruptionBudget that forbids its eviction; a stopped VM has none of them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::{
    foreign::kubevirt::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceSpec},
    node::is_witness,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};

use crate::{
    cluster::vms,
    context::{Context, after},
    error::Result,
    inbox::{Inbox, Key, Kind},
    index,
    room::Rooms,
    schedule,
    watched::key_of,
};

/// On an instance that goes down.
const FINALIZER: &str = "foregroundDeleteVirtualMachine";
/// How soon a VM that fits on no node is tried again.
const UNSCHEDULABLE_PAUSE: Duration = Duration::from_secs(5);

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.vms.subscribe(&inbox);
    world.vmis.subscribe(&inbox);
    // When a VM began to start or to stop. A controller that restarts gives it the full time again.
    let mut since = BTreeMap::new();
    loop {
        let (kind, key) = inbox.next().await;
        // An instance is named after its VM.
        let outcome = sync(&world, &inbox, &mut since, &key).await;
        inbox.settle("kubevirt", (Kind::VirtualMachine, key.clone()), outcome);
        let _ = kind;
    }
}

fn is_to_run(vm: &VirtualMachine) -> bool {
    match vm.spec.run_strategy.as_deref() {
        Some(strategy) => matches!(strategy, "Always" | "RerunOnFailure"),
        None => vm.spec.running == Some(true),
    }
}

async fn sync(world: &Context, inbox: &Inbox, since: &mut BTreeMap<Key, Timestamp>, key: &Key) -> Result<()> {
    let vm = world.vms.at(key).filter(|vm| vm.metadata.deletion_timestamp.is_none());
    let vmi = world.vmis.at(key);
    let Some(vm) = vm else {
        since.remove(key);
        return match vmi {
            Some(vmi) => remove(world, key, &vmi).await,
            None => Ok(()),
        };
    };
    let now = world.clock.now();
    // It waits for an instance that shuts down, whatever is requested in the meantime.
    let goes_down = vmi
        .as_ref()
        .is_some_and(|vmi| vmi.metadata.deletion_timestamp.is_some());
    match (is_to_run(&vm) && !goes_down, vmi) {
        (true, Some(vmi)) => {
            since.remove(key);
            let paused = api::foreign::condition_is(&vmi.status.conditions.clone().unwrap_or_default(), "Paused");
            show(world, &vm, key, if paused == Some(true) { "Paused" } else { "Running" }).await
        }
        (true, None) => {
            let due = after(*since.entry(key.clone()).or_insert(now), world.durations.vm_start);
            if now < due {
                inbox.later(Kind::VirtualMachine, key.clone(), due);
                return show(world, &vm, key, "Starting").await;
            }
            let spec = vm
                .spec
                .template
                .as_ref()
                .and_then(|template| template.spec.clone())
                .unwrap_or_default();
            let broken = world
                .troubles()
                .vms_that_do_not_start
                .contains(&format!("{}/{}", key.0, key.1));
            let Some(node) = pick_node(world, key, &spec, None).filter(|_| !broken) else {
                inbox.later(Kind::VirtualMachine, key.clone(), after(now, UNSCHEDULABLE_PAUSE));
                return show(world, &vm, key, "ErrorUnschedulable").await;
            };
            since.remove(key);
            create(world, &vm, key, &node).await
        }
        (false, Some(vmi)) => {
            let due = after(*since.entry(key.clone()).or_insert(now), world.durations.vm_stop);
            if now < due {
                inbox.later(Kind::VirtualMachine, key.clone(), due);
                if !goes_down {
                    // KubeVirt deletes the instance, which stays until its guest is down.
                    let finalizer = json!({"metadata": {"finalizers": [FINALIZER]}});
                    world.vmis.patch(key, &finalizer).await?;
                    world.vmis.delete(key, false).await?;
                }
                return show(world, &vm, key, "Stopping").await;
            }
            since.remove(key);
            remove(world, key, &vmi).await
        }
        (false, None) => {
            since.remove(key);
            show(world, &vm, key, "Stopped").await
        }
    }
}

/// A node for a VM that is not to be on `except`: schedulable, no witness, with room for it, the one with the fewest VMs.
pub(crate) fn pick_node(
    world: &Context,
    vm: &Key,
    spec: &VirtualMachineInstanceSpec,
    except: Option<&str>,
) -> Option<String> {
    let pod = PodSpec {
        node_selector: spec.node_selector.clone(),
        affinity: spec.affinity.clone(),
        ..Default::default()
    };
    let load = |node: &str| world.vmis.count_found(&index::on(node)) + world.vmis.count_found(&index::bound_for(node));
    let rooms = Rooms::for_vm(world, vm, spec);
    let nodes = world.nodes.select(|node| {
        !is_witness(node)
            && node.metadata.name.as_deref() != except
            && schedule::fits(node, &pod)
            && rooms.as_ref().is_none_or(|rooms| rooms.fits(node))
    });
    let names = nodes.iter().filter_map(|node| node.metadata.name.clone());
    names.min_by_key(|name| (load(name), name.len(), name.clone()))
}

async fn show(world: &Context, vm: &VirtualMachine, key: &Key, status: &str) -> Result<()> {
    if vm.status.printable_status.as_deref() == Some(status) {
        return Ok(());
    }
    let status = vms::vm_status(status);
    world.vms.patch_status(key, &status).await.map(drop)
}

async fn create(world: &Context, vm: &VirtualMachine, key: &Key, node: &str) -> Result<()> {
    let uid = vm.metadata.uid.clone().unwrap_or_default();
    let spec = vm
        .spec
        .template
        .as_ref()
        .and_then(|template| template.spec.clone())
        .unwrap_or_default();
    let objects = vms::Instance {
        namespace: &key.0,
        name: &key.1,
        node,
        migratable: vms::is_migratable(&spec),
        paused: false,
        spec: serde_json::to_value(&spec)?,
        vm_uid: &uid,
    };
    world.pods.create(&objects.pod()).await?;
    if objects.migratable {
        let budget = objects.budget();
        if world.budgets.create(&budget).await? {
            let name = budget["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            world
                .budgets
                .patch_status(&(key.0.clone(), name), &budget["status"])
                .await?;
        }
    }
    let vmi = objects.vmi();
    world.vmis.create(&vmi).await?;
    world.vmis.patch_status(key, &vmi["status"]).await.map(drop)
}

/// Takes an instance away with all that belongs to it.
async fn remove(world: &Context, key: &Key, vmi: &VirtualMachineInstance) -> Result<()> {
    world
        .budgets
        .delete(&(key.0.clone(), vms::budget_name(&key.1)), false)
        .await?;
    for pod in vms::launchers(world, key) {
        world.pods.delete(&key_of(pod.as_ref()), true).await?;
    }
    for migration in world.migrations.found(&index::of_instance(key)) {
        world.migrations.delete(&key_of(migration.as_ref()), false).await?;
    }
    if vmi.metadata.finalizers.is_some() {
        world
            .vmis
            .patch(key, &json!({"metadata": {"finalizers": null}}))
            .await?;
    }
    world.vmis.delete(&key_of(vmi), false).await
}

/// The JSON of a condition list that says whether an instance can migrate and whether it is paused.
pub(crate) fn instance_conditions(migratable: bool, paused: bool) -> Value {
    let mut conditions = vec![json!({"type": "Ready", "status": if paused { "False" } else { "True" }})];
    conditions.push(if migratable {
        json!({"type": "LiveMigratable", "status": "True"})
    } else {
        json!({"type": "LiveMigratable", "status": "False", "reason": "HostDeviceNotLiveMigratable"})
    });
    if paused {
        conditions.push(json!({"type": "Paused", "status": "True", "reason": "PausedByUser"}));
    }
    json!(conditions)
}
