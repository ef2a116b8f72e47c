//! Fleet: a ManagedChart whose version or values move is out of sync for a while and then Ready again. A paused chart
//! stays as it is.

use std::{sync::Arc, time::Duration};

use api::{
    foreign::{harvester::Setting, rancher::ManagedChart},
    names,
};
use jiff::Timestamp;
use kube::{
    Resource,
    api::{Patch, PatchParams, Request},
};
use serde_json::{Value, json};

use crate::{
    cluster::management,
    context::{Context, after, annotation},
    error::{Error, Result},
    helm,
    inbox::{Inbox, Key, Kind},
    release::LONGHORN,
};

use super::longhorn;

/// How soon a chart that does not get ready is looked at again.
const STUCK_PAUSE: Duration = Duration::from_secs(60);

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.charts.subscribe(&inbox);
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = sync(&world, &inbox, &key).await;
        inbox.settle("fleet", (kind, key), outcome);
    }
}

/// What the world remembers of a chart: the real kind has no field for it.
pub(crate) const APPLIED: &str = "world/applied-version";
const ROLLING_OUT: &str = "world/rolling-out";
const ROLLING_OUT_SINCE: &str = "world/rolling-out-since";

fn text(chart: &ManagedChart, key: &str) -> Option<String> {
    annotation(&chart.metadata, key).map(str::to_owned)
}

/// The chart's annotations for a version that is being rolled out, or is.
fn memory(version: &str, ready: bool, since: &str) -> Value {
    let annotations = if ready {
        json!({APPLIED: version, ROLLING_OUT: null, ROLLING_OUT_SINCE: null})
    } else {
        json!({APPLIED: null, ROLLING_OUT: version, ROLLING_OUT_SINCE: since})
    };
    json!({"metadata": {"annotations": annotations}})
}

/// The chart's status while a version is being rolled out, or when it is.
pub(crate) fn status(generation: Option<i64>, ready: bool, since: &str) -> Value {
    let (status, message) = if ready {
        ("True", "")
    } else {
        ("False", "WaitApplied(1) [Cluster fleet-local/local]")
    };
    json!({
        "observedGeneration": generation,
        "summary": {"desiredReady": 1, "ready": i32::from(ready)},
        "conditions": [
            {"type": "Ready", "status": status, "message": message, "lastUpdateTime": since},
            {"type": "Processed", "status": "True", "lastUpdateTime": since},
        ],
    })
}

async fn sync(world: &Context, inbox: &Inbox, key: &Key) -> Result<()> {
    let Some(chart) = world
        .charts
        .at(key)
        .filter(|chart| chart.metadata.deletion_timestamp.is_none())
    else {
        return Ok(());
    };
    let version = chart.spec.version.clone().unwrap_or_default();
    let generation = chart.metadata.generation;
    if chart.spec.paused == Some(true) {
        return Ok(());
    }
    if text(&chart, APPLIED).as_ref() == Some(&version) {
        if chart.status.observed_generation < generation {
            let seen = json!({"observedGeneration": generation});
            world.charts.patch_status(key, &seen).await?;
        }
        return Ok(());
    }
    let now = world.stamp();
    if text(&chart, ROLLING_OUT).as_ref() != Some(&version) {
        let begun = status(generation, false, &now);
        world.charts.patch_status(key, &begun).await?;
        return world.charts.patch(key, &memory(&version, false, &now)).await.map(drop);
    }
    let since = text(&chart, ROLLING_OUT_SINCE)
        .and_then(|text| text.parse().ok())
        .unwrap_or(Timestamp::MIN);
    // Definitions are there as soon as they are applied; pods take their time.
    let takes = if key.1.ends_with("-crd") {
        Duration::ZERO
    } else {
        world.durations.chart
    };
    let due = after(since, takes);
    if world.clock.now() < due {
        inbox.later(Kind::ManagedChart, key.clone(), due);
        return Ok(());
    }
    if world.troubles().stuck_charts.contains(&key.1) {
        inbox.later(Kind::ManagedChart, key.clone(), after(world.clock.now(), STUCK_PAUSE));
        return Ok(());
    }
    if key.1 == names::HARVESTER_CHART {
        follow_harvester(world).await?;
    }
    world.charts.patch(key, &memory(&version, true, &now)).await?;
    let done = status(generation, true, &now);
    world.charts.patch_status(key, &done).await.map(drop)
}

/// What comes up with a new Harvester: Helm knows it, it says which version it is, and its Longhorn and KubeVirt follow.
async fn follow_harvester(world: &Context) -> Result<()> {
    let release = world.shape.release();
    helm::deploy(
        world,
        (names::HARVESTER_NAMESPACE, names::HARVESTER_CHART),
        (names::HARVESTER_CHART, &release.harvester_chart, &release.harvester),
        &management::harvester_values(LONGHORN),
    )
    .await?;
    longhorn::renew(world).await?;
    set_server_version(world, &release.harvester).await?;
    let key = (names::HARVESTER_NAMESPACE.to_owned(), names::KUBEVIRT.to_owned());
    let status = json!({"observedKubeVirtVersion": release.kubevirt});
    world.kubevirts.patch_status(&key, &status).await.map(drop)
}

/// Settings are not watched: nobody else here reads them.
async fn set_server_version(world: &Context, version: &str) -> Result<()> {
    let what = "set the server version";
    let patch = json!({ "value": version });
    let request = Request::new(Setting::url_path(&(), None))
        .patch(
            names::SERVER_VERSION_SETTING,
            &PatchParams::default(),
            &Patch::Merge(&patch),
        )
        .map_err(|error| Error::api(what, kube::Error::BuildRequest(error)))?;
    match world.client.request::<Value>(request).await {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::api(what, error)),
    }
}
