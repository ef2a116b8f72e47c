//! Steps around RKE2: the repository that brings it, its upgrade by Rancher, and what it leaves behind.

use api::{
    ProgramWait,
    foreign::{fleet::Bundle as FleetBundle, rancher::Cluster},
    names,
};
use cache::Cache;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::watcher,
};
use release::{bundle, release_file};
pub use rules::version::kubelet_version;
use serde_json::{Value, json};

use crate::{
    host::rke2_config,
    node_run::{NodeRun, Release},
};
use program::{
    error::{Error, Result},
    report::{Look, Waiting},
    step::StepContext,
    watches::Watches,
};
use rules::fleet::bundle_lacks;

/// Where RKE2 looks for images when it starts.
const IMAGES: &str = "/var/lib/rancher/rke2/agent/images";

/// Waits until the repository is served, and reads what it says about the release.
pub(crate) async fn wait_for_repository(run: &NodeRun, ctx: StepContext<'_>) -> Result<()> {
    let name = names::repo(&run.plan);
    let mut watches = Watches::default();
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let api = Api::namespaced(run.client.clone(), names::HARVESTER_NAMESPACE);
    let deployments: Cache<Deployment> = watches.add(api, only, |_| ());
    let look = || {
        let deployment = deployments.get(names::HARVESTER_NAMESPACE, &name);
        Look::of(unavailable(deployment.as_deref(), &name))
    };
    watches.until(ctx, look).await?;
    if run.release.get().is_none() {
        let file = run
            .repository
            .text(release_file::PATH, release_file::LARGEST_BYTES)
            .await?;
        let file = release_file::parse(&file).map_err(|error| Error::Permanent(error.to_string()))?;
        let bundle = run.repository.text(bundle::PATH, bundle::LARGEST_BYTES).await?;
        let bundle = bundle::parse(&bundle).map_err(|error| Error::Permanent(error.to_string()))?;
        // Only this step sets it.
        let _ = run.release.set(Release { file, bundle });
    }
    Ok(())
}

/// What the repository lacks; nothing when it is served.
#[must_use]
pub fn unavailable(deployment: Option<&Deployment>, name: &str) -> Vec<Waiting> {
    let conditions = deployment.and_then(|deployment| deployment.status.as_ref()?.conditions.as_deref());
    let available = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "Available");
    if available.is_some_and(|condition| condition.status == "True") {
        return Vec::new();
    }
    let why = match (deployment, available.and_then(|condition| condition.message.as_deref())) {
        (None, _) => "there is no such Deployment".to_owned(),
        (Some(_), Some(message)) => message.to_owned(),
        (Some(_), None) => "it has no pod that is ready".to_owned(),
    };
    vec![Waiting {
        what: ProgramWait::Repository,
        object: format!("Deployment {}/{name}", names::HARVESTER_NAMESPACE),
        message: format!("the upgrade repository is not served: {why}"),
    }]
}

/// Makes Traefik the ingress controller where the release expects it.
pub(crate) async fn choose_ingress(run: &NodeRun, _: StepContext<'_>) -> Result<()> {
    let plan = run.read_plan().await?;
    let metadata = plan
        .status
        .and_then(|status| status.release_metadata)
        .unwrap_or_default();
    let release = metadata.harvester.ok_or_else(|| {
        Error::Transient(format!(
            "UpgradePlan {} has no status.releaseMetadata.harvester yet",
            run.plan
        ))
    })?;
    rke2_config::choose_ingress(&run.root, &release)
}

/// Has Rancher upgrade RKE2 in a cluster of one node.
pub(crate) async fn start_rke2_upgrade(run: &NodeRun, _: StepContext<'_>) -> Result<()> {
    let clusters: Api<Cluster> = Api::namespaced(run.client.clone(), names::FLEET_NAMESPACE);
    let name = names::LOCAL_CLUSTER;
    let what = |verb: &str| format!("{verb} Cluster {}/{name}", names::FLEET_NAMESPACE);
    let cluster = clusters
        .get(name)
        .await
        .map_err(|error| Error::api(what("read"), error))?;
    let Some(patch) = rke2_upgrade(&cluster, &run.release()?.file.kubernetes) else {
        return Ok(());
    };
    let patched = clusters
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    patched
        .map(drop)
        .map_err(|error| Error::api(what("change the version of"), error))
}

