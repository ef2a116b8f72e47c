//! The roles that ship allow what is needed and nothing more: without any of their rules some scenario breaks, and every
//! verb that they allow is asked for in some scenario.

mod programs;
mod requested_rights;

use std::time::Duration;

use api::{Component, JobType, Phase, UpgradePlan, names, reasons};
use apiserver::Identity;
use checks::admission::{self, Reads};
use cli::rehearsal::{PREFIX, Rehearsal, SERVICE_ACCOUNT, Scenario, beginning};
use clock::Clock;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use manager::{
    metrics::server::Gate,
    rbac::{metrics_reader, objects},
    tls::{
        Presented,
        managed::{Keeper, Managed},
    },
    watched::Watched,
    webhook::{
        configurations::{MUTATING_CONFIGURATION, SERVICE, VALIDATING_CONFIGURATION, service_names},
        facts::Facts,
    },
};
pub(crate) use requested_rights::{RequestedRights, note};
use serde_json::{Value, json};
use world::Shape;

use crate::{
    failure::failing_job,
    run::{Case, Ended, in_paused_time, run, try_run},
    user::User,
    watched,
};

/// Longer than any of these scenarios takes.
const LIMIT: Duration = Duration::from_hours(5);
/// Rules that the embedded API cannot show to be needed, and where that is shown.
const SHOWN_ELSEWHERE: [(&str, &str); 2] = [
    (
        "upgradeplans/finalizers",
        "crates/testbed: an owner that blocks deletion, on a real API server that insists on permission for that",
    ),
    (
        "serviceaccounts/token",
        "crates/testbed: a token for kubelets, which are played over real TLS",
    ),
];

/// Verbs that none of these scenarios needs, and where that they are needed is shown.
const ASKED_ELSEWHERE: [(&str, &str, &str); 1] = [(
    "kubevirts",
    "patch",
    "charts::r02_an_upgrade_succeeds_though_earlier_ones_left_their_names_on_kubevirts_methods",
)];

/// A name, and how to make the case.
type Tried = (&'static str, fn() -> Case);

/// What is tried without a rule.
const SCENARIOS: [Tried; 7] = [
    ("three nodes", Case::three_nodes),
    ("a single node", Case::single_node),
    ("a failed node, tried again", failure),
    ("a failed preload, tried again", failed_preload),
    ("a paused node", Case::paused),
    ("a deletion", deletion),
    ("VMs that start again", restored),
];

fn failure() -> Case {
    let mut case = Case {
        user: vec![User::FixesAndRetries],
        ..Case::three_nodes()
    };
    case.scenario.troubles = failing_job(Component::NodeUpgrade, Some(JobType::PreDrain));
    case
}

fn failed_preload() -> Case {
    let mut case = Case {
        user: vec![User::SeesJobOfGonePlan, User::FixesAndRetries],
        ..Case::three_nodes()
    };
    case.scenario.troubles = failing_job(Component::ImagePreload, None);
    case
}

fn deletion() -> Case {
    Case {
        user: vec![User::DeletesAt(Phase::ClusterUpgraded)],
        ..Case::three_nodes()
    }
}

fn restored() -> Case {
    let mut case = Case {
        restore_vm: true,
        ..Case::three_nodes()
    };
    case.scenario.shape.vms = 12;
    case
}

/// All roles that ship.
fn roles() -> Vec<Value> {
    let all = objects(PREFIX, names::HARVESTER_NAMESPACE, SERVICE_ACCOUNT);
    all.into_iter().filter(|object| object["rules"].is_array()).collect()
}

/// Takes a rule out of a role, and the same rule out of every other role of that namespace: where two roles allow a thing,
/// each of them could be done without.
pub(crate) async fn take_away(rehearsal: &Rehearsal, name: &str, rule: usize) {
    let all = roles();
    let role = all.iter().find(|role| role["metadata"]["name"] == name).unwrap();
    let (kind, namespace, taken) = (&role["kind"], &role["metadata"]["namespace"], &role["rules"][rule]);
    let kind_of = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind.as_str().unwrap());
    let (resource, client) = (ApiResource::from_gvk(&kind_of), rehearsal.server.client());
    let api: Api<DynamicObject> = match namespace.as_str() {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    for role in &all {
        let rules = role["rules"].as_array().unwrap();
        let is_there = role["kind"] == *kind && role["metadata"]["namespace"] == *namespace;
        if !is_there || !rules.contains(taken) {
            continue;
        }
        let rest: Vec<&Value> = rules.iter().filter(|rule| *rule != taken).collect();
        let patch = Patch::Merge(json!({"rules": rest}));
        let name = role["metadata"]["name"].as_str().unwrap();
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// What those who watch over the manager do: read its metrics.
async fn read_metrics(rehearsal: &Rehearsal, client: kube::Client) -> Result<(), String> {
    let reader = Identity::service_account("monitoring", "prometheus");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reads"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("{PREFIX}metrics-reader")},
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}],
    });
    for object in [metrics_reader(PREFIX), binding] {
        create(rehearsal, object).await;
    }
    let mut headers = http::HeaderMap::new();
    let token = format!("Bearer {}", rehearsal.server.token_for(&reader));
    headers.insert(http::header::AUTHORIZATION, token.parse().unwrap());
    let admitted = Gate::new(client, rehearsal.clock.clone()).admit(&headers).await;
    admitted.map_err(|(code, why)| format!("{code}: {why}"))
}

