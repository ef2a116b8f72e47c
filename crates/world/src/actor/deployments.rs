//! The Deployment and ReplicaSet controllers: as many pods as wanted, and how many of them serve. A Deployment owns a
//! ReplicaSet per template, and that owns the pods.

use std::{sync::Arc, time::Duration};

use api::pod::{has_ended, is_ready};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use serde_json::{Value, json};

use crate::{
    context::{Context, after, controlled_by, digest, node_of, owner},
    error::Result,
    inbox::{Inbox, Key, Kind},
    index, schedule,
    watched::key_of,
};

/// How soon a pod that fits on no node is tried again.
const UNSCHEDULABLE_PAUSE: Duration = Duration::from_secs(5);

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.deployments.subscribe(&inbox);
    world.pods.subscribe(&inbox);
    world.replica_sets.subscribe(&inbox);
    world.nodes.subscribe(&inbox);
    loop {
        let (kind, key) = inbox.next().await;
        match kind {
            Kind::Deployment => {
                let outcome = sync(&world, &inbox, &key).await;
                inbox.settle("deployments", (kind, key), outcome);
            }
            Kind::Pod => {
                // The pod's name contains its Deployment, also when the pod is gone.
                let deployment = (key.0, deployment_of(&key.1));
                if world.deployments.at(&deployment).is_some() {
                    inbox.now(Kind::Deployment, deployment);
                }
            }
            Kind::ReplicaSet => {
                let deployment = (key.0, deployment_of_set(&key.1));
                if world.deployments.at(&deployment).is_some() {
                    inbox.now(Kind::Deployment, deployment);
                }
            }
            // A node that went down or came back changes which pods serve.
            _ => {
                for deployment in world.deployments.list() {
                    inbox.now(Kind::Deployment, key_of(deployment.as_ref()));
                }
            }
        }
    }
}

/// `<deployment>-<hash>-<number>`.
fn deployment_of(pod: &str) -> String {
    pod.rsplitn(3, '-').nth(2).unwrap_or(pod).to_owned()
}

/// `<deployment>-<hash>`.
fn deployment_of_set(set: &str) -> String {
    set.rsplit_once('-')
        .map_or(set, |(deployment, _)| deployment)
        .to_owned()
}

/// A pod of a Deployment serves: it is ready and so is its node.
pub(crate) fn serves(world: &Context, pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && is_ready(pod) && world.is_up(node_of(pod))
}

async fn sync(world: &Context, inbox: &Inbox, key: &Key) -> Result<()> {
    let Some(deployment) = world
        .deployments
        .at(key)
        .filter(|found| found.metadata.deletion_timestamp.is_none())
    else {
        return Ok(());
    };
    let wanted = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
        .max(0);
    let hash = template_hash(&deployment);
    // One of a Deployment before this one is about to go; this is looked at again when it is gone.
    let Some(set) = replica_set(world, &deployment, key, &hash, wanted).await? else {
        return Ok(());
    };
    let mut pods = world.pods.found(&index::of_deployment(key));
    let names: Vec<String> = (0..wanted).map(|number| format!("{}-{hash}-{number}", key.1)).collect();
    for pod in pods
        .iter()
        .filter(|pod| pod.metadata.name.as_ref().is_none_or(|name| !names.contains(name)))
    {
        world.pods.delete(&key_of(pod.as_ref()), false).await?;
    }
    // A pod that ended, such as one whose node was lost, is replaced.
    for pod in pods.iter().filter(|pod| has_ended(pod)) {
        world.pods.delete(&key_of(pod.as_ref()), true).await?;
    }
    for name in &names {
        if world.pods.get(&key.0, name).is_none() {
            create_pod(world, inbox, (&deployment, &set), key, name, &pods).await?;
            pods = world.pods.found(&index::of_deployment(key));
        }
    }
    let available = pods.iter().filter(|pod| serves(world, pod)).count();
    let status = json!({
        "observedGeneration": deployment.metadata.generation,
        "replicas": count(pods.len()), "updatedReplicas": count(pods.len()),
        "readyReplicas": count(available), "availableReplicas": count(available),
        "unavailableReplicas": count(names.len().saturating_sub(available)),
    });
    let current = serde_json::to_value(&deployment.status)?;
    let differs = status.as_object().is_some_and(|fields| {
        fields
            .iter()
            .any(|(field, value)| current.get(field).unwrap_or(&Value::Null) != value)
    });
    if differs {
        world
            .deployments
            .patch_status(key, &with_condition(world, status, available >= names.len()))
            .await?;
    }
    Ok(())
}

