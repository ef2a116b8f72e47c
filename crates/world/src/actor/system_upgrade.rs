//! system-upgrade-controller: a Plan runs a Job on each node of a selection, so many at once, and marks the nodes that
//! are done with a label.

use std::{collections::BTreeSet, sync::Arc};

use api::{foreign::suc::Plan, labels, names};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Node},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha224};

use crate::{
    context::{Context, is_ready, label},
    error::Result,
    inbox::{Inbox, Key, Kind},
    watched::key_of,
};

use super::jobs::has_condition;

const LABEL_PLAN: &str = "upgrade.cattle.io/plan";
const BACKOFF_LIMIT: i32 = 2;
const TTL_SECONDS: i32 = 900;
const DEFAULT_DEADLINE_SECONDS: i64 = 600;

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.plans.subscribe(&inbox);
    world.jobs.subscribe(&inbox);
    world.nodes.subscribe(&inbox);
    // Nodes whose labels we last looked at, so that a change of anything else does not wake all Plans.
    let mut node_count = 0;
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = match kind {
            Kind::Plan => sync(&world, &inbox, &key).await,
            Kind::Job => sync_job(&world, &inbox, &key).await,
            _ => {
                // A node that joined or left; what happens to the others does not change who is still to do.
                let count = world.nodes.list().len();
                if count != node_count {
                    node_count = count;
                    world
                        .plans
                        .list()
                        .iter()
                        .for_each(|plan| inbox.now(Kind::Plan, key_of(plan.as_ref())));
                }
                Ok(())
            }
        };
        inbox.settle("system-upgrade", (kind, key), outcome);
    }
}

/// A Job ended: its node is marked. Jobs of Plans that are gone are deleted.
async fn sync_job(world: &Context, inbox: &Inbox, key: &Key) -> Result<()> {
    let Some(job) = world.jobs.at(key) else {
        // It may have been the Job of any Plan in its namespace; those that are complete ignore this.
        for plan in world
            .plans
            .select(|plan| plan.metadata.namespace.as_ref() == Some(&key.0))
        {
            inbox.now(Kind::Plan, key_of(plan.as_ref()));
        }
        return Ok(());
    };
    let (Some(plan_name), Some(node)) = (label(&job.metadata, LABEL_PLAN), label(&job.metadata, labels::SUC_NODE))
    else {
        return Ok(());
    };
    let plan_key = (key.0.clone(), plan_name.to_owned());
    if world.plans.at(&plan_key).is_none() {
        return world.jobs.delete(key, false).await;
    }
    if has_condition(&job, "Complete") {
        let mark = format!("{}{plan_name}", labels::SUC_NODE_PLAN_PREFIX);
        let hash = label(&job.metadata, &mark).unwrap_or_default();
        let done = world
            .nodes
            .get("", node)
            .is_none_or(|node| label(&node.metadata, &mark) == Some(hash));
        if !done {
            let patch = json!({"metadata": {"labels": {mark: hash}}});
            world.nodes.patch(&(String::new(), node.to_owned()), &patch).await?;
        }
    }
    inbox.now(Kind::Plan, plan_key);
    Ok(())
}

async fn sync(world: &Context, inbox: &Inbox, key: &Key) -> Result<()> {
    let Some(plan) = world
        .plans
        .at(key)
        .filter(|plan| plan.metadata.deletion_timestamp.is_none())
    else {
        for job in world
            .jobs
            .select(|job| label(&job.metadata, LABEL_PLAN) == Some(&key.1))
        {
            inbox.now(Kind::Job, key_of(job.as_ref()));
        }
        return Ok(());
    };
    let version = plan.spec.version.clone().unwrap_or_default().replace('+', "-");
    let hash = hash(&version, plan.spec.service_account_name.as_deref().unwrap_or_default());
    if plan.status.latest_hash.as_deref() != Some(&hash) {
        let status = json!({
            "latestVersion": version, "latestHash": hash, "applying": null,
            "conditions": conditions(world, "False", "Resolved", ""),
        });
        world.plans.patch_status(key, &status).await?;
        return Ok(());
    }
    let mark = format!("{}{}", labels::SUC_NODE_PLAN_PREFIX, key.1);
    let no_selector = LabelSelector::default();
    let selector = plan.spec.node_selector.as_ref().unwrap_or(&no_selector);
    let mut applying = Vec::new();
    let mut waiting = Vec::new();
    let mut failed = BTreeSet::new();
    let selected = world.nodes.select(|node| {
        selects(selector, node)
            && !matches!(label(&node.metadata, &mark), Some(value) if value == hash || value == "disabled")
    });
    for node in selected {
        let name = node.metadata.name.clone().unwrap_or_default();
        match world.jobs.get(&key.0, &job_name(&key.1, &name, &hash)) {
            // Its label is on the way.
            Some(job) if has_condition(&job, "Complete") => {}
            Some(job) => {
                if has_condition(&job, "Failed") {
                    failed.insert(name.clone());
                }
                applying.push(name);
            }
            None => waiting.push(node),
        }
    }
    let slots = usize::try_from(plan.spec.concurrency.unwrap_or(1).max(1)).unwrap_or(1);
    for node in waiting
        .iter()
        .filter(|node| is_ready(node))
        .take(slots.saturating_sub(applying.len()))
    {
        let name = node.metadata.name.clone().unwrap_or_default();
        world.jobs.create(&job(&plan, key, &name, &version, &hash)).await?;
        applying.push(name);
    }
    applying.sort();
    let (status, reason, message) = match failed.first() {
        Some(node) => ("False", "JobFailed", format!("Job failed on node {node}")),
        None if !applying.is_empty() => (
            "False",
            "SyncJob",
            format!("Jobs for {} node(s) are running", applying.len()),
        ),
        None if waiting.is_empty() => ("True", "Complete", String::new()),
        None => ("False", "Resolved", String::new()),
    };
    let complete = plan
        .status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "Complete");
    let same = complete.is_some_and(|complete| {
        complete.status.as_deref() == Some(status)
            && complete.reason.as_deref() == Some(reason)
            && plan.status.applying.clone().unwrap_or_default() == applying
    });
    if !same {
        let applying = if applying.is_empty() {
            Value::Null
        } else {
            json!(applying)
        };
        let status = json!({"applying": applying, "conditions": conditions(world, status, reason, &message)});
        world.plans.patch_status(key, &status).await?;
    }
    Ok(())
}

