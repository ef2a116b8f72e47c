//! What an upgrade is doing, in words: for `status.progress.step` and for what commands show. It decides nothing.

use api::{NodeState, Phase, UpgradePlanStatus, node_progress::Stage};

use crate::estimate::has_left;

/// How many names of nodes are listed; the others are counted.
const NAMES: usize = 3;

/// What an upgrade in this phase is doing.
#[must_use]
pub fn of(status: &UpgradePlanStatus, phase: Option<Phase>) -> String {
    let Some(phase) = phase else {
        return "not started".to_owned();
    };
    match phase {
        Phase::Initializing | Phase::Initialized => "checking the cluster".to_owned(),
        Phase::ISODownloading | Phase::ISODownloaded => "importing the ISO".to_owned(),
        Phase::RepoCreating | Phase::RepoCreated => "starting the repository".to_owned(),
        Phase::MetadataPopulating | Phase::MetadataPopulated => "reading the release".to_owned(),
        Phase::ImagePreloading | Phase::ImagePreloaded => {
            counted("loading images onto nodes", status, Stage::Preloaded)
        }
        Phase::ClusterUpgrading | Phase::ClusterUpgraded => "upgrading the components of the cluster".to_owned(),
        Phase::NodeUpgrading | Phase::NodeUpgraded => nodes(status),
        Phase::CleaningUp => counted("removing stale images from nodes", status, Stage::Cleaned),
        Phase::CleanedUp => "restoring settings".to_owned(),
        Phase::Succeeded => "done".to_owned(),
        Phase::Failed => "failed".to_owned(),
    }
}

fn counted(what: &str, status: &UpgradePlanStatus, stage: Stage) -> String {
    let nodes = || status.node_upgrade_statuses.values().filter(|node| !has_left(node));
    let done = nodes().filter(|node| node.progress().stage() >= stage).count();
    match nodes().count() {
        0 => what.to_owned(),
        all => format!("{what}: {done} of {all} done"),
    }
}

fn nodes(status: &UpgradePlanStatus) -> String {
    let mut text = counted("upgrading nodes", status, Stage::Ended);
    let in_flight = status.node_upgrade_statuses.iter();
    let in_flight = in_flight.filter(|(_, node)| node.progress().stage().is_in_flight() && !has_left(node));
    let mut in_flight: Vec<String> = in_flight
        .map(|(name, node)| match node.progress().state() {
            Some(state) => format!("{name} {}", of_node(state)),
            None => format!("{name} is in an unknown state"),
        })
        .collect();
    let more = in_flight.len().saturating_sub(NAMES);
    in_flight.truncate(NAMES);
    if more > 0 {
        in_flight.push(format!("and {more} more"));
    }
    for one in in_flight {
        text.push_str(", ");
        text.push_str(&one);
    }
    text
}

/// What a node in this state is doing, after its name.
#[must_use]
pub const fn of_node(state: NodeState) -> &'static str {
    match state {
        NodeState::ImagePreloading => "loads images",
        NodeState::ImagePreloaded => "waits for its turn",
        NodeState::ImagePreloadFailed => "could not load images",
        NodeState::UpgradePaused => "is paused",
        NodeState::PreDraining => "is being emptied",
        NodeState::SingleNodeUpgrading => "is being upgraded",
        NodeState::PreDrained => "is drained and updates RKE2",
        NodeState::PreDrainFailed => "could not be emptied",
        NodeState::PostDraining => "installs the operating system",
        NodeState::WaitingReboot => "reboots",
        NodeState::PostDrained | NodeState::SingleNodeUpgraded => "is upgraded",
        NodeState::PostDrainFailed => "could not install the operating system",
        NodeState::SingleNodeUpgradeFailed => "could not be upgraded",
        NodeState::ImageCleaning => "removes stale images",
        NodeState::ImageCleaned => "is done",
        NodeState::ImageCleanFailed => "is upgraded; stale images could not be removed",
    }
}
