//! What blocks an upgrade: what the plan waits for, and what `doctor` knows about it. Pure.

use api::{ProgramWait, UpgradePlan, Wait};
use checks::finding::{Finding, ObjectRef, Report, Severity};
use view::forecast::{Blocker, BlockerKind};

/// What to remove.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// A PodDisruptionBudget.
    Budget(String, String),
    /// A volume with too few copies.
    Copies(String),
    /// A VM that does not leave its node.
    Vm(String, String),
}

/// Something that blocks an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) what: What,
    pub(super) blocker: Blocker,
}

/// All that is known of a plan that stands still.
pub(super) fn obstacles(plan: &UpgradePlan, report: &Report) -> Vec<Obstacle> {
    let node = node_in_flight(plan);
    let mut found: Vec<Obstacle> = Vec::new();
    let waits = plan.status.iter().flat_map(|status| &status.waiting_for);
    for wait in waits {
        let object = wait.object.as_deref().and_then(object_ref);
        let message = wait.message.clone().unwrap_or_else(|| wait.what.clone());
        let is = |named: ProgramWait| wait.what == named.as_str();
        if is(ProgramWait::LonghornVolume) {
            if let Some(volume) = object.filter(|object| object.kind == "Volume") {
                let what = What::Copies(volume.name.clone());
                found.push(obstacle(what, BlockerKind::Replica, &node, volume, message, report));
            }
        } else if is(ProgramWait::VmEvacuation) || is(ProgramWait::VmShutdown) {
            if let Some(vm) = object.filter(|object| object.kind == "VirtualMachineInstance") {
                let what = What::Vm(vm.namespace.clone().unwrap_or_default(), vm.name.clone());
                found.push(obstacle(what, BlockerKind::Vm, &node, vm, message, report));
            }
        } else if wait.what == Wait::RancherUpdate.as_str() || wait.what == Wait::Pod.as_str() {
            found.extend(budgets(&node, report));
        }
    }
    let mut known = std::collections::BTreeSet::new();
    found.retain(|obstacle| known.insert(obstacle.what.clone()));
    found
}

/// The budgets that keep pods on a node that Rancher drains.
fn budgets(node: &Option<String>, report: &Report) -> Vec<Obstacle> {
    let findings = report
        .findings
        .iter()
        .filter(|finding| finding.severity != Severity::Info);
    let named = findings.filter_map(|finding| {
        let mut objects = finding.objects.iter();
        let budget = objects.find(|object| object.kind == "PodDisruptionBudget")?;
        Some((finding, budget))
    });
    named
        .map(|(finding, budget)| {
            let what = What::Budget(budget.namespace.clone().unwrap_or_default(), budget.name.clone());
            let message = finding.message.clone();
            obstacle(what, BlockerKind::Budget, node, budget.clone(), message, report)
        })
        .collect()
}

fn obstacle(
    what: What,
    kind: BlockerKind,
    node: &Option<String>,
    object: ObjectRef,
    message: String,
    report: &Report,
) -> Obstacle {
    let finding = about(report, &object);
    let kind = match finding.map(|finding| finding.id.as_str()) {
        Some("D08") => BlockerKind::Room,
        _ => kind,
    };
    let fallback = match kind {
        BlockerKind::Replica => "Add a replica of the volume on another node, or stop what uses it.",
        BlockerKind::Budget => "Scale the workload up, or relax its PodDisruptionBudget.",
        _ => "Free capacity on other nodes, or shut the VM down.",
    };
    let more = finding.map(|finding| finding.objects.clone()).unwrap_or_default();
    let mut objects = vec![object];
    // The pod of a failed attempt is gone when a user reads this.
    objects.extend(more.into_iter().filter(|more| more.kind != "Pod"));
    let mut known = std::collections::BTreeSet::new();
    objects.retain(|object| known.insert(object.clone()));
    Obstacle {
        what,
        blocker: Blocker {
            kind,
            node: node.clone(),
            objects,
            message,
            remedy: finding.map_or_else(|| fallback.to_owned(), |finding| finding.remedy.clone()),
            // Commands of `doctor` are about the moment; some name objects that only a rehearsal has.
            commands: Vec::new(),
            id: finding.map(|finding| finding.id.clone()),
            in_rehearsal: None,
        },
    }
}

