//! The table of failures: where an upgrade can stop, and how.

use std::collections::BTreeSet;

use api::{
    NodeState, Phase,
    labels::{component, job_type},
};
use node::{limits::Limits, step::Step};
use world::{
    Troubles,
    troubles::{JobFailure, JobTrouble, MigrationTrouble, RebootTrouble, RepositoryTrouble},
};

use super::{
    failure::{Cluster, Failure, Stop},
    ways::Way,
};

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

fn job(component: &str, job_type: Option<&str>, node: Option<&str>, failure: JobFailure) -> Troubles {
    let trouble = JobTrouble {
        component: component.to_owned(),
        job_type: job_type.map(str::to_owned),
        node: node.map(str::to_owned),
        failure,
    };
    Troubles {
        jobs: vec![trouble],
        ..Troubles::default()
    }
}

/// Fails as often as anybody tries.
const FAILS: JobFailure = JobFailure::Fails(u32::MAX);

/// Each name once: a step that comes twice is the same step.
fn step_names<C>(steps: &[Step<C>]) -> BTreeSet<&'static str> {
    steps.iter().map(|step| step.name).collect()
}

/// Before anything is changed: checks, the ISO, the repository, images.
pub(super) fn before_the_cluster() -> Vec<Failure> {
    let on = Cluster::Three;
    let repository = |trouble| Troubles {
        repository: Some(trouble),
        ..Troubles::default()
    };
    let full_disk = Troubles {
        full_disks: ["node-2".to_owned()].into(),
        ..Troubles::default()
    };
    let certificates = Troubles {
        certificate_days: Some(3),
        ..Troubles::default()
    };
    let iso = Troubles {
        iso_failures: 100,
        ..Troubles::default()
    };
    let mut failures = vec![
        Failure::new(on, "a full disk", full_disk),
        Failure::new(on, "certificates that expire", certificates),
        Failure::new(on, "the ISO cannot be imported", iso),
        Failure::new(
            on,
            "the repository never gets ready",
            repository(RepositoryTrouble::NeverReady),
        )
        .with(Way::STALLED),
        Failure::new(
            on,
            "the repository cannot be reached",
            repository(RepositoryTrouble::Unreachable),
        )
        .with(Way::STALLED),
        Failure::new(
            on,
            "empty lists of images",
            repository(RepositoryTrouble::EmptyImageLists),
        ),
    ];
    for node in NODES {
        let troubles = job(component::IMAGE_PRELOAD, None, Some(node), FAILS);
        failures.push(Failure::new(on, format!("preload Job of {node}"), troubles));
    }
    let of_node_2 = |how| job(component::IMAGE_PRELOAD, None, Some("node-2"), how);
    let no_image = of_node_2(JobFailure::ImagePullBackOff);
    failures.push(Failure::new(on, "preload Job of node-2 does not get its image", no_image).with(Way::STALLED));
    // Its own deadline ends it.
    failures.push(Failure::new(
        on,
        "preload Job of node-2 hangs",
        of_node_2(JobFailure::Hangs),
    ));
    failures
}

/// The cluster's components: the Job as a whole, each of its steps, and the Jobs that it has run on nodes.
pub(super) fn of_the_cluster() -> Vec<Failure> {
    let on = Cluster::Three;
    let mut failures = vec![
        Failure::new(on, "cluster Job", job(component::CLUSTER_UPGRADE, None, None, FAILS)),
        Failure::new(
            on,
            "cluster Job hangs",
            job(component::CLUSTER_UPGRADE, None, None, JobFailure::Hangs),
        )
        .with(Way::STALLED),
    ];
    for step in step_names(node::cluster::STEPS) {
        let troubles = job(component::CLUSTER_UPGRADE, None, None, JobFailure::DiesAt(step));
        failures.push(Failure::new(on, format!("cluster Job at {step}"), troubles));
    }
    for node in NODES {
        let troubles = job(component::HOLD_AGENT, None, Some(node), FAILS);
        failures.push(Failure::new(on, format!("hold-agents Job of {node}"), troubles));
    }
    let stuck = Troubles {
        stuck_charts: ["harvester".to_owned()].into(),
        ..Troubles::default()
    };
    failures.push(Failure::new(on, "chart harvester never gets ready", stuck));
    failures
}

