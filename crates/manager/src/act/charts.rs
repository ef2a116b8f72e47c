//! What is changed on Harvester's charts, and on the KubeVirt object that one of them owns.

use api::{
    annotations,
    foreign::{kubevirt::KubeVirt, rancher::ManagedChart},
    names,
};
use kube::{
    ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{ActError, Actor, Versions, failed, note};
use crate::{
    objects,
    watched::{Watched, Written},
};

impl Actor {
    /// The chart alone says what KubeVirt's methods are.
    pub(super) async fn set_chart_methods(
        &self,
        watched: &Watched,
        methods: &Value,
        resume: bool,
        written: &mut Versions,
    ) -> Result<(), ActError> {
        let chart = watched
            .managed_charts
            .get(names::FLEET_NAMESPACE, names::HARVESTER_CHART);
        let Some(chart) = chart else { return Ok(()) };
        // First: what somebody else owns, Fleet cannot apply.
        self.give_up_methods(written).await?;
        let mut patch = plan::chart::methods_patch(&chart, methods);
        // What is removed depends on what stands beside it.
        patch["metadata"]["resourceVersion"] = json!(chart.resource_version());
        if resume {
            patch["metadata"]["annotations"] = json!({annotations::CHART_PAUSED_BY: null});
            patch["spec"]["paused"] = json!(false);
        }
        let charts = self.in_namespace::<ManagedChart>(names::FLEET_NAMESPACE);
        self.patch(&charts, names::HARVESTER_CHART, patch, Written::ManagedChart, written)
            .await
    }

    /// Fleet applies a chart again.
    pub(super) async fn resume_chart(&self, name: &str, written: &mut Versions) -> Result<(), ActError> {
        let charts = self.in_namespace::<ManagedChart>(names::FLEET_NAMESPACE);
        let patch = json!({
            "metadata": {"annotations": {annotations::CHART_PAUSED_BY: null}},
            "spec": {"paused": false},
        });
        self.patch(&charts, name, patch, Written::ManagedChart, written).await
    }

    /// Puts back what an older version of ours changed on the KubeVirt object itself.
    pub(super) async fn set_kubevirt_methods(
        &self,
        methods: &[String],
        written: &mut Versions,
    ) -> Result<(), ActError> {
        let kubevirts = self.in_namespace::<KubeVirt>(names::HARVESTER_NAMESPACE);
        let patch = json!({"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": methods}}});
        self.patch(&kubevirts, names::KUBEVIRT, patch, Written::KubeVirt, written)
            .await?;
        self.give_up_methods(written).await
    }

    pub(super) async fn stop_ignoring_methods(
        &self,
        watched: &Watched,
        written: &mut Versions,
    ) -> Result<(), ActError> {
        let chart = watched
            .managed_charts
            .get(names::FLEET_NAMESPACE, names::HARVESTER_CHART);
        let Some(chart) = chart else { return Ok(()) };
        let charts = self.in_namespace::<ManagedChart>(names::FLEET_NAMESPACE);
        let mut patch = objects::rancher::stop_ignoring_methods(&chart);
        // The list is replaced whole, so it must be the list that we read.
        patch["metadata"] = json!({"resourceVersion": chart.resource_version()});
        self.patch(&charts, names::HARVESTER_CHART, patch, Written::ManagedChart, written)
            .await
    }

    /// Upgrades leave the KubeVirt object to its chart: no name of theirs stays on the field.
    async fn give_up_methods(&self, written: &mut Versions) -> Result<(), ActError> {
        let kubevirts = self.in_namespace::<KubeVirt>(names::HARVESTER_NAMESPACE);
        // The caches keep no managedFields; listing is allowed already.
        let of_name = ListParams::default().fields(&format!("metadata.name={}", names::KUBEVIRT));
        let found = kubevirts.list(&of_name).await;
        let found = found.map_err(|source| failed("read the owners of KubeVirt's fields", source))?;
        for kubevirt in found {
            let Some(kept) = objects::ownership::without_upgrades(kubevirt.managed_fields()) else {
                continue;
            };
            let metadata = json!({"managedFields": kept, "resourceVersion": kubevirt.resource_version()});
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            let patched = kubevirts.patch(names::KUBEVIRT, &PatchParams::default(), &patch).await;
            let doing = "give up KubeVirt's workloadUpdateMethods";
            note(
                written,
                Written::KubeVirt,
                &patched.map_err(|source| failed(doing, source))?,
            );
        }
        Ok(())
    }
}
