//! Harvester's ManagedCharts, as far as an upgrade changes them. Pure.
//!
//! What KubeVirt does with VMs when it is updated itself is a value of the chart `harvester`. Fleet applies its charts
//! with its own field manager, and the whole chart fails if another manager owns a field that it sets, so that
//! only the chart may change the KubeVirt object.

use api::{annotations, foreign::rancher::ManagedChart, names};
use kube::ResourceExt;
use rules::fleet::chart_lacks;
use serde_json::{Value, json};

use crate::observed::ObservedChart;

/// Where the chart `harvester` has KubeVirt's workloadUpdateMethods among its values.
pub const METHODS: [&str; 4] = ["kubevirt", "spec", "workloadUpdateStrategy", "workloadUpdateMethods"];
/// Where the KubeVirt object has them.
pub const POINTER: &str = "/spec/workloadUpdateStrategy/workloadUpdateMethods";

/// A chart as decisions see it.
#[must_use]
pub fn observed(chart: &ManagedChart) -> ObservedChart {
    ObservedChart {
        paused: chart.spec.paused == Some(true),
        paused_by: chart.annotations().get(annotations::CHART_PAUSED_BY).cloned(),
        methods: methods(chart),
        ignores_methods: ignores_methods(chart),
        observed_generation: chart.status.observed_generation.unwrap_or(0),
        lacks: chart_lacks(chart),
        record: chart.annotations().get(annotations::SAVED_CHART_METHODS).cloned(),
    }
}

/// KubeVirt's workloadUpdateMethods among a chart's values; null when it leaves them to its defaults.
fn methods(chart: &ManagedChart) -> Value {
    value_at(chart, METHODS.len()).cloned().unwrap_or_default()
}

/// What a chart's values have at the first so many keys of [`METHODS`].
fn value_at(chart: &ManagedChart, depth: usize) -> Option<&Value> {
    let values = chart.spec.values.as_ref()?;
    METHODS[..depth].iter().try_fold(values, |value, key| value.get(key))
}

/// Fleet ignores changes of KubeVirt's workloadUpdateMethods, as earlier versions of this toolkit had it do.
fn ignores_methods(chart: &ManagedChart) -> bool {
    let diff = chart.spec.diff.as_ref();
    let patches = diff
        .and_then(|diff| diff.compare_patches.as_deref())
        .unwrap_or_default();
    patches.iter().any(|patch| {
        patch.kind.as_deref() == Some("KubeVirt")
            && patch.name.as_deref() == Some(names::KUBEVIRT)
            && patch.json_pointers.iter().flatten().any(|pointer| pointer == POINTER)
    })
}

/// The patch that makes KubeVirt's methods be so among a chart's values; null removes them, with the maps that would be
/// left empty.
#[must_use]
pub fn methods_patch(chart: &ManagedChart, methods: &Value) -> Value {
    let mut depth = METHODS.len();
    if methods.is_null() {
        let is_alone = |depth: usize| {
            let parent = value_at(chart, depth).and_then(Value::as_object);
            parent.is_none_or(|map| map.len() <= 1)
        };
        while depth > 1 && is_alone(depth - 1) {
            depth -= 1;
        }
    }
    let patch = METHODS[..depth].iter().rev();
    let values = patch.fold(methods.clone(), |value, key| json!({ *key: value }));
    json!({"spec": {"values": values}})
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn chart(values: &Value) -> ManagedChart {
        let mut chart = ManagedChart::named(names::HARVESTER_CHART);
        chart.spec.values = Some(values.clone());
        chart
    }

    #[rstest]
    #[case(json!({}), json!(null))]
    #[case(json!({"kubevirt": {"spec": {}}}), json!(null))]
    #[case(json!({"kubevirt": "odd"}), json!(null))]
    #[case(json!({"kubevirt": {"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": []}}}}), json!([]))]
    #[case(json!({"kubevirt": {"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": ["Evict"]}}}}), json!(["Evict"]))]
    fn methods_are_read_where_the_chart_has_them(#[case] values: Value, #[case] expected: Value) {
        assert_eq!(methods(&chart(&values)), expected);
        assert_eq!(methods(&ManagedChart::named("harvester")), Value::Null);
    }

    #[test]
    fn methods_that_were_absent_are_absent_again_and_what_stands_beside_them_stays() {
        let ours = json!({"workloadUpdateStrategy": {"workloadUpdateMethods": []}});
        let alone = chart(&json!({"kubevirt": {"spec": ours}, "longhorn": {}}));
        assert_eq!(
            methods_patch(&alone, &Value::Null),
            json!({"spec": {"values": {"kubevirt": null}}})
        );
        let mut beside = json!({"kubevirt": {"spec": ours}});
        beside["kubevirt"]["spec"]["monitorAccount"] = json!("m");
        assert_eq!(
            methods_patch(&chart(&beside), &Value::Null),
            json!({"spec": {"values": {"kubevirt": {"spec": {"workloadUpdateStrategy": null}}}}})
        );
        assert_eq!(
            methods_patch(&alone, &json!(["Evict"])),
            json!({"spec": {"values": {"kubevirt": {"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": ["Evict"]}}}}}})
        );
    }
}
