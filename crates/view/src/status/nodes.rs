//! What is shown of nodes: their entry in the plan, the Node itself, and the wait that is about it.

use std::collections::BTreeMap;

use api::{
    NodeUpgradeStatus, UpgradePlanStatus, node,
    node_progress::Stage,
    quoted::{LONGEST_MESSAGE, LONGEST_NAME, plain},
};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use rules::{
    estimate::has_left,
    progress::{Forecast, NodeForecast},
    step,
};
use snapshot::Snapshot;

use super::model::{NodeAssessment, NodeView, WaitView};

/// Labels of Kubernetes that say what a node is for.
const CONTROL_PLANE: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];

/// The nodes of a plan, those that need attention first.
pub(super) fn of(
    snapshot: &Snapshot,
    status: &UpgradePlanStatus,
    forecast: &Forecast,
    waits: &[WaitView],
) -> Vec<NodeView> {
    let nodes = snapshot.nodes.as_deref().unwrap_or_default();
    let by_name: BTreeMap<&str, &Node> = nodes
        .iter()
        .filter_map(|node| Some((node.metadata.name.as_deref()?, node)))
        .collect();
    let entries = status.node_upgrade_statuses.iter();
    let mut views: Vec<NodeView> = entries
        .map(|(name, entry)| {
            let wait = waits
                .iter()
                .filter(|wait| is_about(wait, name))
                .max_by_key(|wait| wait.is_overdue);
            view(
                name,
                entry,
                by_name.get(name.as_str()).copied(),
                forecast.nodes.get(name),
                wait,
            )
        })
        .collect();
    views.sort_by(|a, b| (a.assessment, &a.name).cmp(&(b.assessment, &b.name)));
    views
}

fn view(
    name: &str,
    entry: &NodeUpgradeStatus,
    node: Option<&Node>,
    forecast: Option<&NodeForecast>,
    wait: Option<&WaitView>,
) -> NodeView {
    let state = entry.progress().state();
    let own = entry.message.as_deref().map(|message| plain(message, LONGEST_MESSAGE));
    let info = node.and_then(|node| node.status.as_ref()?.node_info.as_ref());
    let recorded =
        |time: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| time.as_ref().map(|time| time.0);
    NodeView {
        name: plain(name, LONGEST_NAME),
        role: node.map(role),
        state: entry.state().map(|state| plain(state, LONGEST_NAME)),
        step: state.map(|state| step::of_node(state).to_owned()),
        since: wait
            .map(|wait| wait.since)
            .or(recorded(&entry.finished_at))
            .or(recorded(&entry.started_at)),
        estimated_seconds: match forecast {
            Some(NodeForecast::Pending(left) | NodeForecast::Running(left)) => Some(left.as_secs()),
            Some(NodeForecast::Over) | None => None,
        },
        version: info
            .map(|info| plain(&info.os_image, LONGEST_NAME))
            .filter(|version| !version.is_empty()),
        kubelet: info
            .map(|info| plain(&info.kubelet_version, LONGEST_NAME))
            .filter(|version| !version.is_empty()),
        ready: node.map(node::is_ready),
        message: wait.map(|wait| wait.message.clone()).or(own),
        assessment: assess(entry, node, wait),
    }
}

fn assess(entry: &NodeUpgradeStatus, node: Option<&Node>, wait: Option<&WaitView>) -> NodeAssessment {
    let progress = entry.progress();
    if has_left(entry) {
        return NodeAssessment::Done;
    }
    let failed = progress.state().is_some_and(|state| state.as_str().ends_with("Failed"));
    if failed {
        return NodeAssessment::Failed;
    }
    let stage = progress.stage();
    let may_be_down = stage.is_in_flight();
    if wait.is_some_and(|wait| wait.is_overdue) || (node.is_some_and(|node| !node::is_ready(node)) && !may_be_down) {
        return NodeAssessment::Stalled;
    }
    match stage {
        Stage::Paused => NodeAssessment::Paused,
        Stage::Preloading if progress.state().is_some() => NodeAssessment::Progressing,
        Stage::Preloading | Stage::Preloaded => NodeAssessment::Pending,
        Stage::Ended | Stage::Cleaned => NodeAssessment::Done,
        Stage::Emptying | Stage::Emptied | Stage::Installing | Stage::Rebooting | Stage::Cleaning => {
            NodeAssessment::Progressing
        }
    }
}

fn role(node: &Node) -> String {
    let has = |label: &str| node.labels().contains_key(label);
    let role = if node::is_witness(node) {
        "witness"
    } else if CONTROL_PLANE.iter().any(|label| has(label)) {
        "control-plane"
    } else {
        "worker"
    };
    role.to_owned()
}

/// A wait is about a node: its object names it, or its message does as a word.
fn is_about(wait: &WaitView, node: &str) -> bool {
    let names = |text: &str| {
        let is_part = |character: char| character.is_ascii_alphanumeric() || character == '.';
        text.match_indices(node).any(|(at, found)| {
            let before = text[..at].chars().next_back();
            let after = text[at + found.len()..].chars().next();
            // A Job is named after its node, with what comes before it; a longer name is another node.
            !before.is_some_and(is_part) && !after.is_some_and(|character| is_part(character) || character == '-')
        })
    };
    wait.object.as_deref().is_some_and(names) || names(&wait.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_about_the_node_that_it_names_and_no_other() {
        let wait = |object: &str, message: &str| WaitView {
            what: "Reboot".to_owned(),
            object: Some(object.to_owned()),
            message: message.to_owned(),
            since: jiff::Timestamp::UNIX_EPOCH,
            deadline: None,
            is_overdue: false,
        };
        assert!(is_about(&wait("Node node-1", ""), "node-1"));
        assert!(is_about(
            &wait("Job harvester-system/up-pre-drain-node-1", ""),
            "node-1"
        ));
        assert!(is_about(&wait("", "waiting for node-1 to reboot"), "node-1"));
        for other in ["Node node-10", "Node node-1-b", "Node node-1.example", "Node 1node-1"] {
            assert!(!is_about(&wait(other, ""), "node-1"), "{other}");
        }
    }
}
