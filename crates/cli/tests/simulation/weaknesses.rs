//! Weaknesses of the existing toolkit that only show in a whole upgrade.

use api::{Phase, labels::component};
use serde_json::json;

use crate::{
    failure::failing_job,
    run::{Case, run},
    user::User,
};

fn events(ended: &crate::run::Ended) -> Vec<String> {
    serde_json::from_value(ended.digest["events"].clone()).unwrap()
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

#[test]
fn w15_a_failed_cleanup_says_which_node_and_keeps_the_jobs_of_the_upgrade() {
    let mut case = Case::three_nodes();
    case.scenario.troubles = failing_job(component::IMAGE_CLEANUP, None);
    let ended = run(&case);
    assert_eq!(ended.plan.as_ref().unwrap().phase(), Some(Phase::Failed));
    let jobs: Vec<String> = serde_json::from_value(ended.digest["jobs"].clone()).unwrap();
    // Those of system-upgrade-controller it removes itself, with their Plan or a quarter of an hour after their end.
    for job in ["cluster-upgrade", "pre-drain-node-3", "post-drain-node-3"] {
        assert!(jobs.iter().any(|name| name.ends_with(job)), "{job} is not in {jobs:?}");
    }
    let nodes = &ended.digest["status"]["nodeUpgradeStatuses"];
    assert!(nodes.to_string().contains("ImageCleanFailed"), "{nodes:#}");
}

#[test]
fn w20_jobs_of_plans_that_are_gone_and_of_unknown_kinds_are_nobodys_business() {
    let ended = run(&Case {
        user: vec![User::LeavesJobsAround],
        ..Case::three_nodes()
    });
    assert_eq!(ended.violations, [""; 0]);
    let plan = ended.plan.unwrap();
    assert_eq!(plan.phase(), Some(Phase::Succeeded));
    let nodes = serde_json::to_value(plan.status.unwrap().node_upgrade_statuses).unwrap();
    for (name, node) in nodes.as_object().unwrap() {
        assert_eq!(node["state"], json!("ImageCleaned"), "{name}");
    }
}

#[test]
fn w21_every_kind_can_be_watched_where_it_lives_with_the_roles_that_ship() {
    let ended = run(&Case::three_nodes());
    assert_eq!(ended.plan.unwrap().phase(), Some(Phase::Succeeded));
    let refused = ended.requests.writes_by_code.get(&403);
    assert_eq!(refused, None, "some write was forbidden");
}
