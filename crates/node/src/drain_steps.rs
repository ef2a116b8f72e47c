//! Steps on the way to an empty node: volumes are whole, VMs leave, nothing keeps its pods.

use std::fmt::Debug;

pub use api::labels::DRAIN_TAINT;
use api::{
    ProgramWait, UpgradePlan, annotations,
    foreign::{
        kubevirt::{VirtualMachineInstance, VirtualMachineInstanceMigration},
        longhorn::{Engine, Replica, Setting, Volume},
    },
    labels, names,
};
use cache::Cache;
use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Node, Pod, PodSpec, PodStatus},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams},
    runtime::watcher,
};

use crate::attend::attend;
use crate::{
    node_run::NodeRun,
    vm::{VmName, detector, power, restore_list},
};
use program::{
    error::{Error, Result},
    progress::Left,
    report::{Look, Waiting},
    step::StepContext,
    watches::Watches,
};
use rules::{
    drain_taint,
    evacuation::{self, Act, Decision, Evacuation},
    longhorn_health::{self, Storage},
};

fn everything<K>(_: &mut K) {}

/// Of a plan: what a node's program reads. The rest changes all the time.
fn prune_plan(plan: &mut UpgradePlan) {
    if let Some(status) = &mut plan.status {
        let nodes = std::mem::take(&mut status.node_upgrade_statuses);
        plan.status = Some(api::UpgradePlanStatus {
            node_upgrade_statuses: nodes,
            ..Default::default()
        });
    }
}

/// Of a pod: what it mounts and whether it has ended.
fn prune_pod(pod: &mut Pod) {
    pod.metadata.annotations = None;
    pod.metadata.labels = None;
    pod.metadata.managed_fields = None;
    if let Some(spec) = &mut pod.spec {
        *spec = PodSpec {
            volumes: spec.volumes.take(),
            ..Default::default()
        };
    }
    if let Some(status) = &mut pod.status {
        *status = PodStatus {
            phase: status.phase.take(),
            ..Default::default()
        };
    }
}

fn watch_plan(run: &NodeRun, watches: &mut Watches) -> Cache<UpgradePlan> {
    let only = watcher::Config::default().fields(&format!("metadata.name={}", run.plan));
    watches.add(Api::all(run.client.clone()), only, prune_plan)
}

fn all<K>(run: &NodeRun, watches: &mut Watches) -> Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + Debug + PartialEq + Send + Sync + 'static,
{
    watches.add(Api::all(run.client.clone()), watcher::Config::default(), everything)
}

/// Waits until volumes that concern this node have all their copies.
pub(crate) async fn wait_for_volumes(run: &NodeRun, ctx: StepContext<'_>) -> Result<()> {
    watch_storage(run, ctx, longhorn_health::before_evacuation).await
}

/// Waits until no volume that is used elsewhere has its only whole copy here.
pub(crate) async fn keep_last_copies(run: &NodeRun, ctx: StepContext<'_>) -> Result<()> {
    watch_storage(run, ctx, longhorn_health::after_evacuation).await
}

