//! What is shown of an upgrade, as data: what is in the plan, and what the nodes, VMs and ConfigMaps of the snapshot add to it.
//! Text of other programs is bounded and on one line.

use api::{
    Phase, UpgradePlan, UpgradePlanStatus, Wait, node,
    quoted::{LONGEST_MESSAGE, LONGEST_NAME, plain},
    reasons,
};
use jiff::Timestamp;
use kube::ResourceExt;
use rules::{
    estimate::{Size, memory_bytes},
    progress::{self, Forecast},
};
use serde::Serialize;
use snapshot::Snapshot;

use super::{nodes, vms};

/// How the upgrade is, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Assessment {
    /// It has failed.
    Failed,
    /// A wait takes longer than it should.
    Stalled,
    /// Something needs attention.
    Degraded,
    /// A user paused a node, and nothing else is left to do now.
    Paused,
    /// It waits for another upgrade or for a user to start it.
    Waiting,
    /// It makes progress.
    Progressing,
    /// It has succeeded.
    Completed,
}

impl Assessment {
    /// In words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "Failed",
            Self::Stalled => "Stalled",
            Self::Degraded => "Degraded",
            Self::Paused => "Paused",
            Self::Waiting => "Waiting",
            Self::Progressing => "Progressing",
            Self::Completed => "Completed",
        }
    }

    /// A person should look.
    #[must_use]
    pub const fn needs_attention(self) -> bool {
        matches!(self, Self::Failed | Self::Stalled | Self::Degraded)
    }
}

/// An upgrade as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusView {
    /// The plan.
    pub plan: String,
    /// The time for which all of this is true.
    pub at: Timestamp,
    /// How it is, in a word.
    pub assessment: Assessment,
    /// Why, where it is not well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The version before the upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The version that it upgrades to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// How much is done.
    pub percent: u8,
    /// What is being done.
    pub step: String,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// How long it has taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_seconds: Option<i64>,
    /// When it is expected to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_end: Option<Timestamp>,
    /// The earliest end that is likely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_end_earliest: Option<Timestamp>,
    /// The latest end that is likely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_end_latest: Option<Timestamp>,
    /// All phases.
    pub phases: Vec<PhaseView>,
    /// All nodes, those that need attention first.
    pub nodes: Vec<NodeView>,
    /// What became of VMs; absent where the snapshot does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vms: Option<VmsView>,
    /// What it waits for.
    pub waits: Vec<WaitView>,
}

/// A phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseView {
    /// Its name.
    pub name: String,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// How long it has taken so far, if it has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_seconds: Option<i64>,
    /// How long it takes in all: as it did, or as is expected.
    pub expected_seconds: i64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// `control-plane`, `witness`, `worker`; nothing where the snapshot has no such node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// What it has reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Since when: its wait, else when its upgrade ended or began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// How much is left of its upgrade, or how long it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_seconds: Option<i64>,
    /// The operating system that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The kubelet that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<String>,
    /// Whether it is Ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// What it waits for, or why it failed or is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How it is.
    pub assessment: NodeAssessment,
}

/// How a node is. The one that needs attention first is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeAssessment {
    /// A step of it failed.
    Failed,
    /// Something that it waits for takes longer than it should, or it is not ready although nothing is done with it.
    Stalled,
    /// It is being upgraded.
    Progressing,
    /// It is paused.
    Paused,
    /// Its turn has not come.
    Pending,
    /// Its upgrade is done, or it has left the cluster.
    Done,
}

/// What became of VMs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VmsView {
    /// Live migrations that ended well since the upgrade began, as far as KubeVirt keeps them.
    pub moved: usize,
    /// Live migrations that are under way.
    pub moving: usize,
    /// Live migrations that failed since the upgrade began.
    pub failed_to_move: usize,
    /// VMs that were shut down for the upgrade.
    pub stopped: usize,
    /// Those of them that do not run yet, and will be started again or not by `spec.restoreVM`.
    pub to_be_restored: Vec<String>,
}

/// A wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitView {
    /// Its name.
    pub what: String,
    /// The object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// In a sentence.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
    /// When it counts as stalled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The deadline has passed.
    pub is_overdue: bool,
}

/// The plan of this name; without a name the one that runs, else the newest.
#[must_use]
pub fn choose<'a>(plans: &'a [UpgradePlan], name: Option<&str>) -> Option<&'a UpgradePlan> {
    if let Some(name) = name {
        return plans.iter().find(|plan| plan.metadata.name.as_deref() == Some(name));
    }
    let created = |plan: &UpgradePlan| plan.creation_timestamp().map(|time| time.0);
    let has_ended = |plan: &UpgradePlan| plan.phase().is_some_and(Phase::is_terminal);
    // Of plans that run, the oldest has its turn.
    let running = plans
        .iter()
        .filter(|plan| !has_ended(plan))
        .min_by_key(|plan| created(plan));
    running.or_else(|| plans.iter().max_by_key(|plan| created(plan)))
}

