//! Every write of an upgrade, perturbed: the end must be the same.
//!
//! The plain upgrade is swept in every way; the others in one way per write, drawn from a seed that is printed.
//! `SWEEP_SEED=n` draws others; `SWEEP_ONLY=n` perturbs only the n-th write, to look at a failure alone.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use api::{Component, JobType, NodeState, Phase};
use rstest::rstest;
use serde_json::Value;

use crate::{
    failure::{failing_job, old_system},
    in_parallel::in_parallel,
    perturbation::Perturbation,
    run::{Case, Ended, run},
    user::User,
};

/// What of the end must be the same.
#[derive(Clone, Copy)]
enum Same {
    Everything,
    /// Everything, whichever node it was whose images could not be removed: system-upgrade-controller takes the nodes in the
    /// order of a hash of their uids and that of its Plan.
    ButForWhoFailed,
    /// When a plan ends well at last, how it got there shows in its status and in events, and nowhere else.
    TheCluster,
    /// When a person interferes, how far nodes got by then depends on how fast the manager was; what was changed for
    /// the upgrade must be restored nevertheless.
    WhatWasPutBack,
}

/// Parts of an end that do not depend on how far nodes got.
const RESTORED: [&str; 10] = [
    "finalizers",
    "jobs",
    "longhorn",
    "descheduler",
    "kubevirt",
    "chart",
    "plans",
    "deployments",
    "services",
    "images",
];

fn compared(ended: &Ended, same: Same) -> Value {
    match same {
        Same::Everything => ended.digest.clone(),
        Same::ButForWhoFailed => as_if_the_first_had_failed(&ended.digest),
        Same::TheCluster => {
            let parts = ended.digest.as_object().into_iter().flatten();
            parts
                .filter(|(part, _)| !["status", "events"].contains(&part.as_str()))
                .map(|(part, value)| (part.clone(), value.clone()))
                .collect()
        }
        Same::WhatWasPutBack => {
            let parts = RESTORED
                .iter()
                .map(|part| ((*part).to_owned(), ended.digest[part].clone()));
            // Which system a node runs by then is a matter of time; that nothing of ours is left on it is not.
            let nodes = ended.digest["nodes"].as_object().into_iter().flatten();
            let nodes = nodes.flat_map(|(name, node)| {
                let left = |what: &str| (format!("nodes/{name}/{what}"), node[what].clone());
                [left("annotations"), left("labels")]
            });
            parts.chain(nodes).collect()
        }
    }
}

/// An end in which the node whose images could not be removed changes places with the first one, wherever that shows: in
/// what nodes have reached, in why the plan has failed, and in the event that says so.
fn as_if_the_first_had_failed(digest: &Value) -> Value {
    const FIRST: &str = "node-1";
    let mut digest = digest.clone();
    let nodes = digest["status"]["nodeUpgradeStatuses"].as_object();
    let is_it = |node: &Value| node["state"] == NodeState::ImageCleanFailed.as_str();
    let failed: Vec<String> = nodes
        .into_iter()
        .flatten()
        .filter(|(_, node)| is_it(node))
        .map(|(name, _)| name.clone())
        .collect();
    let [failed] = &failed[..] else { return digest };
    let swapped = |text: &str| {
        let parts: Vec<String> = text.split(failed).map(|part| part.replace(FIRST, failed)).collect();
        parts.join(FIRST)
    };
    let status = &mut digest["status"];
    if let Some(nodes) = status["nodeUpgradeStatuses"].as_object_mut() {
        let renamed = std::mem::take(nodes)
            .into_iter()
            .map(|(name, node)| (swapped(&name), node));
        *nodes = renamed.collect();
    }
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["message"] = swapped(condition["message"].as_str().unwrap_or_default()).into();
    }
    for change in status["phaseTransitionTimestamps"].as_array_mut().into_iter().flatten() {
        if let Some(message) = change["message"].as_str().map(swapped) {
            change["message"] = message.into();
        }
    }
    let is_about_it = |event: &&mut Value| {
        event
            .as_str()
            .is_some_and(|text| text.contains(Component::ImageCleanup.as_str()))
    };
    let events = digest["events"].as_array_mut();
    for event in events.into_iter().flatten().filter(is_about_it) {
        *event = swapped(event.as_str().unwrap_or_default()).into();
    }
    if let Some(events) = digest["events"].as_array_mut() {
        events.sort_by_key(ToString::to_string);
    }
    digest
}

