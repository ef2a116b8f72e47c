//! The first steps: the repository serves, the release is complete, the plan may be carried out.

use api::{ProgramWait, UpgradePlan, names};

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use release::{bundle, release_file};
use rules::eligibility::{self, Question};

use program::{
    error::{Error, Result},
    report::{Look, Waiting},
    step::StepContext,
};

use super::context::Context;

/// The Deployment of the repository is available and serves.
pub(super) async fn wait(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let deployments = context.namespaced::<Deployment>(names::HARVESTER_NAMESPACE);
    let name = names::repo(&context.plan);
    let called = deployments.called(&name);
    deployments
        .until(ctx, &name, |deployment| is_served(&called, deployment))
        .await?;
    context.repository.text(release_file::PATH).await.map(drop)
}

/// Whether the repository serves.
#[must_use]
pub fn is_served(called: &str, deployment: Option<&Deployment>) -> Look {
    if deployment.is_some_and(is_available) {
        return Look::Done;
    }
    Look::wait(Waiting {
        what: ProgramWait::Repository,
        object: called.to_owned(),
        message: format!("{called} is not available, so the release cannot be read"),
    })
}

fn is_available(deployment: &Deployment) -> bool {
    let conditions = deployment
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.type_ == "Available")
        .any(|condition| condition.status == "True")
}

/// Reads what the release says about itself.
pub(super) async fn read_release(context: &Context, _: StepContext<'_>) -> Result<()> {
    // Known before the first change: a cluster whose Rancher is new and whose CDI cannot follow would be left in between.
    context.manifests.cdi()?;
    let text = context.repository.text(release_file::PATH).await?;
    let release = release_file::parse(&text).map_err(|error| Error::Permanent(error.to_string()))?;
    is_complete(&release)?;
    let text = context.repository.text(bundle::PATH).await?;
    let bundle = bundle::parse(&text).map_err(|error| Error::Permanent(error.to_string()))?;
    context.learn_release(release);
    context.learn_bundle(bundle);
    Ok(())
}

/// A release must say all that a cluster upgrade needs, before anything is changed.
///
/// # Errors
/// What it does not say.
pub fn is_complete(release: &release_file::ReleaseFile) -> Result<()> {
    let lacks = missing(release);
    if lacks.is_empty() {
        return Ok(());
    }
    Err(Error::Permanent(format!(
        "{} has no {}: a cluster cannot be upgraded to this release",
        release_file::PATH,
        lacks.join(", ")
    )))
}

/// Charts of Rancher whose versions a release must name.
pub(super) const RANCHER_CHARTS: [&str; 3] = ["fleet", "fleet-crd", "rancher-webhook"];

/// What a release must contain and this one does not. Nothing has been changed yet at this point.
#[must_use]
pub fn missing(release: &release_file::ReleaseFile) -> Vec<String> {
    let optional = |text: &Option<String>| text.clone().unwrap_or_default();
    let fields = [
        ("harvesterChart", release.harvester_chart.clone()),
        ("rancher", release.rancher.clone()),
        ("monitoringChart", release.monitoring_chart.clone()),
        ("loggingChart", optional(&release.logging_chart)),
        (
            "loggingChartHarvesterEventRouter",
            optional(&release.logging_chart_harvester_event_router),
        ),
        ("kubevirt", optional(&release.kubevirt)),
    ];
    let mut missing: Vec<String> = fields
        .into_iter()
        .filter(|(_, value)| value.is_empty())
        .map(|(name, _)| name.to_owned())
        .collect();
    for chart in RANCHER_CHARTS {
        let versions = release.rancher_dependencies.get(chart);
        if versions.is_none_or(|versions| versions.chart.is_empty() || versions.app.is_empty()) {
            missing.push(format!("rancherDependencies.{chart}"));
        }
    }
    missing
}

/// Reads the plan, and refuses an upgrade that is not allowed before anything has been changed.
pub(super) async fn read_plan(context: &Context, _: StepContext<'_>) -> Result<()> {
    let plan = context.global::<UpgradePlan>().need(&context.plan).await?;
    let release = context.release()?;
    let previous = may_be_upgraded(&plan, release)?;
    tracing::info!(from = previous, to = release.harvester, "upgrading the cluster");
    context.learn_plan(plan);
    Ok(())
}

/// Whether a plan may bring its cluster to a release; the version that runs.
///
/// # Errors
/// Why it may not, or may not yet.
pub fn may_be_upgraded<'a>(plan: &'a UpgradePlan, release: &release_file::ReleaseFile) -> Result<&'a str> {
    let previous = plan
        .status
        .as_ref()
        .and_then(|status| status.previous_version.as_deref());
    let previous = previous.ok_or_else(|| {
        Error::Transient(format!(
            "UpgradePlan {} has no status.previousVersion yet",
            plan.name_any()
        ))
    })?;
    let checked = eligibility::check(Question {
        current: Some(previous),
        target: &release.harvester,
        minimum: &release.min_upgradable_version,
        strict: true,
        skipped: plan.skips_version_check(),
    });
    checked
        .map_err(|why| Error::Permanent(format!("{previous} cannot be upgraded to {}: {why}", release.harvester)))?;
    Ok(previous)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_a_release_lacks_is_named_at_once() {
        let release =
            release_file::parse("harvester: v1.8.0\nos: Harvester v1.8.0\nkubernetes: v1\nrancher: v2\n").unwrap();
        assert_eq!(
            missing(&release),
            [
                "harvesterChart",
                "monitoringChart",
                "loggingChart",
                "loggingChartHarvesterEventRouter",
                "kubevirt",
                "rancherDependencies.fleet",
                "rancherDependencies.fleet-crd",
                "rancherDependencies.rancher-webhook"
            ]
        );
    }
}
