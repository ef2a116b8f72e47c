//! The cluster as rules look at it: the plan that matters, what its nodes are at, and indexes that are made once, so that no rule
//! is quadratic.

use std::collections::{BTreeMap, HashMap};

use api::{NodeUpgradeStatus, Phase, UpgradePlan, Wait, foreign::ForeignCondition, node_progress::Stage};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use snapshot::Snapshot;

use super::found::{created, name, namespace};
use crate::finding::{Missing, needed};

type Key<'a> = (&'a str, &'a str, &'a str);

/// A cluster, prepared for rules.
pub struct Patient<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) now: Timestamp,
    active: Option<&'a UpgradePlan>,
    newest: Option<&'a UpgradePlan>,
    nodes: BTreeMap<&'a str, &'a Node>,
    pods_by_node: HashMap<&'a str, Vec<&'a Pod>>,
    events: HashMap<Key<'a>, Vec<&'a Event>>,
}

impl<'a> Patient<'a> {
    /// Prepares a snapshot.
    #[must_use]
    pub fn of(snapshot: &'a Snapshot) -> Self {
        let plans = snapshot.plans.as_deref().unwrap_or_default();
        let has_ended = |plan: &UpgradePlan| plan.phase().is_some_and(Phase::is_terminal);
        // One that waits for another has no phase yet.
        let began = |plan: &UpgradePlan| {
            plan.status
                .as_ref()
                .is_some_and(|status| status.current_phase.is_some())
        };
        let running = plans.iter().filter(|plan| !has_ended(plan));
        let mut pods_by_node: HashMap<&str, Vec<&Pod>> = HashMap::new();
        for pod in snapshot.pods.iter().flat_map(|pods| pods.iter()) {
            if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
                pods_by_node.entry(node).or_default().push(pod);
            }
        }
        let mut events: HashMap<Key<'_>, Vec<&Event>> = HashMap::new();
        for event in snapshot.events.iter().flat_map(|events| events.iter()) {
            let about = &event.involved_object;
            let text = |field: &'a Option<String>| field.as_deref().unwrap_or_default();
            let key = (text(&about.kind), text(&about.namespace), text(&about.name));
            events.entry(key).or_default().push(event);
        }
        Self {
            snapshot,
            now: snapshot.taken_at,
            active: running.max_by_key(|plan| (began(plan), created(*plan))),
            newest: plans.iter().max_by_key(|plan| created(*plan)),
            nodes: snapshot
                .nodes
                .iter()
                .flat_map(|nodes| nodes.iter().map(|node| (name(node), node)))
                .collect(),
            pods_by_node,
            events,
        }
    }

    /// The plan that runs.
    pub(super) fn active(&self) -> Result<Option<&'a UpgradePlan>, Missing> {
        needed(&self.snapshot.plans, "upgradeplans")?;
        Ok(self.active)
    }

    /// The plan that runs, or the last one if it failed.
    pub(super) fn subject(&self) -> Result<Option<&'a UpgradePlan>, Missing> {
        let failed = self.newest.filter(|plan| plan.phase() == Some(Phase::Failed));
        Ok(self.active()?.or(failed))
    }

    /// The last plan, whatever became of it.
    pub(super) fn newest(&self) -> Result<Option<&'a UpgradePlan>, Missing> {
        needed(&self.snapshot.plans, "upgradeplans")?;
        Ok(self.active.or(self.newest))
    }

    /// The plan that runs, if it is in one of these phases.
    pub(super) fn active_in(&self, phases: &[Phase]) -> Result<Option<&'a UpgradePlan>, Missing> {
        let plan = self.active()?;
        Ok(plan.filter(|plan| plan.phase().is_some_and(|phase| phases.contains(&phase))))
    }

    /// The nodes of a plan that are at one of these stages, with what is recorded of them.
    pub(super) fn at(&self, plan: &'a UpgradePlan, stages: &[Stage]) -> Vec<(&'a str, &'a NodeUpgradeStatus)> {
        states(plan)
            .filter(|(_, entry)| entry.state().is_some() && stages.contains(&entry.progress().stage()))
            .collect()
    }

    /// A node, by name.
    pub(super) fn node(&self, name: &str) -> Result<Option<&'a Node>, Missing> {
        needed(&self.snapshot.nodes, "nodes")?;
        Ok(self.nodes.get(name).copied())
    }

    /// All nodes.
    pub(super) fn nodes(&self) -> Result<&'a [Node], Missing> {
        needed(&self.snapshot.nodes, "nodes")
    }

    /// All pods.
    pub(super) fn pods(&self) -> Result<&'a [Pod], Missing> {
        needed(&self.snapshot.pods, "pods")
    }

    /// The pods of a node.
    pub(super) fn pods_on(&self, node: &str) -> Result<&[&'a Pod], Missing> {
        self.pods()?;
        Ok(self.pods_by_node.get(node).map(Vec::as_slice).unwrap_or_default())
    }

    /// Warnings about an object. Events are soon gone; no rule depends on them alone, so that they are none if they cannot be read.
    pub(super) fn events(&self, kind: &str, namespace: &str, name: &str) -> Vec<&'a Event> {
        self.events.get(&(kind, namespace, name)).cloned().unwrap_or_default()
    }

    /// Warnings about a pod.
    pub(super) fn events_of_pod(&self, pod: &Pod) -> Vec<&'a Event> {
        self.events("Pod", namespace(pod), name(pod))
    }

    /// It has lasted at least so long. What has no beginning has not.
    pub(super) fn is_past(&self, since: Option<Timestamp>, limit: SignedDuration) -> bool {
        since.is_some_and(|since| self.now.duration_since(since) >= limit)
    }

    /// Every node is ready. While one is not, much else is down with it, and its own situation explains that.
    pub(super) fn all_nodes_ready(&self) -> Result<bool, Missing> {
        Ok(self.nodes()?.iter().all(api::node::is_ready))
    }
}

