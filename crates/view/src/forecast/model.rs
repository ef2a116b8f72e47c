//! A forecast as a value.

use std::collections::BTreeSet;

use checks::finding::{Finding, ObjectRef};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// In a word, how the upgrade would go. The worst is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Admission would refuse the plan.
    Refused,
    /// It would be blocked, or fail.
    Blocked,
    /// Checks found errors that a rehearsal cannot play.
    Doubtful,
    /// It would succeed.
    Succeeds,
}

/// What a node would block on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BlockerKind {
    /// A PodDisruptionBudget.
    Budget,
    /// Copies of a volume: the last one, or too few.
    Replica,
    /// No node has room for a VM.
    Room,
    /// A VM that does not leave for another reason.
    Vm,
    /// A disk that is too full.
    Disk,
    /// Anything else.
    Other,
}

/// Something that would block the upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Blocker {
    /// What it is.
    pub kind: BlockerKind,
    /// The node that would wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What it is about, the most important one first.
    pub objects: Vec<ObjectRef>,
    /// Why, in the words of the upgrade.
    pub message: String,
    /// What helps.
    pub remedy: String,
    /// The same as commands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// The situation of `doctor`, where it knows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What was done in the rehearsal so that it went on; nothing when it ended there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_rehearsal: Option<String>,
}

/// How large the rehearsed cluster is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSize {
    /// Nodes.
    pub nodes: usize,
    /// Running VMs.
    pub vms: usize,
    /// Volumes that are in use.
    pub volumes: usize,
}

/// How long a phase takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseTime {
    /// Its name.
    pub name: String,
    /// How long; nothing when it did not end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
}

/// When a node has its turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeTime {
    /// Its name.
    pub name: String,
    /// Seconds after the beginning; nothing when it had no turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins: Option<i64>,
    /// How long; nothing when it did not end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
}

/// A VM that moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmMove {
    /// `namespace/name`.
    pub vm: String,
    /// From.
    pub from: String,
    /// To.
    pub to: String,
    /// Seconds after the beginning.
    pub begins: i64,
    /// How long.
    pub seconds: i64,
}

/// A VM that is shut down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmOff {
    /// `namespace/name`.
    pub vm: String,
    /// The node that it was on.
    pub node: String,
    /// Why.
    pub why: String,
    /// Seconds after the beginning.
    pub begins: i64,
    /// How long it is off; nothing when it stays off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
    /// It runs again at the end.
    pub restored: bool,
}

/// Something to change before the upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// What it is about.
    pub objects: Vec<ObjectRef>,
    /// What to do.
    pub remedy: String,
    /// The same as commands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// Where it comes from: an id of `preflight` or `doctor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// What an upgrade would be like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// In a word.
    pub verdict: Verdict,
    /// The version that runs.
    pub from: String,
    /// The version to upgrade to.
    pub to: String,
    /// When the cluster was looked at.
    pub taken_at: Timestamp,
    /// How large it is.
    pub cluster: ClusterSize,
    /// What admission would refuse the plan for.
    pub refusals: Vec<Finding>,
    /// What would block the upgrade.
    pub blockers: Vec<Blocker>,
    /// Errors of `preflight` that admission does not look at.
    pub errors: Vec<Finding>,
    /// How many warnings `preflight` has.
    pub warnings: usize,
    /// The rehearsal came to the end of the upgrade.
    pub completed: bool,
    /// How long it takes in all, without the time that blockers would take.
    pub seconds: i64,
    /// How long each phase takes.
    pub phases: Vec<PhaseTime>,
    /// The nodes, in their order.
    pub nodes: Vec<NodeTime>,
    /// The VMs that move.
    pub moves: Vec<VmMove>,
    /// The VMs that are shut down.
    pub shutdowns: Vec<VmOff>,
    /// What to change first, in this order.
    pub change_first: Vec<Change>,
    /// What the snapshot does not say.
    pub unknown: Vec<String>,
    /// What the forecast rests on.
    pub assumptions: Vec<String>,
}

impl Forecast {
    /// The worst of what was found.
    #[must_use]
    pub fn judged(&self) -> Verdict {
        if !self.refusals.is_empty() {
            Verdict::Refused
        } else if !self.blockers.is_empty() || !self.completed {
            Verdict::Blocked
        } else if !self.errors.is_empty() {
            Verdict::Doubtful
        } else {
            Verdict::Succeeds
        }
    }
}

/// What to change first: what admission refuses, then what would block, then other errors. What was named is not named again.
#[must_use]
pub fn changes(refusals: &[Finding], blockers: &[Blocker], errors: &[Finding]) -> Vec<Change> {
    let of_finding = |finding: &Finding| Change {
        objects: finding.objects.clone(),
        remedy: finding.remedy.clone(),
        commands: finding.commands.clone(),
        id: Some(finding.id.clone()),
    };
    let of_blocker = |blocker: &Blocker| Change {
        objects: blocker.objects.clone(),
        remedy: blocker.remedy.clone(),
        commands: blocker.commands.clone(),
        id: blocker.id.clone(),
    };
    let mut named: BTreeSet<ObjectRef> = BTreeSet::new();
    let all = refusals.iter().map(of_finding);
    let all = all.chain(blockers.iter().map(of_blocker));
    let all = all.chain(errors.iter().map(of_finding));
    let mut changes: Vec<Change> = Vec::new();
    for change in all {
        // The first object is what is to be changed; many name a node as well.
        let first = change.objects.first().cloned();
        let is_new = first.is_none_or(|first| named.insert(first));
        let is_same = |known: &Change| known.remedy == change.remedy && known.objects == change.objects;
        if is_new && !changes.iter().any(is_same) {
            changes.push(change);
        }
    }
    changes
}