/// The worst that is known about an object.
fn about<'a>(report: &'a Report, object: &ObjectRef) -> Option<&'a Finding> {
    let mut findings = report.findings.iter();
    findings.find(|finding| finding.objects.contains(object))
}

/// The node whose turn it is.
pub(super) fn node_in_flight(plan: &UpgradePlan) -> Option<String> {
    let statuses = plan.status.iter().flat_map(|status| &status.node_upgrade_statuses);
    let mut in_flight = statuses.filter(|(_, entry)| entry.progress().stage().is_in_flight());
    in_flight.next().map(|(name, _)| name.clone())
}

/// `Kind namespace/name` or `Kind name`.
fn object_ref(text: &str) -> Option<ObjectRef> {
    let (kind, name) = text.split_once(' ')?;
    Some(match name.split_once('/') {
        Some((namespace, name)) => ObjectRef::new(kind, Some(namespace), name),
        None => ObjectRef::new(kind, None, name),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan() -> UpgradePlan {
        serde_json::from_value(json!({
            "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
            "metadata": {"name": "up"}, "spec": {"version": "v1.8.0"},
            "status": {
                "nodeUpgradeStatuses": {"node-1": {"state": "ImagePreloaded"}, "node-2": {"state": "PreDraining"}},
                "waitingFor": [
                    {"what": "PreDrainJob", "object": "Job a/b", "since": "2026-03-13T04:00:00Z"},
                    {"what": "LonghornVolume", "object": "Volume longhorn-system/pvc-1", "message": "last copy",
                     "since": "2026-03-13T04:00:00Z"},
                    {"what": "VMEvacuation", "object": "VirtualMachineInstance shop/db", "message": "no target",
                     "since": "2026-03-13T04:00:00Z"},
                    {"what": "VMEvacuation", "object": "Node node-2", "message": "3 more", "since": "2026-03-13T04:00:00Z"},
                    {"what": "RancherUpdate", "object": "Node node-2", "since": "2026-03-13T04:00:00Z"},
                ],
            },
        }))
        .unwrap()
    }

    fn finding(id: &str, objects: Vec<ObjectRef>) -> Finding {
        Finding {
            id: id.to_owned(),
            severity: Severity::Error,
            objects,
            since: None,
            message: format!("{id} holds"),
            remedy: format!("fix {id}"),
            commands: vec!["kubectl describe pod x".to_owned()],
            link: String::new(),
            overridden_by: None,
        }
    }

    #[test]
    fn waits_become_obstacles_with_the_node_and_what_doctor_knows() {
        let vm = ObjectRef::new("VirtualMachineInstance", Some("shop"), "db");
        let budget = ObjectRef::new("PodDisruptionBudget", Some("shop"), "web");
        let report = Report {
            findings: vec![
                finding("D08", vec![vm.clone(), ObjectRef::new("Pod", Some("shop"), "x")]),
                finding("D02", vec![budget.clone()]),
            ],
            ..Report::default()
        };
        let found = obstacles(&plan(), &report);
        let kinds: Vec<_> = found
            .iter()
            .map(|found| (found.blocker.kind, found.blocker.id.clone()))
            .collect();
        assert_eq!(
            kinds,
            [
                (BlockerKind::Replica, None),
                (BlockerKind::Room, Some("D08".to_owned())),
                (BlockerKind::Budget, Some("D02".to_owned())),
            ]
        );
        assert!(
            found
                .iter()
                .all(|found| found.blocker.node.as_deref() == Some("node-2"))
        );
        assert_eq!(found[1].blocker.objects, [vm]);
        assert_eq!(found[2].blocker.objects, [budget]);
        assert_eq!(found[1].blocker.remedy, "fix D08");
        assert!(found[0].blocker.remedy.contains("Add a replica"));
    }

    #[test]
    fn a_plan_that_waits_for_nothing_that_can_be_removed_has_no_obstacle() {
        let mut plan = plan();
        plan.status.as_mut().unwrap().waiting_for.truncate(1);
        assert_eq!(obstacles(&plan, &Report::default()), []);
    }
}
