//! Programs are their accounts, with the roles that ship: nothing is refused, and what they say and read is missed without
//! the rights to it. Rights that need no whole upgrade to show are in the tests of crate `node`.

use api::{UpgradePlan, accounts};
use cli::rehearsal::{PREFIX, Rehearsal, beginning};
use clock::Clock;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use manager::rbac::{PROGRAMS, roles_of};
use rstest::rstest;
use serde_json::{Value, json};

use super::{LIMIT, restored};
use crate::run::{Case, in_paused_time, run};
use crate::watched::Watched;

fn user(account: &str) -> String {
    let program = PROGRAMS.into_iter().find(|program| program.account == account).unwrap();
    format!("system:serviceaccount:{}:{PREFIX}{account}", program.namespace)
}

#[test]
fn s06_programs_are_their_accounts_and_need_no_more_than_these_may() {
    for (case, idle) in [
        (restored(), vec![accounts::RANCHER_INSTALLER]),
        (
            Case::single_node(),
            vec![accounts::RANCHER_INSTALLER, accounts::VM_RESTORE],
        ),
    ] {
        let requests = run(&case).requests;
        for program in PROGRAMS {
            let user = user(program.account);
            assert_eq!(
                requests.forbidden_by_user.get(&user),
                None,
                "{user}: some of it was forbidden"
            );
            let is_idle = !requests.writes_by_user.contains_key(&user);
            // Helm is played by the world.
            assert_eq!(is_idle, idle.contains(&program.account), "{user}");
        }
    }
}

/// Takes away what an account may do to a resource.
async fn take_away(rehearsal: &Rehearsal, account: &str, resource: &str) {
    let program = PROGRAMS.into_iter().find(|program| program.account == account).unwrap();
    let mut taken = 0;
    for role in roles_of(PREFIX, &program) {
        let mut rules = role["rules"].as_array().unwrap().clone();
        let before = rules.len();
        let is_it = |rule: &Value| rule["resources"].as_array().unwrap().contains(&json!(resource));
        rules.retain(|rule| !is_it(rule));
        taken += before - rules.len();
        let kind = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", role["kind"].as_str().unwrap());
        let (kind, client) = (ApiResource::from_gvk(&kind), rehearsal.server.client());
        let api: Api<DynamicObject> = match role["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(client, namespace, &kind),
            None => Api::all_with(client, &kind),
        };
        let name = role["metadata"]["name"].as_str().unwrap();
        let patch = Patch::Merge(json!({"rules": rules}));
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
    assert_eq!(taken, 1, "{account} has no right to {resource}");
}

/// Whether a plan comes to a point, with or without a right of an account.
fn comes_to(without: Option<(&str, &str)>, point: impl Fn(&UpgradePlan) -> bool) -> bool {
    in_paused_time(async {
        let mut case = Case::unhurried();
        case.scenario.shape.vms = 12;
        let rehearsal = Watched::start(case.scenario, Clock::simulated(beginning(), 1.0)).await;
        if let Some((account, resource)) = without {
            take_away(&rehearsal, account, resource).await;
        }
        let _manager = rehearsal.start_manager("manager-1");
        let plan = rehearsal.create(&rehearsal.plan(true, &[])).await.unwrap();
        let name = plan.name_any();
        let reached = rehearsal.follow(&name, Some(LIMIT), |plan| {
            point(plan) || plan.phase().is_some_and(api::Phase::is_terminal)
        });
        reached.await.is_some_and(|plan| point(&plan))
    })
}

/// What is waited for, by its kind or a word of its message.
fn waits_for(word: &'static str) -> impl Fn(&UpgradePlan) -> bool {
    move |plan| {
        let mut waits = plan.status.iter().flat_map(|status| &status.waiting_for);
        waits.any(|wait| wait.what == word || wait.message.as_ref().is_some_and(|text| text.contains(word)))
    }
}

#[rstest]
#[case::cluster(accounts::CLUSTER_UPGRADE, "HelmRelease")]
#[case::node(accounts::NODE_UPGRADE, "VMEvacuation")]
#[case::restore(accounts::VM_RESTORE, "VMStart")]
#[case::plans(accounts::NODE_PLANS, "importing")]
fn s06_what_a_program_waits_for_is_heard_by_its_right_to_the_status_of_pods(
    #[case] account: &'static str,
    #[case] what: &'static str,
) {
    assert!(comes_to(None, waits_for(what)), "{what} is never waited for");
    assert!(
        !comes_to(Some((account, "pods/status")), waits_for(what)),
        "{what} is heard without the right"
    );
}

#[test]
fn s06_images_are_not_preloaded_by_who_may_not_read_the_plan() {
    let is_preloaded = |plan: &UpgradePlan| plan.phase() == Some(api::Phase::ImagePreloaded);
    assert!(comes_to(None, is_preloaded));
    assert!(!comes_to(Some((accounts::NODE_PLANS, "upgradeplans")), is_preloaded));
}
