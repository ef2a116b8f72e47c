//! UpgradePlans of a rehearsal: what a user would create, and following one to its end.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use api::{NodeUpgradeOption, Phase, UpgradePlan, UpgradePlanSpec, annotations};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, ResourceExt, api::PostParams};
use serde::Deserialize;
use serde_json::Value;

use super::{Rehearsal, admission};

/// A stored plan, without the managedFields that are not used here and are larger than all the rest.
fn plan_of(stored: &Value) -> Option<UpgradePlan> {
    let metadata = stored["metadata"].as_object()?.iter();
    let metadata = metadata.filter(|(field, _)| *field != "managedFields");
    let metadata: Value = metadata.map(|(field, value)| (field.clone(), value.clone())).collect();
    Some(UpgradePlan {
        metadata: serde_json::from_value(metadata).ok()?,
        spec: UpgradePlanSpec::deserialize(&stored["spec"]).ok()?,
        status: Option::deserialize(&stored["status"]).ok()?,
    })
}

/// The plan has ended, and what it changed is restored.
#[must_use]
pub fn has_ended(plan: &UpgradePlan) -> bool {
    plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty()
}

impl Rehearsal {
    /// The plan that a user would create for this cluster.
    #[must_use]
    pub fn plan(&self, restore_vm: bool, pause: &[String]) -> UpgradePlan {
        let image = self.shape.image.clone();
        UpgradePlan {
            metadata: ObjectMeta {
                generate_name: Some("hvst-upgrade-".to_owned()),
                ..ObjectMeta::default()
            },
            spec: UpgradePlanSpec {
                version: image.is_none().then(|| self.shape.to.clone()),
                image,
                restore_vm: restore_vm.then_some(true),
                node_upgrade_option: (!pause.is_empty()).then(|| NodeUpgradeOption {
                    pause_nodes: Some(pause.to_vec()),
                }),
                ..UpgradePlanSpec::default()
            },
            status: None,
        }
    }

    /// Creates a plan as a user would; returns it as the API server stored it.
    ///
    /// # Errors
    /// The API server, or a webhook, refused it. The message is the one that kubectl shows.
    pub async fn create(&self, plan: &UpgradePlan) -> anyhow::Result<UpgradePlan> {
        let plans: Api<UpgradePlan> = Api::all(self.server.client());
        match plans.create(&PostParams::default(), plan).await {
            Ok(plan) => Ok(plan),
            Err(kube::Error::Api(status)) => bail!("failed to create the UpgradePlan: {}", status.message),
            Err(error) => Err(error).context("failed to create the UpgradePlan"),
        }
    }

    /// Creates a plan whatever the webhooks say of the cluster, with the annotation that lets users do so.
    ///
    /// # Errors
    /// The API server refused it.
    pub async fn create_unchecked(&self, mut plan: UpgradePlan) -> anyhow::Result<UpgradePlan> {
        let given = plan.metadata.annotations.get_or_insert_default();
        for word in [annotations::SKIP_WEBHOOK, annotations::SKIP_DATA_CHECKS] {
            given.insert(word.to_owned(), "true".to_owned());
        }
        self.create(&plan).await
    }

    /// Removes the webhook configurations, as an administrator can to override a refusal.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn take_admission_away(&self) -> anyhow::Result<()> {
        admission::take_away(&self.server.client()).await
    }

    /// The plan as it is now.
    ///
    /// # Errors
    /// It is gone.
    pub async fn read(&self, name: &str) -> anyhow::Result<UpgradePlan> {
        let plans: Api<UpgradePlan> = Api::all(self.server.client());
        plans
            .get(name)
            .await
            .with_context(|| format!("failed to read UpgradePlan {name}"))
    }

    /// All plans as they are now, by name.
    #[must_use]
    pub fn all_plans(&self) -> Vec<UpgradePlan> {
        let stored = self
            .server
            .store()
            .list("management.harvesterhci.io", "upgradeplans", None);
        stored.iter().filter_map(|plan| plan_of(plan)).collect()
    }

    /// Waits until a plan is gone.
    pub async fn until_gone(&self, name: &str) {
        let mut changes = self.plan_changes.clone();
        loop {
            changes.mark_unchanged();
            let store = self.server.store();
            if store
                .get("management.harvesterhci.io", "upgradeplans", "", name)
                .is_none()
            {
                return;
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits until a plan is there that has not ended, and returns its name.
    pub async fn next_unfinished(&self) -> Option<String> {
        let mut changes = self.plan_changes.clone();
        loop {
            changes.mark_unchanged();
            let mut plans = self.all_plans();
            plans.sort_by_key(|plan| plan.metadata.creation_timestamp.as_ref().map(|time| time.0));
            if let Some(plan) = plans.into_iter().find(|plan| !has_ended(plan)) {
                return plan.metadata.name;
            }
            changes.changed().await.ok()?;
        }
    }

    /// Shows every change of a plan to `look` until that says it has seen enough; `None` when that takes longer than
    /// `limit`, and for ever without one.
    pub async fn follow(
        &self,
        name: &str,
        limit: Option<Duration>,
        mut look: impl FnMut(&UpgradePlan) -> bool,
    ) -> Option<Arc<UpgradePlan>> {
        let mut changes = self.plan_changes.clone();
        let found = async {
            loop {
                changes.mark_unchanged();
                let store = self.server.store();
                let plan = store.get("management.harvesterhci.io", "upgradeplans", "", name);
                if let Some(plan) = plan.and_then(|stored| plan_of(&stored)).filter(|plan| look(plan)) {
                    return Some(Arc::new(plan));
                }
                changes.changed().await.ok()?;
            }
        };
        let too_long = async {
            match limit {
                Some(limit) => self.clock.sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            plan = found => plan,
            () = too_long => None,
        }
    }
}
