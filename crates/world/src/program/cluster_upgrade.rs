//! The cluster's manifests: charts to their new versions one after another, addons, and at the end the version that
//! Harvester says it runs.

use api::{foreign::harvester::Setting, names};
use kube::{
    Resource,
    api::{Patch, PatchParams, Request},
};
use serde_json::{Value, json};

use crate::{
    context::Context,
    error::{Error, Result},
};

use super::Call;

pub(super) async fn run(call: &Call<'_>) -> Result<()> {
    let release = call.world.shape.release();
    // The order of the real script: definitions first, then what needs them.
    for (chart, version) in [
        ("harvester-crd", &release.harvester_chart),
        (names::HARVESTER_CHART, &release.harvester_chart),
        ("rancher-monitoring-crd", &release.monitoring_chart),
        ("rancher-logging-crd", &release.logging_chart),
    ] {
        upgrade_chart(call.world, chart, version).await?;
    }
    call.take(call.world.durations.cluster_upgrade).await;
    set_server_version(call.world, &release.harvester).await?;
    Ok(())
}

async fn upgrade_chart(world: &Context, chart: &str, version: &str) -> Result<()> {
    let key = (names::FLEET_NAMESPACE.to_owned(), chart.to_owned());
    let Some(current) = world.charts.at(&key) else {
        return Ok(());
    };
    if current.spec.version.as_deref() != Some(version) || current.spec.paused == Some(true) {
        world
            .charts
            .patch(&key, &json!({"spec": {"version": version, "paused": null}}))
            .await?;
    }
    let inbox = world.inbox();
    world.charts.subscribe(&inbox);
    let applied = |world: &Context| {
        let chart = world.charts.at(&key);
        chart.is_none_or(|chart| chart.status.other.get("appliedVersion").and_then(Value::as_str) == Some(version))
    };
    world.until(&inbox, applied).await;
    Ok(())
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
