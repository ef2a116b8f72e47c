//! Stores what was there before an upgrade. It is created once, and never changed.

use api::UpgradePlan;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{ResourceExt, api::PostParams};

use super::{ActError, Actor, Versions, failed, note};
use crate::{
    ours,
    watched::{Watched, Writable},
};

impl Actor {
    /// Creates the ConfigMaps of a record. Each failure counts: after some of them the upgrade begins without a record.
    pub(super) async fn store_record(
        &self,
        plan: &UpgradePlan,
        watched: &Watched,
        written: &mut Versions,
    ) -> Result<(), ActError> {
        let uid = plan.uid().unwrap_or_default();
        let stored = self.create_maps(plan, &uid, watched, written).await;
        match &stored {
            Ok(()) => self.unstored.stored(&uid),
            Err(ActError::NotLeader) => {}
            Err(error) => self.unstored.failed(&uid, &error.to_string()),
        }
        stored
    }

    async fn create_maps(
        &self,
        plan: &UpgradePlan,
        uid: &str,
        watched: &Watched,
        written: &mut Versions,
    ) -> Result<(), ActError> {
        let api = ConfigMap::api(&self.client);
        for map in self.unstored.of(uid).iter() {
            let (namespace, name) = (map.namespace().unwrap_or_default(), map.name_any());
            let text = format!("ConfigMap {namespace}/{name}");
            self.fence()?;
            match api.create(&PostParams::default(), map).await {
                Ok(created) => note(written, &created),
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    let known = watched.config_maps.get(&namespace, &name);
                    if !known.is_some_and(|map| ours::is_child(map.as_ref(), plan)) {
                        return Err(ActError::NotOurs { object: text });
                    }
                }
                Err(source) => return Err(failed(format!("create {text}"), source)),
            }
        }
        Ok(())
    }
}
