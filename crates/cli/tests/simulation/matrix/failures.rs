//! The table of failures: where an upgrade can stop, and how.

use std::{collections::BTreeSet, time::Duration};

use api::{JobKind, NodeState, Phase};
use node::limits::Limits;
use program::step::Step;
use world::{
    Troubles,
    troubles::{MigrationTrouble, RebootTrouble, RepositoryTrouble},
};

use super::{
    deletions,
    failure::{Cluster, Failure},
    jobs::{self, runs_on},
    ways::Way,
};

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
    let scratch = Troubles {
        scratch_pending: true,
        ..Troubles::default()
    };
    let mut failures = vec![
        Failure::new(on, "the scratch claim of the importer is pending", scratch).with(Way::STALLED),
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
        )
        .with(Way::ANOTHER_ISO),
        Failure::new(
            on,
            "an ISO that is not the Version's",
            repository(RepositoryTrouble::AnotherIso),
        ),
        Failure::new(
            on,
            "a release that is not the ISO's",
            repository(RepositoryTrouble::SwappedRelease),
        )
        .with(Way::STALLED),
        Failure::new(
            on,
            "a manifest without the operating system",
            repository(RepositoryTrouble::ReplayedManifest),
        ),
        Failure::new(
            on,
            "somebody else answers for the repository",
            repository(RepositoryTrouble::Impostor),
        )
        .with(Way::STALLED),
    ];
    // Without them nothing is cleaned up, and an event says so.
    let no_lists = repository(RepositoryTrouble::NoImageLists);
    failures.push(Failure::new(on, "no lists of images of releases", no_lists).with(Way::WARNED));
    failures.extend(jobs::all_of(on, JobKind::ImagePreload));
    failures.extend(jobs::all_of(on, JobKind::ImageCheck));
    failures
}

/// The cluster's components: the Job as a whole, each of its steps, and the Jobs that it has run on nodes.
pub(super) fn of_the_cluster() -> Vec<Failure> {
    let on = Cluster::Three;
    let mut failures = jobs::all_of(on, JobKind::ClusterUpgrade);
    for step in step_names(cluster_upgrade::STEPS) {
        failures.push(jobs::at_step(on, JobKind::ClusterUpgrade, None, step));
    }
    failures.extend(jobs::all_of(on, JobKind::SuspendAgent));
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
    let kinds = [
        JobKind::SkipManifestsApply,
        JobKind::PreDrain,
        JobKind::PostDrain,
        JobKind::ImageCleanup,
        JobKind::SkipManifestsRemove,
        JobKind::RestoreVm,
    ];
    let mut failures: Vec<Failure> = kinds.into_iter().flat_map(|kind| jobs::all_of(on, kind)).collect();
    for node in on.nodes() {
        failures.extend(reboots(on, node));
        let blocked = Troubles {
            blocked_drains: [(*node).to_owned()].into(),
            ..Troubles::default()
        };
        failures.push(Failure::new(on, format!("a pod of {node} may not be evicted"), blocked).with(Way::STALLED));
        let unhealthy = Troubles {
            unhealthy_machines: [(*node).to_owned()].into(),
            ..Troubles::default()
        };
        failures.push(Failure::new(on, format!("Rancher's probes of {node} fail"), unhealthy).with(Way::STALLED));
    }
    failures
}

fn reboots(on: Cluster, node: &str) -> [Failure; 3] {
    let troubles = |trouble| Troubles {
        reboots: [(node.to_owned(), trouble)].into(),
        ..Troubles::default()
    };
    let who = on.name_of(node);
    [
        Failure::new(
            on,
            format!("{who} comes back with the old system"),
            troubles(RebootTrouble::OldSystem),
        ),
        Failure::new(
            on,
            format!("{who} never comes back and is repaired"),
            troubles(RebootTrouble::NeverReturns),
        )
        .with(Way::STALLED),
        Failure::new(
            on,
            format!("{who} loses its power while its system is installed"),
            troubles(RebootTrouble::DuringInstallation),
        )
        .with(Way::WARNED),
    ]
}

/// Each step of the programs that change a node, and what they wait for.
pub(super) fn of_steps() -> Vec<Failure> {
    let on = Cluster::Three;
    let limits = Limits::default();
    let programs = [
        (JobKind::PreDrain, step_names(&node::pre_drain::steps(&limits))),
        (JobKind::PostDrain, step_names(&node::post_drain::steps(&limits))),
    ];
    let mut failures = Vec::new();
    for (kind, steps) in programs {
        failures.extend(
            steps
                .into_iter()
                .map(|step| jobs::at_step(on, kind, Some("node-2"), step)),
        );
    }
    let stuck = Troubles {
        migrations: [("default/web-1".to_owned(), MigrationTrouble::Stuck)].into(),
        ..Troubles::default()
    };
    // Nothing is stopped unasked, so it is waited for, and the plan says that it is stalled.
    failures.push(Failure::new(on, "a VM that does not leave node-1", stuck).with(Way::STALLED));
    failures.extend(setbacks());
    failures
}