/// How many perturbed runs all sweeps of this process have done.
static RUNS: AtomicU64 = AtomicU64::new(0);

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs a case once for every write of its clean run, or every `stride`-th, perturbed as `how` says, and compares the
/// ends.
fn sweep(case: &Case, same: Same, stride: usize, how: impl Fn(u64) -> Perturbation + Sync) {
    let only = number_of("SWEEP_ONLY");
    let clean = run(case);
    assert_eq!(clean.violations, [""; 0]);
    let numbers = (1..=clean.writes.len() as u64).step_by(stride);
    let numbers: Vec<u64> = numbers
        .filter(|number| only.is_none_or(|only| only == *number))
        .collect();
    let failures = in_parallel(&numbers, |number| {
        let (number, perturbation) = (*number, how(*number));
        let perturbed = Case {
            perturbed: Some((number, perturbation)),
            ..case.clone()
        };
        let write = &clean.writes[usize::try_from(number - 1).unwrap()];
        let what = format!("write {number} ({write}) × {perturbation:?}");
        let Ok(ended) = std::panic::catch_unwind(|| run(&perturbed)) else {
            return Some(format!("{what}: did not end"));
        };
        if !ended.violations.is_empty() {
            return Some(format!("{what}: {:?}", ended.violations));
        }
        let differences = difference("", &compared(&clean, same), &compared(&ended, same));
        (!differences.is_empty()).then(|| format!("{what}: {}", differences.join("; ")))
    });
    let runs = numbers.len() as u64;
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    let so_far = RUNS.fetch_add(runs, Ordering::SeqCst) + runs;
    println!(
        "{runs} perturbed runs of {} writes, {so_far} in all sweeps so far",
        clean.writes.len()
    );
    assert!(
        failures.is_empty(),
        "{} of {runs} runs ended otherwise:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// One perturbation per write, drawn from a seed.
fn sweep_drawn(case: &Case, same: Same, stride: usize) {
    let seed = number_of("SWEEP_SEED").unwrap_or(1);
    println!("SWEEP_SEED={seed}");
    sweep(case, same, stride, |number| {
        let mut draw = fastrand::Rng::with_seed(seed ^ (number << 32));
        Perturbation::ALL[draw.usize(..Perturbation::ALL.len())]
    });
}

/// Where two values differ.
pub(crate) fn difference(path: &str, left: &Value, right: &Value) -> Vec<String> {
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            let at = |map: &serde_json::Map<String, Value>, key: &str| map.get(key).cloned().unwrap_or_default();
            keys.iter()
                .flat_map(|key| difference(&format!("{path}/{key}"), &at(a, key), &at(b, key)))
                .collect()
        }
        (left, right) if left == right => Vec::new(),
        (left, right) => vec![format!("{path}: {left} became {right}")],
    }
}

#[rstest]
#[case(Perturbation::Crash, 1)]
#[case(Perturbation::LostReply, 1)]
#[case(Perturbation::Conflict, 1)]
#[case(Perturbation::Unavailable, 1)]
#[case(Perturbation::CrashIntoThePast, 2)]
#[case(Perturbation::Deaf, 2)]
#[case(Perturbation::Overlap, 2)]
fn whatever_happens_to_any_write_the_upgrade_ends_the_same(#[case] perturbation: Perturbation, #[case] stride: usize) {
    sweep(&Case::three_nodes(), Same::Everything, stride, |_| perturbation);
}

#[test]
fn whatever_happens_a_single_node_ends_the_same() {
    let mut case = Case::three_nodes();
    case.scenario.shape.nodes = 1;
    sweep_drawn(&case, Same::Everything, 1);
}

#[test]
fn whatever_happens_a_paused_node_ends_the_same() {
    let case = Case {
        pause: vec!["node-2".into()],
        user: vec![User::LetsGo],
        ..Case::three_nodes()
    };
    sweep_drawn(&case, Same::Everything, 2);
}

