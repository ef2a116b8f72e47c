//! What earlier upgrades left behind: objects, paused charts, hooks, notes on nodes. While another upgrade is under way nothing
//! is a leftover.

use std::collections::{BTreeMap, BTreeSet};

use api::{Phase, annotations, labels, names, node::has_drain_taint};
use kube::{Resource, ResourceExt};
use snapshot::ListedOnce;

use super::{
    Found, Question,
    found::{listed, together},
};
use crate::finding::{Missing, ObjectRef, needed};

/// Rancher's annotations on machine-plan Secrets while it drains a node.
const DRAIN_ANNOTATIONS: [&str; 5] = [
    annotations::RKE_PRE_DRAIN,
    annotations::RKE_POST_DRAIN,
    "rke.cattle.io/drain-options",
    "rke.cattle.io/drain-done",
    "rke.cattle.io/uncordon",
];

pub(super) fn no_chart_is_paused(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let charts = needed(&question.snapshot.managed_charts, "managedcharts")?;
    if question.is_upgrading()? {
        return Ok(Vec::new());
    }
    let paused: Vec<_> = charts
        .iter()
        .filter(|chart| names::MANAGED_CHARTS.contains(&chart.name_any().as_str()))
        .filter(|chart| chart.spec.paused == Some(true))
        .collect();
    let found = together("managed charts are paused although no upgrade is under way", &paused).into_iter();
    let patch = "--type merge -p '{\"spec\":{\"paused\":false}}'";
    let commands: Vec<String> = paused
        .iter()
        .map(|chart| {
            format!(
                "kubectl patch managedcharts.management.cattle.io {} -n fleet-local {patch}",
                chart.name_any()
            )
        })
        .collect();
    Ok(found
        .map(|found| Found {
            commands: commands.clone(),
            ..found
        })
        .collect())
}

pub(super) fn no_hook_is_stale(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let secrets = needed(&question.snapshot.machine_plans, "secrets (machine plans)")?;
    if question.is_upgrading()? {
        return Ok(Vec::new());
    }
    let stale = secrets.iter().filter_map(|secret| {
        let set: Vec<&str> = DRAIN_ANNOTATIONS
            .into_iter()
            .filter(|key| secret.annotation(key).is_some_and(|value| !value.is_empty()))
            .collect();
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        let machine = secret.label(labels::MACHINE_NAME).unwrap_or(name);
        (!set.is_empty()).then(|| {
            let text = format!(
                "the machine plan of {machine} still has {} of an earlier drain",
                set.join(", ")
            );
            Found::new(text).about([ObjectRef::new("Secret", secret.metadata.namespace.as_deref(), name)])
        })
    });
    Ok(stale.collect())
}

/// Nodes that an earlier upgrade left in the middle: VMs are kept off them, or a reboot is still expected.
pub(super) fn no_node_is_half_done(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let nodes = needed(&question.snapshot.nodes, "nodes")?;
    if question.is_upgrading()? {
        return Ok(Vec::new());
    }
    let half_done = nodes.iter().filter_map(|node| {
        let name = node.name_any();
        let pending = node
            .annotations()
            .get(annotations::PENDING_OS_IMAGE)
            .filter(|image| !image.is_empty());
        if has_drain_taint(node) {
            let text = format!(
                "node {name} has the taint {}: no VM can be moved to it",
                labels::DRAIN_TAINT
            );
            let command = format!("kubectl taint node {name} {}-", labels::DRAIN_TAINT);
            Some(Found::of(node, text).command(command))
        } else {
            let image = pending?;
            let text = format!(
                "node {name} was to start {} after a reboot of an earlier upgrade",
                api::quoted::quoted(image)
            );
            Some(Found::of(node, text))
        }
    });
    Ok(half_done.collect())
}

/// Objects of plans that do not exist any more. Those of plans that exist belong to them.
pub(super) fn no_objects_are_orphaned(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let snapshot = question.snapshot;
    let plans: BTreeSet<&str> = needed(&snapshot.plans, "upgradeplans")?
        .iter()
        .filter_map(|plan| plan.metadata.name.as_deref())
        .collect();
    let mut orphans: BTreeMap<String, Vec<ObjectRef>> = BTreeMap::new();
    orphaned(&snapshot.suc_plans, "plans.upgrade.cattle.io", &plans, &mut orphans)?;
    orphaned(&snapshot.deployments, "deployments", &plans, &mut orphans)?;
    orphaned(&snapshot.jobs, "jobs", &plans, &mut orphans)?;
    orphaned(&snapshot.config_maps, "configmaps", &plans, &mut orphans)?;
    let found = orphans.into_iter().map(|(plan, objects)| {
        let names = listed(objects.iter().map(ToString::to_string).collect());
        Found::new(format!("plan {plan} does not exist any more and left behind {names}")).about(objects)
    });
    Ok(found.collect())
}

fn orphaned<K: Resource<DynamicType = ()>>(
    list: &ListedOnce<K>,
    kind: &str,
    plans: &BTreeSet<&str>,
    orphans: &mut BTreeMap<String, Vec<ObjectRef>>,
) -> Result<(), Missing> {
    for object in needed(list, kind)? {
        let Some(plan) = object.labels().get(labels::UPGRADE_PLAN) else {
            continue;
        };
        // What is being deleted needs nothing.
        if !plans.contains(plan.as_str()) && object.meta().deletion_timestamp.is_none() {
            orphans.entry(plan.clone()).or_default().push(ObjectRef::of(object));
        }
    }
    Ok(())
}

/// A failed plan can be resumed; a second plan for the same release would begin again.
pub(super) fn no_plan_has_failed(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let plans = needed(&question.snapshot.plans, "upgradeplans")?;
    let own = question.plan.metadata.name.as_deref();
    let newest = plans
        .iter()
        .filter(|plan| plan.metadata.name.as_deref() != own)
        .max_by_key(|plan| plan.metadata.creation_timestamp.as_ref().map(|time| time.0));
    let failed = newest.filter(|plan| plan.phase() == Some(Phase::Failed));
    let found = failed.map(|plan| {
        let name = plan.name_any();
        Found::of(
            plan,
            format!("the last plan, {name}, failed: it can be resumed instead of creating another one"),
        )
        .command(format!(
            "kubectl annotate upgradeplan {name} {}=\"$(date +%s)\" --overwrite",
            annotations::RETRY
        ))
    });
    Ok(found.into_iter().collect())
}
