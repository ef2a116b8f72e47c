//! Jobs that go wrong: where each kind runs, how it goes wrong there, and what is to be done about it.

use api::{JobKind, Phase};
use world::{
    Troubles,
    troubles::{JobFailure, JobTrouble},
};

use super::{
    failure::{Cluster, Failure},
    ways::Way,
};

/// Fails in every attempt.
pub(super) const FAILS: JobFailure = JobFailure::Fails(u32::MAX);

/// A Job, on one node or on all, that goes wrong.
pub(super) fn trouble(kind: JobKind, node: Option<&str>, failure: JobFailure) -> Troubles {
    let trouble = JobTrouble {
        component: kind.component(),
        job_type: kind.job_type(),
        node: node.map(str::to_owned),
        failure,
    };
    Troubles {
        jobs: vec![trouble],
        ..Troubles::default()
    }
}

/// The kind of Job that a trouble is about.
pub(super) fn kind_of(trouble: &JobTrouble) -> JobKind {
    let kind = JobKind::of(trouble.component, trouble.job_type);
    kind.expect("a trouble with a Job that no upgrade runs")
}

/// Whether Jobs of a kind run on a cluster.
pub(super) const fn runs_on(kind: JobKind, cluster: Cluster) -> bool {
    let is_single = cluster.is_single();
    match kind {
        JobKind::SkipManifestsApply | JobKind::SkipManifestsRemove | JobKind::PreDrain | JobKind::PostDrain => {
            !is_single
        }
        JobKind::SingleNodeUpgrade => is_single,
        JobKind::ImagePreload
        | JobKind::ImageCheck
        | JobKind::ClusterUpgrade
        | JobKind::SuspendAgent
        | JobKind::RestoreVm
        | JobKind::ImageCleanup => true,
    }
}

/// Whether each node has a Job of the kind.
pub(super) const fn is_per_node(kind: JobKind) -> bool {
    !matches!(kind, JobKind::ClusterUpgrade)
}

/// The phase that runs Jobs of a kind.
pub(super) const fn phase(kind: JobKind) -> Phase {
    match kind {
        JobKind::ImagePreload | JobKind::ImageCheck => Phase::ImagePreloading,
        JobKind::ClusterUpgrade | JobKind::SuspendAgent => Phase::ClusterUpgrading,
        JobKind::SkipManifestsApply
        | JobKind::PreDrain
        | JobKind::PostDrain
        | JobKind::SingleNodeUpgrade
        | JobKind::RestoreVm => Phase::NodeUpgrading,
        JobKind::ImageCleanup | JobKind::SkipManifestsRemove => Phase::CleaningUp,
    }
}

/// A name for people.
const fn name(kind: JobKind) -> &'static str {
    match kind {
        JobKind::ImagePreload => "preload",
        JobKind::ImageCheck => "image-check",
        JobKind::ClusterUpgrade => "cluster",
        JobKind::SuspendAgent => "suspend-agents",
        JobKind::SkipManifestsApply => "skip-manifests apply",
        JobKind::SkipManifestsRemove => "skip-manifests remove",
        JobKind::PreDrain => "pre-drain",
        JobKind::PostDrain => "post-drain",
        JobKind::SingleNodeUpgrade => "single-node",
        JobKind::RestoreVm => "restore-vm",
        JobKind::ImageCleanup => "clean-up",
    }
}

/// The ways on from a Job that goes wrong.
fn ways(kind: JobKind, failure: JobFailure) -> &'static [Way] {
    let waits = matches!(failure, JobFailure::Hangs | JobFailure::ImagePullBackOff);
    match kind {
        JobKind::SkipManifestsRemove => Way::WARNED,
        JobKind::RestoreVm => Way::STOPPED_VMS,
        // Their Jobs have no deadline of their own: they are waited for.
        JobKind::ClusterUpgrade | JobKind::PreDrain | JobKind::PostDrain | JobKind::SingleNodeUpgrade if waits => {
            Way::STALLED
        }
        // Its deadline is an hour away; before that, the plan says that it is stalled.
        JobKind::ImagePreload if failure == JobFailure::ImagePullBackOff => Way::STALLED,
        _ => Way::FAILED,
    }
}

/// A Job of a cluster that goes wrong.
pub(super) fn case(on: Cluster, kind: JobKind, node: Option<&str>, failure: JobFailure) -> Failure {
    let of_node = match (node, on) {
        (Some(node), Cluster::Three | Cluster::Mixed | Cluster::Movable) => format!(" of {}", on.name_of(node)),
        _ => String::new(),
    };
    let how = match failure {
        JobFailure::Fails(_) => String::new(),
        JobFailure::DiesAt(step) => format!(" at {step}"),
        JobFailure::Hangs => " hangs".to_owned(),
        JobFailure::ImagePullBackOff => " does not get its image".to_owned(),
    };
    let name = format!("{} Job{of_node}{how}", name(kind));
    Failure::new(on, name, trouble(kind, node, failure)).with(ways(kind, failure))
}

/// A kind of Job on a cluster: it fails on each node, and on the middle one it hangs, and does not get its image.
pub(super) fn all_of(on: Cluster, kind: JobKind) -> Vec<Failure> {
    if !is_per_node(kind) {
        let how = [FAILS, JobFailure::Hangs, JobFailure::ImagePullBackOff];
        return how.map(|how| case(on, kind, None, how)).into();
    }
    let fails = on.nodes().iter().map(|node| case(on, kind, Some(node), FAILS));
    let middle = on.nodes()[on.nodes().len() / 2];
    let waits = [JobFailure::Hangs, JobFailure::ImagePullBackOff];
    fails
        .chain(waits.map(|how| case(on, kind, Some(middle), how)))
        .collect()
}

/// A kind of Job that dies at one of its steps.
pub(super) fn at_step(on: Cluster, kind: JobKind, node: Option<&str>, step: &'static str) -> Failure {
    case(on, kind, node, JobFailure::DiesAt(step))
}
