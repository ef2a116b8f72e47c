//! Nodes under a Rancher that does what the real one does (rows R-05 … R-22).

use std::sync::{Arc, Mutex};

use api::{Component, JobType, NodeState, Phase, UpgradePlan, annotations, reasons};
use apiserver::ChangeKind;
use cli::rehearsal::beginning;
use clock::Clock;
use kube::ResourceExt;
use serde_json::Value;
use world::{Troubles, troubles::RebootTrouble};

use crate::{
    failure::failing_job,
    run::{Case, in_paused_time, run},
    user::{User, has_failed, is_at, until_gone},
    watched::Watched,
};

/// The hook Jobs that have not ended, by node.
fn running_hooks(jobs: &[Arc<Value>]) -> Vec<String> {
    let label = |job: &Value, key: &str| job["metadata"]["labels"][key].as_str().unwrap_or_default().to_owned();
    let is_hook = |job: &&Arc<Value>| {
        let step = JobType::parse(&label(job, api::labels::JOB_TYPE));
        step.is_some_and(|step| [JobType::PreDrain, JobType::PostDrain].contains(&step))
    };
    let runs = |job: &&Arc<Value>| {
        let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
        let mut ended = conditions.filter(|condition| condition["status"] == "True");
        !ended.any(|condition| ["Complete", "Failed"].iter().any(|type_| condition["type"] == *type_))
    };
    let running = jobs.iter().filter(is_hook).filter(runs);
    running.map(|job| label(job, api::labels::NODE)).collect()
}

#[test]
fn r05_a_machine_that_rancher_lets_past_its_limit_waits_for_its_turn() {
    let (together, waited, plan) = in_paused_time(async {
        let mut scenario = Case::three_nodes().scenario;
        scenario.troubles.failed_machine_plans = ["node-2".to_owned(), "node-3".to_owned()].into();
        let clock = Clock::simulated(beginning(), 1.0);
        let rehearsal = Watched::start(scenario, clock).await;
        let asked_together = Arc::new(Mutex::new(false));
        let waited = Arc::new(Mutex::new(String::new()));
        let (asked, words) = (asked_together.clone(), waited.clone());
        let open: Mutex<std::collections::BTreeMap<String, bool>> = Mutex::default();
        rehearsal.server.store().observe(move |change| {
            if change.resource.plural == "secrets" && change.kind != ChangeKind::Deleted {
                let name = change.object["metadata"]["name"].to_string();
                let found = &change.object["metadata"]["annotations"];
                let mut open = open.lock().unwrap();
                open.insert(name, found[annotations::RKE_PRE_DRAIN].is_string());
                *asked.lock().unwrap() |= open.values().filter(|open| **open).count() > 1;
            }
            let waits = change.object["status"]["waitingFor"].as_array().into_iter().flatten();
            for wait in waits.into_iter().filter(|wait| wait["what"] == "Turn") {
                *words.lock().unwrap() = wait["message"].as_str().unwrap_or_default().to_owned();
            }
        });
        let _manager = rehearsal.start_only_manager();
        let name = rehearsal.create(&rehearsal.plan(true, &[])).await.unwrap().name_any();
        let store = rehearsal.server.store().clone();
        let crowded = Arc::new(Mutex::new(Vec::new()));
        let found = crowded.clone();
        let ended = move |plan: &UpgradePlan| {
            let hooks = running_hooks(&store.list("batch", "jobs", Some("harvester-system")));
            if hooks.len() > 1 {
                found.lock().unwrap().push(hooks);
            }
            plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty()
        };
        let limit = std::time::Duration::from_secs(12 * 3600);
        let plan = rehearsal.follow(&name, Some(limit), ended).await;
        assert!(*asked_together.lock().unwrap(), "Rancher asked for one after the other");
        assert_eq!(rehearsal.take_violations(), [""; 0]);
        let crowded = crowded.lock().unwrap().clone();
        let waited = waited.lock().unwrap().clone();
        (crowded, waited, plan)
    });
    assert!(together.is_empty(), "hook Jobs ran together: {together:?}");
    assert!(waited.contains("waits for its turn: node-"), "{waited:?}");
    assert_eq!(plan.unwrap().phase(), Some(Phase::Succeeded));
}

#[test]
fn r06_a_node_that_a_user_has_brought_to_the_new_system_is_done_without_a_reboot() {
    // It came back old once; then the boot menu is repaired and it boots the new system by itself.
    let mut case = Case {
        user: vec![User::FixesAndRetries],
        ..Case::three_nodes()
    };
    case.scenario.troubles = Troubles {
        reboots: [("node-1".to_owned(), RebootTrouble::OldSystem)].into(),
        ..Troubles::default()
    };
    case.arranged = Some(|rehearsal| {
        let client = rehearsal.server.client();
        let plans = rehearsal.server.store().clone();
        let clock = rehearsal.clock.clone();
        tokio::spawn(async move {
            let failed = || {
                let plans = plans.list("management.harvesterhci.io", "upgradeplans", None);
                plans.iter().any(|plan| plan["status"]["currentPhase"] == "Failed")
            };
            while !failed() {
                clock.sleep(std::time::Duration::from_secs(10)).await;
            }
            let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(client);
            let info = serde_json::json!({"osImage": "Harvester v1.8.0", "bootID": "by-hand"});
            let patch = kube::api::Patch::Merge(serde_json::json!({"status": {"nodeInfo": info}}));
            let params = kube::api::PatchParams::default();
            nodes.patch_status("node-1", &params, &patch).await.unwrap();
        });
    });
    let ended = run(&case);
    assert_eq!(ended.plan.as_ref().unwrap().phase(), Some(Phase::Succeeded));
    let node = ended.store.get("", "nodes", "", "node-1").unwrap();
    assert_eq!(
        node["status"]["nodeInfo"]["bootID"], "by-hand",
        "it was not rebooted again"
    );
}