fn conditions(world: &Context, status: &str, reason: &str, message: &str) -> Value {
    let now = world.stamp();
    json!([
        {"type": "LatestResolved", "status": "True", "reason": "Version", "lastUpdateTime": now},
        {"type": "Complete", "status": status, "reason": reason, "message": message,
         "lastUpdateTime": now, "lastTransitionTime": now},
    ])
}

fn hash(version: &str, account: &str) -> String {
    Sha224::digest(format!("{version}{account}").as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn job_name(plan: &str, node: &str, hash: &str) -> String {
    let short = node.split('.').next().unwrap_or(node);
    names::safe_concat(&["apply", plan, "on", short, "with", hash])
}

/// Labels of the selector that the node must have.
fn selects(selector: &LabelSelector, node: &Node) -> bool {
    let exact = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| label(&node.metadata, key) == Some(value));
    exact
        && selector.match_expressions.iter().flatten().all(|rule| {
            let actual = label(&node.metadata, &rule.key);
            let listed = actual.is_some_and(|actual| rule.values.iter().flatten().any(|value| value == actual));
            match rule.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => actual.is_some(),
                "DoesNotExist" => actual.is_none(),
                _ => false,
            }
        })
}

fn job(plan: &Plan, key: &Key, node: &str, version: &str, hash: &str) -> Value {
    let ours = plan
        .metadata
        .labels
        .iter()
        .flatten()
        .filter(|(name, _)| !name.contains("cattle.io/"));
    let mut labels: serde_json::Map<String, Value> = ours.map(|(name, value)| (name.clone(), json!(value))).collect();
    for (name, value) in [
        ("upgrade.cattle.io/controller", "system-upgrade-controller"),
        ("upgrade.cattle.io/exclusive", "false"),
        (labels::SUC_NODE, node),
        (LABEL_PLAN, &key.1),
        ("upgrade.cattle.io/version", version),
        (&format!("{}{}", labels::SUC_NODE_PLAN_PREFIX, key.1), hash),
    ] {
        labels.insert(name.to_owned(), json!(value));
    }
    let upgrade = plan.spec.upgrade.clone().unwrap_or_default();
    let image = upgrade.image.clone().unwrap_or_default();
    let mut tolerations =
        vec![json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"})];
    tolerations.extend(
        plan.spec
            .tolerations
            .iter()
            .flatten()
            .map(|toleration| json!(toleration)),
    );
    let privileged = json!({"privileged": true, "capabilities": {"add": ["CAP_SYS_BOOT"]}});
    let context = upgrade
        .security_context
        .as_ref()
        .map_or(privileged, |context| json!(context));
    let mut env: Vec<Value> = upgrade.env.iter().flatten().map(|variable| json!(variable)).collect();
    env.push(json!({"name": "SYSTEM_UPGRADE_NODE_NAME", "value": node}));
    env.push(json!({"name": "SYSTEM_UPGRADE_PLAN_NAME", "value": key.1}));
    let mut spec = json!({
        "parallelism": 1, "backoffLimit": BACKOFF_LIMIT, "ttlSecondsAfterFinished": TTL_SECONDS,
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "restartPolicy": "Never", "hostPID": true, "hostIPC": true, "hostNetwork": true,
                "serviceAccountName": plan.spec.service_account_name,
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [
                        {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}}},
                "tolerations": tolerations,
                "containers": [{
                    "name": "upgrade", "image": format!("{image}:{version}"), "command": upgrade.command,
                    "args": upgrade.args, "env": env, "securityContext": context,
                    "volumeMounts": [{"name": "host-root", "mountPath": "/host"}],
                }],
                "volumes": [{"name": "host-root", "hostPath": {"path": "/", "type": "Directory"}}],
            },
        },
    });
    match plan.spec.job_active_deadline_secs {
        None => spec["activeDeadlineSeconds"] = json!(DEFAULT_DEADLINE_SECONDS),
        Some(0) => {}
        Some(seconds) => spec["activeDeadlineSeconds"] = json!(seconds),
    }
    json!({
        "apiVersion": <Job as k8s_openapi::Resource>::API_VERSION, "kind": "Job",
        "metadata": {"name": job_name(&key.1, node, hash), "namespace": key.0, "labels": labels},
        "spec": spec,
    })
}