async fn watch_storage(run: &NodeRun, ctx: StepContext<'_>, rule: fn(&Storage<'_>) -> Vec<Waiting>) -> Result<()> {
    let mut watches = Watches::default();
    let plan = watch_plan(run, &mut watches);
    let nodes: Cache<Node> = all(run, &mut watches);
    let any = watcher::Config::default;
    let volumes: Cache<Volume> = watches.add(run.longhorn(), any(), everything);
    let engines: Cache<Engine> = watches.add(run.longhorn(), any(), everything);
    let replicas: Cache<Replica> = watches.add(run.longhorn(), any(), everything);
    let only = any().fields(&format!("metadata.name={}", longhorn_health::DRAIN_POLICY));
    let settings: Cache<Setting> = watches.add(run.longhorn(), only, everything);
    let pods: Cache<Pod> = watches.add(Api::all(run.client.clone()), any(), prune_pod);
    let mut left = Left::new(ProgramWait::VolumesLeft, format!("Node {}", run.node));
    let look = || {
        let plan = plan.get("", &run.plan);
        let skipped = plan
            .as_ref()
            .and_then(|plan| plan.annotation(annotations::SKIP_VOLUMES));
        let storage = Storage {
            node: &run.node,
            nodes: longhorn_health::storage_nodes(nodes.list().iter().map(AsRef::as_ref)),
            volumes: &volumes.list(),
            engines: &engines.list(),
            replicas: &replicas.list(),
            skipped: &longhorn_health::skipped(skipped),
            cordoned: &longhorn_health::cordoned(nodes.list().iter().map(AsRef::as_ref)),
            claims: &longhorn_health::claims_in_use(pods.list().iter().map(AsRef::as_ref)),
            always_allowed: settings
                .get(names::LONGHORN_NAMESPACE, longhorn_health::DRAIN_POLICY)
                .is_some_and(|policy| policy.value == longhorn_health::ALWAYS_ALLOW),
        };
        let waiting = rule(&storage);
        left.sees(ctx, waiting.len());
        Look::of(longhorn_health::summed_up(&run.node, waiting))
    };
    watches.until(ctx, look).await
}

/// Records and stops the VMs that cannot be moved.
pub(crate) async fn stop_immovable_vms(run: &NodeRun, ctx: StepContext<'_>) -> Result<()> {
    let options = detector::Options {
        node: run.node.clone(),
        upgrade: Some(run.plan.clone()),
        shutdown: true,
    };
    // VMs that could not be stopped are named by the wait for VMs that follows.
    let detected = detector::run(&run.client, options, ctx.report).await;
    detected.map(drop).map_err(|error| match error {
        // Its own patience is shorter than ours: the API server may be gone for longer while RKE2 restarts.
        Error::Deadline { .. } => Error::Transient(error.to_string()),
        error => error,
    })
}

/// Makes KubeVirt move the other VMs away.
pub(crate) async fn taint(run: &NodeRun, _: StepContext<'_>) -> Result<()> {
    set_taints(run, true).await
}

/// Lets VMs come back.
pub(crate) async fn untaint(run: &NodeRun, _: StepContext<'_>) -> Result<()> {
    set_taints(run, false).await
}

