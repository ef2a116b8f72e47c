//! Rancher's planner for `fleet-local/local`: when the Kubernetes version or the provisioning generation moves, every
//! machine is taken through cordon, pre-drain hook, drain, RKE2, post-drain hook, uncordon: control plane first, then
//! workers, so many at once as the strategy says. Without drain options it goes straight on to RKE2.
//!
//! A machine's plan Secret says which target the machine has reached; every step can be repeated. So a planner that
//! starts anew goes on where the last one stopped.

use std::{sync::Arc, time::Duration};

use api::{annotations, foreign::rancher::Cluster, labels, names};
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Secret};
use serde_json::{Value, json};

use crate::{
    context::{Context, after, annotation, digest, label},
    error::Result,
    inbox::Key,
    watched::key_of,
};

use super::drain::drain;

/// On a machine-plan Secret: the target that the machine has reached.
pub(crate) const REACHED: &str = "world.upgrade-toolkit/reached";
/// Pause before what failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.clusters.subscribe(&inbox);
    world.machine_plans.subscribe(&inbox);
    loop {
        match pass(&world).await {
            Ok(true) => {}
            Ok(false) => inbox.changed().await,
            Err(error) => {
                tracing::debug!(%error, "the planner failed; trying again");
                world.clock.sleep(PAUSE).await;
            }
        }
    }
}

/// Which of a cluster's machines a step is about.
#[derive(Clone)]
struct Target {
    /// Generation and version.
    text: String,
    version: String,
}

fn target(cluster: &Cluster) -> Target {
    let version = cluster.spec.kubernetes_version.clone().unwrap_or_default();
    let generation = cluster
        .spec
        .rke_config
        .as_ref()
        .and_then(|config| config.provision_generation)
        .unwrap_or(0);
    Target {
        text: format!("{generation}/{version}"),
        version,
    }
}

fn cluster_key() -> Key {
    (names::FLEET_NAMESPACE.to_owned(), names::LOCAL_CLUSTER.to_owned())
}

/// A machine, its node, and whether it belongs to the control plane.
struct Machine {
    secret: Key,
    name: String,
    node: String,
    control_plane: bool,
}

fn machines(world: &Context, target: &Target) -> Vec<Machine> {
    let waits = |secret: &Secret| annotation(&secret.metadata, REACHED) != Some(&target.text);
    let mut machines: Vec<Machine> = world
        .machine_plans
        .select(waits)
        .iter()
        .filter_map(|secret| {
            let name = label(&secret.metadata, labels::MACHINE_NAME)?.to_owned();
            let machine = world.machines.get(names::FLEET_NAMESPACE, &name)?;
            let node = machine.status.node_ref.as_ref()?.name.clone()?;
            let meta = &world.nodes.get("", &node)?.metadata;
            // Members of etcd, among them witnesses, go with the control plane.
            let control_plane = label(meta, labels::CONTROL_PLANE)
                .or(label(meta, labels::ETCD))
                .is_some();
            Some(Machine {
                secret: key_of(secret.as_ref()),
                name,
                node,
                control_plane,
            })
        })
        .collect();
    machines.sort_by_key(|machine| (!machine.control_plane, machine.node.len(), machine.node.clone()));
    machines
}

/// Takes all machines to the target; false when there is nothing to do.
async fn pass(world: &Context) -> Result<bool> {
    let Some(cluster) = world.clusters.at(&cluster_key()) else {
        return Ok(false);
    };
    let target = target(&cluster);
    let waiting = machines(world, &target);
    if waiting.is_empty() {
        if cluster.status.ready == Some(false) {
            report(world, true, "").await?;
        }
        return Ok(false);
    }
    if cluster.status.ready != Some(false) {
        report(world, false, "configuring control plane").await?;
    }
    let untouched = waiting.len() == world.machine_plans.list().len();
    if untouched && waiting.len() > 1 {
        let since = world
            .clusters
            .at(&cluster_key())
            .and_then(|cluster| unready_since(&cluster));
        world
            .clock
            .sleep_until(after(since.unwrap_or(Timestamp::MIN), world.durations.rancher_wait))
            .await;
    }
    let first = untouched
        .then(|| waiting.first().map(|machine| machine.name.clone()))
        .flatten();
    for control_plane in [true, false] {
        let tier: Vec<&Machine> = waiting
            .iter()
            .filter(|machine| machine.control_plane == control_plane)
            .collect();
        let at_once = concurrency(world, control_plane, tier.len());
        // Futures that do nothing until the stream takes them up, so many at once.
        let upgrades: Vec<_> = tier
            .into_iter()
            .map(|machine| upgrade(world, &target, machine, first.as_ref() == Some(&machine.name)).boxed())
            .collect();
        futures::stream::iter(upgrades)
            .buffer_unordered(at_once)
            .collect::<()>()
            .await;
    }
    Ok(true)
}

