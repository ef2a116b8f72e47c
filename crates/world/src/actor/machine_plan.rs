//! A machine-plan Secret as Rancher's planner, its drain controller and the agent on the machine see it.

use api::{annotations, labels, names};
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;

use crate::{
    Troubles,
    context::{Context, annotation, label},
    inbox::Key,
    watched::key_of,
};

/// How the machine is to be drained, as JSON. Hooks have this text as their value.
pub(crate) const DRAIN: &str = "rke.cattle.io/drain-options";
/// The options that the machine has been drained with.
pub(crate) const DRAIN_DONE: &str = "rke.cattle.io/drain-done";
/// The machine is to be uncordoned.
pub(crate) const UNCORDON: &str = "rke.cattle.io/uncordon";
/// On the Secret: the target that the machine's plan is for.
pub(crate) const PLAN: &str = "world.upgrade-toolkit/plan";
/// On the Secret: the target that the machine has reached.
pub(crate) const REACHED: &str = "world.upgrade-toolkit/reached";

/// Labels of the Secret: which machine is the first of all, and what each is for.
pub(crate) const INIT_NODE: &str = "rke.cattle.io/init-node";
pub(crate) const ETCD_ROLE: &str = "rke.cattle.io/etcd-role";
pub(crate) const CONTROL_PLANE_ROLE: &str = "rke.cattle.io/control-plane-role";
pub(crate) const WORKER_ROLE: &str = "rke.cattle.io/worker-role";

/// A machine and the plan for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachinePlan {
    pub(crate) secret: Key,
    pub(crate) machine: String,
    pub(crate) node: String,
    pub(crate) init: bool,
    pub(crate) etcd: bool,
    pub(crate) control_plane: bool,
    pub(crate) worker: bool,
    /// The target that its plan is for.
    pub(crate) plan: String,
    /// The target that it has reached.
    pub(crate) reached: String,
    pub(crate) drain: String,
    pub(crate) drain_done: String,
    pub(crate) uncordon: String,
    pub(crate) pre_drain: String,
    pub(crate) post_drain: String,
    /// Its plan could not be applied.
    pub(crate) failed: bool,
    /// Its probes are healthy.
    pub(crate) healthy: bool,
    /// It has been well since its plan was applied.
    pub(crate) was_healthy: bool,
}

impl MachinePlan {
    /// The machine that a Secret is for, unless it is gone or has no node yet.
    pub(crate) fn of(world: &Context, secret: &Secret) -> Option<Self> {
        Self::with(world, &world.troubles(), secret)
    }

    fn with(world: &Context, troubles: &Troubles, secret: &Secret) -> Option<Self> {
        let machine = label(&secret.metadata, labels::MACHINE_NAME)?.to_owned();
        let found = world.machines.get(names::FLEET_NAMESPACE, &machine)?;
        if found.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let node = found.status.node_ref.as_ref()?.name.clone()?;
        let text = |key: &str| annotation(&secret.metadata, key).unwrap_or_default().to_owned();
        let has = |key: &str| label(&secret.metadata, key) == Some("true");
        let reached = text(REACHED);
        Some(Self {
            secret: key_of(secret),
            init: has(INIT_NODE),
            etcd: has(ETCD_ROLE),
            control_plane: has(CONTROL_PLANE_ROLE),
            worker: has(WORKER_ROLE),
            plan: Some(text(PLAN))
                .filter(|plan| !plan.is_empty())
                .unwrap_or_else(|| reached.clone()),
            reached,
            drain: text(DRAIN),
            drain_done: text(DRAIN_DONE),
            uncordon: text(UNCORDON),
            pre_drain: text(annotations::RKE_PRE_DRAIN),
            post_drain: text(annotations::RKE_POST_DRAIN),
            failed: troubles.failed_machine_plans.contains(&node),
            healthy: !troubles.unhealthy_machines.contains(&node),
            was_healthy: !troubles.unhealthy_machines.contains(&node),
            machine,
            node,
        })
    }

    /// All machines, by name, as the planner goes through them.
    pub(crate) fn all(world: &Context) -> Vec<Self> {
        let (secrets, troubles) = (world.machine_plans.list(), world.troubles());
        let machines = secrets.iter().filter_map(|secret| Self::with(world, &troubles, secret));
        let mut all: Vec<Self> = machines.collect();
        all.sort_by(|one, other| one.machine.cmp(&other.machine));
        all
    }

    /// Its plan is applied.
    pub(crate) fn is_in_sync(&self) -> bool {
        self.plan == self.reached
    }

    /// It is somewhere between the first step of a drain and the last.
    pub(crate) fn is_in_drain(&self) -> bool {
        [&self.pre_drain, &self.post_drain, &self.drain, &self.uncordon]
            .iter()
            .any(|text| !text.is_empty())
    }

    /// Counts against the limit of its tier.
    pub(crate) fn is_unavailable(&self, target: &str) -> bool {
        !self.is_in_sync() || self.is_in_drain() || (self.plan == target && !self.healthy)
    }

    /// Its plan was applied, and it was never well since: what it has can be replaced without harm.
    fn was_never_healthy(&self) -> bool {
        self.is_in_sync() && !self.healthy && !self.was_healthy
    }

    /// It continues whatever the limit of its tier is.
    pub(crate) fn is_exempt(&self) -> bool {
        self.is_in_drain() || self.failed || self.was_never_healthy()
    }
}

/// The annotations with which a kind of hooks of some drain options is answered.
pub(crate) fn hooks(options: &str, field: &str) -> Vec<String> {
    let options: Value = serde_json::from_str(options).unwrap_or_default();
    let hooks = options[field].as_array().cloned().unwrap_or_default();
    let annotations = hooks.iter().filter_map(|hook| hook["annotation"].as_str());
    annotations.map(str::to_owned).collect()
}
