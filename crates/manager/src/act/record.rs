//! The record of a plan: its finalizer, its status, its notes. Written before anything is done.

use api::{UpgradePlan, annotations};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::PartialObjectMeta,
};
use plan::Decision;
use serde_json::json;

use super::{ActError, Actor, Versions, failed, note};
use crate::status_throttle::StatusWrite;

impl Actor {
    /// Writes the record of a plan; returns the plan as it is then, unless it is gone.
    ///
    /// The status contains the notes. It is written after the finalizer is set and before it is removed: nothing reconciles
    /// the notes of an ended plan without one.
    pub(super) async fn write_plan(
        &self,
        plan: &UpgradePlan,
        decision: &Decision,
        write: StatusWrite,
        written: &mut Versions,
    ) -> Result<Option<UpgradePlan>, ActError> {
        if decision.finalizer {
            let plan = self.write_metadata(plan, decision, written).await?;
            return Ok(Some(self.write_status(plan, decision, write, written).await?));
        }
        if plan.metadata.deletion_timestamp.is_some() {
            self.write_metadata(plan, decision, written).await?;
            return Ok(None);
        }
        let plan = self.write_status(plan.clone(), decision, write, written).await?;
        Ok(Some(self.write_metadata(&plan, decision, written).await?))
    }

    async fn write_metadata(
        &self,
        plan: &UpgradePlan,
        decision: &Decision,
        written: &mut Versions,
    ) -> Result<UpgradePlan, ActError> {
        let mut finalizers = plan.metadata.finalizers.clone().unwrap_or_default();
        let has_ours = finalizers.iter().any(|one| one == annotations::FINALIZER);
        let mut metadata = json!({});
        if decision.finalizer != has_ours {
            finalizers.retain(|one| one != annotations::FINALIZER);
            if decision.finalizer {
                finalizers.push(annotations::FINALIZER.to_owned());
            }
            metadata["finalizers"] = json!(finalizers);
        }
        if !decision.annotations.is_empty() {
            metadata["annotations"] = json!(decision.annotations);
        }
        if metadata == json!({}) {
            return Ok(plan.clone());
        }
        metadata["resourceVersion"] = json!(plan.resource_version());
        self.fence()?;
        let plans: Api<UpgradePlan> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let patched = plans.patch(&plan.name_any(), &PatchParams::default(), &patch).await;
        self.count(&patched);
        let patched = patched.map_err(|source| failed("record in the UpgradePlan's metadata", source))?;
        note(written, &patched);
        Ok(patched)
    }

    async fn write_status(
        &self,
        mut plan: UpgradePlan,
        decision: &Decision,
        write: StatusWrite,
        written: &mut Versions,
    ) -> Result<UpgradePlan, ActError> {
        if write != StatusWrite::Now {
            return Ok(plan);
        }
        plan.status = Some(decision.status.clone());
        self.fence()?;
        let plans: Api<UpgradePlan> = Api::all(self.client.clone());
        let updated = plans
            .replace_status(&plan.name_any(), &PostParams::default(), &plan)
            .await;
        self.count(&updated);
        let updated = updated.map_err(|source| failed("write the UpgradePlan's status", source))?;
        note(written, &updated);
        Ok(updated)
    }

    /// Nothing is done for a plan that has progressed since.
    pub(super) async fn refuse_if_outdated(&self, plan: &UpgradePlan) -> Result<(), ActError> {
        let plans: Api<UpgradePlan> = Api::all(self.client.clone());
        // Listing is allowed already; a list without a version is read from where it is stored.
        let of_name = ListParams::default().fields(&format!("metadata.name={}", plan.name_any()));
        let found = plans.list_metadata(&of_name).await;
        let found = found.map_err(|source| failed("read the UpgradePlan", source))?;
        let is_it = |newest: &PartialObjectMeta<UpgradePlan>| newest.resource_version() == plan.resource_version();
        if found.items.iter().any(is_it) {
            Ok(())
        } else {
            Err(ActError::Outdated)
        }
    }
}
