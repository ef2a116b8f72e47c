//! Puts Harvester's charts back: what they make of KubeVirt's workloadUpdateMethods, and whether Fleet applies them.

use std::collections::BTreeMap;

use api::{Wait, annotations, names};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{decision::Action, draft::Draft, observed::ObservedChart};

use super::{Ending, forget};

/// What the charts were like before the cluster upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SavedValues {
    /// KubeVirt's workloadUpdateMethods among the values of the chart `harvester`; null when there were none.
    pub(crate) methods: Value,
    /// The generation that Fleet had seen by then. A newer one has seen our change.
    pub(crate) observed_generation: i64,
    /// The charts that an administrator had paused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) paused: Vec<String>,
    /// The generation that Fleet had observed before the methods were restored. A newer one includes that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) put_back_after: Option<i64>,
}

impl SavedValues {
    /// The charts as they are, or as they were before an upgrade whose plan is gone.
    pub(crate) fn of(charts: &BTreeMap<String, ObservedChart>, harvester: &ObservedChart) -> Self {
        let recorded = harvester.record.as_deref();
        let recorded = recorded.and_then(|text| serde_json::from_str::<Self>(text).ok());
        // Those that a plan paused are its own affair, also when it is gone.
        let is_paused = |(_, chart): &(&String, &ObservedChart)| chart.paused && chart.paused_by.is_none();
        recorded.map_or_else(
            || Self {
                methods: harvester.methods.clone(),
                observed_generation: harvester.observed_generation,
                paused: charts.iter().filter(is_paused).map(|(name, _)| name.clone()).collect(),
                put_back_after: None,
            },
            |recorded| Self {
                put_back_after: None,
                ..recorded
            },
        )
    }

    /// As a record. Plain data with string keys always serialises.
    pub(crate) fn text(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }
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

/// A chart as users see it.
pub(crate) fn called(name: &str) -> String {
    format!("ManagedChart {}/{name}", names::FLEET_NAMESPACE)
}

/// The record of what the chart `harvester` was like, if there is one.
pub(crate) fn saved(draft: &Draft<'_>) -> Option<SavedValues> {
    let text = draft.noted(annotations::SAVED_CHART_METHODS)?;
    serde_json::from_str(text).ok()
}

/// The chart has KubeVirt move VMs on its own updates again, if it did; and Fleet has applied that before it is reported.
pub(super) fn methods(draft: &mut Draft<'_>, ending: Ending, left: &mut Vec<String>) {
    let Some(saved) = saved(draft) else { return };
    let observed = draft.observed;
    let Some(chart) = observed.charts.get(names::HARVESTER_CHART) else {
        return forget(draft, ending, annotations::SAVED_CHART_METHODS);
    };
    let object = called(names::HARVESTER_CHART);
    if chart.methods != saved.methods || chart.record.is_some() {
        if chart.methods != saved.methods {
            let noted = SavedValues {
                put_back_after: Some(chart.observed_generation),
                ..saved.clone()
            };
            draft.note(annotations::SAVED_CHART_METHODS, noted.text());
        }
        draft.act(Action::SetChartMethods {
            methods: saved.methods,
            resume: false,
            record: None,
        });
        left.push(object);
        return;
    }
    let uid = &observed.plan.metadata.uid;
    let paused_by_us = chart.paused && chart.paused_by.is_some() && chart.paused_by == *uid;
    let lacks = match (saved.put_back_after, chart.lacks.as_deref()) {
        // Fleet applies a chart that an administrator paused when they resume it.
        _ if chart.paused && !paused_by_us => None,
        (Some(before), _) if chart.observed_generation <= before => Some("Fleet has not seen the change yet"),
        (Some(_), lacks) => lacks,
        (None, _) => None,
    };
    if let Some(lacks) = lacks {
        let message = format!("{object} is restored, and Fleet has not applied it: {lacks}");
        // A release that broke off may keep Fleet from it for good.
        if !draft.wait_at_most(Wait::ManagedChart, Some(object), message) {
            return;
        }
    }
    let resumed = |name: &&String| observed.charts.get(*name).is_some_and(|chart| !chart.paused);
    let paused_before: Vec<&String> = saved.paused.iter().filter(resumed).collect();
    for name in &paused_before {
        draft.act(Action::PauseChart { name: (*name).clone() });
        left.push(called(name));
    }
    if paused_before.is_empty() {
        forget(draft, ending, annotations::SAVED_CHART_METHODS);
    }
}

/// KubeVirt moves VMs on its own updates again, if it did before a version of ours that changed the object itself.
pub(super) fn methods_of_kubevirt(draft: &mut Draft<'_>, _: Ending, left: &mut Vec<String>) {
    let saved = draft.noted(annotations::SAVED_WORKLOAD_UPDATE_METHODS);
    let Some(saved) = saved.and_then(|text| serde_json::from_str::<SavedMethods>(text).ok()) else {
        return;
    };
    let before = left.len();
    let now = draft.observed.workload_update_methods.as_ref();
    if now.is_some_and(|now| *now != saved.methods) {
        draft.act(Action::SetWorkloadUpdateMethods { methods: saved.methods });
        left.push(format!("KubeVirt {}/{}", names::HARVESTER_NAMESPACE, names::KUBEVIRT));
    }
    let chart = draft.observed.charts.get(names::HARVESTER_CHART);
    if !saved.ignored && chart.is_some_and(|chart| chart.ignores_methods) {
        draft.act(Action::StopIgnoringWorkloadUpdateMethods);
        left.push(called(names::HARVESTER_CHART));
    }
    if left.len() == before {
        // Forgotten always: what the chart makes of it from now on is right, whatever this record says.
        draft.note(annotations::SAVED_WORKLOAD_UPDATE_METHODS, None);
    }
}

/// Fleet applies the charts again that this plan's Job paused. Those that an administrator paused stay paused.
pub(super) fn pauses(draft: &mut Draft<'_>, _: Ending, left: &mut Vec<String>) {
    let uid = draft.observed.plan.metadata.uid.clone();
    for (name, chart) in &draft.observed.charts {
        if !chart.paused || chart.paused_by.is_none() || chart.paused_by != uid {
            continue;
        }
        draft.act(Action::ResumeChart { name: name.clone() });
        left.push(called(name));
    }
}
