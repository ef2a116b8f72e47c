//! What Rancher brings is at the versions of the release, and runs.

use std::time::Duration;

use api::{ProgramWait, foreign::management, names};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher;
use serde_json::{Value, json};

use crate::{
    catalog,
    context::Context,
    helm_release::{self, Pending},
    repository::RANCHER_CHARTS,
};
use program::{
    error::Result,
    report::{Look, Waiting},
    step::StepContext,
};

use super::{FLEET_AGENT_SYSTEM, FLEET_SYSTEM, journal, upgrade::selector};

const TICK: Duration = Duration::from_secs(5);
const SERVER_VERSION: &str = "server-version";
/// Rancher's aggregation waits for it; old versions never made it.
const AGGREGATION_SECRET: &str = "stv-aggregation";

/// Rancher says that it runs the release's version.
pub(crate) async fn wait_version(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let settings = context.global::<management::Setting>();
    let target = &context.release()?.rancher;
    let called = settings.called(SERVER_VERSION);
    settings
        .until(ctx, SERVER_VERSION, |setting| {
            let found = setting.map_or("", |setting| setting.value.as_str());
            if found == target {
                return Look::Done;
            }
            let message = format!("Rancher does not run {target} yet; it says {found:?}");
            let what = ProgramWait::RancherVersion;
            Look::wait(Waiting {
                what,
                object: called.clone(),
                message,
            })
        })
        .await
}

/// Rancher has read its charts again.
pub(crate) async fn refresh_charts(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    if journal::unsettled(context).await?.is_none() {
        return Ok(());
    }
    catalog::refresh_rancher_charts(context, ctx).await
}

/// The charts that Rancher installs by itself are at the release's versions. An upgrade of one that was abandoned is
/// rolled back once, so that Rancher tries again.
pub(crate) async fn wait_charts(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    if journal::unsettled(context).await?.is_none() {
        return Ok(());
    }
    for name in RANCHER_CHARTS {
        let namespace = if name == "rancher-webhook" {
            names::CATTLE_NAMESPACE
        } else {
            FLEET_SYSTEM
        };
        while let Some(revision) = wait_chart(context, ctx, namespace, name).await? {
            tracing::warn!(
                release = name,
                revision,
                "the upgrade of a chart was abandoned; rolling back"
            );
            let target = &context.release()?.rancher;
            context.installer.prepare(ctx, target, context.bundle()?).await?;
            context.installer.roll_back(namespace, name, revision).await?;
        }
    }
    Ok(())
}

/// Waits for one chart; a revision to go back to ends the wait.
async fn wait_chart(context: &Context, ctx: StepContext<'_>, namespace: &str, name: &str) -> Result<Option<i64>> {
    let versions = context
        .release()?
        .rancher_dependencies
        .get(name)
        .cloned()
        .unwrap_or_default();
    let secrets = context.namespaced::<Secret>(namespace);
    let of_release = watcher::Config::default().labels(&selector(name));
    let mut revision = None;
    secrets
        .watch(ctx, of_release, Some(TICK), |secrets| {
            let history = helm_release::history(secrets.iter().map(AsRef::as_ref));
            let Some(lacks) = helm_release::lacks(&history, name, &versions.chart, &versions.app) else {
                return Look::Done;
            };
            let note = match helm_release::pending(&history, context.clock.now()) {
                Pending::RollBack(to) => {
                    revision = Some(to);
                    return Look::Done;
                }
                Pending::No => String::new(),
                Pending::Until(until) => format!("; it counts as abandoned from {until} on"),
                Pending::Again => "; it was rolled back once already".to_owned(),
                Pending::NothingDeployed => "; there is no revision to go back to".to_owned(),
            };
            let object = format!("Helm release {namespace}/{name}");
            let message = format!(
                "{object} is not {name}-{} ({}): {lacks}{note}",
                versions.chart, versions.app
            );
            let what = ProgramWait::HelmRelease;
            Look::wait(Waiting { what, object, message })
        })
        .await?;
    Ok(revision)
}

/// Rancher, its webhook and Fleet run their current templates.
pub(crate) async fn wait_rollouts(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    for (namespace, name) in [
        (names::CATTLE_NAMESPACE, "rancher"),
        (FLEET_SYSTEM, "fleet-controller"),
        (names::CATTLE_NAMESPACE, "rancher-webhook"),
    ] {
        context.wait_rollout(ctx, namespace, name).await?;
    }
    let secrets = context.namespaced::<Secret>(names::CATTLE_NAMESPACE);
    if secrets.get(AGGREGATION_SECRET).await?.is_none() {
        secrets.apply(AGGREGATION_SECRET, &aggregation_secret()).await?;
    }
    context.wait_rollout(ctx, FLEET_AGENT_SYSTEM, "fleet-agent").await
}

/// The Secret that Rancher's aggregation requires, empty.
#[must_use]
pub fn aggregation_secret() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": AGGREGATION_SECRET, "namespace": names::CATTLE_NAMESPACE},
    })
}