/// What fails on a node of several, or after them.
pub(super) fn of_nodes() -> Vec<Failure> {
    let on = Cluster::Three;
    let mut failures = Vec::new();
    for node in NODES {
        for (name, component, step) in [
            ("skip-manifests apply", component::SKIP_MANIFESTS_APPLY, None),
            ("pre-drain", component::NODE_UPGRADE, Some(job_type::PRE_DRAIN)),
            ("post-drain", component::NODE_UPGRADE, Some(job_type::POST_DRAIN)),
            ("clean-up", component::IMAGE_CLEANUP, None),
        ] {
            let troubles = job(component, step, Some(node), FAILS);
            failures.push(Failure::new(on, format!("{name} Job of {node}"), troubles));
        }
        for (name, component, step, ways) in [
            (
                "skip-manifests remove",
                component::SKIP_MANIFESTS_REMOVE,
                None,
                Way::WARNED,
            ),
            (
                "restore-vm",
                component::NODE_UPGRADE,
                Some(job_type::RESTORE_VM),
                Way::STOPPED_VMS,
            ),
        ] {
            let troubles = job(component, step, Some(node), FAILS);
            failures.push(Failure::new(on, format!("{name} Job of {node}"), troubles).with(ways));
        }
        failures.extend(reboots(on, node));
        failures.push(
            Failure::new(
                on,
                format!("a pod of {node} may not be evicted"),
                Troubles {
                    blocked_drains: [node.to_owned()].into(),
                    ..Troubles::default()
                },
            )
            .with(Way::STALLED),
        );
    }
    failures
}

fn reboots(on: Cluster, node: &str) -> [Failure; 2] {
    let troubles = |trouble| Troubles {
        reboots: [(node.to_owned(), trouble)].into(),
        ..Troubles::default()
    };
    [
        Failure::new(
            on,
            format!("{node} comes back with the old system"),
            troubles(RebootTrouble::OldSystem),
        ),
        Failure::new(
            on,
            format!("{node} never comes back and is repaired"),
            troubles(RebootTrouble::NeverReturns),
        )
        .with(Way::STALLED),
    ]
}

/// Each step of the programs that change a node.
pub(super) fn of_steps() -> Vec<Failure> {
    let limits = Limits::default();
    let programs = [
        (job_type::PRE_DRAIN, step_names(&node::pre_drain::steps(&limits))),
        (job_type::POST_DRAIN, step_names(&node::post_drain::steps(&limits))),
    ];
    let mut failures = Vec::new();
    for (program, steps) in programs {
        for step in steps {
            let how = JobFailure::DiesAt(step);
            let troubles = job(component::NODE_UPGRADE, Some(program), Some("node-2"), how);
            failures.push(Failure::new(
                Cluster::Three,
                format!("{program} Job of node-2 at {step}"),
                troubles,
            ));
        }
        let troubles = job(
            component::NODE_UPGRADE,
            Some(program),
            Some("node-2"),
            JobFailure::Hangs,
        );
        failures
            .push(Failure::new(Cluster::Three, format!("{program} Job of node-2 hangs"), troubles).with(Way::STALLED));
    }
    let stuck = Troubles {
        migrations: [("default/web-1".to_owned(), MigrationTrouble::Stuck)].into(),
        ..Troubles::default()
    };
    // Nothing is stopped unasked, so it is waited for, and the plan says that it is stalled.
    failures.push(Failure::new(Cluster::Three, "a VM that does not leave node-1", stuck).with(Way::STALLED));
    failures
}