/// What does not stop a plan: it ends as if nothing had been.
fn setbacks() -> Vec<Failure> {
    let nodes = || ["node-2".to_owned()];
    let setbacks = [
        (
            "a migration that fails twice",
            Troubles {
                migrations: [("default/web-1".to_owned(), MigrationTrouble::Fails(2))].into(),
                ..Troubles::default()
            },
        ),
        (
            "a kubelet of node-2 that is late",
            Troubles {
                late_kubelets: nodes().map(|node| (node, Duration::from_mins(10))).into(),
                ..Troubles::default()
            },
        ),
        (
            "the drain taint is taken away",
            Troubles {
                drain_taint_is_taken_away: true,
                ..Troubles::default()
            },
        ),
        (
            "a machine plan of node-2 that could not be applied",
            Troubles {
                failed_machine_plans: nodes().into(),
                ..Troubles::default()
            },
        ),
    ];
    let setbacks = setbacks.map(|(name, troubles)| Failure::new(Cluster::Three, name, troubles).with(Way::WARNED));
    let does_not_start = Troubles {
        vms_that_do_not_start: ["default/lab-5".to_owned()].into(),
        ..Troubles::default()
    };
    let name = "a VM that was stopped and does not start";
    let does_not_start = Failure::new(Cluster::Three, name, does_not_start).with(Way::STOPPED_VMS);
    setbacks.into_iter().chain([does_not_start]).collect()
}

/// A cluster of one node.
pub(super) fn of_a_single_node() -> Vec<Failure> {
    let on = Cluster::One;
    let kinds = JobKind::ALL.into_iter().filter(|kind| runs_on(*kind, on));
    let mut failures: Vec<Failure> = kinds.flat_map(|kind| jobs::all_of(on, kind)).collect();
    let kind = JobKind::SingleNodeUpgrade;
    for step in step_names(&node::single_node::steps(&Limits::default())) {
        failures.push(jobs::at_step(on, kind, Some("node-1"), step));
    }
    failures.extend(reboots(on, "node-1"));
    failures
}

/// Two nodes of the control plane, a witness and a worker: what fails on the last two.
pub(super) fn of_a_mixed_cluster() -> Vec<Failure> {
    let on = Cluster::Mixed;
    let mut failures = Vec::new();
    for node in ["node-3", "node-4"] {
        for kind in [JobKind::PreDrain, JobKind::PostDrain] {
            failures.push(jobs::case(on, kind, Some(node), jobs::FAILS));
        }
        failures.extend(reboots(on, node));
    }
    failures
}

/// Three nodes whose VMs can all move, upgraded by plans with `restoreVM: false`: what fails on each of them.
pub(super) fn of_movable_vms() -> Vec<Failure> {
    let on = Cluster::Movable;
    let mut failures = Vec::new();
    for node in on.nodes() {
        for kind in [JobKind::PreDrain, JobKind::PostDrain] {
            failures.push(jobs::case(on, kind, Some(node), jobs::FAILS));
        }
        failures.extend(reboots(on, node));
        failures.push(deletions::at_node(on, node, NodeState::PreDrained));
        failures.push(deletions::at_node(on, node, NodeState::PostDrained));
    }
    failures
}

/// One node whose VMs are stopped and stay so (`restoreVM: false`).
pub(super) fn of_vms_that_stay_stopped() -> Vec<Failure> {
    let on = Cluster::Unrestored;
    let mut failures = vec![
        jobs::case(on, JobKind::ClusterUpgrade, None, jobs::FAILS),
        jobs::case(on, JobKind::SingleNodeUpgrade, Some("node-1"), jobs::FAILS),
        deletions::at_node(on, "node-1", NodeState::WaitingReboot),
        deletions::at_node(on, "node-1", NodeState::SingleNodeUpgraded),
    ];
    failures.extend(reboots(on, "node-1"));
    failures
}

/// A plan that fails, an additional one, and the first one again; or another one for another release.
pub(super) fn of_two_plans() -> Vec<Failure> {
    let mut failures = vec![
        jobs::case(Cluster::Three, JobKind::ImagePreload, Some("node-2"), jobs::FAILS),
        jobs::case(Cluster::Three, JobKind::ClusterUpgrade, None, jobs::FAILS),
        jobs::case(Cluster::Three, JobKind::SkipManifestsApply, Some("node-1"), jobs::FAILS),
        jobs::case(Cluster::Three, JobKind::SkipManifestsApply, Some("node-2"), jobs::FAILS),
        jobs::case(Cluster::One, JobKind::ClusterUpgrade, None, jobs::FAILS),
        jobs::case(Cluster::One, JobKind::SingleNodeUpgrade, Some("node-1"), jobs::FAILS),
    ];
    for node in Cluster::Three.nodes() {
        for kind in [JobKind::PreDrain, JobKind::PostDrain] {
            failures.push(jobs::case(Cluster::Three, kind, Some(node), jobs::FAILS));
        }
    }
    failures.push(reboots(Cluster::Three, "node-2")[0].clone());
    let full_disk = Troubles {
        full_disks: ["node-2".to_owned()].into(),
        ..Troubles::default()
    };
    failures.push(Failure::new(Cluster::Three, "a full disk", full_disk));
    for failure in &mut failures {
        failure.name.push_str(", then two plans");
    }
    let with = |failure: Failure| {
        let begins_with_nodes = failure.phase() == Some(Phase::NodeUpgrading) && !failure.cluster.is_single();
        let is_early = |job: &world::troubles::JobTrouble| jobs::kind_of(job) == JobKind::SkipManifestsApply;
        let ways = if failure.phase() == Some(Phase::Initializing) {
            Way::UNBEGUN
        } else if failure.troubles().jobs.iter().any(is_early) {
            Way::ABOUT_TO_BEGIN
        } else if begins_with_nodes {
            Way::BEGUN
        } else {
            Way::NOT_BEGUN
        };
        failure.with(ways)
    };
    failures.into_iter().map(with).collect()
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
        of_movable_vms(),
        of_vms_that_stay_stopped(),
        of_two_plans(),
        deletions::all(),
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
