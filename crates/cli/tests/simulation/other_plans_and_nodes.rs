//! Upgrades that meet others: a plan that failed, nodes that join, users that pause nodes.

use api::{Component, JobType, Phase, reasons};

use crate::{
    failure::failing_job,
    run::{Case, run},
    user::User,
};

#[test]
fn a_paused_node_waits_until_it_is_resumed() {
    let ended = run(&Case {
        pause: vec!["node-2".into()],
        user: vec![User::LetsGo],
        ..Case::three_nodes()
    });
    assert_eq!(ended.violations, [""; 0]);
    assert_eq!(ended.plan.unwrap().phase(), Some(Phase::Succeeded));
    assert!(
        ended
            .writes
            .iter()
            .any(|write| write.starts_with("patch jobs") && write.contains("pre-drain-node-2"))
    );
}

#[test]
fn a_paused_node_is_shown_as_paused_before_its_turn_and_does_not_block_those_before_it() {
    let ended = run(&Case {
        pause: vec!["node-3".into()],
        user: vec![User::LetsGo],
        ..Case::three_nodes()
    });
    assert_eq!(ended.violations, [""; 0]);
    assert_eq!(ended.plan.unwrap().phase(), Some(Phase::Succeeded));
    let shown: Vec<String> = ended
        .store
        .history()
        .iter()
        .filter(|write| write.resource.plural == "upgradeplans")
        .filter_map(|write| {
            let states = &write.object.as_ref()?["status"]["nodeUpgradeStatuses"];
            let state = |node: &str| states[node]["state"].as_str().map(str::to_owned);
            (state("node-3")? == "UpgradePaused").then(|| state("node-1"))?
        })
        .collect();
    assert_eq!(shown.first().map(String::as_str), Some("ImagePreloaded"), "{shown:?}");
    assert!(shown.iter().any(|state| state == "PostDrained"), "{shown:?}");
}

#[test]
fn a_node_that_is_resumed_before_its_turn_was_never_paused() {
    let ended = run(&Case {
        pause: vec!["node-3".into()],
        user: vec![User::LetsGoAtOnce],
        ..Case::three_nodes()
    });
    assert_eq!(ended.plan.unwrap().phase(), Some(Phase::Succeeded));
    let clean = run(&Case::three_nodes());
    for part in ["nodes", "cluster", "plans"] {
        assert_eq!(ended.digest[part], clean.digest[part], "{part}");
    }
    let resumed = ended.writes.iter().any(|write| write.starts_with("patch jobs"));
    assert!(!resumed, "no Job was created suspended: {:?}", ended.writes);
}

#[test]
fn a_paused_single_node_waits_until_it_is_resumed() {
    let mut case = Case {
        pause: vec!["node-1".into()],
        user: vec![User::LetsGo],
        ..Case::three_nodes()
    };
    case.scenario.shape.nodes = 1;
    let ended = run(&case);
    let plan = ended.plan.unwrap();
    assert_eq!(plan.phase(), Some(Phase::Succeeded));
    assert_eq!(plan.status.unwrap().single_node.as_deref(), Some("node-1"));
}

#[test]
fn a_node_that_joins_is_named_and_left_to_another_upgrade() {
    let ended = run(&Case {
        user: vec![User::AddsNode("node-9", Phase::NodeUpgrading)],
        ..Case::three_nodes()
    });
    let plan = ended.plan.unwrap();
    assert_eq!(plan.phase(), Some(Phase::Succeeded));
    // It is swept of stale images like the others, and not upgraded.
    let nodes = plan.status.unwrap().node_upgrade_statuses;
    assert!(
        nodes.get("node-9").is_none_or(|node| node.started_at.is_none()),
        "{nodes:?}"
    );
    let events: Vec<String> = serde_json::from_value(ended.digest["events"].clone()).unwrap();
    let joined: Vec<_> = events
        .iter()
        .filter(|event| event.contains(reasons::NODE_JOINED))
        .collect();
    assert_eq!(joined.len(), 1, "{joined:?}");
    assert!(
        joined[0].contains("Node node-9 joined during the upgrade"),
        "{joined:?}"
    );
}

#[test]
fn a_new_plan_continues_with_the_cluster_that_a_failed_one_left_half_upgraded() {
    let mut case = Case {
        user: vec![User::FixesAndStartsOver],
        ..Case::three_nodes()
    };
    case.scenario.troubles = failing_job(Component::NodeUpgrade, Some(JobType::PreDrain));
    case.scenario.troubles.jobs[0].node = Some("node-2".to_owned());
    let ended = run(&case);
    assert_eq!(ended.violations, [""; 0]);
    let plans = ended.store.list("management.harvesterhci.io", "upgradeplans", None);
    let phases: Vec<_> = plans
        .iter()
        .map(|plan| plan["status"]["currentPhase"].as_str())
        .collect();
    assert_eq!(
        phases.iter().filter(|phase| **phase == Some("Failed")).count(),
        1,
        "{phases:?}"
    );
    let new = plans
        .iter()
        .find(|plan| plan["status"]["currentPhase"] == "Succeeded")
        .expect("the new plan succeeds");
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let of_new = |step: JobType, node: &str| {
        let job = api::names::node_job(name, step, node);
        ended
            .writes
            .iter()
            .any(|write| write.contains("jobs") && write.contains(&job))
    };
    assert!(
        !of_new(JobType::PreDrain, "node-1"),
        "node-1 was done and is not drained again"
    );
    assert!(of_new(JobType::PreDrain, "node-2") && of_new(JobType::PostDrain, "node-3"));
    for (node, state) in ended.digest["nodes"].as_object().unwrap() {
        assert_eq!(state["osImage"], "Harvester v1.8.0", "{node}");
        assert!(state["cordoned"].is_null(), "{node} is left cordoned");
    }
    assert_eq!(ended.digest["cluster"]["rkeConfig"]["provisionGeneration"], 1);
}

#[test]
fn vms_that_were_stopped_run_again_when_that_is_wanted() {
    let mut case = Case {
        restore_vm: true,
        ..Case::three_nodes()
    };
    case.scenario.shape.vms = 12;
    let before = run(&Case {
        scenario: case.scenario.clone(),
        ..Case::three_nodes()
    });
    let after = run(&case);
    let stopped = |ended: &crate::run::Ended| {
        ended.digest["vms"]
            .as_object()
            .unwrap()
            .values()
            .filter(|status| *status == "Stopped")
            .count()
    };
    assert!(
        stopped(&after) < stopped(&before),
        "{} and {}",
        stopped(&after),
        stopped(&before)
    );
}