/// A cluster of one node.
pub(super) fn of_a_single_node() -> Vec<Failure> {
    let on = Cluster::One;
    let single = Some(job_type::SINGLE_NODE_UPGRADE);
    let mut failures = vec![
        Failure::new(on, "preload Job", job(component::IMAGE_PRELOAD, None, None, FAILS)),
        Failure::new(on, "cluster Job", job(component::CLUSTER_UPGRADE, None, None, FAILS)),
        Failure::new(on, "hold-agents Job", job(component::HOLD_AGENT, None, None, FAILS)),
        Failure::new(on, "single-node Job", job(component::NODE_UPGRADE, single, None, FAILS)),
        Failure::new(
            on,
            "single-node Job hangs",
            job(component::NODE_UPGRADE, single, None, JobFailure::Hangs),
        )
        .with(Way::STALLED),
        Failure::new(on, "clean-up Job", job(component::IMAGE_CLEANUP, None, None, FAILS)),
        Failure::new(
            on,
            "restore-vm Job",
            job(component::NODE_UPGRADE, Some(job_type::RESTORE_VM), None, FAILS),
        )
        .with(Way::STOPPED_VMS),
    ];
    for step in step_names(&node::single_node::steps(&Limits::default())) {
        let troubles = job(component::NODE_UPGRADE, single, None, JobFailure::DiesAt(step));
        failures.push(Failure::new(on, format!("single-node Job at {step}"), troubles));
    }
    failures.extend(reboots(on, "node-1"));
    failures
}

/// Two nodes of the control plane, a witness and a worker: what fails on the last two.
pub(super) fn of_a_mixed_cluster() -> Vec<Failure> {
    let on = Cluster::Mixed;
    let mut failures = Vec::new();
    for (node, who) in [("node-3", "the witness"), ("node-4", "the worker")] {
        for program in [job_type::PRE_DRAIN, job_type::POST_DRAIN] {
            let troubles = job(component::NODE_UPGRADE, Some(program), Some(node), FAILS);
            failures.push(Failure::new(on, format!("{program} Job of {who}"), troubles));
        }
        failures.extend(reboots(on, node));
    }
    failures
}

/// A plan that somebody deletes while it runs: in each phase, and in each state of each node.
pub(super) fn deletions() -> Vec<Failure> {
    let phases = Phase::ALL.into_iter().filter(|phase| !phase.is_terminal());
    let mut failures: Vec<Failure> = phases
        .map(|phase| Failure {
            name: format!("deleted in {phase}"),
            cluster: Cluster::Three,
            stop: Stop::DeletedAt(phase),
        })
        .collect();
    let single = [
        NodeState::SingleNodeUpgrading,
        NodeState::WaitingReboot,
        NodeState::SingleNodeUpgraded,
        NodeState::ImageCleaning,
    ];
    let several = [
        NodeState::ImagePreloading,
        NodeState::UpgradePaused,
        NodeState::PreDraining,
        NodeState::PreDrained,
        NodeState::PostDraining,
        NodeState::WaitingReboot,
        NodeState::PostDrained,
        NodeState::ImageCleaning,
        NodeState::ImageCleaned,
    ];
    let deleted = |cluster, node: &str, state: NodeState| Failure {
        name: format!("deleted while {node} is {state}"),
        cluster,
        stop: Stop::DeletedAtNode(node.to_owned(), state),
    };
    for node in NODES {
        failures.extend(several.into_iter().map(|state| deleted(Cluster::Three, node, state)));
    }
    failures.extend(single.into_iter().map(|state| deleted(Cluster::One, "node-1", state)));
    failures
}

/// All of them.
pub(super) fn all() -> Vec<Failure> {
    [
        before_the_cluster(),
        of_the_cluster(),
        of_nodes(),
        of_steps(),
        of_a_single_node(),
        of_a_mixed_cluster(),
        deletions(),
    ]
    .concat()
}

/// One of each sort, for those who have no time.
pub(super) fn some() -> Vec<Failure> {
    let wanted = [
        "the ISO cannot be imported",
        "cluster Job",
        "pre-drain Job of node-1",
        "node-2 comes back with the old system",
        "deleted while node-3 is PostDrained",
    ];
    let all = all().into_iter();
    all.filter(|failure| failure.cluster == Cluster::Three && wanted.contains(&failure.name.as_str()))
        .collect()
}
