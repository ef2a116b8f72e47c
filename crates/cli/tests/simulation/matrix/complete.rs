//! The table of failures is complete: every phase, every kind of Job, every state of a node, everything that the simulated
//! cluster can do wrong has its cases. What is added to one of these without a case fails here, or does not compile.

use std::collections::BTreeSet;

use api::{JobKind, NodeState, Phase};
use plan::{node::is_failure, pipeline::PIPELINE};
use world::{
    Troubles,
    troubles::{JobFailure, MigrationTrouble, RebootTrouble, RepositoryTrouble},
};

use super::{
    deletions::is_reached,
    failure::{Cluster, Failure, Stop},
    failures,
    jobs::{is_per_node, kind_of, runs_on},
    ways::Way,
};

/// How a Job goes wrong, whatever the numbers and steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FailureMode {
    Fails,
    Dies,
    Hangs,
    NoImage,
}

const fn failure_mode(failure: JobFailure) -> FailureMode {
    match failure {
        JobFailure::Fails(_) => FailureMode::Fails,
        JobFailure::DiesAt(_) => FailureMode::Dies,
        JobFailure::Hangs => FailureMode::Hangs,
        JobFailure::ImagePullBackOff => FailureMode::NoImage,
    }
}

/// The Jobs that go wrong in the table: where, which, on which node, how.
fn jobs(all: &[Failure]) -> BTreeSet<(&'static str, JobKind, Option<String>, FailureMode)> {
    let jobs = all.iter().flat_map(|failure| {
        let on = failure.cluster.name();
        let jobs = failure.troubles().jobs.into_iter();
        jobs.map(move |job| (on, kind_of(&job), job.node.clone(), failure_mode(job.failure)))
    });
    jobs.collect()
}

#[test]
fn every_kind_of_job_fails_on_every_node_and_hangs_and_does_not_get_its_image() {
    let all = failures::all();
    let jobs = jobs(&all);
    let mut missing = Vec::new();
    for on in [Cluster::Three, Cluster::One] {
        for kind in JobKind::ALL.into_iter().filter(|kind| runs_on(*kind, on)) {
            let nodes: Vec<Option<String>> = if is_per_node(kind) {
                on.nodes().iter().map(|node| Some((*node).to_owned())).collect()
            } else {
                vec![None]
            };
            let has = |node: &Option<String>, how| jobs.contains(&(on.name(), kind, node.clone(), how));
            let fails = nodes.iter().filter(|node| !has(node, FailureMode::Fails));
            missing.extend(fails.map(|node| format!("{on}: {kind:?} fails on {node:?}")));
            for how in [FailureMode::Hangs, FailureMode::NoImage] {
                if !nodes.iter().any(|node| has(node, how)) {
                    missing.push(format!("{on}: {kind:?}: {how:?}"));
                }
            }
        }
    }
    assert_eq!(missing, [""; 0], "these have no case");
}

#[test]
fn every_phase_fails_and_is_deleted_in() {
    let all = failures::all();
    let stops = |failure: &&Failure| ![Way::WARNED, Way::STOPPED_VMS].contains(&failure.ways());
    let failing: BTreeSet<Phase> = all.iter().filter(stops).filter_map(Failure::phase).collect();
    let without = PIPELINE.iter().filter(|entry| !failing.contains(&entry.active));
    let without: Vec<&str> = without.map(|entry| entry.name).collect();
    assert_eq!(without, [""; 0], "nothing fails in these");
    let deleted = |phase: &Phase| {
        let mut all = all.iter();
        all.any(|failure| matches!(failure.stop, Stop::DeletedAt(at) if at == *phase))
    };
    let phases = Phase::ALL.into_iter().filter(|phase| !phase.is_terminal());
    let without: Vec<Phase> = phases.filter(|phase| !deleted(phase)).collect();
    assert_eq!(without, [], "no plan is deleted in these");
}

