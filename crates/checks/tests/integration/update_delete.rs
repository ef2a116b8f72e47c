//! Cases of changing and deleting a plan.

use crate::support;
use api::{Phase, UpgradePlan};
use checks::{
    Cluster,
    admission::{self, Reads},
};
use rstest::rstest;
use serde_json::json;

use crate::support::{annotated, healthy, other, plan, plan_with, texts};

fn pausing(names: &[&str]) -> UpgradePlan {
    plan_with(json!({"version": support::VERSION, "nodeUpgradeOption": {"pauseNodes": names}}))
}

fn update(old: &UpgradePlan, new: &UpgradePlan, cluster: &Cluster) -> Vec<String> {
    texts(&admission::update(old, new, cluster))
}

#[test]
fn update_with_an_unknown_pause_node_is_rejected() {
    let refused = "spec.nodeUpgradeOption.pauseNodes[1]: Not found: \"ghost\"";
    assert_eq!(update(&plan(), &pausing(&["node-1", "ghost"]), &healthy(1)), [refused]);
    assert_eq!(
        update(&pausing(&["node-1"]), &pausing(&["node-1", "ghost"]), &healthy(1)),
        [refused]
    );
}

#[test]
fn update_that_removes_a_name_is_allowed() {
    assert!(update(&pausing(&["node-1", "ghost"]), &pausing(&["node-1"]), &healthy(1)).is_empty());
    assert!(update(&pausing(&["ghost"]), &plan(), &healthy(1)).is_empty());
}

#[test]
fn update_is_not_helped_by_skip_webhook() {
    let new = annotated(pausing(&["ghost"]), "skip-webhook", "true");
    assert_eq!(update(&plan(), &new, &healthy(1)).len(), 1);
}

#[test]
fn update_checks_nothing_else() {
    assert!(
        update(
            &plan(),
            &plan_with(json!({"version": "v9", "image": "a/b"})),
            &Cluster::empty()
        )
        .is_empty()
    );
    let mut broken = Cluster::unknown("no route");
    broken.nodes = healthy(1).nodes;
    assert!(update(&plan(), &pausing(&["node-1"]), &broken).is_empty());
}

#[test]
fn update_that_removes_a_finalizer_is_allowed_with_a_stale_pause_node_and_reads_nothing() {
    let mut old = pausing(&["gone"]);
    old.metadata.finalizers = Some(vec![api::annotations::FINALIZER.to_owned()]);
    let new = pausing(&["gone"]);
    assert_eq!(admission::update_reads(&old, &new), Reads::Nothing);
    assert!(update(&old, &new, &Cluster::unknown("no route")).is_empty());
}

#[test]
fn update_that_pauses_a_node_while_nodes_cannot_be_listed_says_so_at_the_field() {
    let refused = "spec.nodeUpgradeOption.pauseNodes: Internal error: failed to list nodes: no route";
    let unknown = Cluster::unknown("no route");
    assert_eq!(update(&plan(), &pausing(&["node-1"]), &unknown), [refused]);
    assert_eq!(admission::update_reads(&plan(), &pausing(&["node-1"])), Reads::Nodes);
}

fn delete(plan: &UpgradePlan) -> Vec<String> {
    texts(&admission::delete(plan))
}

#[rstest]
fn delete_of_a_plan_that_does_not_progress_is_allowed_in_any_phase(
    #[values(None, Some("False"), Some("Unknown"))] progressing: Option<&str>,
) {
    for phase in Phase::ALL {
        assert!(
            delete(&other("up", phase.as_str(), progressing)).is_empty(),
            "{phase:?}"
        );
    }
    assert!(delete(&plan()).is_empty(), "no status at all");
}

#[rstest]
#[case(
    "ClusterUpgrading",
    "metadata.name: Forbidden: cannot delete UpgradePlan while cluster is being upgraded"
)]
#[case(
    "NodeUpgrading",
    "metadata.name: Forbidden: cannot delete UpgradePlan while nodes are being upgraded"
)]
fn delete_while_the_cluster_or_nodes_are_upgraded_is_rejected_with_and_without_allow_deletion(
    #[case] phase: &str,
    #[case] refused: &str,
) {
    let plan = other("up", phase, Some("True"));
    assert_eq!(delete(&plan), [refused]);
    assert_eq!(delete(&annotated(plan.clone(), "allow-deletion", "true")), [refused]);
    assert_eq!(delete(&annotated(plan, "skip-webhook", "true")), [refused]);
}

#[test]
fn delete_of_a_progressing_plan_elsewhere_needs_allow_deletion_to_be_exactly_true() {
    let refused = "metadata.name: Forbidden: cannot delete a progressing UpgradePlan without the management.harvesterhci.io/allow-deletion annotation";
    let hard = [Phase::ClusterUpgrading, Phase::NodeUpgrading];
    let phases = Phase::ALL.into_iter().filter(|phase| !hard.contains(phase));
    for phase in phases.map(Phase::as_str).chain(["", "Unheard"]) {
        let plan = other("up", phase, Some("True"));
        assert_eq!(delete(&plan), [refused], "{phase}");
        assert_eq!(
            delete(&annotated(plan.clone(), "allow-deletion", "True")),
            [refused],
            "{phase}"
        );
        assert!(delete(&annotated(plan, "allow-deletion", "true")).is_empty(), "{phase}");
    }
}