#[rstest]
#[case::disk(world::Troubles { full_disks: ["node-2".to_owned()].into(), ..world::Troubles::default() })]
#[case::iso(world::Troubles { iso_failures: 100, ..world::Troubles::default() })]
#[case::preload(failing_job(Component::ImagePreload, None))]
#[case::cluster(failing_job(Component::ClusterUpgrade, None))]
#[case::pre_drain(failing_job(Component::NodeUpgrade, Some(JobType::PreDrain)))]
#[case::post_drain(failing_job(Component::NodeUpgrade, Some(JobType::PostDrain)))]
#[case::reboot(old_system())]
fn whatever_happens_a_failure_ends_the_same(#[case] troubles: world::Troubles) {
    let mut case = Case::three_nodes();
    case.scenario.troubles = troubles;
    sweep_drawn(&case, Same::Everything, 1);
}

#[test]
fn whatever_happens_a_failed_cleanup_ends_the_same() {
    let mut case = Case::three_nodes();
    case.scenario.troubles = failing_job(Component::ImageCleanup, None);
    sweep_drawn(&case, Same::ButForWhoFailed, 1);
}

#[rstest]
#[case(Phase::Initializing)]
#[case(Phase::ISODownloading)]
#[case(Phase::RepoCreating)]
#[case(Phase::MetadataPopulating)]
#[case(Phase::ImagePreloading)]
#[case(Phase::ClusterUpgrading)]
#[case(Phase::NodeUpgrading)]
#[case(Phase::CleaningUp)]
fn whatever_happens_a_deletion_puts_everything_back(#[case] phase: Phase) {
    let case = Case {
        user: vec![User::DeletesAt(phase)],
        ..Case::three_nodes()
    };
    sweep_drawn(&case, Same::WhatWasPutBack, 1);
}

#[rstest]
#[case::before_a_drain(NodeState::PreDraining)]
#[case::before_a_reboot(NodeState::PostDraining)]
fn whatever_happens_a_deletion_between_nodes_keeps_ranchers_gate_closed(#[case] state: NodeState) {
    let case = Case {
        user: vec![User::DeletesAtNode("node-2", state)],
        ..Case::three_nodes()
    };
    sweep_drawn(&case, Same::WhatWasPutBack, 2);
}

/// An attacker creates look-alikes of all objects of the plan, before it does.
#[rstest]
#[case::several_nodes(Case::three_nodes())]
#[case::one_node(Case::single_node())]
#[case::vms_to_start_again(Case { restore_vm: true, ..Case::three_nodes() })]
fn s01_whatever_happens_with_a_saboteur_the_upgrade_ends_the_same(#[case] mut case: Case) {
    case.scenario.troubles.saboteur = true;
    sweep_drawn(&case, Same::Everything, 3);
}

#[test]
fn s01_whatever_happens_with_a_saboteur_a_plan_that_is_tried_again_succeeds() {
    let mut case = Case {
        user: vec![User::FixesAndRetries],
        ..Case::three_nodes()
    };
    case.scenario.troubles = failing_job(Component::NodeUpgrade, Some(JobType::PreDrain));
    case.scenario.troubles.saboteur = true;
    sweep_drawn(&case, Same::TheCluster, 3);
}

#[test]
fn whatever_happens_two_plans_end_the_same() {
    let case = Case {
        user: vec![User::CreatesAnother(Duration::ZERO)],
        ..Case::three_nodes()
    };
    sweep_drawn(&case, Same::TheCluster, 2);
}

#[test]
fn whatever_happens_stopped_vms_run_again() {
    let mut case = Case {
        restore_vm: true,
        ..Case::three_nodes()
    };
    case.scenario.shape.vms = 6;
    sweep_drawn(&case, Same::Everything, 1);
}

#[test]
fn whatever_happens_a_plan_that_is_tried_again_succeeds() {
    let mut case = Case {
        user: vec![User::FixesAndRetries],
        ..Case::three_nodes()
    };
    case.scenario.troubles = failing_job(Component::NodeUpgrade, Some(JobType::PreDrain));
    sweep_drawn(&case, Same::TheCluster, 1);
}