async fn create(rehearsal: &Rehearsal, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
    let api: Api<DynamicObject> = Api::all_with(rehearsal.server.client(), &ApiResource::from_gvk(&kind));
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// What a manager's servers do. The webhook makes and renews its certificate, lets the API server trust it, and looks at
/// the cluster; metrics are shown to whom the cluster lets read them.
fn served(without: Option<&(String, usize)>, watch: impl Fn(&Rehearsal)) -> Result<(), String> {
    in_paused_time(async {
        let clock = Clock::simulated(beginning(), 1.0);
        let scenario = Scenario {
            shape: Shape {
                vms: 0,
                ..Shape::default()
            },
            definitions: crate::run::definitions(),
            ..Scenario::default()
        };
        let rehearsal = watched::Watched::start(scenario, clock.clone()).await;
        let namespace = names::HARVESTER_NAMESPACE;
        if let Some((role, rule)) = without {
            take_away(&rehearsal, role, *rule).await;
        }
        watch(&rehearsal);
        let client = rehearsal
            .server
            .client_as(Identity::service_account(namespace, SERVICE_ACCOUNT));
        let managed = Managed {
            namespace: namespace.to_owned(),
            names: service_names(&format!("{PREFIX}{SERVICE}"), namespace),
            mutating: format!("{PREFIX}{MUTATING_CONFIGURATION}"),
            validating: format!("{PREFIX}{VALIDATING_CONFIGURATION}"),
        };
        // When it is made, and when it is due.
        for days in [0, 61] {
            let at = beginning().saturating_add(Duration::from_hours(24 * days)).unwrap();
            let clock = Clock::simulated(at, 1.0);
            let keeper = Keeper::new(client.clone(), clock, managed.clone(), Presented::default());
            keeper.look().await.map_err(|error| error.to_string())?;
        }
        read_metrics(&rehearsal, client.clone()).await?;
        let facts = Facts::new(client, Watched::default(), clock);
        let cluster = facts.read(Reads::Everything).await;
        let errors = admission::create(&rehearsal.plan(false, &[]), &cluster);
        match errors.first() {
            Some(error) => Err(format!("{error:?}")),
            None => Ok(()),
        }
    })
}

/// Whether a plan comes to say something in a scenario.
fn says(scenario: Scenario, without: Option<&(String, usize)>, test: impl Fn(&UpgradePlan) -> bool) -> bool {
    in_paused_time(async {
        let scenario = Scenario {
            definitions: crate::run::definitions(),
            ..scenario
        };
        let clock = Clock::simulated(beginning(), 1.0);
        let rehearsal = watched::Watched::start(scenario, clock).await;
        if let Some((role, rule)) = without {
            take_away(&rehearsal, role, *rule).await;
        }
        let _manager = rehearsal.start_manager("manager-1");
        let Ok(plan) = rehearsal.create_unchecked(rehearsal.plan(false, &[])).await else {
            return false;
        };
        rehearsal.follow(&plan.name_any(), Some(LIMIT), test).await.is_some()
    })
}

/// A drain that a budget blocks does not end; what is waited for names the budget.
fn drain_is_explained(without: Option<&(String, usize)>) -> bool {
    let mut scenario = Scenario::default();
    scenario.shape.vms = 0;
    scenario.troubles.blocked_drains.insert("node-1".to_owned());
    says(scenario, without, |plan| {
        let progressing = plan.condition(reasons::PROGRESSING);
        progressing.is_some_and(|condition| condition.message.contains("is kept by PodDisruptionBudget"))
    })
}

/// What a program of a node's Job waits for is reported on its pod.
fn programs_are_heard(without: Option<&(String, usize)>) -> bool {
    let mut scenario = Case::unhurried().scenario;
    scenario.shape.vms = 6;
    says(scenario, without, |plan| {
        let mut waits = plan.status.iter().flat_map(|status| &status.waiting_for);
        waits.any(|wait| wait.what == "VMEvacuation")
    })
}

fn rule_text(rule: &Value) -> String {
    let words = |field: &str| {
        let words = rule[field].as_array().into_iter().flatten();
        words.filter_map(Value::as_str).collect::<Vec<_>>().join(",")
    };
    format!("{} {} {}", words("apiGroups"), words("resources"), words("verbs"))
}

/// Dozens of simulated upgrades, so with the other sweeps.
mod sweep {
    use super::*;

    #[test]
    fn without_any_rule_of_the_roles_that_ship_some_scenario_breaks() {
        let clean: Vec<Value> = SCENARIOS.iter().map(|(_, case)| run(&case()).digest).collect();
        served(None, |_| ()).unwrap();
        assert!(drain_is_explained(None) && programs_are_heard(None));
        let breaks = |without: &(String, usize)| -> Option<&str> {
            let scenario = |index: usize| {
                let (name, case) = SCENARIOS[index];
                let case = Case {
                    without_rule: Some(without.clone()),
                    limit: Some(LIMIT),
                    ..case()
                };
                let as_ever = try_run(&case).is_ok_and(|ended: Ended| ended.digest == clean[index]);
                (!as_ever).then_some(name)
            };
            scenario(0)
                .or_else(|| served(Some(without), |_| ()).is_err().then_some("webhook and metrics"))
                .or_else(|| (1..SCENARIOS.len()).find_map(scenario))
                .or_else(|| (!drain_is_explained(Some(without))).then_some("a drain that a budget blocks"))
                .or_else(|| (!programs_are_heard(Some(without))).then_some("what programs wait for"))
        };
        let mut unneeded = Vec::new();
        for role in roles() {
            let name = role["metadata"]["name"].as_str().unwrap();
            for (index, rule) in role["rules"].as_array().unwrap().iter().enumerate() {
                let text = rule_text(rule);
                if let Some((_, place)) = SHOWN_ELSEWHERE.iter().find(|(resource, _)| text.contains(resource)) {
                    println!("{name}: {text}: {place}");
                    continue;
                }
                match breaks(&(name.to_owned(), index)) {
                    Some(scenario) => println!("{name}: {text}: {scenario}"),
                    None => unneeded.push(format!("{name}: {text}")),
                }
            }
        }
        assert!(unneeded.is_empty(), "nothing breaks without: {unneeded:#?}");
    }
}

#[test]
fn every_verb_that_the_roles_allow_is_requested() {
    let asked = RequestedRights::default();
    for (_, case) in SCENARIOS {
        run(&Case {
            asked: Some(asked.clone()),
            ..case()
        });
    }
    served(None, |rehearsal| note(rehearsal, &asked)).unwrap();
    let asked = asked.lock().unwrap();
    let mut idle = Vec::new();
    for role in roles() {
        for rule in role["rules"].as_array().unwrap() {
            let words = |field: &str| -> Vec<String> { serde_json::from_value(rule[field].clone()).unwrap() };
            for resource in words("resources") {
                for verb in words("verbs") {
                    // Reviews store nothing that could be noted; that they are needed is shown without their rules.
                    let shown = resource.ends_with("reviews")
                        || SHOWN_ELSEWHERE.iter().any(|(known, _)| *known == resource)
                        || ASKED_ELSEWHERE
                            .iter()
                            .any(|(known, its, _)| *known == resource && *its == verb);
                    if !shown && !asked.iter().any(|one| one.is_of(&role, rule, &resource, &verb)) {
                        idle.push(format!("{}: {resource} {verb}", role["metadata"]["name"]));
                    }
                }
            }
        }
    }
    assert!(idle.is_empty(), "allowed and never asked for: {idle:#?}");
}
