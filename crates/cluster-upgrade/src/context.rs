//! What the steps of the cluster upgrade share: the cluster, the release, and what they found on the way.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use api::UpgradePlan;
use clock::Clock;
use k8s_openapi::{
    ClusterResourceScope, NamespaceResourceScope,
    api::{apps::v1::Deployment, core::v1::Node},
};
use kube::{Api, Client, Resource};
use release::{bundle::Bundle, release_file::ReleaseFile};

use program::{
    error::{Error, Result},
    report::Waiting,
    step::StepContext,
};

use super::{
    installer::RancherInstaller,
    manifests::Manifests,
    objects::{Kind, Objects},
    pauses::Pauses,
    rollout,
};
use program::release_files::ReleaseFiles;

/// What a cluster upgrade works with.
pub struct Context {
    /// The cluster.
    pub client: Client,
    /// The program's clock.
    pub clock: Clock,
    /// The name of the UpgradePlan.
    pub plan: String,
    /// The image this program runs from, with its tag: what nodes run for it.
    pub image: String,
    /// The account of the Jobs that system-upgrade-controller runs.
    pub plan_service_account: String,
    /// Where the release is served.
    pub repository: Arc<dyn ReleaseFiles>,
    /// What upgrades Rancher.
    pub installer: Arc<dyn RancherInstaller>,
    /// The manifests of addons and CDI.
    pub manifests: Arc<dyn Manifests>,
    /// How long others get.
    pub pauses: Pauses,
    /// What was found on the way.
    pub found: Found,
}

/// What earlier steps found out for later ones. Every run finds it out again.
#[derive(Default)]
pub struct Found {
    release: OnceLock<ReleaseFile>,
    bundle: OnceLock<Bundle>,
    plan: OnceLock<UpgradePlan>,
    notes: Mutex<Vec<String>>,
}

fn known<'a, T>(cell: &'a OnceLock<T>, what: &str) -> Result<&'a T> {
    let unknown = || Error::Permanent(format!("{what} is not known: an earlier step was left out"));
    cell.get().ok_or_else(unknown)
}

impl Context {
    /// The versions of the new release.
    pub(crate) fn release(&self) -> Result<&ReleaseFile> {
        known(&self.found.release, "the release")
    }

    pub(crate) fn learn_release(&self, release: ReleaseFile) {
        // A step that is tried again finds the same.
        let _ = self.found.release.set(release);
    }

    /// The image archives of the new release.
    pub(crate) fn bundle(&self) -> Result<&Bundle> {
        known(&self.found.bundle, "the bundle of images")
    }

    pub(crate) fn learn_bundle(&self, bundle: Bundle) {
        let _ = self.found.bundle.set(bundle);
    }

    /// The plan, as it was when this program started.
    pub(crate) fn upgrade_plan(&self) -> Result<&UpgradePlan> {
        known(&self.found.plan, "the plan")
    }

    pub(crate) fn learn_plan(&self, plan: UpgradePlan) {
        let _ = self.found.plan.set(plan);
    }

    /// The Harvester version before the upgrade.
    pub(crate) fn previous_version(&self) -> Result<&str> {
        let status = self.upgrade_plan()?.status.as_ref();
        let version = status.and_then(|status| status.previous_version.as_deref());
        version.ok_or_else(|| Error::Permanent(format!("UpgradePlan {} has no status.previousVersion", self.plan)))
    }

    /// A note for users about something that stops nothing.
    pub(crate) fn note(&self, text: String) {
        tracing::warn!("{text}");
        let mut notes = self.found.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if !notes.contains(&text) {
            notes.push(text);
        }
    }

    /// The notes for users at the end.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let notes = self.found.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.clone()
    }

    pub(crate) fn namespaced<K: Kind + Resource<Scope = NamespaceResourceScope>>(&self, namespace: &str) -> Objects<K> {
        Objects::new(Api::namespaced(self.client.clone(), namespace), namespace)
    }

    pub(crate) fn global<K: Kind + Resource<Scope = ClusterResourceScope>>(&self) -> Objects<K> {
        Objects::new(Api::all(self.client.clone()), "")
    }

    /// All nodes, by name.
    pub(crate) async fn nodes(&self) -> Result<Vec<Node>> {
        self.global::<Node>().list("").await
    }

    /// Waits until a Deployment runs its current template.
    pub(crate) async fn wait_rollout(&self, ctx: StepContext<'_>, namespace: &str, name: &str) -> Result<()> {
        let deployments = self.namespaced::<Deployment>(namespace);
        let called = deployments.called(name);
        deployments
            .until(ctx, name, |deployment| rollout::look(&called, deployment))
            .await
    }

    /// Waits a while until a controller has observed a write, and reports the wait.
    pub(crate) async fn give_time(&self, ctx: StepContext<'_>, taking_in: Waiting, pause: Duration) {
        ctx.report.waiting(&[taking_in], Some(ctx.deadline));
        self.clock.sleep(pause).await;
        ctx.report.clear_waits();
    }

    /// Waits for something that is not worth failing for. Whether it came true in time.
    pub(crate) async fn at_most(&self, limit: Duration, wait: impl Future<Output = Result<()>>) -> Result<bool> {
        tokio::select! {
            biased;
            done = wait => done.map(|()| true),
            () = self.clock.sleep(limit) => Ok(false),
        }
    }
}
