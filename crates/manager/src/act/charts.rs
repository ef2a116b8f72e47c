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
use crate::{objects, watched::Watched};

impl Actor {
    /// The chart alone says what KubeVirt's methods are.
    pub(super) async fn set_chart_methods(
        &self,
        watched: &Watched,
        methods: &Value,
        (resume, record): (bool, Option<&str>),
        written: &mut Versions,
    ) -> Result<(), ActError> {
        let chart = watched
            .managed_charts
            .get(names::FLEET_NAMESPACE, names::HARVESTER_CHART);
        let Some(chart) = chart else { return Ok(()) };
        // First: a field that another manager owns, Fleet cannot apply.
        self.give_up_methods(written).await?;
        let mut patch = plan::chart::methods_patch(&chart, methods);
        patch["metadata"]["annotations"] = json!({annotations::SAVED_CHART_METHODS: record});
        if resume {
            patch["metadata"]["annotations"][annotations::CHART_PAUSED_BY] = Value::Null;
            patch["spec"]["paused"] = json!(false);
        }
        self.patch::<ManagedChart>(watched, names::HARVESTER_CHART, patch, written)
            .await
    }

    /// Fleet applies a chart again, or does not.
    pub(super) async fn pause_chart(
        &self,
        watched: &Watched,
        name: &str,
        paused: bool,
        written: &mut Versions,
    ) -> Result<(), ActError> {
        let patch = json!({
            "metadata": {"annotations": {annotations::CHART_PAUSED_BY: null}},
            "spec": {"paused": paused},
        });
        self.patch::<ManagedChart>(watched, name, patch, written).await
    }

    /// Restores what an older version of ours changed on the KubeVirt object itself.
    pub(super) async fn set_kubevirt_methods(
        &self,
        watched: &Watched,
        methods: &[String],
        written: &mut Versions,
    ) -> Result<(), ActError> {
        let patch = json!({"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": methods}}});
        self.patch::<KubeVirt>(watched, names::KUBEVIRT, patch, written).await?;
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
        let patch = objects::rancher::stop_ignoring_methods(&chart);
        self.patch::<ManagedChart>(watched, names::HARVESTER_CHART, patch, written)
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
            self.fence()?;
            let patched = kubevirts.patch(names::KUBEVIRT, &PatchParams::default(), &patch).await;
            let doing = "give up KubeVirt's workloadUpdateMethods";
            note(written, &patched.map_err(|source| failed(doing, source))?);
        }
        Ok(())
    }
}
