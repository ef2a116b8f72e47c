//! Small typed worlds: a plan that stands in one phase, with what it has on record by then and nothing else. A table test
//! changes one thing and looks at one decision.

use api::{
    Component, JobType, NodeState, Phase, PhaseTransition, ReleaseMetadata, UpgradePlanStatus, annotations, names,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plan::{
    Action, Decision,
    observed::{JobOutcome, ObservedJob, ObservedPod},
};
use serde_json::{Value, json};

use crate::model::{Model, OS};

pub(crate) const KUBERNETES: &str = "v1.35.2+rke2r1";

/// A plan for three nodes in a phase that it entered a minute ago. The repository is that of an older manager, so that
/// nothing is asked about it.
pub(crate) fn in_phase(phase: Phase) -> Model {
    with_nodes(3, phase)
}

/// The same for so many nodes.
pub(crate) fn with_nodes(nodes: usize, phase: Phase) -> Model {
    let mut model = Model::new(nodes);
    let release = ReleaseMetadata {
        harvester: Some("v1.8.0".to_owned()),
        os: Some(OS.to_owned()),
        kubernetes: Some(KUBERNETES.to_owned()),
        min_upgradable_version: Some("v1.7.0".to_owned()),
        ..ReleaseMetadata::default()
    };
    let entered = PhaseTransition {
        phase: phase.to_string(),
        phase_transition_timestamp: Time(model.now - std::time::Duration::from_secs(60)),
        message: None,
    };
    model.observed.plan.status = Some(UpgradePlanStatus {
        current_phase: Some(phase.to_string()),
        notes: Some(Default::default()),
        phase_transition_timestamps: vec![entered],
        previous_version: Some("v1.7.1".to_owned()),
        release_digests: Some(Default::default()),
        release_metadata: Some(release),
        single_node: (nodes == 1).then(|| "node-1".to_owned()),
        ..UpgradePlanStatus::default()
    });
    model.observed.plan.metadata.finalizers = Some(vec![annotations::FINALIZER.to_owned()]);
    model.observed.iso_image = Some(plan::observed::ObservedImage {
        name: names::iso_image("up"),
        ours: true,
        imported: Some(true),
        checksum: None,
    });
    model.observed.repo.deployment_ready = Some(true);
    model.observed.repo.service_ready = Some(true);
    model
}

/// Nodes are being upgraded, behind our gate, and all of them have their images.
pub(crate) fn upgrading(nodes: usize) -> Model {
    let mut model = with_nodes(nodes, Phase::NodeUpgrading);
    for node in 1..=nodes {
        set_state(&mut model, &format!("node-{node}"), NodeState::ImagePreloaded);
    }
    status(&mut model).provision_generation = (nodes > 1).then_some(1);
    let cluster = model.observed.cluster.as_mut().unwrap();
    cluster.provision_generation = 1;
    cluster.kubernetes_version = Some(KUBERNETES.to_owned());
    cluster.upgrade_strategy = Some(gate());
    model
}

/// The strategy that our upgrades put in place.
pub(crate) fn gate() -> Value {
    json!({"controlPlaneDrainOptions": {"preDrainHooks": [{"annotation": annotations::PRE_HOOK}]}})
}

pub(crate) fn status(model: &mut Model) -> &mut UpgradePlanStatus {
    model.observed.plan.status.as_mut().unwrap()
}

pub(crate) fn note(model: &mut Model, key: &str, value: &str) {
    let notes = status(model).notes.get_or_insert_default();
    notes.insert(key.to_owned(), value.to_owned());
}

pub(crate) fn set_state(model: &mut Model, node: &str, state: NodeState) {
    set_recorded_state(model, node, state.as_str());
}

/// The same of any text. The product cannot replace an entry, so it goes the way that a recorded status comes.
pub(crate) fn set_recorded_state(model: &mut Model, node: &str, state: &str) {
    let nodes = &mut status(model).node_upgrade_statuses;
    let mut entries = serde_json::to_value(&*nodes).unwrap();
    entries[node] = json!({"state": state});
    *nodes = serde_json::from_value(entries).unwrap();
}

/// The same of a node whose step is tried again.
pub(crate) fn set_retrying(model: &mut Model, node: &str, state: NodeState) {
    set_state(model, node, state);
    let nodes = &mut status(model).node_upgrade_statuses;
    nodes.set_reason(node, Some(api::reasons::RETRYING), None);
}

/// The state and the reason that a decision leaves a node with.
pub(crate) fn reached<'a>(decision: &'a Decision, node: &str) -> (Option<NodeState>, Option<&'a str>) {
    let entry = decision.status.node_upgrade_statuses.get(node);
    let state = entry.and_then(|entry| entry.state()).and_then(NodeState::parse);
    (state, entry.and_then(|entry| entry.reason.as_deref()))
}

