//! ClusterUpgrade: the cluster's components are upgraded by a Job that applies their manifests.

use api::{Component, Wait, annotations, names};
use serde_json::json;

use super::suc_plan::last_message;
use crate::{
    decision::{Action, Child},
    draft::{Draft, Outcome},
    observed::JobOutcome,
    undo::{
        charts::{self, SavedValues},
        wait_for_change,
    },
};

/// KubeVirt's own update must not move all VMs at once. Its chart says so, and Fleet has applied it before the chart is
/// paused.
pub fn enter(draft: &mut Draft<'_>) -> Outcome {
    let observed = draft.observed;
    let Some(chart) = observed.charts.get(names::HARVESTER_CHART) else {
        return Outcome::Done;
    };
    let saved = charts::saved(draft).unwrap_or_else(|| {
        let saved = SavedValues::of(&observed.charts, chart);
        draft.note(annotations::SAVED_CHART_METHODS, saved.text());
        saved
    });
    let none = json!([]);
    if chart.methods == none && saved.methods == none {
        return Outcome::Done;
    }
    let object = charts::called(names::HARVESTER_CHART);
    if chart.methods != none || chart.paused {
        draft.act(Action::SetChartMethods {
            methods: none,
            resume: true,
            record: saved.text(),
        });
        return wait_for_change(draft, &object);
    }
    let follows = observed.workload_update_methods.as_ref().is_none_or(Vec::is_empty);
    let lacks = match chart.lacks.as_deref() {
        _ if chart.observed_generation <= saved.observed_generation => "Fleet has not seen the change yet",
        Some(lacks) => lacks,
        None if !follows => "KubeVirt harvester-system/kubevirt does not follow it yet",
        None => return Outcome::Done,
    };
    let message = format!("{object} prevents KubeVirt from migrating all VMs, and Fleet has not applied it: {lacks}");
    draft.wait(Wait::ManagedChart, Some(object), message).into()
}

/// The known text, then the message of the program itself where it left one.
fn failure(draft: &Draft<'_>, name: &str, message: &str) -> String {
    let job = draft.observed.jobs.get(name);
    match job.and_then(|job| last_message(draft, job)) {
        Some((pod, said)) => format!("cluster-upgrade job failed: pod {pod}: {said}"),
        None if message.is_empty() => "cluster-upgrade job failed".to_owned(),
        None => format!("cluster-upgrade job failed: {message}"),
    }
}

/// Runs the Job.
pub fn run(draft: &mut Draft<'_>) -> Outcome {
    let observed = draft.observed;
    let name = names::cluster_job(draft.plan_name());
    match observed.jobs.get(&name).map(|job| &job.outcome) {
        Some(JobOutcome::Complete) => return Outcome::Done,
        Some(JobOutcome::Failed { message, .. }) => return Outcome::Fail(failure(draft, &name, message)),
        Some(JobOutcome::Running) => {}
        None => draft.create(Child::ClusterJob),
    }
    let object = Some(format!("Job harvester-system/{name}"));
    let noted = draft.wait(Wait::ClusterUpgradeJob, object, "cluster components are being upgraded");
    draft.wait_for_pods(Component::ClusterUpgrade, None, None);
    // Jobs that the Job has system-upgrade-controller run on the nodes.
    draft.wait_for_pods(Component::SuspendAgent, None, None);
    noted.into()
}
