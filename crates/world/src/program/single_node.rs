//! The upgrade of a cluster of one node: stop all VMs, let Rancher upgrade RKE2, install the operating system. The node
//! reboots once the pod has ended.

use api::names;
use serde_json::json;

use crate::error::Result;

use super::{Call, detector, post_drain, pre_drain};

pub(super) async fn run(call: &Call<'_>) -> Result<()> {
    detector::run(call).await?;
    pre_drain::wait_until_empty(call).await;
    let version = call.world.shape.release().kubernetes;
    let key = (names::FLEET_NAMESPACE.to_owned(), names::LOCAL_CLUSTER.to_owned());
    let cluster = call.world.clusters.at(&key);
    if cluster.is_some_and(|cluster| cluster.spec.kubernetes_version.as_ref() != Some(&version)) {
        call.world
            .clusters
            .patch(&key, &json!({"spec": {"kubernetesVersion": version}}))
            .await?;
    }
    post_drain::wait_for_rke2(call).await;
    call.take(call.world.durations.single_node).await;
    post_drain::install(call).await?;
    Ok(())
}