async fn set_taints(run: &NodeRun, draining: bool) -> Result<()> {
    let Some(patch) = drain_taint::patch(&run.read_node().await?, draining) else {
        return Ok(());
    };
    let patched = run
        .nodes()
        .patch(&run.node, &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    patched
        .map(drop)
        .map_err(|error| Error::api(format!("change the taints of Node {}", run.node), error))
}

/// Waits until all VMs have left the node, and deals with those that do not.
pub(crate) async fn evacuate(run: &NodeRun, ctx: StepContext<'_>) -> Result<()> {
    let mut watches = Watches::default();
    let plan = watch_plan(run, &mut watches);
    let on_node = watcher::Config::default().labels(&format!("{}={}", labels::VMI_NODE, run.node));
    let instances: Cache<VirtualMachineInstance> = watches.add(Api::all(run.client.clone()), on_node, everything);
    let migrations: Cache<VirtualMachineInstanceMigration> = all(run, &mut watches);
    let targets = watcher::Config::default().labels(evacuation::MIGRATION_JOB_LABEL);
    let pods: Cache<Pod> = watches.add(Api::all(run.client.clone()), targets, everything);
    let only = watcher::Config::default().fields(&format!("metadata.name={}", run.node));
    let nodes: Cache<Node> = watches.add(Api::all(run.client.clone()), only, everything);
    let decide = || {
        let plan = plan.get("", &run.plan);
        let policy = plan
            .as_ref()
            .and_then(|plan| plan.spec.on_migration_failure)
            .unwrap_or_default();
        evacuation::decide(&Evacuation {
            now: ctx.report.clock.now(),
            plan: &run.plan,
            node: &run.node,
            policy,
            began: plan.as_ref().and_then(|plan| began(plan, &run.node)),
            instances: &instances.list(),
            migrations: &migrations.list(),
            target_pods: &pods.list(),
            tainted: nodes
                .get("", &run.node)
                .is_none_or(|node| drain_taint::patch(&node, true).is_none()),
        })
    };
    watches
        .while_doing(async |bell| {
            let look = || match bell.unserved() {
                unserved if unserved.is_empty() => bell.is_synced().then(&decide),
                unserved => Some(Decision {
                    waiting: unserved,
                    ..Decision::default()
                }),
            };
            let act = |act: Act| async move { carry_out(run, &act).await }.boxed();
            attend(&run.node, ctx, &bell.rings, look, act).await
        })
        .await
}

/// When the upgrade of a node began.
fn began(plan: &UpgradePlan, node: &str) -> Option<Timestamp> {
    let nodes = &plan.status.as_ref()?.node_upgrade_statuses;
    nodes.get(node)?.started_at.as_ref().map(|time| time.0)
}

async fn carry_out(run: &NodeRun, act: &Act) -> Result<()> {
    match act {
        Act::Retry {
            namespace,
            name,
            number,
            migrations,
        } => {
            tracing::info!(vm = %format!("{namespace}/{name}"), number, "retrying the migration");
            // Recorded first: a program that restarts after a crash continues counting.
            let noted = evacuation::retry_note(&run.plan, *number);
            let instances: Api<VirtualMachineInstance> = Api::namespaced(run.client.clone(), namespace);
            let patched = instances
                .patch_metadata(name, &PatchParams::default(), &Patch::Merge(&noted))
                .await;
            patched
                .map_err(|error| Error::api(format!("annotate VirtualMachineInstance {namespace}/{name}"), error))?;
            let all: Api<VirtualMachineInstanceMigration> = Api::namespaced(run.client.clone(), namespace);
            for migration in migrations {
                match all.delete(migration, &DeleteParams::default()).await {
                    Ok(_) => {}
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    Err(error) => {
                        let what = format!("delete VirtualMachineInstanceMigration {namespace}/{migration}");
                        return Err(Error::api(what, error));
                    }
                }
            }
            Ok(())
        }
        Act::Stop {
            namespace,
            name,
            restore,
            why,
        } => {
            let vm = VmName {
                namespace: namespace.clone(),
                name: name.clone(),
            };
            tracing::warn!(%vm, "stopping the VM: {why}");
            if *restore {
                restore_list::add(&run.client, &run.plan, &run.node, std::slice::from_ref(&vm)).await?;
            }
            power::stop(&run.client, &vm).await
        }
        Act::Taint => {
            tracing::warn!(
                node = run.node,
                "setting the taint {DRAIN_TAINT} again, which another client removed"
            );
            set_taints(run, true).await
        }
    }
}

/// Waits until KubeVirt has taken the budgets away that guard migrations off this node.
pub(crate) async fn wait_for_budgets(run: &NodeRun, ctx: StepContext<'_>) -> Result<()> {
    let mut watches = Watches::default();
    let budgets: Cache<PodDisruptionBudget> = all(run, &mut watches);
    let migrations: Cache<VirtualMachineInstanceMigration> = all(run, &mut watches);
    let instances: Cache<VirtualMachineInstance> = all(run, &mut watches);
    let look = || {
        let (budgets, migrations) = (budgets.list(), migrations.list());
        Look::of(evacuation::budgets(&run.node, &budgets, &migrations, &instances.list()))
    };
    watches.until(ctx, look).await
}

/// Waits until all VMs of a cluster of one node are down. There is nowhere to move them.
pub(crate) async fn wait_until_empty(run: &NodeRun, ctx: StepContext<'_>) -> Result<()> {
    let mut watches = Watches::default();
    let on_node = watcher::Config::default().labels(&format!("{}={}", labels::VMI_NODE, run.node));
    let instances: Cache<VirtualMachineInstance> = watches.add(Api::all(run.client.clone()), on_node, everything);
    let look = || Look::of(evacuation::remaining(&run.node, &instances.list()));
    watches.until(ctx, look).await
}