/// The nodes of a plan.
pub(super) fn states(plan: &UpgradePlan) -> impl Iterator<Item = (&str, &NodeUpgradeStatus)> {
    let statuses = plan.status.iter().flat_map(|status| &status.node_upgrade_statuses);
    statuses.map(|(name, entry)| (name.as_str(), entry))
}

/// Since when a plan waits for something: for this object of it, or for any.
pub(super) fn waits_since(plan: &UpgradePlan, what: &str, object: Option<&str>) -> Option<Timestamp> {
    let waits = plan.status.iter().flat_map(|status| &status.waiting_for);
    let mut waits = waits.filter(|wait| wait.what == what);
    let found = waits.find(|wait| object.is_none() || wait.object.as_deref() == object)?;
    Some(found.since.0)
}

/// Since when a node waits for Rancher, its reboot and the like.
pub(super) fn node_waits_since(plan: &UpgradePlan, wait: Wait, node: &str) -> Option<Timestamp> {
    waits_since(plan, wait.as_str(), Some(&format!("Node {node}")))
}

/// When a plan entered its phase.
pub(super) fn phase_since(plan: &UpgradePlan) -> Option<Timestamp> {
    let status = plan.status.as_ref()?;
    let phase = status.current_phase.as_deref()?;
    let mut entered = status.phase_transition_timestamps.iter().rev();
    let entered = entered.find(|change| change.phase == phase)?;
    Some(entered.phase_transition_timestamp.0)
}

/// When the upgrade of a node began.
pub(super) fn started(entry: &NodeUpgradeStatus) -> Option<Timestamp> {
    entry.started_at.as_ref().map(|time| time.0)
}

/// A condition of another project's kind.
pub(super) fn condition<'a>(
    conditions: Option<&'a Vec<ForeignCondition>>,
    type_: &str,
    status: &str,
) -> Option<&'a ForeignCondition> {
    let mut conditions = conditions.into_iter().flatten();
    conditions.find(|condition| condition.type_ == type_ && condition.status.as_deref() == Some(status))
}

/// Since when a condition is so.
pub(super) fn condition_since(condition: &ForeignCondition) -> Option<Timestamp> {
    ["lastTransitionTime", "lastUpdateTime"]
        .into_iter()
        .find_map(|field| condition.other.get(field)?.as_str()?.parse().ok())
}

/// A condition in its own words: its message, or its reason.
pub(super) fn words(condition: &ForeignCondition) -> String {
    let mut texts = [&condition.message, &condition.reason].into_iter().flatten();
    let said = texts.find(|text| !text.is_empty()).map(String::as_str);
    api::quoted::quoted(said.unwrap_or("no reason given"))
}
