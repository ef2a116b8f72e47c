//! Fleet: a ManagedChart whose version or values move is out of sync for a while and then Ready again. A paused chart
//! stays as it is.

use std::sync::Arc;

use api::foreign::rancher::ManagedChart;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    context::{Context, after},
    error::Result,
    inbox::{Inbox, Key, Kind},
};

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.charts.subscribe(&inbox);
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = sync(&world, &inbox, &key).await;
        inbox.settle("fleet", (kind, key), outcome);
    }
}

fn text(chart: &ManagedChart, field: &str) -> Option<String> {
    chart.status.other.get(field).and_then(Value::as_str).map(str::to_owned)
}

/// The chart's status for a version that is being rolled out, or is.
pub(crate) fn status(version: &str, ready: bool, since: &str) -> Value {
    let (status, message) = if ready {
        ("True", "")
    } else {
        ("False", "WaitApplied(1) [Cluster fleet-local/local]")
    };
    json!({
        "appliedVersion": if ready { json!(version) } else { Value::Null },
        "rollingOut": if ready { Value::Null } else { json!(version) },
        "rollingOutSince": if ready { Value::Null } else { json!(since) },
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
    if chart.spec.paused == Some(true) || text(&chart, "appliedVersion").as_ref() == Some(&version) {
        return Ok(());
    }
    if text(&chart, "rollingOut").as_ref() != Some(&version) {
        return world
            .charts
            .patch_status(key, &status(&version, false, &world.stamp()))
            .await
            .map(drop);
    }
    let since = text(&chart, "rollingOutSince")
        .and_then(|text| text.parse().ok())
        .unwrap_or(Timestamp::MIN);
    let due = after(since, world.durations.chart);
    if world.clock.now() < due {
        inbox.later(Kind::ManagedChart, key.clone(), due);
        return Ok(());
    }
    world
        .charts
        .patch_status(key, &status(&version, true, &world.stamp()))
        .await
        .map(drop)
}
