//! Upgrades Rancher by Helm, unless it is at its version already.

use std::time::Duration;

use api::{
    ProgramWait,
    foreign::{catalog::ClusterRepo, management},
    names,
};
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    core::v1::{ConfigMap, Secret},
};
use kube::runtime::watcher;
use serde_json::Value;

use crate::{
    context::Context,
    helm_release::{self, HelmRelease, Pending},
    version_line::is_of_line,
};
use program::{
    error::Result,
    report::{Look, Waiting},
    step::StepContext,
};

use super::{FLEET_SYSTEM, RELEASE, capi, journal, values};

const TICK: Duration = Duration::from_secs(5);
const FLEET_CONTROLLER: &str = "fleet-controller";
/// Rancher recreates these, with the charts of its version.
const STALE_REPOS: [&str; 3] = ["rancher-charts", "rancher-rke2-charts", "rancher-partner-charts"];
const STALE_SETTING: &str = "chart-default-branch";

/// What a look at Rancher's releases says.
#[derive(Clone, Debug, PartialEq)]
enum Standing {
    /// The target version is deployed, since then.
    Done(Option<jiff::Timestamp>),
    /// It can be upgraded from these values.
    Ready(Value),
    /// An earlier upgrade was abandoned.
    RollBack(i64),
}

/// Gets ready what upgrades Rancher, so that whatever is missing is missed before anything is changed.
pub(crate) async fn prepare(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let history = history(context).await?;
    if is_deployed(&history, &context.release()?.rancher) {
        return Ok(());
    }
    context
        .installer
        .prepare(ctx, &context.release()?.rancher, context.bundle()?)
        .await
}

/// Upgrades Rancher.
pub(crate) async fn upgrade(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let target = &context.release()?.rancher;
    let current = loop {
        match stand(context, ctx, target).await? {
            Standing::Done(since) => {
                journal::take_over(context, target, since).await?;
                return remove_legacy_webhooks(context).await;
            }
            Standing::Ready(current) => break current,
            Standing::RollBack(revision) => {
                tracing::warn!(revision, "an earlier upgrade of Rancher was abandoned; rolling back");
                let installer = &context.installer;
                installer.prepare(ctx, target, context.bundle()?).await?;
                installer.roll_back(names::CATTLE_NAMESPACE, RELEASE, revision).await?;
            }
        }
    };
    capi::wait(context, ctx).await?;
    begin_journal(context, target).await?;
    let repos = context.global::<ClusterRepo>();
    for repo in STALE_REPOS {
        repos.delete(repo).await?;
    }
    context.global::<management::Setting>().delete(STALE_SETTING).await?;
    let upgraded = values::upgraded(&current, target, &context.nodes().await?);
    for feature in values::features(&current, target).left_out {
        context.note(format!(
            "feature {feature} of Helm release {}/{RELEASE} is left out: Rancher {target} would refuse all features for it",
            names::CATTLE_NAMESPACE
        ));
    }
    context.installer.prepare(ctx, target, context.bundle()?).await?;
    remove_legacy_webhooks(context).await?;
    let object = format!("Helm release {}/{RELEASE}", names::CATTLE_NAMESPACE);
    let upgrading = Waiting {
        what: ProgramWait::HelmRelease,
        message: format!("{object} is being upgraded to {target}"),
        object,
    };
    ctx.report.waiting(&[upgrading], Some(ctx.deadline));
    context
        .installer
        .upgrade_rancher(names::CATTLE_NAMESPACE, RELEASE, &upgraded)
        .await
}

async fn history(context: &Context) -> Result<Vec<HelmRelease>> {
    let secrets = context.namespaced::<Secret>(names::CATTLE_NAMESPACE);
    let secrets = secrets.list(&selector(RELEASE)).await?;
    Ok(helm_release::history(&secrets))
}

/// The labels of the Secrets of a release.
pub(super) fn selector(release: &str) -> String {
    format!("owner=helm,name={release}")
}

fn is_deployed(history: &[HelmRelease], target: &str) -> bool {
    helm_release::deployed(history).is_some_and(|release| values::is_at(&release.config, target))
}

/// The state of Rancher's release, once no client works on it.
async fn stand(context: &Context, ctx: StepContext<'_>, target: &str) -> Result<Standing> {
    let secrets = context.namespaced::<Secret>(names::CATTLE_NAMESPACE);
    let of_rancher = watcher::Config::default().labels(&selector(RELEASE));
    let mut standing = Standing::Done(None);
    secrets
        .watch(ctx, of_rancher, Some(TICK), |secrets| {
            let history = helm_release::history(secrets.iter().map(AsRef::as_ref));
            match decide(&history, target, context.clock.now()) {
                Ok(found) => {
                    standing = found;
                    Look::Done
                }
                Err(look) => look,
            }
        })
        .await?;
    Ok(standing)
}

