//! What is changed on Rancher's cluster: the gate through which it upgrades nodes.

use api::{foreign::rancher, names};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::Value;

use super::{ActError, Actor, Versions, failed, note};
use crate::{objects, watched::Watched};

impl Actor {
    pub(super) async fn provision(
        &self,
        watched: &Watched,
        kubernetes_version: &str,
        (from, to): (i64, i64),
        notes: (&str, &str),
        written: &mut Versions,
    ) -> Result<(), ActError> {
        let Some(cluster) = watched.clusters.get(names::FLEET_NAMESPACE, names::LOCAL_CLUSTER) else {
            return Ok(());
        };
        let generation = cluster
            .spec
            .rke_config
            .as_ref()
            .and_then(|rke| rke.provision_generation)
            .unwrap_or_default();
        if generation != from {
            return Ok(());
        }
        let version = cluster.resource_version().unwrap_or_default();
        let patch = objects::rancher::provision(kubernetes_version, to, notes, &version);
        self.patch::<rancher::Cluster>(watched, names::LOCAL_CLUSTER, patch, written)
            .await
    }

    pub(super) async fn restore_strategy(
        &self,
        watched: &Watched,
        strategy: &Value,
        written: &mut Versions,
    ) -> Result<(), ActError> {
        let Some(cluster) = watched.clusters.get(names::FLEET_NAMESPACE, names::LOCAL_CLUSTER) else {
            return Ok(());
        };
        let patch = objects::rancher::restore_strategy(strategy, &cluster);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(patch)?);
        let clusters = self.in_namespace::<rancher::Cluster>(names::FLEET_NAMESPACE);
        self.fence()?;
        let patched = clusters
            .patch(names::LOCAL_CLUSTER, &PatchParams::default(), &patch)
            .await;
        note(
            written,
            &patched.map_err(|source| failed("put the upgradeStrategy back", source))?,
        );
        Ok(())
    }
}