/// How large the cluster of a snapshot is. What the snapshot does not have counts as nothing.
#[must_use]
pub fn size_of(snapshot: &Snapshot) -> Size {
    let nodes = snapshot
        .nodes
        .as_ref()
        .map_or(0, |nodes| nodes.iter().filter(|node| node::is_managed(node)).count());
    let vmis = snapshot.vmis.as_deref().unwrap_or_default();
    let running = || vmis.iter().filter(|vmi| !rules::migration::has_ended(vmi));
    let volumes = snapshot.volumes.as_deref().unwrap_or_default().iter();
    let in_use = volumes.filter(|volume| volume.status.state.as_deref() == Some("attached"));
    Size {
        nodes,
        vms: running().count(),
        vm_memory_bytes: running().filter_map(|vmi| memory_bytes(&vmi.spec)).sum(),
        volumes: in_use.count(),
        image_bytes: None,
    }
}

/// What is shown of a plan in the cluster of this snapshot.
#[must_use]
pub fn of_plan(snapshot: &Snapshot, plan: &UpgradePlan) -> StatusView {
    let now = snapshot.taken_at;
    let empty = UpgradePlanStatus::default();
    let status = plan.status.as_ref().unwrap_or(&empty);
    let forecast = progress::forecast(now, plan, &size_of(snapshot));
    let waits: Vec<WaitView> = status.waiting_for.iter().map(|wait| wait_view(wait, now)).collect();
    let history = &status.phase_transition_timestamps;
    let started = history.first().map(|change| change.phase_transition_timestamp.0);
    let has_ended = plan.phase().is_some_and(Phase::is_terminal);
    let ended = history
        .last()
        .filter(|_| has_ended)
        .map(|change| change.phase_transition_timestamp.0);
    let (assessment, message) = assess(plan, &waits);
    let short = |text: &String| plain(text, LONGEST_NAME);
    let release = status
        .release_metadata
        .as_ref()
        .and_then(|release| release.harvester.as_ref());
    StatusView {
        plan: short(&plan.name_any()),
        at: now,
        assessment,
        message,
        from: status.previous_version.as_ref().map(short),
        to: release
            .or(plan.spec.version.as_ref())
            .or(plan.spec.image.as_ref())
            .map(short),
        phase: status.current_phase.as_ref().map(short),
        percent: forecast.percent,
        step: plain(&forecast.step, LONGEST_MESSAGE),
        started,
        ended,
        elapsed_seconds: started.map(|began| ended.unwrap_or(now).duration_since(began).as_secs().max(0)),
        estimated_end: forecast.end.map(|end| end.likely),
        estimated_end_earliest: forecast.end.map(|end| end.earliest),
        estimated_end_latest: forecast.end.map(|end| end.latest),
        phases: phases(&forecast, ended.unwrap_or(now)),
        nodes: nodes::of(snapshot, status, &forecast, &waits),
        vms: vms::of(snapshot, plan, started),
        waits,
    }
}

fn phases(forecast: &Forecast, now: Timestamp) -> Vec<PhaseView> {
    let view = |phase: &progress::PhaseForecast| PhaseView {
        name: phase.name.to_owned(),
        began: phase.began,
        ended: phase.ended,
        elapsed_seconds: phase
            .began
            .map(|began| phase.ended.unwrap_or(now).duration_since(began).as_secs().max(0)),
        expected_seconds: phase.expected.as_secs(),
    };
    forecast.phases.iter().map(view).collect()
}

fn wait_view(wait: &api::WaitingFor, now: Timestamp) -> WaitView {
    let deadline = wait.deadline.as_ref().map(|time| time.0);
    WaitView {
        what: plain(&wait.what, LONGEST_NAME),
        object: wait.object.as_ref().map(|object| plain(object, LONGEST_NAME)),
        message: plain(wait.message.as_deref().unwrap_or(&wait.what), LONGEST_MESSAGE),
        since: wait.since.0,
        deadline,
        is_overdue: deadline.is_some_and(|deadline| deadline <= now),
    }
}

fn assess(plan: &UpgradePlan, waits: &[WaitView]) -> (Assessment, Option<String>) {
    let message = |type_: &str| {
        let message = plan
            .condition(type_)
            .map(|condition| plain(&condition.message, LONGEST_MESSAGE));
        message.filter(|message| !message.is_empty())
    };
    match plan.phase() {
        Some(Phase::Succeeded) => return (Assessment::Completed, None),
        Some(Phase::Failed) => return (Assessment::Failed, message(reasons::PROGRESSING)),
        _ => {}
    }
    let degraded = plan
        .condition(reasons::DEGRADED)
        .filter(|condition| condition.status == "True");
    if let Some(condition) = degraded {
        let stalled = condition.reason == reasons::STALLED;
        let assessment = if stalled {
            Assessment::Stalled
        } else {
            Assessment::Degraded
        };
        return (assessment, message(reasons::DEGRADED));
    }
    if let Some(wait) = waits.iter().find(|wait| wait.is_overdue) {
        return (Assessment::Stalled, Some(wait.message.clone()));
    }
    let is = |names: &[Wait]| {
        waits
            .iter()
            .any(|wait| names.iter().any(|name| wait.what == name.as_str()))
    };
    if is(&[Wait::OlderUpgrade, Wait::OtherUpgrade, Wait::StartRequest]) {
        let first = waits.first().map(|wait| wait.message.clone());
        return (Assessment::Waiting, first);
    }
    let others = waits
        .iter()
        .any(|wait| ![Wait::Paused.as_str(), Wait::BehindPaused.as_str()].contains(&wait.what.as_str()));
    if is(&[Wait::Paused]) && !others {
        return (Assessment::Paused, waits.first().map(|wait| wait.message.clone()));
    }
    (Assessment::Progressing, None)
}