fn unready_since(cluster: &Cluster) -> Option<Timestamp> {
    let conditions = cluster.status.conditions.iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
    ready.other.get("lastTransitionTime")?.as_str()?.parse().ok()
}

async fn report(world: &Context, ready: bool, message: &str) -> Result<()> {
    let now = world.stamp();
    let (status, updated) = if ready { ("True", "True") } else { ("False", "Unknown") };
    let cluster = world.clusters.at(&cluster_key());
    // The moment at which the cluster ceased to be ready stays while only the message moves.
    let since = cluster
        .filter(|cluster| cluster.status.ready == Some(ready))
        .and_then(|cluster| unready_since(&cluster));
    let since = since.map_or_else(|| now.clone(), |since| since.to_string());
    let reason = if ready { "" } else { "Waiting" };
    let status = json!({
        "ready": ready,
        "conditions": [
            {"type": "Ready", "status": status, "reason": reason, "message": message,
             "lastTransitionTime": since, "lastUpdateTime": now},
            {"type": "Updated", "status": updated, "reason": reason, "message": message,
             "lastTransitionTime": since, "lastUpdateTime": now},
        ],
    });
    world.clusters.patch_status(&cluster_key(), &status).await.map(drop)
}

fn strategy(world: &Context) -> Value {
    let cluster = world.clusters.at(&cluster_key());
    let config = cluster.and_then(|cluster| cluster.spec.rke_config.clone());
    config.and_then(|config| config.upgrade_strategy).unwrap_or_default()
}

/// `"2"`, `"10%"`; one when unset.
fn concurrency(world: &Context, control_plane: bool, size: usize) -> usize {
    let field = if control_plane {
        "controlPlaneConcurrency"
    } else {
        "workerConcurrency"
    };
    let strategy = strategy(world);
    let text = strategy[field].as_str().unwrap_or("1");
    let number = match text.strip_suffix('%') {
        Some(percent) => percent
            .parse::<usize>()
            .map(|percent| size * percent / 100)
            .unwrap_or(1),
        None => text.parse().unwrap_or(1),
    };
    number.max(1)
}

fn drain_options(world: &Context, control_plane: bool) -> Value {
    let field = if control_plane {
        "controlPlaneDrainOptions"
    } else {
        "workerDrainOptions"
    };
    strategy(world)[field].take()
}

fn is_drained(world: &Context, machine: &Machine) -> bool {
    drain_options(world, machine.control_plane)["enabled"].as_bool() == Some(true)
}

/// The annotations that acknowledge a hook, as the strategy is now: taking the strategy away opens the gate.
fn hooks(world: &Context, control_plane: bool, field: &str) -> Vec<String> {
    let options = drain_options(world, control_plane);
    let hooks = options[field].as_array().cloned().unwrap_or_default();
    hooks
        .iter()
        .filter_map(|hook| hook["annotation"].as_str().map(str::to_owned))
        .collect()
}

/// Takes a machine to the target. One that is removed meanwhile needs no more steps.
async fn upgrade(world: &Context, target: &Target, machine: &Machine, first: bool) {
    let inbox = world.inbox();
    world.machines.subscribe(&inbox);
    let is_removed = |world: &Context| world.machines.get(names::FLEET_NAMESPACE, &machine.name).is_none();
    let all_steps = async {
        while let Err(error) = steps(world, target, machine, first).await {
            tracing::debug!(node = machine.node, %error, "the planner failed on a machine; trying again");
            world.clock.sleep(PAUSE).await;
        }
    };
    tokio::select! {
        biased;
        () = world.until(&inbox, is_removed) => {}
        () = all_steps => {}
    }
}