fn decide(history: &[HelmRelease], target: &str, now: jiff::Timestamp) -> Result<Standing, Look> {
    let release = format!("{}/{RELEASE}", names::CATTLE_NAMESPACE);
    match helm_release::pending(history, now) {
        Pending::Until(until) => {
            let object = format!("Helm release {release}");
            let message = format!("{object} is pending; it counts as abandoned from {until} on");
            let what = ProgramWait::HelmRelease;
            return Err(Look::wait(Waiting { what, object, message }));
        }
        Pending::RollBack(revision) => return Ok(Standing::RollBack(revision)),
        // Helm refuses to upgrade a pending release, and there is none to go back to, or going back did not help.
        Pending::Again => {
            return Err(Look::Fail(format!(
                "Helm release {release} is pending again after a rollback"
            )));
        }
        Pending::NothingDeployed => {
            return Err(Look::Fail(format!(
                "Helm release {release} is pending and was never deployed"
            )));
        }
        Pending::No => {}
    }
    if is_deployed(history, target) {
        let since = helm_release::deployed(history).and_then(|release| release.info.last_deployed);
        return Ok(Standing::Done(since));
    }
    let Some(newest) = history.last() else {
        return Err(Look::Fail(format!("there is no Helm release {release}")));
    };
    if values::version(&newest.config).is_none() {
        return Err(Look::Fail(format!(
            "the values of Helm release {release} name no version"
        )));
    }
    Ok(Standing::Ready(newest.config.clone()))
}

/// When Rancher was last upgraded to a version, whatever became of it: a release that failed may have changed Fleet's
/// configuration, and so may one that was rolled back since.
fn last_tried(history: &[HelmRelease], target: &str) -> Option<jiff::Timestamp> {
    let tries = history.iter().filter(|release| values::is_at(&release.config, target));
    tries.filter_map(|release| release.info.last_deployed).max()
}

/// Records what is about to happen, and what Fleet's configuration was before. Another attempt keeps the first record, also
/// that of another plan: what is there now may be what its attempt has made of it.
async fn begin_journal(context: &Context, target: &str) -> Result<()> {
    let tried = last_tried(&history(context).await?, target);
    if tried.is_some() {
        journal::take_over(context, target, tried).await?;
    }
    if journal::own(context, target)
        .await?
        .is_some_and(|journal| !journal.settled)
    {
        return Ok(());
    }
    let maps = context.namespaced::<ConfigMap>(FLEET_SYSTEM);
    let (server_url, server_ca) = super::fleet_config::server_of(maps.get(FLEET_CONTROLLER).await?.as_ref())?;
    let journal = journal::Journal {
        plan: journal::plan_uid(context)?,
        target: target.to_owned(),
        server_url,
        server_ca,
        ..journal::Journal::default()
    };
    journal::write(context, &journal).await
}

/// Webhooks of an older Cluster API that Rancher leaves behind on its way from Harvester v1.7: no server answers them, so
/// they must be gone before the new Rancher writes objects that they review, also when an earlier attempt got that far.
async fn remove_legacy_webhooks(context: &Context) -> Result<()> {
    if !is_of_line(context.previous_version()?, 1, 7) {
        return Ok(());
    }
    let mutating = context.global::<MutatingWebhookConfiguration>();
    mutating.delete("mutating-webhook-configuration").await?;
    let validating = context.global::<ValidatingWebhookConfiguration>();
    validating.delete("validating-webhook-configuration").await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn revision(number: i64, status: &str, tag: &str) -> HelmRelease {
        serde_json::from_value(json!({
            "name": "rancher", "version": number, "config": {"image": {"tag": tag}},
            "info": {"status": status, "last_deployed": "2026-03-13T04:00:00Z"},
        }))
        .unwrap()
    }

    fn later() -> jiff::Timestamp {
        "2026-03-13T05:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_revision_that_was_never_deployed_is_no_upgrade() {
        // The existing script reads the newest values, whatever became of them, and takes Rancher for upgraded.
        let history = [
            revision(1, "deployed", "v2.13.0"),
            revision(2, "pending-upgrade", "v2.14.0"),
        ];
        assert_eq!(decide(&history, "v2.14.0", later()), Ok(Standing::RollBack(1)));
        let history = [revision(1, "deployed", "v2.13.0"), revision(2, "failed", "v2.14.0")];
        assert!(matches!(decide(&history, "v2.14.0", later()), Ok(Standing::Ready(_))));
        let history = [revision(1, "superseded", "v2.13.0"), revision(2, "deployed", "v2.14.0")];
        let since = "2026-03-13T04:00:00Z".parse().unwrap();
        assert_eq!(decide(&history, "v2.14.0", later()), Ok(Standing::Done(Some(since))));
    }

    #[test]
    fn what_cannot_be_upgraded_says_why() {
        let fails = |history: &[HelmRelease], why: &str| match decide(history, "v2.14.0", later()) {
            Err(Look::Fail(found)) => assert!(found.contains(why), "{found}"),
            other => panic!("{other:?}"),
        };
        fails(&[], "there is no Helm release cattle-system/rancher");
        fails(&[revision(1, "deployed", "")], "name no version");
        fails(&[revision(1, "pending-install", "v2.14.0")], "never deployed");
    }
}