fn count(number: usize) -> Value {
    if number == 0 { Value::Null } else { json!(number) }
}

fn with_condition(world: &Context, mut status: Value, available: bool) -> Value {
    let now = world.stamp();
    let (value, reason, message) = if available {
        (
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
    } else {
        (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    status["conditions"] = json!([{
        "type": "Available", "status": value, "reason": reason, "message": message,
        "lastTransitionTime": now, "lastUpdateTime": now,
    }]);
    status
}

fn template_hash(deployment: &Deployment) -> String {
    let template = deployment.spec.as_ref().map(|spec| &spec.template);
    digest(&serde_json::to_string(&template).unwrap_or_default(), 10)
}

/// The ReplicaSet of the Deployment's template, made if it is not there; those of earlier templates want no pods.
/// Nothing while one of a Deployment before this one has its name.
async fn replica_set(
    world: &Context,
    deployment: &Deployment,
    key: &Key,
    hash: &str,
    wanted: i32,
) -> Result<Option<Arc<ReplicaSet>>> {
    let name = format!("{}-{hash}", key.1);
    let of_deployment = |set: &ReplicaSet| {
        set.metadata.namespace.as_deref() == Some(&key.0)
            && owner(&set.metadata, "Deployment")
                .is_some_and(|owner| Some(&owner.uid) == deployment.metadata.uid.as_ref())
    };
    for set in world.replica_sets.select(of_deployment) {
        let replicas = if set.metadata.name.as_ref() == Some(&name) {
            wanted
        } else {
            0
        };
        if set.spec.as_ref().and_then(|spec| spec.replicas) != Some(replicas) {
            let patch = json!({"spec": {"replicas": replicas}});
            world.replica_sets.patch(&key_of(set.as_ref()), &patch).await?;
        }
    }
    let set_key = (key.0.clone(), name.clone());
    if let Some(set) = world.replica_sets.at(&set_key).filter(|set| of_deployment(set)) {
        return Ok(Some(set));
    }
    let spec = deployment.spec.as_ref();
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": name, "namespace": key.0,
            "labels": spec.and_then(|spec| spec.template.metadata.as_ref()?.labels.clone()),
            "ownerReferences": controlled_by(deployment),
        },
        "spec": {
            "replicas": wanted, "selector": spec.map(|spec| &spec.selector), "template": spec.map(|spec| &spec.template),
        },
    });
    world.replica_sets.create(&set).await?;
    Ok(world.replica_sets.at(&set_key).filter(|set| of_deployment(set)))
}

async fn create_pod(
    world: &Context,
    inbox: &Inbox,
    (deployment, set): (&Deployment, &ReplicaSet),
    key: &Key,
    name: &str,
    others: &[Arc<Pod>],
) -> Result<()> {
    let template = deployment
        .spec
        .as_ref()
        .map(|spec| spec.template.clone())
        .unwrap_or_default();
    let template_spec = template.spec.unwrap_or_default();
    let load = |node: &str| others.iter().filter(|pod| node_of(pod) == node).count();
    let Some(node) = schedule::pick(world, &template_spec, load) else {
        inbox.later(
            Kind::Deployment,
            key.clone(),
            after(world.clock.now(), UNSCHEDULABLE_PAUSE),
        );
        return Ok(());
    };
    let meta = template.metadata.unwrap_or_default();
    let mut spec = serde_json::to_value(&template_spec)?;
    spec["nodeName"] = json!(node);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": key.0, "labels": meta.labels, "annotations": meta.annotations,
            "ownerReferences": controlled_by(set),
        },
        "spec": spec,
    });
    world.pods.create(&pod).await.map(drop)
}