async fn steps(world: &Context, target: &Target, machine: &Machine, first: bool) -> Result<()> {
    let token = digest(&format!("{}/{}", target.text, machine.name), 16);
    let node: Key = (String::new(), machine.node.clone());
    let drains = is_drained(world, machine);
    let is_past = |annotation_key: &str| {
        let secret = world.machine_plans.at(&machine.secret);
        secret.is_some_and(|secret| annotation(&secret.metadata, annotation_key) == Some(&token))
    };
    if !is_past(annotations::RKE_POST_DRAIN) {
        if drains {
            report(
                world,
                false,
                &format!("draining node {} of machine {}", machine.node, machine.name),
            )
            .await?;
            cordon(world, &node, true).await?;
            hook(world, machine, annotations::RKE_PRE_DRAIN, "preDrainHooks", &token).await?;
        }
        // Whoever took the strategy away meanwhile took the drain away with it.
        if is_drained(world, machine) {
            let began = world.clock.now();
            drain(world, &machine.node).await?;
            world.clock.sleep_until(after(began, world.durations.drain)).await;
        }
        let extra = if first {
            world.durations.first_node
        } else {
            Duration::ZERO
        };
        world.clock.sleep(world.durations.rke2 + extra).await;
        let late = world.troubles().late_kubelets.get(&machine.node).copied();
        if let Some(late) = late.filter(|_| drains) {
            // Rancher takes its plan for applied, and asks the hook, while RKE2 is still on its way.
            let restarted = async {
                world.clock.sleep(late).await;
                upgrade_rke2(world, &node, &target.version).await
            };
            let asked = hook(world, machine, annotations::RKE_POST_DRAIN, "postDrainHooks", &token);
            futures::future::try_join(restarted, asked).await?;
        } else {
            upgrade_rke2(world, &node, &target.version).await?;
            if drains {
                hook(world, machine, annotations::RKE_POST_DRAIN, "postDrainHooks", &token).await?;
            }
        }
    } else {
        hook(world, machine, annotations::RKE_POST_DRAIN, "postDrainHooks", &token).await?;
    }
    let inbox = world.inbox();
    world.nodes.subscribe(&inbox);
    world.until(&inbox, |world| world.is_up(&machine.node)).await;
    if drains {
        world.clock.sleep(world.durations.uncordon).await;
    }
    cordon(world, &node, false).await?;
    let done = json!({"metadata": {"annotations": {
        annotations::RKE_PRE_DRAIN: null, annotations::RKE_POST_DRAIN: null, REACHED: target.text,
    }}});
    world.machine_plans.patch(&machine.secret, &done).await.map(drop)
}

async fn cordon(world: &Context, node: &Key, cordoned: bool) -> Result<()> {
    let is = |node: &Node| {
        node.spec
            .as_ref()
            .and_then(|spec| spec.unschedulable)
            .unwrap_or_default()
    };
    if world.nodes.at(node).is_none_or(|node| is(&node) == cordoned) {
        return Ok(());
    }
    let value = if cordoned { json!(true) } else { Value::Null };
    world
        .nodes
        .patch(node, &json!({"spec": {"unschedulable": value}}))
        .await
        .map(drop)
}

/// Asks the hooks of a kind and waits until all have answered with the token, or until there are none any more.
async fn hook(world: &Context, machine: &Machine, ask: &str, field: &str, token: &str) -> Result<()> {
    if hooks(world, machine.control_plane, field).is_empty() {
        return Ok(());
    }
    let asked = world.machine_plans.at(&machine.secret);
    if asked.is_some_and(|secret| annotation(&secret.metadata, ask) != Some(token)) {
        world
            .machine_plans
            .patch(&machine.secret, &json!({"metadata": {"annotations": {ask: token}}}))
            .await?;
    }
    let inbox = world.inbox();
    world.machine_plans.subscribe(&inbox);
    world.clusters.subscribe(&inbox);
    let answered = |world: &Context| {
        let Some(secret) = world.machine_plans.at(&machine.secret) else {
            return true;
        };
        let hooks = hooks(world, machine.control_plane, field);
        hooks
            .iter()
            .all(|hook| annotation(&secret.metadata, hook) == Some(token))
    };
    world.until(&inbox, answered).await;
    Ok(())
}

/// RKE2 restarts with another version. A machine plan that goes through does not touch what is on the disk's other
/// partition, nor does it reboot.
async fn upgrade_rke2(world: &Context, key: &Key, version: &str) -> Result<()> {
    let status = json!({"nodeInfo": {"kubeletVersion": version, "kubeProxyVersion": version}});
    world.nodes.patch_status(key, &status).await.map(drop)
}