/// A Job of a node, running.
pub(crate) fn node_job(step: JobType, node: &str) -> ObservedJob {
    ObservedJob {
        uid: Some(format!("uid of {step} on {node}")),
        namespace: names::HARVESTER_NAMESPACE.to_owned(),
        component: Component::NodeUpgrade,
        job_type: Some(step),
        node: Some(node.to_owned()),
        ..ObservedJob::of(Component::NodeUpgrade)
    }
}

/// Adds a Job of a node that stands so.
pub(crate) fn add_job(model: &mut Model, step: JobType, node: &str, outcome: JobOutcome) {
    let job = ObservedJob {
        outcome,
        ..node_job(step, node)
    };
    model.observed.jobs.insert(names::node_job("up", step, node), job);
}

pub(crate) fn failed() -> JobOutcome {
    JobOutcome::Failed {
        reason: "BackoffLimitExceeded".to_owned(),
        message: "it broke".to_owned(),
    }
}

/// The pod of a Job of a node.
pub(crate) fn pod(step: JobType, node: &str) -> ObservedPod {
    ObservedPod {
        name: format!("{step}-{node}"),
        component: Component::NodeUpgrade,
        job_type: Some(step),
        node: Some(node.to_owned()),
        owner: Some(format!("uid of {step} on {node}")),
        ..ObservedPod::of(Component::NodeUpgrade)
    }
}

/// Pauses nodes.
pub(crate) fn pause(model: &mut Model, nodes: &[&str]) {
    model.observed.plan.spec.node_upgrade_option = Some(api::NodeUpgradeOption {
        pause_nodes: Some(nodes.iter().map(|node| (*node).to_owned()).collect()),
    });
}

/// What is waited for, as `what object: message`.
pub(crate) fn waits(decision: &Decision) -> Vec<String> {
    let waits = decision.status.waiting_for.iter();
    waits
        .map(|wait| {
            let object = wait.object.as_deref().unwrap_or("-");
            format!(
                "{} {object}: {}",
                wait.what,
                wait.message.as_deref().unwrap_or_default()
            )
        })
        .collect()
}

/// The names of what is waited for.
pub(crate) fn waits_for(decision: &Decision) -> Vec<&str> {
    decision
        .status
        .waiting_for
        .iter()
        .map(|wait| wait.what.as_str())
        .collect()
}

/// The Jobs of nodes that a decision creates, as `step node`; those that are created suspended end with `suspended`.
pub(crate) fn created_jobs(decision: &Decision) -> Vec<String> {
    let created = decision.actions.iter().filter_map(|action| match action {
        Action::Create(plan::Child::NodeJob {
            job_type,
            node,
            suspend,
        }) => Some(format!("{job_type} {node}{}", if *suspend { " suspended" } else { "" })),
        _ => None,
    });
    created.collect()
}

/// The hooks that a decision answers, as `secret token`.
pub(crate) fn answers(decision: &Decision) -> Vec<String> {
    let answers = decision.actions.iter().filter_map(|action| match action {
        Action::AnswerHook { secret, token, .. } => Some(format!("{secret} {token}")),
        _ => None,
    });
    answers.collect()
}

/// The message of the condition Progressing.
pub(crate) fn progressing(decision: &Decision) -> &str {
    let mut conditions = decision.status.conditions.iter();
    let found = conditions.find(|condition| condition.type_ == api::reasons::PROGRESSING);
    found.map(|condition| condition.message.as_str()).unwrap_or_default()
}
