//! ClusterUpgrade: the cluster's components are upgraded by a Job that applies their manifests.

use api::{annotations, labels::component, names};

use crate::{
    decision::{Action, Child},
    draft::{Draft, Outcome},
    observed::JobOutcome,
    undo::{SavedMethods, changing},
};

/// KubeVirt's own update must not move all VMs at once, and Fleet must not revert that as drift.
pub fn enter(draft: &mut Draft<'_>) -> Outcome {
    let seen = draft.seen;
    let Some(methods) = &seen.workload_update_methods else {
        return Outcome::Done;
    };
    let ignored = seen.chart_ignores_methods;
    if draft.annotation(annotations::SAVED_WORKLOAD_UPDATE_METHODS).is_none() {
        let saved = SavedMethods {
            methods: methods.clone(),
            ignored: ignored == Some(true),
        };
        // Plain data with string keys always serialises.
        draft.annotate(
            annotations::SAVED_WORKLOAD_UPDATE_METHODS,
            serde_json::to_string(&saved).ok(),
        );
    }
    let mut outcome = Outcome::Done;
    if ignored == Some(false) {
        draft.act(Action::IgnoreWorkloadUpdateMethods { ignore: true });
        outcome = changing(draft, "ManagedChart fleet-local/harvester");
    }
    if !methods.is_empty() {
        draft.act(Action::SetWorkloadUpdateMethods { methods: Vec::new() });
        outcome = changing(draft, "KubeVirt harvester-system/kubevirt");
    }
    outcome
}

/// Runs the Job.
pub fn run(draft: &mut Draft<'_>) -> Outcome {
    let seen = draft.seen;
    let name = names::cluster_job(draft.plan_name());
    match seen.jobs.get(&name).map(|job| &job.outcome) {
        Some(JobOutcome::Complete) => return Outcome::Done,
        Some(JobOutcome::Failed { .. }) => return Outcome::Fail("cluster-upgrade job failed".to_owned()),
        Some(JobOutcome::Running) => {}
        None => draft.create(Child::ClusterJob),
    }
    let object = Some(format!("Job harvester-system/{name}"));
    draft.wait(
        "ClusterUpgradeJob",
        object,
        "cluster components are being upgraded",
        seen.settings.deadlines.cluster,
    );
    draft.wait_for_pods(component::CLUSTER_UPGRADE, None, None);
    // Jobs that the Job has system-upgrade-controller run on the nodes.
    draft.wait_for_pods(component::HOLD_AGENT, None, None);
    Outcome::Wait
}
