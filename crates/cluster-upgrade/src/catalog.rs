//! The repository of Harvester's charts, and making Rancher read a repository again.

use api::{ProgramWait, annotations::REFRESHED_FOR, foreign::catalog::ClusterRepo, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use serde_json::{Value, json};

use program::{
    error::Result,
    report::{Look, Waiting},
    step::StepContext,
};

use super::context::Context;

const DEPLOYMENT: &str = "harvester-cluster-repo";
const CONTAINER: &str = "httpd";
const IMAGE: &str = "rancher/harvester-cluster-repo";
const HARVESTER_CHARTS: &str = "harvester-charts";
const RANCHER_CHARTS: &str = "rancher-charts";

/// The repository serves the charts of the new release, and Rancher has read them.
pub(super) async fn upgrade(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let deployments = context.namespaced::<Deployment>(names::CATTLE_NAMESPACE);
    let image = format!("{IMAGE}:{}", context.release()?.os_version());
    let deployment = deployments.need(DEPLOYMENT).await?;
    if image_of(&deployment, CONTAINER) != Some(&image) {
        deployments.merge_by_name(DEPLOYMENT, &image_patch(&image)).await?;
    }
    context.wait_rollout(ctx, names::CATTLE_NAMESPACE, DEPLOYMENT).await?;
    refresh(context, ctx, HARVESTER_CHARTS, &image).await
}

/// New Rancher recreates its own repositories; its charts are needed before they would be read by themselves.
pub(super) async fn refresh_rancher_charts(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let version = context.release()?.rancher.clone();
    refresh(context, ctx, RANCHER_CHARTS, &version).await
}

/// What makes the repository's Deployment run another image.
#[must_use]
pub fn image_patch(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": CONTAINER, "image": image}]}}}})
}

fn image_of<'a>(deployment: &'a Deployment, container: &str) -> Option<&'a String> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let found = pod.containers.iter().find(|found| found.name == container)?;
    found.image.as_ref()
}

/// Makes Rancher read a repository again, once per `reason`, and waits until it has.
async fn refresh(context: &Context, ctx: StepContext<'_>, name: &str, reason: &str) -> Result<()> {
    let repos = context.global::<ClusterRepo>();
    let called = repos.called(name);
    let reason = format!("{}/{reason}", context.plan);
    let waiting = |message: String| {
        let what = ProgramWait::ClusterRepo;
        Look::wait(Waiting {
            what,
            object: called.clone(),
            message,
        })
    };
    let mut wanted = None;
    repos
        .until(ctx, name, |repo| match repo {
            None => waiting(format!("{called} does not exist yet")),
            Some(repo) if downloaded(repo).is_none() => waiting(format!("{called} has never been read")),
            Some(repo) => {
                wanted = refresh_patch(repo, &reason);
                Look::Done
            }
        })
        .await?;
    if let Some((at, patch)) = wanted {
        // A time in the future would be ignored.
        context.clock.sleep_until(at).await;
        repos.merge(name, &patch).await?;
    }
    repos
        .until(ctx, name, |repo| {
            if repo.is_some_and(is_refreshed) {
                Look::Done
            } else {
                waiting(format!("{called} has not been read again, so new charts are not known"))
            }
        })
        .await
}

fn downloaded(repo: &ClusterRepo) -> Option<Timestamp> {
    repo.status.download_time.as_ref()?.parse().ok()
}

/// The patch that has a repository read again, and when it may be written; nothing when it was for this reason.
#[must_use]
pub fn refresh_patch(repo: &ClusterRepo, reason: &str) -> Option<(Timestamp, Value)> {
    if repo
        .annotations()
        .get(REFRESHED_FOR)
        .is_some_and(|found| found == reason)
    {
        return None;
    }
    let at = downloaded(repo)?.saturating_add(SignedDuration::from_secs(1)).ok()?;
    let patch = json!({
        "metadata": {"annotations": {REFRESHED_FOR: reason}},
        "spec": {"forceUpdate": Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()},
    });
    Some((at, patch))
}

/// Whether a repository has been read since that was requested.
#[must_use]
pub fn is_refreshed(repo: &ClusterRepo) -> bool {
    let asked = repo
        .spec
        .force_update
        .as_ref()
        .and_then(|at| at.parse::<Timestamp>().ok());
    match (downloaded(repo), asked) {
        (Some(read), Some(asked)) => read >= asked,
        (read, None) => read.is_some(),
        (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_read_again_once_for_each_reason() {
        let mut repo = ClusterRepo::named("harvester-charts");
        assert_eq!(refresh_patch(&repo, "up/1"), None);
        repo.status.download_time = Some("2026-03-13T04:00:00Z".into());
        let (at, patch) = refresh_patch(&repo, "up/1").unwrap();
        assert_eq!(at, "2026-03-13T04:00:01Z".parse().unwrap());
        assert_eq!(patch["spec"]["forceUpdate"], "2026-03-13T04:00:01Z");
        repo.spec.force_update = Some("2026-03-13T04:00:01Z".into());
        repo.annotations_mut().insert(REFRESHED_FOR.into(), "up/1".into());
        assert_eq!(refresh_patch(&repo, "up/1"), None);
        assert!(refresh_patch(&repo, "up/2").is_some());
        assert!(!is_refreshed(&repo));
        repo.status.download_time = Some("2026-03-13T04:00:07Z".into());
        assert!(is_refreshed(&repo));
    }
}
