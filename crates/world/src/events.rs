//! Events on UpgradePlans, as the programs of our Jobs write them.

use api::{UpgradePlan, names};
use kube::api::{PostParams, Request};
use serde_json::{Value, json};

use crate::{
    context::{Context, digest},
    error::{Error, Result},
};

/// What is reported about a plan.
pub(crate) struct Report<'a> {
    pub(crate) plan: &'a str,
    pub(crate) node: &'a str,
    pub(crate) source: &'a str,
    pub(crate) warning: bool,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// Writes an event; one that says the same already is left as it is. Nothing when the plan is gone.
pub(crate) async fn record(world: &Context, report: &Report<'_>) -> Result<()> {
    let Some(plan) = world.upgrade_plans.get("", report.plan) else {
        return Ok(());
    };
    // The same report has the same name, so a program that starts anew does not say things twice.
    let id = digest(
        &format!("{}/{}/{}/{}", report.source, report.node, report.reason, report.message),
        16,
    );
    let name = format!("{}.{id}", report.plan);
    let now = world.stamp();
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": names::DEFAULT_NAMESPACE},
        "involvedObject": {
            "apiVersion": <UpgradePlan as kube::Resource>::api_version(&()), "kind": "UpgradePlan",
            "name": report.plan, "uid": plan.metadata.uid, "resourceVersion": plan.metadata.resource_version,
        },
        "type": if report.warning { "Warning" } else { "Normal" },
        "reason": report.reason, "message": report.message,
        "source": {"component": report.source, "host": report.node},
        "reportingComponent": report.source, "reportingInstance": report.node,
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    });
    let path = format!("/api/v1/namespaces/{}/events", names::DEFAULT_NAMESPACE);
    let request = Request::new(path)
        .create(&PostParams::default(), serde_json::to_vec(&event)?)
        .map_err(|error| Error::api("create event", kube::Error::BuildRequest(error)))?;
    match world.client.request::<Value>(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(Error::api("create event", error)),
    }
}