/// The patch that makes Rancher upgrade RKE2; nothing when it is already set.
#[must_use]
pub fn rke2_upgrade(cluster: &Cluster, wanted: &str) -> Option<Value> {
    let is_written = cluster.spec.kubernetes_version.as_deref() == Some(wanted) && cluster.spec.rke_config.is_some();
    (!is_written).then(|| json!({"spec": {"kubernetesVersion": wanted, "rkeConfig": {}}}))
}

/// Waits until the node runs the kubelet of the release.
pub(crate) async fn wait_for_rke2(run: &NodeRun, ctx: StepContext<'_>) -> Result<()> {
    let wanted = kubelet_version(&run.release()?.file.kubernetes);
    let mut watches = Watches::default();
    let only = watcher::Config::default().fields(&format!("metadata.name={}", run.node));
    let nodes: Cache<Node> = watches.add(run.nodes(), only, |_| ());
    let look = || rke2_runs(&run.node, nodes.get("", &run.node).as_deref(), &wanted);
    watches.until(ctx, look).await
}

/// Whether a node runs the kubelet that is wanted.
#[must_use]
pub fn rke2_runs(name: &str, node: Option<&Node>, wanted: &str) -> Look {
    let info = node.and_then(|node| node.status.as_ref()?.node_info.as_ref());
    match info.map(|info| info.kubelet_version.as_str()) {
        Some(running) if running == wanted => Look::Done,
        running => Look::wait(Waiting {
            what: ProgramWait::Rke2,
            object: format!("Node {name}"),
            message: format!(
                "Rancher has not upgraded RKE2 on {name} yet: its kubelet is {} instead of {wanted}",
                running.unwrap_or("not known"),
            ),
        }),
    }
}

/// Takes the archives away that RKE2 has loaded: it would load them again at every start.
pub(crate) async fn remove_archives(run: &NodeRun, _: StepContext<'_>) -> Result<()> {
    for archive in run.release()?.bundle.group(bundle::RKE2) {
        for name in [archive.list.file_name(), archive.archive.file_name()] {
            run.root.remove(&format!("{IMAGES}/{name}"))?;
        }
    }
    Ok(())
}

/// Waits a while for Fleet to settle, and continues anyway: what is not ready now may only become so after the reboot.
///
/// # Errors
/// None that lasts.
pub async fn wait_for_fleet(client: &Client, ctx: StepContext<'_>) -> Result<()> {
    let mut watches = Watches::default();
    let bundles: Cache<FleetBundle> = watches.add(Api::all(client.clone()), watcher::Config::default(), |_| ());
    let look = || Look::of(bundles.list().iter().filter_map(|bundle| unready(bundle)).collect());
    let settled = watches.until(ctx, look);
    // A little less than the step's limit, so that it ends well.
    let left = ctx.deadline.duration_since(ctx.report.clock.now()).unsigned_abs();
    tokio::select! {
        biased;
        settled = settled => settled,
        () = ctx.report.clock.sleep(left.mul_f64(0.9)) => {
            tracing::warn!("Fleet has not settled; going on: {}", ctx.report.waited_for());
            Ok(())
        }
    }
}

fn unready(bundle: &FleetBundle) -> Option<Waiting> {
    let lacks = bundle_lacks(bundle)?;
    let name = bundle.metadata.name.as_deref().unwrap_or_default();
    let namespace = bundle.metadata.namespace.as_deref().unwrap_or_default();
    Some(Waiting {
        what: ProgramWait::FleetBundle,
        object: format!("Bundle {namespace}/{name}"),
        message: format!("bundle {name} is not ready: {lacks}"),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("v1.35.2+rke2r1", "v1.35.2+rke2r1")]
    #[case("v1.35.2-rc3+rke2r1", "v1.35.2+rke2r1")]
    #[case("v1.35.2-rc12+rke2r1-rc1", "v1.35.2+rke2r1")]
    #[case("v1.35.2-rcx", "v1.35.2-rcx")]
    fn the_kubelet_of_a_candidate_does_not_say_that_it_is_one(#[case] rke2: &str, #[case] kubelet: &str) {
        assert_eq!(kubelet_version(rke2), kubelet);
    }
}
