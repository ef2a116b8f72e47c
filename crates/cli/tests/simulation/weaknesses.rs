//! Weaknesses of the existing toolkit that only show in a whole upgrade.

use std::sync::{Arc, Mutex};

use api::{Component, JobType, NodeState, Phase, annotations, labels, names};
use apiserver::{Fault, FaultPlan};
use cli::rehearsal::{Rehearsal, manager_user};
use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    failure::failing_job,
    run::{Case, run},
    timeline::{entered, versions},
    user::User,
};

fn events(ended: &crate::run::Ended) -> Vec<String> {
    serde_json::from_value(ended.digest["events"].clone()).unwrap()
}

#[rstest]
#[case::before_a_drain(NodeState::PreDraining)]
#[case::before_a_reboot(NodeState::PostDraining)]
fn w04_a_plan_that_is_deleted_while_nodes_are_upgraded_keeps_ranchers_gate_closed(#[case] state: NodeState) {
    let ended = run(&Case {
        user: vec![User::DeletesAtNode("node-1", state)],
        ..Case::three_nodes()
    });
    assert!(ended.plan.is_none(), "it is gone");
    let strategy = &ended.digest["cluster"]["rkeConfig"]["upgradeStrategy"];
    for tier in ["controlPlaneDrainOptions", "workerDrainOptions"] {
        assert_eq!(
            strategy[tier]["preDrainHooks"][0]["annotation"],
            annotations::PRE_HOOK,
            "{tier}"
        );
        assert_eq!(
            strategy[tier]["postDrainHooks"][0]["annotation"],
            annotations::POST_HOOK,
            "{tier}"
        );
    }
    for node in ["node-2", "node-3"] {
        let found = &ended.digest["nodes"][node];
        assert_eq!(found["osImage"], "Harvester v1.7.1", "{node}");
        assert_eq!(found["kubeletVersion"], "v1.34.3+rke2r1", "{node}: Rancher went on");
    }
}

#[test]
fn w11_nothing_is_looked_for_before_it_can_be_there_and_nothing_is_created_twice() {
    let ended = run(&Case::three_nodes());
    for event in events(&ended) {
        assert!(!event.to_lowercase().contains("not found"), "{event}");
    }
    for write in &ended.writes {
        assert!(write.ends_with(" 200") || write.ends_with(" 201"), "{write}");
    }
}

/// The repository's Deployment has all its pods.
fn is_deployed(deployment: &Value) -> bool {
    let is_repo = deployment["metadata"]["labels"][labels::UPGRADE_COMPONENT] == Component::Repo.as_str();
    is_repo && deployment["status"]["availableReplicas"] == deployment["spec"]["replicas"]
}

/// Keeps what lists the repository's pods from changing until a minute after they are ready.
pub(crate) fn lists_endpoints_late(rehearsal: &Rehearsal) {
    let deployed: Arc<Mutex<Option<Timestamp>>> = Arc::default();
    let (clock, seen) = (rehearsal.clock.clone(), deployed.clone());
    rehearsal.server.store().observe(move |change| {
        if change.resource.plural == "deployments" && is_deployed(&change.object) {
            seen.lock().unwrap().get_or_insert(clock.now());
        }
    });
    let clock = rehearsal.clock.clone();
    rehearsal.server.set_faults(FaultPlan::writes(move |write| {
        let deployed = *deployed.lock().unwrap();
        let late = deployed.is_some_and(|at| clock.now().duration_since(at).as_secs() >= 60);
        let is_slice = write.resource.plural == "endpointslices" && write.namespace == names::HARVESTER_NAMESPACE;
        if is_slice && !late {
            Fault::Reject(503)
        } else {
            Fault::None
        }
    }));
}

