//! What is restored and removed at each end of a plan, change by change.

use api::{Component, JobType, NodePlan, NodeState, Phase, annotations, reasons};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plan::{
    Action, Child, Decision,
    decision::ChildKind,
    observed::{JobOutcome, ObservedJob, ObservedSucPlan},
};
use rstest::rstest;
use serde_json::json;

use crate::{
    model::Model,
    small::{add_job, gate, in_phase, note, set_state, status, waits, waits_for},
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ending {
    Success,
    Failure,
    Deletion,
}
use Ending::{Deletion, Failure, Success};

/// A plan at an end of its upgrade, with nothing left of it in the cluster.
pub(crate) fn ending(ending: Ending) -> Model {
    let mut model = in_phase(match ending {
        Success => Phase::CleanedUp,
        Failure => Phase::Failed,
        Deletion => Phase::ImagePreloading,
    });
    if ending == Deletion {
        model.observed.plan.metadata.deletion_timestamp = Some(Time(model.now));
    }
    model.observed.iso_image = None;
    model.observed.repo = Default::default();
    model
}

pub(crate) fn notes(decision: &Decision, key: &str) -> Option<String> {
    decision.status.notes.as_ref()?.get(key).cloned()
}

/// The decision removes the finalizer of the plan.
pub(crate) fn is_over(decision: &Decision) -> bool {
    let mut conditions = decision.status.conditions.iter();
    !decision.finalizer || conditions.any(|condition| condition.reason == reasons::EXECUTED)
}

#[rstest]
fn where_nothing_is_left_the_plan_is_over(#[values(Success, Failure, Deletion)] end: Ending) {
    let decision = ending(end).decide();
    assert!(
        is_over(&decision) && decision.actions.is_empty(),
        "{:?}",
        decision.actions
    );
}

#[rstest]
fn the_interval_of_longhorn_is_restored_and_its_record_removed_after_a_failure(
    #[values(Success, Failure, Deletion)] end: Ending,
) {
    let key = annotations::SAVED_REPLENISHMENT_INTERVAL;
    let mut model = ending(end);
    note(&mut model, key, "600");
    model.observed.replenishment_interval = Some("1800".to_owned());
    let decision = model.decide();
    let set = Action::SetReplenishmentInterval {
        value: "600".to_owned(),
    };
    assert_eq!(decision.actions, [set]);
    assert!(waits(&decision)[0].contains("Setting longhorn-system/replica-replenishment-wait-interval"));
    assert!(!is_over(&decision) && notes(&decision, key).is_some());
    model.observed.replenishment_interval = Some("600".to_owned());
    let decision = model.decide();
    assert!(is_over(&decision) && decision.actions.is_empty());
    assert_eq!(notes(&decision, key).is_none(), end == Failure);
}

#[rstest]
fn the_descheduler_is_turned_on_again_if_we_turned_it_off(#[values(Success, Failure, Deletion)] end: Ending) {
    let key = annotations::DESCHEDULER_WAS_ENABLED;
    let mut model = ending(end);
    model.observed.descheduler_enabled = Some(false);
    assert_eq!(model.decide().actions, [], "the user turned it off");
    note(&mut model, key, "true");
    let decision = model.decide();
    assert_eq!(decision.actions, [Action::EnableDescheduler { enabled: true }]);
    assert!(waits(&decision)[0].contains("Addon kube-system/descheduler") && !is_over(&decision));
    model.observed.descheduler_enabled = Some(true);
    let decision = model.decide();
    assert!(is_over(&decision));
    assert_eq!(notes(&decision, key).is_none(), end == Failure);
}

#[test]
fn rke2_applies_its_manifests_again_by_a_plan_on_all_managed_nodes() {
    let key = annotations::SKIP_MANIFESTS_APPLIED;
    let mut model = ending(Success);
    note(&mut model, key, "true");
    model.observed.nodes.get_mut("node-3").unwrap().managed = false;
    let decision = model.decide();
    let create = Action::Create(Child::SucPlan {
        plan: NodePlan::SkipManifestsRemove,
        concurrency: 2,
        images: Vec::new(),
    });
    assert_eq!(decision.actions, [create]);
    assert_eq!(waits_for(&decision), ["SkipManifestsRemove"]);
    let plan = ObservedSucPlan::default();
    model.observed.suc_plans.insert(Component::SkipManifestsRemove, plan);
    let decision = model.decide();
    assert_eq!(
        (decision.actions.len(), waits_for(&decision)),
        (0, vec!["SkipManifestsRemove"])
    );
    assert_eq!(decision.events, []);
    model.apply(&decision);
    model.now += SignedDuration::from_mins(10);
    let late = model.decide();
    assert_eq!(
        notes(&late, key),
        None,
        "a node that is gone for good does not keep the plan"
    );
    assert!(
        late.events
            .iter()
            .any(|event| event.message.contains("rke2-multus.yaml.skip"))
    );
    model
        .observed
        .suc_plans
        .get_mut(&Component::SkipManifestsRemove)
        .unwrap()
        .complete = true;
    assert_eq!(notes(&model.decide(), key), None);
}

/// Rancher's upgrade was started and is complete, with our gate still closed.
fn gated(end: Ending) -> Model {
    let mut model = ending(end);
    note(&mut model, annotations::SAVED_UPGRADE_STRATEGY, "null");
    status(&mut model).provision_generation = Some(1);
    for node in ["node-1", "node-2", "node-3"] {
        set_state(&mut model, node, NodeState::PostDrained);
    }
    let cluster = model.observed.cluster.as_mut().unwrap();
    (cluster.provision_generation, cluster.upgrade_strategy) = (1, Some(gate()));
    cluster.saved_upgrade_strategy = Some("null".to_owned());
    model
}

fn opens_gate(model: &Model) -> bool {
    let decision = model.decide();
    let restore = Action::RestoreUpgradeStrategy { strategy: json!(null) };
    let opens = decision.actions.contains(&restore);
    assert_eq!(
        waits(&decision)
            .iter()
            .any(|wait| wait.contains("Cluster fleet-local/local")),
        opens
    );
    opens
}

#[rstest]
fn the_gate_is_opened_once_rancher_has_no_node_left(#[values(Success, Failure, Deletion)] end: Ending) {
    let model = gated(end);
    assert!(opens_gate(&model));
    let mut behind = model.clone();
    behind.observed.cluster.as_mut().unwrap().provision_generation = 0;
    assert!(!opens_gate(&behind), "Rancher was never started");
    let mut open = model.clone();
    open.observed.machine_plans[0].pre_drain = Some("t".to_owned());
    assert_eq!(opens_gate(&open), end == Success, "a node is in drain");
    let mut unfinished = model.clone();
    set_state(&mut unfinished, "node-2", NodeState::ImagePreloaded);
    assert_eq!(opens_gate(&unfinished), end == Success, "a node is not upgraded");
    unfinished.observed.nodes.get_mut("node-2").unwrap().managed = false;
    assert!(
        opens_gate(&unfinished),
        "one that Harvester does not manage does not count"
    );
    let mut restored = model.clone();
    restored.observed.cluster.as_mut().unwrap().upgrade_strategy = None;
    assert!(opens_gate(&restored), "the note on the cluster is still there");
    restored.observed.cluster.as_mut().unwrap().saved_upgrade_strategy = None;
    assert!(!opens_gate(&restored));
    let kept = notes(&restored.decide(), annotations::SAVED_UPGRADE_STRATEGY);
    assert_eq!(kept.is_none(), end == Failure);
    let mut half = model;
    half.observed.cluster.as_mut().unwrap().saved_upgrade_strategy = None;
    assert!(opens_gate(&half), "the strategy is still ours");
}

#[rstest]
fn without_a_started_rancher_only_the_record_is_removed(#[values(Success, Failure)] end: Ending) {
    let mut model = gated(end);
    status(&mut model).provision_generation = None;
    note(&mut model, annotations::TAKEN_OVER, "true");
    assert!(!opens_gate(&model));
    for key in [annotations::SAVED_UPGRADE_STRATEGY, annotations::TAKEN_OVER] {
        assert_eq!(notes(&model.decide(), key).is_none(), end == Failure, "{key}");
    }
}

#[rstest]
#[case(NodeState::ImagePreloaded, false)]
#[case(NodeState::UpgradePaused, false)]
#[case(NodeState::PreDraining, true)]
#[case(NodeState::PostDrained, true)]
fn a_taint_goes_from_nodes_that_the_upgrade_has_come_to(#[case] state: NodeState, #[case] expected: bool) {
    let mut model = ending(Failure);
    set_state(&mut model, "node-1", state);
    set_state(&mut model, "node-2", NodeState::PreDraining);
    model.observed.nodes.get_mut("node-1").unwrap().drain_taint = true;
    let decision = model.decide();
    let untaint = Action::UntaintNode {
        node: "node-1".to_owned(),
    };
    assert_eq!(decision.actions, if expected { vec![untaint] } else { vec![] });
    assert_eq!(is_over(&decision), !expected);
}

#[rstest]
#[case::pending(true, false, false)]
#[case::boot(false, true, false)]
#[case::both(true, true, false)]
#[case::labels(false, false, true)]
fn nodes_carry_nothing_of_ours_afterwards(#[case] pending: bool, #[case] boot: bool, #[case] labels: bool) {
    let mut model = ending(Failure);
    let node = model.observed.nodes.get_mut("node-1").unwrap();
    node.pending_os_image = pending.then(|| "os".to_owned());
    node.boot_id_before_upgrade = boot.then(|| "boot".to_owned());
    node.leftover_labels = if labels {
        vec!["plan.upgrade.cattle.io/x".to_owned()]
    } else {
        vec![]
    };
    let decision = model.decide();
    let mut keys = Vec::new();
    keys.extend(pending.then_some(annotations::PENDING_OS_IMAGE));
    keys.extend(boot.then_some(annotations::BOOT_ID_BEFORE_UPGRADE));
    let expected = match labels {
        true => Action::UnlabelNode {
            node: "node-1".to_owned(),
            labels: vec!["plan.upgrade.cattle.io/x".to_owned()],
        },
        false => Action::AnnotateNode {
            node: "node-1".to_owned(),
            annotations: keys.into_iter().map(|key| (key.to_owned(), None)).collect(),
        },
    };
    assert_eq!(decision.actions, [expected]);
    assert!(
        waits(&decision)[0].ends_with("being restored or removed: Node node-1"),
        "{:?}",
        waits(&decision)
    );
    if labels {
        // A Plan that is still there would serve the node once more.
        model
            .observed
            .suc_plans
            .insert(Component::ImagePreload, ObservedSucPlan::default());
        let actions = model.decide().actions;
        assert!(
            !actions
                .iter()
                .any(|action| matches!(action, Action::UnlabelNode { .. })),
            "{actions:?}"
        );
    }
}

fn deletes(decision: &Decision) -> Vec<(ChildKind, Component, Option<JobType>)> {
    let deletes = decision.actions.iter().filter_map(|action| match action {
        Action::Delete {
            kind,
            component,
            job_type,
        } => Some((*kind, *component, *job_type)),
        _ => None,
    });
    deletes.collect()
}

#[rstest]
fn what_was_created_is_removed_and_after_a_failure_jobs_and_the_iso_stay(
    #[values(Success, Failure, Deletion)] end: Ending,
) {
    let mut model = ending(end);
    let blank = in_phase(Phase::CleanedUp).observed;
    (model.observed.iso_image, model.observed.repo) = (blank.iso_image, blank.repo);
    model
        .observed
        .suc_plans
        .insert(Component::ImagePreload, ObservedSucPlan::default());
    add_job(&mut model, JobType::PreDrain, "node-1", JobOutcome::Complete);
    add_job(&mut model, JobType::RestoreVm, "node-1", JobOutcome::Complete);
    let cluster_job = ObservedJob {
        component: Component::ClusterUpgrade,
        outcome: JobOutcome::Complete,
        ..ObservedJob::of(Component::NodeUpgrade)
    };
    model.observed.jobs.insert("up-cluster".to_owned(), cluster_job);
    let of_plan = ObservedJob {
        component: Component::ImagePreload,
        outcome: JobOutcome::Complete,
        ..ObservedJob::of(Component::NodeUpgrade)
    };
    model.observed.jobs.insert("cattle-system/apply-x".to_owned(), of_plan);
    let always = [
        (ChildKind::Deployment, Component::Repo, None),
        (ChildKind::Service, Component::Repo, None),
        (ChildKind::SucPlan, Component::ImagePreload, None),
    ];
    let unless_failed = [
        (ChildKind::Image, Component::Iso, None),
        (ChildKind::Job, Component::ClusterUpgrade, None),
        (ChildKind::Job, Component::NodeUpgrade, Some(JobType::PreDrain)),
    ];
    let mut expected = always.to_vec();
    if end != Failure {
        expected.extend(unless_failed);
    }
    expected.sort();
    let mut found = deletes(&model.decide());
    found.sort();
    assert_eq!(found, expected);
    model.observed.iso_image.as_mut().unwrap().ours = false;
    let image = (ChildKind::Image, Component::Iso, None);
    assert!(!deletes(&model.decide()).contains(&image), "the user's own image stays");
}

#[test]
fn what_is_being_deleted_is_shown_and_not_deleted_again() {
    let mut model = ending(Success);
    let going = ObservedSucPlan {
        deleting: true,
        ..ObservedSucPlan::default()
    };
    model.observed.suc_plans.insert(Component::ImagePreload, going);
    add_job(&mut model, JobType::PostDrain, "node-1", JobOutcome::Complete);
    for job in model.observed.jobs.values_mut() {
        job.deleting = true;
    }
    let decision = model.decide();
    assert_eq!(decision.actions, []);
    let said = waits(&decision).join("");
    assert!(
        said.contains("Plan image-preload") && said.contains("Job post-drain"),
        "{said}"
    );
    assert!(!is_over(&decision));
}

#[test]
fn the_plan_that_undoes_skipped_manifests_stays_until_it_is_done() {
    let mut model = ending(Success);
    model
        .observed
        .suc_plans
        .insert(Component::SkipManifestsRemove, ObservedSucPlan::default());
    let delete = vec![(ChildKind::SucPlan, Component::SkipManifestsRemove, None)];
    assert_eq!(deletes(&model.decide()), delete);
    note(&mut model, annotations::SKIP_MANIFESTS_APPLIED, "true");
    assert_eq!(deletes(&model.decide()), []);
}
