//! The cluster upgrade: the real program, with the simulated cluster's Helm and repository, and with manifests of its own
//! for the addons.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use api::names;
use cluster_upgrade::{
    self, Context, Found,
    installer::RancherInstaller,
    manifests::{AddonManifest, Manifests},
    pauses::Pauses,
    rollout,
};
use futures::{FutureExt, future::BoxFuture};
use program::{
    Error, Result,
    release_files::ReleaseFiles,
    report::{Look, Reporter},
    step::StepContext,
};
use release::bundle::{Archive, Bundle};
use serde_json::{Value, json};

use crate::{
    actor::rancher::set_image,
    cluster::{management::RANCHER, platform::ADDON_REPO},
    context::Context as World,
    helm,
    release::{ADDON, PLAN_SERVICE_ACCOUNT},
};

use super::Call;

pub(super) async fn run(call: &Call, report: &Reporter) -> Result<()> {
    let simulated = Arc::new(Simulated(call.clone()));
    let context = Context {
        client: call.client.clone(),
        clock: call.world.clock.clone(),
        plan: call.plan.clone(),
        image: call.image(),
        plan_service_account: call
            .variable("UPGRADE_PLAN_SERVICE_ACCOUNT")
            .unwrap_or(PLAN_SERVICE_ACCOUNT)
            .to_owned(),
        repository: simulated.clone(),
        installer: simulated.clone(),
        manifests: simulated,
        pauses: Pauses::default().at_most(call.world.durations.cluster_upgrade),
        found: Found::default(),
    };
    cluster_upgrade::run(&context, report).await?;
    call.take(call.world.durations.cluster_upgrade).await;
    Ok(())
}

/// What the program has besides the cluster.
struct Simulated(Call);

impl ReleaseFiles for Simulated {
    fn text<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<String>> {
        std::future::ready(self.0.file(path)).boxed()
    }

    fn save<'a>(&'a self, _: StepContext<'a>, archive: &'a Archive, _: &'a Path) -> BoxFuture<'a, Result<PathBuf>> {
        // Only an installer that unpacks images would ask.
        let why = format!("{} is too large to be simulated", archive.archive);
        std::future::ready(Err(Error::Permanent(why))).boxed()
    }
}

impl Manifests for Simulated {
    fn cdi(&self) -> Result<Vec<Value>> {
        let names = json!({"plural": "importerlogs", "singular": "importerlog", "kind": "ImporterLog", "listKind": "ImporterLogList"});
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        Ok(vec![json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "importerlogs.cdi.kubevirt.io"},
            "spec": {
                "group": "cdi.kubevirt.io", "scope": "Namespaced", "names": names,
                "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": any}}],
            },
        })])
    }

    fn addon(&self, name: &str) -> Result<AddonManifest> {
        Ok(AddonManifest::Found(json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "Addon", "metadata": {"name": name},
            "spec": {"enabled": false, "chart": name, "version": ADDON, "valuesContent": "", "repo": ADDON_REPO},
        })))
    }
}

impl Simulated {
    /// What the steps after Rancher leave of the time.
    fn rancher_takes(&self) -> Duration {
        let durations = &self.0.world.durations;
        let follows = durations.chart * 2 + durations.addon * 3 + durations.pod_start * 4 + AFTER_RANCHER;
        durations.cluster_upgrade.saturating_sub(follows)
    }
}

/// What the program itself waits for after Rancher, to be sure that the state is stable.
const AFTER_RANCHER: Duration = Duration::from_secs(75);

impl RancherInstaller for Simulated {
    fn prepare<'a>(&'a self, _: StepContext<'a>, _: &'a str, _: &'a Bundle) -> BoxFuture<'a, Result<()>> {
        std::future::ready(Ok(())).boxed()
    }

    fn upgrade_rancher<'a>(
        &'a self,
        namespace: &'a str,
        release: &'a str,
        values: &'a Value,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let call = &self.0;
            call.take(self.rancher_takes()).await;
            let tag = values["image"]["tag"].as_str().unwrap_or_default();
            let chart = (RANCHER, tag.trim_start_matches('v'), tag);
            helm::deploy(&call.world, (namespace, release), chart, values).await?;
            let image = format!("rancher/rancher:{tag}");
            set_image(&call.world, namespace, RANCHER, &image).await?;
            let inbox = call.world.inbox();
            call.world.deployments.subscribe(&inbox);
            let key = (names::CATTLE_NAMESPACE.to_owned(), RANCHER.to_owned());
            let runs = |world: &World| rollout::look(RANCHER, world.deployments.at(&key).as_deref()) == Look::Done;
            call.world.until(&inbox, runs).await;
            Ok(())
        }
        .boxed()
    }

    fn roll_back<'a>(&'a self, namespace: &'a str, release: &'a str, revision: i64) -> BoxFuture<'a, Result<()>> {
        // The simulated Helm leaves nothing half done.
        let why = format!("the simulation does not roll {namespace}/{release} back to revision {revision}");
        std::future::ready(Err(Error::Permanent(why))).boxed()
    }
}