#[test]
fn w13_a_repository_whose_endpoints_come_late_is_gone_on_with_as_soon_as_they_come() {
    let ended = run(&Case {
        arranged: Some(lists_endpoints_late),
        ..Case::three_nodes()
    });
    let mut deployments = versions(&ended.store, "deployments").into_iter();
    let (deployed, _) = deployments.find(|(_, one)| is_deployed(one)).unwrap();
    let serves = |slice: &Value| {
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        endpoints.into_iter().any(|one| one["conditions"]["ready"] == true)
    };
    let slices = versions(&ended.store, "endpointslices").into_iter();
    // Harvester's own Services are served from the beginning.
    let is_ours = |slice: &Value| {
        let service = slice["metadata"]["labels"]["kubernetes.io/service-name"].as_str();
        service.is_some_and(|service| service.ends_with("-repo"))
    };
    let mut ours = slices.filter(|(_, slice)| is_ours(slice));
    let (served, _) = ours.find(|(_, slice)| serves(slice)).unwrap();
    assert!(served.duration_since(deployed).as_secs() >= 60, "they were not late");
    let plan = serde_json::to_value(ended.plan.unwrap()).unwrap();
    let created = entered(&plan, "RepoCreated").unwrap();
    let after = created.duration_since(served);
    assert!(after.as_secs() <= 5, "{after} after the endpoints");
    // And it reported what it waited for.
    let said = versions(&ended.store, "upgradeplans").into_iter();
    let said = said.filter(|(at, _)| (deployed..served).contains(at));
    let mut said = said.map(|(_, plan)| plan["status"]["waitingFor"][0].clone());
    let wait = said
        .find(|wait| wait["message"] == "upgrade-repo svc/ep not ready")
        .unwrap();
    assert_eq!(wait["what"], "Repository");
}

#[test]
fn w15_a_failed_cleanup_says_which_node_and_keeps_the_jobs_of_the_upgrade() {
    let mut case = Case::three_nodes();
    case.scenario.troubles = failing_job(Component::ImageCleanup, None);
    let ended = run(&case);
    assert_eq!(ended.plan.as_ref().unwrap().phase(), Some(Phase::Failed));
    let jobs: Vec<String> = serde_json::from_value(ended.digest["jobs"].clone()).unwrap();
    // Those of system-upgrade-controller it removes itself, with their Plan or a quarter of an hour after their end.
    for job in ["cluster-upgrade", "pre-drain-node-3", "post-drain-node-3"] {
        assert!(jobs.iter().any(|name| name.ends_with(job)), "{job} is not in {jobs:?}");
    }
    let nodes = &ended.digest["status"]["nodeUpgradeStatuses"];
    assert!(nodes.to_string().contains("ImageCleanFailed"), "{nodes:#}");
    let images: Vec<String> = serde_json::from_value(ended.digest["images"].clone()).unwrap();
    assert_eq!(images.len(), 1, "the ISO is kept for another try: {images:?}");
}

#[test]
fn w20_jobs_of_plans_that_are_gone_and_of_unknown_kinds_are_ignored() {
    let ended = run(&Case {
        user: vec![User::LeavesJobsAround],
        ..Case::three_nodes()
    });
    assert_eq!(ended.violations, [""; 0]);
    let plan = ended.plan.unwrap();
    assert_eq!(plan.phase(), Some(Phase::Succeeded));
    let own = names::node_job(plan.metadata.name.as_deref().unwrap(), JobType::PreDrain, "node-1");
    assert!(
        ended.writes.contains(&format!("create jobs {own} 201")),
        "node-1 was emptied by a Job of ours: {:#?}",
        ended.writes
    );
    let nodes = serde_json::to_value(plan.status.unwrap().node_upgrade_statuses).unwrap();
    for (name, node) in nodes.as_object().unwrap() {
        assert_eq!(node["state"], json!("ImageCleaned"), "{name}");
    }
}

#[test]
fn w21_every_kind_can_be_watched_where_it_lives_with_the_roles_that_ship() {
    let ended = run(&Case::three_nodes());
    let plan = ended.plan.unwrap();
    assert_eq!(plan.phase(), Some(Phase::Succeeded));
    let refused = ended.requests.forbidden_by_user.get(&manager_user());
    assert_eq!(refused, None, "some read or write was forbidden");
    // What is watched in other namespaces was observed: else it could not have been changed and restored.
    let plan = serde_json::to_value(plan).unwrap();
    let nodes = entered(&plan, "NodeUpgrading").unwrap()..entered(&plan, "NodeUpgraded").unwrap();
    let settings = versions(&ended.store, "settings").into_iter();
    let interval = settings.filter(|(_, setting)| setting["metadata"]["name"] == names::REPLENISHMENT_SETTING);
    let intervals: Vec<(Timestamp, Value)> = interval.map(|(at, setting)| (at, setting["value"].clone())).collect();
    let before = intervals.iter().rfind(|(at, _)| *at <= nodes.start);
    assert_eq!(before.map(|(_, value)| value), Some(&json!("1800")));
    let meanwhile = intervals.iter().find(|(at, _)| nodes.contains(at) && *at > nodes.start);
    assert_eq!(meanwhile, None, "it stays so until all nodes are done");
    assert_eq!(ended.digest["longhorn"], "600");
}
