//! An attacker in a tenant's namespace tries to control an upgrade.

use api::{Component, JobType, Phase};
use serde_json::Value;

use crate::{
    failure::failing_job,
    run::{Case, Ended, run},
    sweep::difference,
    user::User,
};

fn sabotaged(mut case: Case) -> (Ended, Ended) {
    let clean = run(&case);
    case.scenario.troubles.saboteur = true;
    (clean, run(&case))
}

/// What is left of what was forged without an owner, by namespace.
fn forged(ended: &Ended, group: &str, plural: &str) -> Vec<(String, String)> {
    let all = ended.store.list(group, plural, None);
    let forged = all.iter().filter(|object| {
        let labels: &Value = &object["metadata"]["labels"];
        // What names an owner goes with it: that is the garbage collector's affair.
        labels[world::FORGED] == "true" && object["metadata"]["ownerReferences"].is_null()
    });
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    forged
        .map(|object| {
            (
                text(&object["metadata"]["namespace"]),
                text(&object["metadata"]["name"]),
            )
        })
        .collect()
}

#[rstest::rstest]
#[case::several_nodes(Case::three_nodes())]
#[case::one_node(Case::single_node())]
#[case::vms_that_cannot_move(Case { restore_vm: true, ..Case::three_nodes() })]
fn s01_look_alikes_of_all_that_a_plan_makes_steer_nothing(#[case] case: Case) {
    let (clean, sabotaged) = sabotaged(case);
    assert_eq!(sabotaged.violations, [""; 0]);
    assert_eq!(
        sabotaged.plan.as_ref().and_then(api::UpgradePlan::phase),
        Some(Phase::Succeeded)
    );
    assert_eq!(difference("", &clean.digest, &sabotaged.digest), [""; 0]);
}

#[test]
fn s12_what_others_labelled_as_ours_is_still_there_when_a_plan_has_succeeded_failed_or_gone() {
    let failing = |user: Vec<User>| {
        let mut case = Case::three_nodes();
        case.scenario.troubles = failing_job(Component::NodeUpgrade, Some(JobType::PreDrain));
        case.user = user;
        case
    };
    let deleted = failing(vec![User::DeletesAt(Phase::Failed)]);
    for case in [Case::three_nodes(), failing(Vec::new()), deleted] {
        let (_, sabotaged) = sabotaged(case);
        assert_eq!(sabotaged.violations, [""; 0]);
        for (group, plural, namespace) in [
            ("batch", "jobs", "harvester-system"),
            ("batch", "jobs", "cattle-system"),
            ("batch", "jobs", "tenant-a"),
            ("upgrade.cattle.io", "plans", "cattle-system"),
            ("apps", "deployments", "harvester-system"),
            ("", "services", "harvester-system"),
            ("", "secrets", "harvester-system"),
            ("", "configmaps", "harvester-system"),
            ("", "configmaps", "cattle-fleet-system"),
            ("apps", "replicasets", "harvester-system"),
            ("harvesterhci.io", "virtualmachineimages", "harvester-system"),
        ] {
            let left = forged(&sabotaged, group, plural);
            let made = sabotaged.store.list("", "nodes", None).len();
            let here = left.iter().filter(|(found, _)| found == namespace).count();
            let all = match (plural, namespace) {
                ("jobs", "tenant-a") => 1 + 10 * made,
                ("jobs", _) => 2 * (1 + 10 * made),
                ("plans", _) => 5,
                _ => 1,
            };
            assert_eq!(here, all, "{plural} in {namespace}");
        }
    }
}
