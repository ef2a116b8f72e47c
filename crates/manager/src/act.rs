//! Carries decisions out: first what is on record, then what follows from it.
//!
//! Every write passes the fence of the lease. Every action is safe to repeat: names are fixed, creating what exists is
//! adopting it, and foreign objects are only ever patched.

mod charts;
mod children;
mod rancher_cluster;

use std::{collections::BTreeMap, fmt::Debug};

use api::{
    UpgradePlan, annotations,
    foreign::{harvester, longhorn},
    names,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Node, Secret},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, PostParams},
};
use plan::{Action, Decision, PlanEvent, observed::Settings};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    events::Recorder,
    lease::Leadership,
    metrics::Metrics,
    watched::{Watched, Written},
};

/// Why a decision could not be carried out to its end. The rest of it will be decided anew.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// Another manager may be at work.
    #[error("the lease is lost")]
    NotLeader,
    /// The API server refused or did not answer.
    #[error("failed to {doing}: {source}")]
    Kube {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// An object of that name exists and is not ours.
    #[error("{object} exists and does not belong to this UpgradePlan; delete it to go on")]
    NotOurs {
        /// The object.
        object: String,
    },
    /// The plan that was decided on is not the newest.
    #[error("the UpgradePlan has changed meanwhile")]
    Outdated,
    /// An object could not be built.
    #[error("failed to build an object")]
    Build(#[from] serde_json::Error),
}

impl ActError {
    /// Somebody else changed the object meanwhile: not an error, just another look.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        let refused = |source: &kube::Error| matches!(source, kube::Error::Api(status) if status.code == 409);
        matches!(self, Self::Outdated) || matches!(self, Self::Kube { source, .. } if refused(source))
    }
}

/// The newest version that we wrote, per kind: until the caches have seen it, they are behind.
pub type Versions = BTreeMap<Written, u64>;

/// Carries decisions out.
pub struct Actor {
    client: Client,
    settings: Settings,
    leadership: Leadership,
    recorder: Recorder,
    metrics: Option<Metrics>,
}

impl Actor {
    /// Acts through a client, behind a fence.
    #[must_use]
    pub fn new(client: Client, settings: Settings, leadership: Leadership, metrics: Option<Metrics>) -> Self {
        Self {
            recorder: Recorder::new(client.clone()),
            client,
            settings,
            leadership,
            metrics,
        }
    }

    /// Counts a write to a plan.
    fn count<T>(&self, result: &Result<T, kube::Error>) {
        if let Some(metrics) = &self.metrics {
            metrics.plan_written(result);
        }
    }

    /// Carries a decision out, in the order of its fields.
    ///
    /// # Errors
    /// Where it had to stop.
    pub async fn carry_out(
        &self,
        plan: &UpgradePlan,
        watched: &Watched,
        decision: &Decision,
        now: Timestamp,
        written: &mut Versions,
    ) -> Result<(), ActError> {
        let decided_on = plan.resource_version();
        let plan = self.write_metadata(plan, decision, written).await?;
        if plan.metadata.deletion_timestamp.is_some() && !decision.finalizer {
            return Ok(());
        }
        let written_status = self.write_status(plan.clone(), decision, written).await?;
        // A write is refused when the plan is outdated; where there was none, somebody must ask.
        let was_written = written_status || plan.resource_version() != decided_on;
        if !was_written && !decision.actions.is_empty() {
            self.refuse_if_outdated(&plan).await?;
        }
        for event in &decision.events {
            self.fence()?;
            self.recorder
                .tell(&plan, now, event)
                .await
                .map_err(|source| failed("tell an event", source))?;
        }
        for action in &decision.actions {
            self.fence()?;
            self.act(&plan, watched, action, written).await?;
        }
        Ok(())
    }

    /// Tells events, each with its moment. One that was told is not told again.
    ///
    /// # Errors
    /// Where it had to stop.
    pub async fn announce(&self, plan: &UpgradePlan, events: Vec<(Timestamp, PlanEvent)>) -> Result<(), ActError> {
        for (at, event) in events {
            self.fence()?;
            self.recorder
                .tell(plan, at, &event)
                .await
                .map_err(|source| failed("tell an event", source))?;
        }
        Ok(())
    }

    fn fence(&self) -> Result<(), ActError> {
        if self.leadership.holds() {
            Ok(())
        } else {
            Err(ActError::NotLeader)
        }
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
        note(written, Written::Plan, &patched);
        Ok(patched)
    }

    async fn write_status(
        &self,
        mut plan: UpgradePlan,
        decision: &Decision,
        written: &mut Versions,
    ) -> Result<bool, ActError> {
        if plan.status.as_ref() == Some(&decision.status) {
            return Ok(false);
        }
        plan.status = Some(decision.status.clone());
        self.fence()?;
        let plans: Api<UpgradePlan> = Api::all(self.client.clone());
        let updated = plans
            .replace_status(&plan.name_any(), &PostParams::default(), &plan)
            .await;
        self.count(&updated);
        note(
            written,
            Written::Plan,
            &updated.map_err(|source| failed("write the UpgradePlan's status", source))?,
        );
        Ok(true)
    }

