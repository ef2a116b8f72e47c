//! Rancher's charts and Fleet: a ManagedChart becomes a Bundle, and what Fleet says of the Bundle becomes the status of
//! the ManagedChart, generation included. A Bundle that is to be something else is out of sync for a while and then Ready
//! again. A paused one is seen, and stays as it is.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::foreign::{fleet::Bundle, rancher::ManagedChart};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    context::{Context, after, controlled_by},
    error::Result,
    inbox::{Inbox, Key, Kind},
};

use super::harvester_chart;

/// How soon a bundle that does not get ready is looked at again.
const STUCK_PAUSE: Duration = Duration::from_secs(60);
/// What Rancher puts before a chart's name.
const PREFIX: &str = "mcc-";

/// What Fleet knows of a bundle. A Fleet that restarts treats what is ready as applied, and gives the rest the full
/// time again.
#[derive(Default)]
struct Known {
    applied: Option<Value>,
    /// What is being applied, and since when.
    applying: Option<(Value, Timestamp)>,
}

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.charts.subscribe(&inbox);
    world.bundles.subscribe(&inbox);
    let mut known = BTreeMap::new();
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = match kind {
            Kind::Bundle => deploy(&world, &inbox, known.entry(key.clone()).or_default(), &key).await,
            _ => hand_over(&world, &key).await,
        };
        inbox.settle("fleet", (kind, key), outcome);
    }
}

/// Rancher makes a chart's Bundle be what the chart says, and the chart's status what Fleet says.
async fn hand_over(world: &Context, key: &Key) -> Result<()> {
    let chart = world.charts.at(key);
    let Some(chart) = chart.filter(|chart| chart.metadata.deletion_timestamp.is_none()) else {
        return Ok(());
    };
    let bundle_key = (key.0.clone(), format!("{PREFIX}{}", key.1));
    let spec = bundle_spec(&chart);
    let Some(bundle) = world.bundles.at(&bundle_key) else {
        let mut bundle = bundle(&bundle_key, &spec);
        bundle["metadata"]["ownerReferences"] = controlled_by(chart.as_ref());
        return world.bundles.create(&bundle).await.map(drop);
    };
    if spec_of(&bundle) != spec {
        return world.bundles.replace_spec(&bundle_key, &spec).await.map(drop);
    }
    let said = serde_json::to_value(&bundle.status)?;
    if said != serde_json::to_value(&chart.status)? && bundle.status.observed_generation.is_some() {
        world.charts.patch_status(key, &said).await?;
    }
    Ok(())
}

fn spec_of(bundle: &Bundle) -> Value {
    bundle.other.get("spec").cloned().unwrap_or_default()
}

/// A Bundle of that name.
pub(crate) fn bundle(key: &Key, spec: &Value) -> Value {
    json!({
        "apiVersion": "fleet.cattle.io/v1alpha1", "kind": "Bundle",
        "metadata": {"name": key.1, "namespace": key.0}, "spec": spec,
    })
}

/// What Rancher makes of a chart; the files of the chart itself are left out.
pub(crate) fn bundle_spec(chart: &ManagedChart) -> Value {
    let other = |field: &str| chart.spec.other.get(field).cloned();
    let mut spec = json!({"helm": {}});
    let mut put = |part: Option<&str>, field: &str, value: Option<Value>| {
        if let Some(value) = value {
            match part {
                Some(part) => spec[part][field] = value,
                None => spec[field] = value,
            }
        }
    };
    put(Some("helm"), "version", chart.spec.version.clone().map(Value::String));
    put(
        Some("helm"),
        "timeoutSeconds",
        chart.spec.timeout_seconds.map(|seconds| json!(seconds)),
    );
    put(Some("helm"), "values", chart.spec.values.clone());
    put(Some("helm"), "releaseName", other("releaseName"));
    put(None, "defaultNamespace", other("defaultNamespace"));
    put(None, "targets", other("targets"));
    put(None, "paused", chart.spec.paused.map(Value::Bool));
    spec
}

/// How far Fleet is with a bundle.
enum State {
    Ready,
    /// Paused, and to be something else.
    OutOfSync,
    WaitApplied,
    ErrApplied(String),
}