#[test]
fn every_state_of_every_node_is_deleted_in_or_comes_of_a_job_that_fails() {
    let all = failures::all();
    let jobs = jobs(&all);
    let mut missing = Vec::new();
    for state in NodeState::ALL {
        let mut reached = false;
        for on in [Cluster::Three, Cluster::One]
            .into_iter()
            .filter(|on| is_reached(state, *on))
        {
            reached = true;
            for node in on.nodes() {
                let is_it = |failure: &Failure| {
                    failure.cluster == on
                        && matches!(&failure.stop, Stop::DeletedAtNode(at, it) if at == node && *it == state)
                };
                if !all.iter().any(is_it) {
                    missing.push(format!("{on}: deleted while {node} is {state}"));
                }
            }
        }
        assert_eq!(
            reached,
            !is_failure(state),
            "{state} is a state of a plan that runs, or one of failure"
        );
    }
    for (kind, on) in [
        (JobKind::ImagePreload, Cluster::Three),
        (JobKind::PreDrain, Cluster::Three),
        (JobKind::PostDrain, Cluster::Three),
        (JobKind::SingleNodeUpgrade, Cluster::One),
        (JobKind::ImageCleanup, Cluster::Three),
    ] {
        let is_it = |job: &(&'static str, JobKind, Option<String>, FailureMode)| {
            job.0 == on.name() && job.1 == kind && job.3 == FailureMode::Fails
        };
        assert!(jobs.iter().any(is_it), "{on}: {kind:?} fails");
    }
    assert_eq!(missing, [""; 0], "these have no case");
}

/// Everything that a table of troubles does wrong, in words. Every field is named, so that none that is added is forgotten.
fn words(troubles: &Troubles) -> Vec<String> {
    let Troubles {
        jobs,
        iso_failures,
        scratch_pending,
        reboots,
        // Pods that stay when they are deleted, and look-alikes of our objects, must be distinguished from what is ours and has
        // ended (`stopping`, `trust`): neither makes an upgrade fail.
        stuck_kubelets: _,
        saboteur: _,
        migrations,
        vms_that_do_not_start,
        late_kubelets,
        drain_taint_is_taken_away,
        failed_machine_plans,
        unhealthy_machines,
        stuck_charts,
        blocked_drains,
        repository,
        full_disks,
        certificate_days,
    } = troubles;
    let mut words: Vec<String> = jobs
        .iter()
        .map(|job| format!("{:?}", failure_mode(job.failure)))
        .collect();
    for (is_there, word) in [
        (*iso_failures > 0, "ISO"),
        (*scratch_pending, "scratch claim"),
        (!vms_that_do_not_start.is_empty(), "VM does not start"),
        (!late_kubelets.is_empty(), "late kubelet"),
        (*drain_taint_is_taken_away, "taint is taken away"),
        (!failed_machine_plans.is_empty(), "failed machine plan"),
        (!unhealthy_machines.is_empty(), "failing probes"),
        (!stuck_charts.is_empty(), "stuck chart"),
        (!blocked_drains.is_empty(), "blocked drain"),
        (!full_disks.is_empty(), "full disk"),
        (certificate_days.is_some(), "certificates"),
    ] {
        words.extend(is_there.then(|| word.to_owned()));
    }
    words.extend(reboots.iter().map(|(node, trouble)| format!("{trouble:?} of {node}")));
    let migrations = migrations.values().map(|trouble| match trouble {
        MigrationTrouble::Fails(_) => "migration fails".to_owned(),
        MigrationTrouble::Stuck => "migration is stuck".to_owned(),
    });
    words.extend(migrations);
    words.extend(repository.map(|trouble| format!("repository {trouble:?}")));
    words
}

#[test]
fn everything_that_the_simulated_cluster_can_do_wrong_has_a_case() {
    let all = failures::all();
    let played = |on: Cluster| -> BTreeSet<String> {
        let failures = all.iter().filter(|failure| failure.cluster == on);
        failures.flat_map(|failure| words(&failure.troubles())).collect()
    };
    let mut wanted: Vec<(Cluster, String)> = [
        "Fails",
        "Dies",
        "Hangs",
        "NoImage",
        "ISO",
        "scratch claim",
        "VM does not start",
        "late kubelet",
        "taint is taken away",
        "failed machine plan",
        "failing probes",
        "stuck chart",
        "blocked drain",
        "full disk",
        "certificates",
        "migration fails",
        "migration is stuck",
    ]
    .map(|word| (Cluster::Three, word.to_owned()))
    .into();
    let repository = RepositoryTrouble::ALL.map(|trouble| (Cluster::Three, format!("repository {trouble:?}")));
    wanted.extend(repository);
    for trouble in RebootTrouble::ALL {
        for on in [Cluster::Three, Cluster::One] {
            wanted.extend(on.nodes().iter().map(|node| (on, format!("{trouble:?} of {node}"))));
        }
    }
    let missing: Vec<String> = wanted
        .into_iter()
        .filter(|(on, word)| !played(*on).contains(word))
        .map(|(on, word)| format!("{on}: {word}"))
        .collect();
    assert_eq!(missing, [""; 0], "these have no case");
}
