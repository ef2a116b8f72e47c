//! Carries decisions out: first the record, then the actions.
//!
//! Every request that changes something passes the fence of the lease right before it is sent. Every action is safe to repeat: names are fixed, creating what exists is
//! adopting it, and foreign objects are only ever patched.

mod accounts;
mod charts;
mod children;
mod error;
mod rancher_cluster;
mod record;
#[cfg(test)]
mod tests;
mod upgrade_record;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Mutex,
    time::Duration,
};

use api::{
    UpgradePlan,
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
    api::{Patch, PatchParams},
};
use plan::{Action, Decision, observed::Settings};
use rules::{PlanEvent, drain_taint};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use self::error::ActError;
use self::error::Failures;
use crate::{
    events::Recorder,
    keyring::Keyring,
    lease::Leadership,
    metrics::Metrics,
    status_throttle::StatusWrite,
    upgrade_record::Unstored,
    watched::{Watched, Writable, Written},
};

/// The newest version that we wrote, per kind: until the caches have seen it, they are behind.
pub type Versions = BTreeMap<Written, u64>;

/// Carries decisions out.
pub struct Actor {
    client: Client,
    settings: Settings,
    leadership: Leadership,
    recorder: Recorder,
    metrics: Option<Metrics>,
    keyring: Keyring,
    unstored: Unstored,
    /// Accounts that were found, with their namespaces.
    accounts: Mutex<BTreeSet<(String, String)>>,
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
            keyring: Keyring::default(),
            unstored: Unstored::default(),
            accounts: Mutex::default(),
        }
    }

    /// Stores keys of this ring.
    #[must_use]
    pub fn with_keys(self, keyring: Keyring) -> Self {
        Self { keyring, ..self }
    }

    /// Stores these records.
    #[must_use]
    pub fn with_records(self, unstored: Unstored) -> Self {
        Self { unstored, ..self }
    }

    /// Counts a write to a plan.
    fn count<T>(&self, result: &Result<T, kube::Error>) {
        if let Some(metrics) = &self.metrics {
            metrics.plan_written(result);
        }
    }

    /// Records a decision, before anything is done; returns the plan as it is then, unless it is gone.
    ///
    /// # Errors
    /// It could not be written, or the plan has progressed since.
    pub async fn record(
        &self,
        plan: &UpgradePlan,
        decision: &Decision,
        write: StatusWrite,
        written: &mut Versions,
    ) -> Result<Option<UpgradePlan>, ActError> {
        let decided_on = plan.resource_version();
        let Some(plan) = self.write_plan(plan, decision, write, written).await? else {
            return Ok(None);
        };
        // A write is refused when the plan is outdated; without a write, it must be checked.
        let was_written = plan.resource_version() != decided_on;
        if !was_written && !decision.actions.is_empty() {
            self.refuse_if_outdated(&plan).await?;
        }
        Ok(Some(plan))
    }

    /// Carries the actions of a decision out, in their order. `plan` is as recorded.
    ///
    /// # Errors
    /// Where it had to stop.
    pub async fn carry_out(
        &self,
        plan: &UpgradePlan,
        watched: &Watched,
        decision: &Decision,
        written: &mut Versions,
    ) -> Result<(), ActError> {
        let mut failures = Failures::default();
        for action in &decision.actions {
            // A setting that cannot be restored does not block others; but the upgrade does not advance on a failed action.
            if failures.is_any() && action.needs_those_before() {
                continue;
            }
            match self.act(plan, watched, action, written).await {
                Ok(()) => {}
                Err(ActError::NotLeader) => return Err(ActError::NotLeader),
                Err(error) => failures.add(error),
            }
        }
        failures.into_result()
    }

    /// Reports events, each with its time: all events of the manager pass here. One that was reported is not
    /// reported again, and one that cannot be stops nothing.
    ///
    /// # Errors
    /// The lease is lost.
    pub async fn report(
        &self,
        plan: &UpgradePlan,
        events: Vec<(Timestamp, PlanEvent)>,
        elapsed: Duration,
    ) -> Result<(), ActError> {
        for (at, event) in events {
            self.recorder
                .record(plan, at, &event, elapsed, self.leadership())
                .await?;
        }
        Ok(())
    }

    /// Reports events that could not be reported before, if it is time.
    ///
    /// # Errors
    /// The lease is lost.
    pub async fn catch_up(&self, elapsed: Duration) -> Result<(), ActError> {
        self.recorder.catch_up(elapsed, self.leadership()).await
    }

    /// The reporter of events.
    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Passed right before every request that changes something: nothing but that request comes late when the lease is lost
    /// in between.
    fn fence(&self) -> Result<(), ActError> {
        self.leadership.fence()
    }

    fn leadership(&self) -> &Leadership {
        &self.leadership
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
            Action::StoreRecord => self.store_record(plan, watched, written).await,
            Action::ResumeJob { name } => {
                self.patch::<Job>(watched, name, json!({"spec": {"suspend": false}}), written)
                    .await
            }
            Action::DeleteJob { namespace, name, uid } => {
                let jobs = self.in_namespace::<Job>(namespace);
                self.delete_one(&jobs, name, uid.clone(), children::with_pods()).await
            }
            Action::Delete {
                kind,
                component,
                job_type,
            } => self.delete(plan, *kind, *component, *job_type).await,
            Action::AnnotateNode { node, annotations } => {
                let patch = json!({"metadata": {"annotations": annotations}});
                self.patch_node(watched, node, patch, written).await
            }
            Action::UnlabelNode { node, labels } => {
                let labels: BTreeMap<&String, Value> = labels.iter().map(|label| (label, Value::Null)).collect();
                let patch = json!({"metadata": {"labels": labels}});
                self.patch_node(watched, node, patch, written).await
            }
            Action::UntaintNode { node } => {
                let Some(observed) = watched.nodes.get("", node) else {
                    return Ok(());
                };
                let Some(patch) = drain_taint::patch(&observed, false) else {
                    return Ok(());
                };
                self.patch_node(watched, node, patch, written).await
            }
            Action::AnswerHook { secret, hook, token } => {
                let patch = json!({"metadata": {"annotations": {hook: token}}});
                self.patch::<Secret>(watched, secret, patch, written).await
            }
            Action::ProvisionCluster {
                kubernetes_version,
                from,
                to,
                saved_strategy,
                os,
            } => {
                let generations = (*from, *to);
                let notes = (saved_strategy.as_str(), os.as_str());
                self.provision(watched, kubernetes_version, generations, notes, written)
                    .await
            }
            Action::RestoreUpgradeStrategy { strategy } => self.restore_strategy(watched, strategy, written).await,
            Action::SetReplenishmentInterval { value } => {
                let patch = json!({"value": value});
                self.patch::<longhorn::Setting>(watched, names::REPLENISHMENT_SETTING, patch, written)
                    .await
            }
            Action::EnableDescheduler { enabled } => {
                let patch = json!({"spec": {"enabled": enabled}});
                self.patch::<harvester::Addon>(watched, names::DESCHEDULER_ADDON, patch, written)
                    .await
            }
            Action::SetChartMethods {
                methods,
                resume,
                record,
            } => {
                self.set_chart_methods(watched, methods, (*resume, record.as_deref()), written)
                    .await
            }
            Action::PauseChart { name } => self.pause_chart(watched, name, true, written).await,
            Action::ResumeChart { name } => self.pause_chart(watched, name, false, written).await,
            Action::SetWorkloadUpdateMethods { methods } => self.set_kubevirt_methods(watched, methods, written).await,
            Action::StopIgnoringWorkloadUpdateMethods => self.stop_ignoring_methods(watched, written).await,
        }
    }

    async fn patch_node(
        &self,
        watched: &Watched,
        node: &str,
        patch: Value,
        written: &mut Versions,
    ) -> Result<(), ActError> {
        self.patch::<Node>(watched, node, patch, written).await
    }

    /// Changes an object as it was observed: if another client, or a later manager, has changed it since, it is not changed.
    async fn patch<K>(
        &self,
        watched: &Watched,
        name: &str,
        mut patch: Value,
        written: &mut Versions,
    ) -> Result<(), ActError>
    where
        K: Writable + Clone + Debug + DeserializeOwned,
    {
        let api = K::api(&self.client);
        // A missing object needs no patch; the next pass decides what that means.
        let Some(observed) = K::cache(watched).get(api.namespace().unwrap_or_default(), name) else {
            return Ok(());
        };
        patch["metadata"]["resourceVersion"] = json!(observed.resource_version());
        // After the version: it is one that was there while this manager led.
        self.fence()?;
        match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(patched) => note(written, &patched),
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

/// Notes the version of what was written: which kind that is, its type says.
fn note<K: Writable>(written: &mut Versions, object: &K) {
    let version: u64 = object
        .resource_version()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default();
    let known = written.entry(K::WRITTEN).or_default();
    *known = version.max(*known);
}

fn failed(doing: impl Into<String>, source: kube::Error) -> ActError {
    ActError::Kube {
        doing: doing.into(),
        source: Box::new(source),
    }
}