/// What Fleet says of a bundle.
fn status(generation: Option<i64>, state: &State, before: &Value, now: &str) -> Value {
    let (name, message) = match state {
        State::Ready => ("ready", String::new()),
        State::OutOfSync => ("outOfSync", "OutOfSync(1) [Cluster fleet-local/local]".to_owned()),
        State::WaitApplied => ("waitApplied", "WaitApplied(1) [Cluster fleet-local/local]".to_owned()),
        State::ErrApplied(why) => (
            "errApplied",
            format!("ErrApplied(1) [Cluster fleet-local/local: {why}]"),
        ),
    };
    let is_ready = matches!(state, State::Ready);
    let known = before["conditions"].as_array().into_iter().flatten();
    let mut known = known.filter(|condition| condition["type"] == "Ready" && condition["message"] == message);
    let since = known
        .next()
        .map_or(json!(now), |condition| condition["lastUpdateTime"].clone());
    let mut summary = json!({"desiredReady": 1, "ready": 0, "outOfSync": 0, "waitApplied": 0, "errApplied": 0});
    summary[name] = json!(1);
    json!({
        "observedGeneration": generation,
        "unavailable": i32::from(!is_ready),
        "summary": summary,
        "display": {"readyClusters": if is_ready { "1/1" } else { "0/1" }},
        "conditions": [
            {"type": "Ready", "status": if is_ready { "True" } else { "False" }, "message": message, "lastUpdateTime": since},
        ],
    })
}

/// The status of a ready bundle, for a settled cluster.
pub(crate) fn at_rest(since: &str) -> Value {
    status(Some(1), &State::Ready, &Value::Null, since)
}

/// Fleet's agent makes the cluster be what a bundle says.
async fn deploy(world: &Context, inbox: &Inbox, known: &mut Known, key: &Key) -> Result<()> {
    // Other bundles are as they are.
    let bundle = world.bundles.at(key).filter(|_| key.1.starts_with(PREFIX));
    let Some(bundle) = bundle else {
        *known = Known::default();
        return Ok(());
    };
    let before = serde_json::to_value(&bundle.status)?;
    let generation = bundle.metadata.generation;
    let mut wanted = spec_of(&bundle);
    let is_paused = wanted["paused"] == true;
    wanted["paused"] = Value::Null;
    if known.applied.is_none() && before["summary"]["ready"] == 1 && bundle.status.observed_generation == generation {
        known.applied = Some(wanted.clone());
    }
    let now = world.clock.now();
    let state = if known.applied.as_ref() == Some(&wanted) {
        known.applying = None;
        State::Ready
    } else if is_paused {
        known.applying = None;
        State::OutOfSync
    } else {
        let since = match &known.applying {
            Some((what, since)) if *what == wanted => *since,
            _ => now,
        };
        known.applying = Some((wanted.clone(), since));
        apply(world, inbox, known, key, &bundle, since).await?
    };
    if matches!(state, State::Ready) {
        known.applied = Some(wanted);
    }
    let said = status(generation, &state, &before, &world.stamp());
    if said != before {
        world.bundles.patch_status(key, &said).await?;
    }
    let chart = (key.0.clone(), key.1.trim_start_matches(PREFIX).to_owned());
    hand_over(world, &chart).await
}

/// Helm upgrades the release, once it has had its time.
async fn apply(
    world: &Context,
    inbox: &Inbox,
    known: &Known,
    key: &Key,
    bundle: &Bundle,
    since: Timestamp,
) -> Result<State> {
    let version = |spec: &Value| spec["helm"]["version"].clone();
    let wanted = spec_of(bundle);
    let same_version = known
        .applied
        .as_ref()
        .is_some_and(|applied| version(applied) == version(&wanted));
    let chart = key.1.trim_start_matches(PREFIX);
    // Definitions are there as soon as they are applied; pods take their time.
    let takes = if chart.ends_with("-crd") {
        Duration::ZERO
    } else if same_version {
        world.durations.chart_values
    } else {
        world.durations.chart
    };
    let due = after(since, takes);
    if world.clock.now() < due {
        inbox.later(Kind::Bundle, key.clone(), due);
        return Ok(State::WaitApplied);
    }
    if !same_version && world.troubles().stuck_charts.contains(chart) {
        inbox.later(Kind::Bundle, key.clone(), after(world.clock.now(), STUCK_PAUSE));
        return Ok(State::WaitApplied);
    }
    if chart != api::names::HARVESTER_CHART {
        return Ok(State::Ready);
    }
    match harvester_chart::upgrade(world, &wanted["helm"]).await? {
        None => Ok(State::Ready),
        Some(conflict) => {
            // Fleet tries again and again.
            inbox.later(Kind::Bundle, key.clone(), after(world.clock.now(), STUCK_PAUSE));
            Ok(State::ErrApplied(conflict))
        }
    }
}
