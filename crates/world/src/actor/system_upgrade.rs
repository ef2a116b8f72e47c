//! system-upgrade-controller: a Plan runs a Job on each node of a selection, so many at once, and marks the nodes that
//! are done with a label.
//!
//! As the real one (`pkg/upgrade/handle_upgrade.go`, `handle_batch.go`) it makes each Job twice. First without a pod and
//! before the node is in `status.applying`; the Job's own handler finds that it is not its turn and deletes it. Once the node
//! is there, it creates the Job again under the same name, now with a pod.

mod job;
mod select;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::{foreign::suc::Plan, labels};
use jiff::Timestamp;
use k8s_openapi::api::{
    batch::v1::{Job, JobCondition},
    core::v1::Node,
};
use serde_json::{Value, json};

use crate::{
    context::{Context, after, label},
    error::Result,
    inbox::{Inbox, Key, Kind},
    watched::key_of,
};

/// From a Job without a pod to the status that names its node. Seen on a real control plane: 0.1 to 0.6 s.
const APPLY_TAKES: Duration = Duration::from_millis(300);

/// What the controller remembers between its passes.
#[derive(Default)]
struct Passes {
    /// Plans whose Jobs are made, and when their status says so.
    staged: BTreeMap<Key, Timestamp>,
    /// The version of each Plan that its Jobs were last made for. It makes them once per version.
    applied: BTreeMap<Key, String>,
}

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.plans.subscribe(&inbox);
    world.jobs.subscribe(&inbox);
    world.nodes.subscribe(&inbox);
    let mut passes = Passes::default();
    // Nodes whose labels we last looked at, so that a change of anything else does not wake all Plans.
    let mut node_count = 0;
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = match kind {
            Kind::Plan => sync(&world, &inbox, &mut passes, &key).await,
            Kind::Job => sync_job(&world, &inbox, &key).await,
            _ => {
                // A node that joined or left; what happens to the others does not change which nodes remain.
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

/// A Job changed. Those of Plans, versions or nodes that are gone are deleted, and those that run out of turn; of those
/// that ended, the Plan or the node is notified.
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
    if label(&job.metadata, job::CONTROLLER) != Some(job::NAME) || job.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let of = |name: &str| label(&job.metadata, name).unwrap_or_default().to_owned();
    let plan_key = (key.0.clone(), of(job::PLAN));
    let node_key = (String::new(), of(labels::SUC_NODE));
    let plan = world.plans.at(&plan_key);
    let plan = plan.filter(|plan| plan.status.latest_version.as_deref() == Some(&of(job::VERSION)));
    let (Some(plan), Some(node)) = (plan, world.nodes.at(&node_key)) else {
        return world.jobs.delete(key, false).await;
    };
    if let Some(failed) = true_condition(&job, "Failed") {
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        let why = format!("{}: {}", part(&failed.reason), part(&failed.message));
        let message = format!("Job {}/{} failed on Node {}: {why}", key.0, key.1, node_key.1);
        complete(world, &plan_key, &plan, "False", ("JobFailed", &message), None).await?;
    } else if true_condition(&job, "Complete").is_some() {
        mark(world, &node, &plan_key.1, &job).await?;
    } else if !applying(&plan).contains(&node_key.1) {
        return world.jobs.delete(key, false).await;
    }
    inbox.now(Kind::Plan, plan_key);
    Ok(())
}

fn true_condition<'a>(job: &'a Job, type_: &str) -> Option<&'a JobCondition> {
    let mut conditions = job.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == type_ && condition.status == "True")
}

fn applying(plan: &Plan) -> &[String] {
    plan.status.applying.as_deref().unwrap_or_default()
}

/// Labels a node that has had a Plan.
async fn mark(world: &Context, node: &Node, plan: &str, job: &Job) -> Result<()> {
    let mark = select::mark(plan);
    let hash = label(&job.metadata, &mark).unwrap_or_default();
    if label(&node.metadata, &mark) == Some(hash) {
        return Ok(());
    }
    let patch = json!({"metadata": {"labels": {mark: hash}}});
    world.nodes.patch(&key_of(node), &patch).await.map(drop)
}

async fn sync(world: &Context, inbox: &Inbox, passes: &mut Passes, key: &Key) -> Result<()> {
    let Some(plan) = world.plans.at(key) else {
        passes.applied.remove(key);
        passes.staged.remove(key);
        for job in world.jobs.select(|job| label(&job.metadata, job::PLAN) == Some(&key.1)) {
            inbox.now(Kind::Job, key_of(job.as_ref()));
        }
        return Ok(());
    };
    // Nothing more is made of a Plan that is being deleted; its Jobs go when it is gone.
    if plan.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let (version, hash) = (select::version(&plan), select::hash(&plan));
    if plan.status.latest_hash.as_deref() != Some(&hash) {
        let status = json!({
            "latestVersion": version, "latestHash": hash,
            "conditions": conditions(world, "False", "Resolved", ""),
        });
        return world.plans.patch_status(key, &status).await.map(drop);
    }
    let selected = select::concurrent(&plan, &world.nodes.list());
    let names: Vec<String> = selected.iter().map(|node| select::hostname(node).to_owned()).collect();
    let now = world.clock.now();
    match passes.staged.get(key) {
        Some(due) if now < *due => return Ok(()),
        Some(_) => {}
        None => {
            let version = plan.metadata.resource_version.clone().unwrap_or_default();
            if passes.applied.get(key) != Some(&version) {
                for node in &selected {
                    world.jobs.create(&job::build(&plan, key, node)).await?;
                }
                passes.applied.insert(key.clone(), version);
                if !names.is_empty() && names != applying(&plan) {
                    let due = after(now, APPLY_TAKES);
                    passes.staged.insert(key.clone(), due);
                    inbox.later(Kind::Plan, key.clone(), due);
                    return Ok(());
                }
            }
        }
    }
    passes.staged.remove(key);
    if names.is_empty() {
        complete(world, key, &plan, "True", ("Complete", ""), Some(&[])).await
    } else if names != applying(&plan) {
        complete(world, key, &plan, "False", ("SyncJob", ""), Some(&names)).await
    } else {
        Ok(())
    }
}

/// Writes whether a Plan is complete, and the nodes it is applied to where those change; nothing that is there already.
async fn complete(
    world: &Context,
    key: &Key,
    plan: &Plan,
    status: &str,
    (reason, message): (&str, &str),
    names: Option<&[String]>,
) -> Result<()> {
    let mut known = plan.status.conditions.iter().flatten();
    let same = known.any(|known| {
        known.type_ == "Complete"
            && known.status.as_deref() == Some(status)
            && known.reason.as_deref() == Some(reason)
            && known.message.as_deref().unwrap_or_default() == message
    });
    if same && names.is_none_or(|names| names == applying(plan)) {
        return Ok(());
    }
    let mut patch = json!({"conditions": conditions(world, status, reason, message)});
    if let Some(names) = names {
        patch["applying"] = if names.is_empty() { Value::Null } else { json!(names) };
    }
    world.plans.patch_status(key, &patch).await.map(drop)
}

fn conditions(world: &Context, status: &str, reason: &str, message: &str) -> Value {
    let now = world.stamp();
    json!([
        {"type": "Validated", "status": "True", "reason": "PlanIsValid", "lastUpdateTime": now},
        {"type": "LatestResolved", "status": "True", "reason": "Version", "lastUpdateTime": now},
        {"type": "Complete", "status": status, "reason": reason, "message": message,
         "lastUpdateTime": now, "lastTransitionTime": now},
    ])
}
