//! Puts Harvester's charts back: what they make of KubeVirt's workloadUpdateMethods, and whether Fleet applies them.

use api::{annotations, labels::component, names};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{decision::Action, draft::Draft, observed::JobOutcome};

use super::{Ending, forget};

/// What the chart `harvester` was like before the cluster upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SavedValues {
    /// KubeVirt's workloadUpdateMethods among its values; null when there were none.
    pub(crate) methods: Value,
    /// The generation that Fleet had seen by then. A newer one has seen our change.
    pub(crate) observed_generation: i64,
}

/// What KubeVirt and Fleet were like before, by the record of a version that changed the KubeVirt object itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SavedMethods {
    /// KubeVirt's workloadUpdateMethods.
    pub(crate) methods: Vec<String>,
    /// Fleet ignored changes of them already.
    pub(crate) ignored: bool,
}

/// A chart as people see it.
pub(crate) fn called(name: &str) -> String {
    format!("ManagedChart {}/{name}", names::FLEET_NAMESPACE)
}

/// The record of what the chart `harvester` was like, if there is one.
pub(crate) fn saved(draft: &Draft<'_>) -> Option<SavedValues> {
    let text = draft.annotation(annotations::SAVED_CHART_METHODS)?;
    serde_json::from_str(text).ok()
}

/// The Job that upgrades charts is at it still: whatever is put back, it might change again.
fn is_job_running(draft: &Draft<'_>) -> bool {
    let mut jobs = draft.seen.jobs.values();
    jobs.any(|job| job.component == component::CLUSTER_UPGRADE && job.outcome == JobOutcome::Running)
}

/// The chart has KubeVirt move VMs on its own updates again, if it did.
pub(super) fn methods(draft: &mut Draft<'_>, ending: Ending, left: &mut Vec<String>) {
    let Some(saved) = saved(draft) else { return };
    let now = draft
        .seen
        .charts
        .get(names::HARVESTER_CHART)
        .map(|chart| &chart.methods);
    if now.is_none_or(|now| *now == saved.methods) {
        return forget(draft, ending, annotations::SAVED_CHART_METHODS);
    }
    if !is_job_running(draft) {
        draft.act(Action::SetChartMethods {
            methods: saved.methods,
            resume: false,
        });
    }
    left.push(called(names::HARVESTER_CHART));
}

/// KubeVirt moves VMs on its own updates again, if it did before a version of ours that changed the object itself.
pub(super) fn methods_of_kubevirt(draft: &mut Draft<'_>, _: Ending, left: &mut Vec<String>) {
    let saved = draft.annotation(annotations::SAVED_WORKLOAD_UPDATE_METHODS);
    let Some(saved) = saved.and_then(|text| serde_json::from_str::<SavedMethods>(text).ok()) else {
        return;
    };
    let before = left.len();
    let now = draft.seen.workload_update_methods.as_ref();
    if now.is_some_and(|now| *now != saved.methods) {
        draft.act(Action::SetWorkloadUpdateMethods { methods: saved.methods });
        left.push(format!("KubeVirt {}/{}", names::HARVESTER_NAMESPACE, names::KUBEVIRT));
    }
    let chart = draft.seen.charts.get(names::HARVESTER_CHART);
    if !saved.ignored && chart.is_some_and(|chart| chart.ignores_methods) {
        draft.act(Action::StopIgnoringWorkloadUpdateMethods);
        left.push(called(names::HARVESTER_CHART));
    }
    if left.len() == before {
        // Forgotten always: what the chart makes of it from now on is right, whatever this record says.
        draft.annotate(annotations::SAVED_WORKLOAD_UPDATE_METHODS, None);
    }
}

/// Fleet applies the charts again that this plan's Job paused. Those that somebody else paused stay so.
pub(super) fn pauses(draft: &mut Draft<'_>, _: Ending, left: &mut Vec<String>) {
    let uid = draft.seen.plan.metadata.uid.clone();
    let running = is_job_running(draft);
    for (name, chart) in &draft.seen.charts {
        if !chart.paused || chart.paused_by.is_none() || chart.paused_by != uid {
            continue;
        }
        if !running {
            draft.act(Action::ResumeChart { name: name.clone() });
        }
        left.push(called(name));
    }
}