    /// Nothing is done about a plan that somebody, or a manager before this one, has taken further.
    async fn refuse_if_outdated(&self, plan: &UpgradePlan) -> Result<(), ActError> {
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

    async fn act(
        &self,
        plan: &UpgradePlan,
        watched: &Watched,
        action: &Action,
        written: &mut Versions,
    ) -> Result<(), ActError> {
        match action {
            Action::Create(child) => self.create(plan, child, written).await,
            Action::ResumeJob { name } => {
                let jobs = self.in_namespace::<Job>(names::HARVESTER_NAMESPACE);
                self.patch(&jobs, name, json!({"spec": {"suspend": false}}), Written::Job, written)
                    .await
            }
            Action::DeleteJob { namespace, name } => {
                let jobs = self.in_namespace::<Job>(namespace);
                match jobs.delete(name, &DeleteParams::background()).await {
                    Ok(_) => Ok(()),
                    Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                    Err(source) => Err(failed(format!("delete Job {namespace}/{name}"), source)),
                }
            }
            Action::Delete {
                kind,
                component,
                job_type,
            } => self.delete(plan, *kind, component, job_type.as_deref()).await,
            Action::AnnotateNode { node, annotations } => {
                let patch = json!({"metadata": {"annotations": annotations}});
                self.patch(
                    &Api::<Node>::all(self.client.clone()),
                    node,
                    patch,
                    Written::Node,
                    written,
                )
                .await
            }
            Action::UnlabelNode { node, labels } => {
                let labels: BTreeMap<&String, Value> = labels.iter().map(|label| (label, Value::Null)).collect();
                let patch = json!({"metadata": {"labels": labels}});
                self.patch(
                    &Api::<Node>::all(self.client.clone()),
                    node,
                    patch,
                    Written::Node,
                    written,
                )
                .await
            }
            Action::UntaintNode { node } => {
                let Some(seen) = watched.nodes.get("", node) else {
                    return Ok(());
                };
                let patch = objects::node::without_drain_taint(&seen);
                let nodes = Api::<Node>::all(self.client.clone());
                self.patch(&nodes, node, patch, Written::Node, written).await
            }
            Action::AnswerHook { secret, hook, token } => {
                let secrets = self.in_namespace::<Secret>(names::FLEET_NAMESPACE);
                let patch = json!({"metadata": {"annotations": {hook: token}}});
                self.patch(&secrets, secret, patch, Written::Secret, written).await
            }
            Action::ProvisionCluster {
                kubernetes_version,
                from,
                to,
                saved_strategy,
            } => {
                let generations = (*from, *to);
                self.provision(watched, kubernetes_version, generations, saved_strategy, written)
                    .await
            }
            Action::RestoreUpgradeStrategy { strategy } => self.restore_strategy(watched, strategy, written).await,
            Action::SetReplenishmentInterval { value } => {
                let settings = self.in_namespace::<longhorn::Setting>(names::LONGHORN_NAMESPACE);
                let patch = json!({"value": value});
                self.patch(
                    &settings,
                    names::REPLENISHMENT_SETTING,
                    patch,
                    Written::LonghornSetting,
                    written,
                )
                .await
            }
            Action::EnableDescheduler { enabled } => {
                let addons = self.in_namespace::<harvester::Addon>(names::KUBE_SYSTEM_NAMESPACE);
                let patch = json!({"spec": {"enabled": enabled}});
                self.patch(&addons, names::DESCHEDULER_ADDON, patch, Written::Addon, written)
                    .await
            }
            Action::SetChartMethods { methods, resume } => {
                self.set_chart_methods(watched, methods, *resume, written).await
            }
            Action::ResumeChart { name } => self.resume_chart(name, written).await,
            Action::SetWorkloadUpdateMethods { methods } => self.set_kubevirt_methods(methods, written).await,
            Action::StopIgnoringWorkloadUpdateMethods => self.stop_ignoring_methods(watched, written).await,
        }
    }

    async fn patch<K>(
        &self,
        api: &Api<K>,
        name: &str,
        patch: Value,
        kind: Written,
        written: &mut Versions,
    ) -> Result<(), ActError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(patched) => note(written, kind, &patched),
            // What is gone needs no patch; the next look will tell what that means.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(source) => return Err(failed(format!("patch {} {name}", K::kind(&())), source)),
        }
        Ok(())
    }

    fn in_namespace<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }
}

fn note<K: Resource>(written: &mut Versions, kind: Written, object: &K) {
    let version: u64 = object
        .resource_version()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default();
    let known = written.entry(kind).or_default();
    *known = version.max(*known);
}

fn failed(doing: impl Into<String>, source: kube::Error) -> ActError {
    ActError::Kube {
        doing: doing.into(),
        source: Box::new(source),
    }
}