/// Breaks an upgrade, deletes its plan, and lets another one continue; returns the result of the other one.
fn start_over(troubles: Troubles, there: fn(&UpgradePlan) -> bool) -> (Arc<UpgradePlan>, Vec<String>) {
    in_paused_time(async move {
        let mut scenario = Case::three_nodes().scenario;
        scenario.troubles = troubles;
        let clock = Clock::simulated(beginning(), 1.0);
        let rehearsal = Watched::start(scenario, clock).await;
        let before = crate::leftovers::of(&rehearsal);
        let _manager = rehearsal.start_only_manager();
        let limit = Some(std::time::Duration::from_secs(12 * 3600));
        let name = rehearsal.create(&rehearsal.plan(true, &[])).await.unwrap().name_any();
        rehearsal.follow(&name, limit, there).await.unwrap();
        rehearsal.set_troubles(Troubles::default());
        let plans: kube::Api<UpgradePlan> = kube::Api::all(rehearsal.server.client());
        // While nodes are upgraded the webhook refuses: who insists takes it away.
        rehearsal.take_admission_away().await.unwrap();
        plans.delete(&name, &Default::default()).await.unwrap();
        until_gone(&rehearsal, &name).await;
        let name = rehearsal.create(&rehearsal.plan(true, &[])).await.unwrap().name_any();
        let ended = |plan: &UpgradePlan| plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty();
        let plan = rehearsal.follow(&name, limit, ended).await;
        let plan = plan.expect("the second plan does not end");
        rehearsal.clock.sleep(std::time::Duration::from_secs(600)).await;
        (plan, crate::leftovers::after(&rehearsal, &before))
    })
}

#[test]
fn r07_a_plan_after_one_whose_post_drain_job_failed_continues_from_the_answered_hook() {
    let mut troubles = failing_job(Component::NodeUpgrade, Some(JobType::PostDrain));
    troubles.jobs[0].node = Some("node-2".to_owned());
    let (plan, left) = start_over(troubles, has_failed);
    assert_eq!(plan.phase(), Some(Phase::Succeeded), "{:#?}", plan.status);
    assert_eq!(left, [""; 0]);
}

#[test]
fn r07_a_plan_after_one_that_was_deleted_while_a_node_rebooted_answers_for_it() {
    let there = |plan: &UpgradePlan| is_at(plan, "node-2", NodeState::WaitingReboot);
    let (plan, left) = start_over(Troubles::default(), there);
    assert_eq!(plan.phase(), Some(Phase::Succeeded), "{:#?}", plan.status);
    assert_eq!(left, [""; 0]);
}

#[test]
fn r10_a_node_that_is_resumed_before_its_turn_is_never_shown_as_not_paused_yet() {
    let ended = run(&Case {
        pause: vec!["node-3".to_owned()],
        user: vec![User::LetsGoAtOnce],
        ..Case::three_nodes()
    });
    assert_eq!(ended.violations, [""; 0]);
    let versions = crate::timeline::versions(&ended.store, "upgradeplans");
    let of_node = |version: &Value| version["status"]["nodeUpgradeStatuses"]["node-3"].clone();
    let released = versions.iter().any(|(_, version)| {
        let node = of_node(version);
        node["state"] == "UpgradePaused" && node["reason"] == reasons::RELEASED
    });
    assert!(released, "it never said that it was let go");
}

#[test]
fn r22_a_failed_plan_leaves_no_drain_taint() {
    let mut case = Case::three_nodes();
    case.scenario.troubles = failing_job(Component::NodeUpgrade, Some(JobType::PostDrain));
    case.scenario.troubles.jobs[0].job_type = Some(JobType::PreDrain.to_owned());
    // The taint is set by the first pod that gets that far; the ones after it fail.
    case.arranged = Some(|rehearsal| {
        let client = rehearsal.server.client();
        let store = rehearsal.server.store().clone();
        let clock = rehearsal.clock.clone();
        tokio::spawn(async move {
            let begun = || !running_hooks(&store.list("batch", "jobs", Some("harvester-system"))).is_empty();
            while !begun() {
                clock.sleep(std::time::Duration::from_secs(1)).await;
            }
            let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(client);
            let taint = serde_json::json!([{"key": "kubevirt.io/drain", "value": "draining", "effect": "NoSchedule"}]);
            let patch = kube::api::Patch::Merge(serde_json::json!({"spec": {"taints": taint}}));
            nodes.patch("node-1", &Default::default(), &patch).await.unwrap();
        });
    });
    let ended = run(&case);
    assert_eq!(ended.plan.as_ref().unwrap().phase(), Some(Phase::Failed));
    assert_eq!(ended.digest["nodes"]["node-1"]["taints"], Value::Null);
}
