//! ManagedCharts: paused while Rancher is upgraded, then upgraded to the versions of the release one after another.
//!
//! The upgrade of a chart is one patch: new version, no longer paused, another timeout so that even an upgrade to the
//! same version is a new generation, and the annotations that record it. If the record exists, the chart is not patched again.

use api::{
    ProgramWait,
    annotations::{CHART_OBSERVED_BEFORE, CHART_PAUSED_BY, CHART_UPGRADED_AT, CHART_UPGRADED_BY, CHART_UPGRADED_TO},
    foreign::rancher::ManagedChart,
    names,
};
use jiff::Timestamp;
use kube::ResourceExt;
use release::release_file::ReleaseFile;
use serde_json::{Value, json};

use program::{
    error::Result,
    report::{Look, Waiting},
    step::StepContext,
};

use super::context::Context;

/// Harvester's definitions.
pub const HARVESTER_CRD: &str = "harvester-crd";
/// Monitoring's definitions.
pub const MONITORING_CRD: &str = "rancher-monitoring-crd";
/// Logging's definitions.
pub const LOGGING_CRD: &str = "rancher-logging-crd";

/// The charts of an upgrade, in order, with the versions a release brings them to.
#[must_use]
pub fn targets(release: &ReleaseFile) -> [(&'static str, &str); 4] {
    [
        (HARVESTER_CRD, &release.harvester_chart),
        (names::HARVESTER_CHART, &release.harvester_chart),
        (MONITORING_CRD, &release.monitoring_chart),
        (LOGGING_CRD, release.logging_chart.as_deref().unwrap_or_default()),
    ]
}

/// Holds the charts, so that Fleet does not touch them while Rancher and Fleet themselves change.
pub(super) async fn pause(context: &Context, _: StepContext<'_>) -> Result<()> {
    let charts = context.namespaced::<ManagedChart>(names::FLEET_NAMESPACE);
    let uid = context.upgrade_plan()?.uid().unwrap_or_default();
    for (name, version) in targets(context.release()?) {
        let Some(chart) = charts.get(name).await? else {
            context.note(format!("{} does not exist: not paused", charts.called(name)));
            continue;
        };
        if let Some(patch) = pause_patch(&chart, (&context.plan, &uid), version) {
            charts.merge(name, &patch).await?;
        }
    }
    Ok(())
}

/// The patch that pauses a chart for a plan, by name and uid, and records this on the chart: the plan's clean-up resumes those
/// that carry its uid. Nothing when the plan has upgraded it already, or when an administrator paused it; a pause that another
/// plan has left behind becomes ours.
#[must_use]
pub fn pause_patch(chart: &ManagedChart, (plan, uid): (&str, &str), version: &str) -> Option<Value> {
    let by = chart.annotations().get(CHART_PAUSED_BY);
    let is_paused = chart.spec.paused == Some(true) && by.is_none_or(|by| by == uid);
    let patch = json!({"metadata": {"annotations": {CHART_PAUSED_BY: uid}}, "spec": {"paused": true}});
    (!is_paused && !is_recorded(chart, plan, version)).then_some(patch)
}

fn is_recorded(chart: &ManagedChart, plan: &str, version: &str) -> bool {
    let annotation = |key: &str| chart.annotations().get(key).map(String::as_str);
    annotation(CHART_UPGRADED_BY) == Some(plan)
        && annotation(CHART_UPGRADED_TO) == Some(version)
        && annotation(CHART_OBSERVED_BEFORE).is_some()
}

/// The patch that upgrades a chart; nothing when this plan has done so already. `values` are merged in.
#[must_use]
pub fn upgrade_patch(chart: &ManagedChart, plan: &str, version: &str, values: &Value, now: Timestamp) -> Option<Value> {
    let mut spec = json!({"version": version, "paused": false});
    if values.as_object().is_some_and(|values| !values.is_empty()) {
        spec["values"] = values.clone();
    }
    if is_recorded(chart, plan, version) {
        // A user may have changed it since; the generation that counts is the one of the first patch.
        let changed = chart.spec.version.as_deref() != Some(version) || chart.spec.paused == Some(true);
        return changed.then(|| json!({"metadata": {"annotations": {CHART_PAUSED_BY: null}}, "spec": spec}));
    }
    spec["timeoutSeconds"] = json!(next_timeout(chart.spec.timeout_seconds));
    let observed = chart.status.observed_generation.unwrap_or(0);
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    Some(json!({
        "metadata": {"annotations": {
            CHART_UPGRADED_BY: plan,
            CHART_UPGRADED_TO: version,
            CHART_UPGRADED_AT: now.to_string(),
            CHART_OBSERVED_BEFORE: observed.to_string(),
            CHART_PAUSED_BY: null,
        }},
        "spec": spec,
    }))
}

/// Another timeout than now, so that the patch is a new generation whatever else it changes.
fn next_timeout(now: Option<i64>) -> i64 {
    match now {
        None => 599,
        Some(seconds) if seconds > 800 => 600,
        Some(seconds) => seconds + 1,
    }
}

/// What a chart still lacks; nothing when it is applied and ready.
#[must_use]
pub fn lacks(chart: &ManagedChart, version: &str) -> Option<String> {
    if chart.spec.version.as_deref() != Some(version) {
        let found = chart.spec.version.as_deref().unwrap_or("no version");
        return Some(format!(
            "its version should be {version}, and another client set {found}"
        ));
    }
    let before = chart.annotations().get(CHART_OBSERVED_BEFORE);
    let before: i64 = before.and_then(|before| before.parse().ok()).unwrap_or(0);
    if chart.status.observed_generation.unwrap_or(0) <= before {
        return Some("Fleet has not seen its new version yet".to_owned());
    }
    rules::fleet::chart_lacks(chart)
}

/// Upgrades a chart and waits until it is ready.
pub(super) async fn upgrade(
    context: &Context,
    ctx: StepContext<'_>,
    name: &str,
    version: &str,
    values: &Value,
) -> Result<()> {
    let charts = context.namespaced::<ManagedChart>(names::FLEET_NAMESPACE);
    let chart = charts.need(name).await?;
    if let Some(patch) = upgrade_patch(&chart, &context.plan, version, values, context.clock.now()) {
        charts.merge(name, &patch).await?;
    }
    let called = charts.called(name);
    charts.until(ctx, name, |chart| look(&called, chart, version)).await
}

/// Whether a chart is at a version.
#[must_use]
pub fn look(called: &str, chart: Option<&ManagedChart>, version: &str) -> Look {
    let lacks = chart.map_or_else(|| Some("it does not exist".to_owned()), |chart| lacks(chart, version));
    Look::of(lacks.map_or_else(Vec::new, |lacks| {
        vec![Waiting {
            what: ProgramWait::ManagedChart,
            object: called.to_owned(),
            message: format!("{called} is not at {version}: {lacks}"),
        }]
    }))
}

pub(super) async fn upgrade_harvester_crd(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    upgrade(
        context,
        ctx,
        HARVESTER_CRD,
        &context.release()?.harvester_chart,
        &Value::Null,
    )
    .await
}

pub(super) async fn upgrade_monitoring_crd(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    upgrade(
        context,
        ctx,
        MONITORING_CRD,
        &context.release()?.monitoring_chart,
        &Value::Null,
    )
    .await
}

pub(super) async fn upgrade_logging_crd(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let version = context.release()?.logging_chart.clone().unwrap_or_default();
    upgrade(context, ctx, LOGGING_CRD, &version, &Value::Null).await
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn chart() -> ManagedChart {
        let mut chart = ManagedChart::named("harvester");
        chart.spec.version = Some("1.7.1".into());
        chart.spec.timeout_seconds = Some(600);
        chart.status.observed_generation = Some(4);
        chart
    }

    fn now() -> Timestamp {
        "2026-03-13T03:57:09.5Z".parse().unwrap()
    }

    #[rstest]
    #[case(None, 599)]
    #[case(Some(600), 601)]
    #[case(Some(800), 801)]
    #[case(Some(801), 600)]
    fn the_timeout_is_always_another_one(#[case] before: Option<i64>, #[case] after: i64) {
        assert_eq!(next_timeout(before), after);
    }

    #[test]
    fn a_chart_is_patched_once_however_often_it_is_tried() {
        let mut chart = chart();
        let patch = upgrade_patch(&chart, "up", "1.8.0", &Value::Null, now()).unwrap();
        assert_eq!(
            patch["spec"],
            json!({"version": "1.8.0", "paused": false, "timeoutSeconds": 601})
        );
        let annotations = &patch["metadata"]["annotations"];
        assert_eq!(annotations[CHART_UPGRADED_AT], "2026-03-13T03:57:09Z");
        assert_eq!(annotations[CHART_OBSERVED_BEFORE], "4");

        chart.spec.version = Some("1.8.0".into());
        let mut kept = annotations.clone();
        assert_eq!(kept.as_object_mut().unwrap().remove(CHART_PAUSED_BY), Some(Value::Null));
        chart.metadata.annotations = serde_json::from_value(kept).unwrap();
        assert_eq!(upgrade_patch(&chart, "up", "1.8.0", &Value::Null, now()), None);
        assert_eq!(pause_patch(&chart, ("up", "1"), "1.8.0"), None);
        // Another plan, or another version, is another upgrade.
        assert!(upgrade_patch(&chart, "up2", "1.8.0", &Value::Null, now()).is_some());
        assert!(pause_patch(&chart, ("up2", "2"), "1.8.0").is_some());
        // It was paused again: it is resumed, without another generation.
        chart.spec.paused = Some(true);
        assert_eq!(
            upgrade_patch(&chart, "up", "1.8.0", &Value::Null, now()),
            Some(json!({
                "metadata": {"annotations": {CHART_PAUSED_BY: null}},
                "spec": {"version": "1.8.0", "paused": false},
            }))
        );
    }

    #[rstest]
    #[case(false, None, true)]
    #[case(true, None, false)]
    #[case(true, Some("1"), false)]
    #[case(true, Some("gone"), true)]
    #[case(false, Some("gone"), true)]
    fn r14_a_paused_chart_says_for_whom_and_one_that_a_user_paused_is_left(
        #[case] paused: bool,
        #[case] by: Option<&str>,
        #[case] expected: bool,
    ) {
        let mut chart = chart();
        chart.spec.paused = Some(paused);
        if let Some(by) = by {
            chart.annotations_mut().insert(CHART_PAUSED_BY.into(), by.into());
        }
        let patch = json!({"metadata": {"annotations": {CHART_PAUSED_BY: "1"}}, "spec": {"paused": true}});
        assert_eq!(pause_patch(&chart, ("up", "1"), "1.8.0"), expected.then_some(patch));
    }

    #[test]
    fn a_chart_is_ready_when_the_new_generation_was_seen_and_nothing_is_unavailable() {
        let mut chart = chart();
        chart.spec.version = Some("1.8.0".into());
        chart.annotations_mut().insert(CHART_OBSERVED_BEFORE.into(), "4".into());
        chart.status.summary = Some(serde_json::from_value(json!({"ready": 1})).unwrap());
        assert_eq!(
            lacks(&chart, "1.8.0").unwrap(),
            "Fleet has not seen its new version yet"
        );
        chart.status.observed_generation = Some(5);
        assert_eq!(lacks(&chart, "1.8.0"), None);
        chart.status.unavailable = Some(1);
        assert_eq!(lacks(&chart, "1.8.0").unwrap(), "it is not ready");
        assert!(lacks(&chart, "1.9.0").unwrap().contains("another client set 1.8.0"));
    }
}
