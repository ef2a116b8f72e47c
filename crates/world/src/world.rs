//! All actors together.

use std::sync::Arc;

use clock::Clock;
use futures::future::BoxFuture;
use kube::Client;
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    Durations, Facts, PrintedLine, ProgramStep, Shape, Troubles, actor,
    context::Context,
    error::{Result, Rke2NotRestarted},
};

/// Which controllers are real, as on a real control plane. The world simulates the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Real {
    /// Jobs, Deployments, endpoints, garbage collection and scheduling: kube-controller-manager and kube-scheduler.
    pub controllers: bool,
    /// Pods that start and go. What their programs do, and reboots, are the world's unless `machines` says otherwise.
    pub kubelets: bool,
    /// Machines: pods run their programs, kubelets report what they run on, and a reboot is one. RKE2 is restarted by
    /// [`World::with_rke2_restarted_by`].
    pub machines: bool,
    /// system-upgrade-controller.
    pub system_upgrade: bool,
}

/// A cluster that lives: everything that a Harvester does by itself.
pub struct World {
    context: Arc<Context>,
    real: Real,
}

impl World {
    /// A world on a Kubernetes API onto which a cluster was put with [`crate::cluster::install`].
    #[must_use]
    pub fn new(client: Client, clock: Clock, shape: Shape, durations: Durations, troubles: Troubles) -> Self {
        Self {
            context: Arc::new(Context::new(client, clock, shape, durations, troubles)),
            real: Real::default(),
        }
    }

    /// Does not simulate the parts that real components provide.
    #[must_use]
    pub fn with_real(self, real: Real) -> Self {
        Self { real, ..self }
    }

    /// Reports every step of a program that begins, as the program's log does in a real cluster.
    #[must_use]
    pub fn listened_to_by(self, listener: impl Fn(ProgramStep) + Send + Sync + 'static) -> Self {
        self.context.listen(Box::new(listener));
        self
    }

    /// What the containers of a real cluster would print, line by line, is given to a sink: what programs of Jobs log, and
    /// what the repository does.
    #[must_use]
    pub fn with_logs_to(self, sink: impl Fn(&PrintedLine<'_>) + Send + Sync + 'static) -> Self {
        self.context.print_to(Box::new(sink));
        self
    }

    /// Programs of pods are their service accounts: they use the API with a client that is made for
    /// namespace and account. What the world does in their place (the node's disk, KubeVirt's work) stays the world's.
    #[must_use]
    pub fn with_programs_as(
        self,
        accounts: impl Fn(String, String) -> BoxFuture<'static, Client> + Send + Sync + 'static,
    ) -> Self {
        self.context.run_programs_as(Box::new(accounts));
        self
    }

    /// RKE2 of a node is restarted with another version, by node and kubelet version, when Rancher's agent there has applied
    /// its plan. For clusters whose nodes are real; elsewhere the world writes what a kubelet would report.
    #[must_use]
    pub fn with_rke2_restarted_by(
        self,
        restart: impl Fn(String, String) -> BoxFuture<'static, std::result::Result<(), Rke2NotRestarted>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.context.restart_rke2_by(Box::new(restart));
        self
    }

    /// What the manager reads outside the API.
    #[must_use]
    pub fn facts(&self) -> Facts {
        Facts(self.context.clone())
    }

    /// Runs all actors for ever. Dropping the future stops them all; another world can continue from there.
    pub async fn run(self) {
        let Self { context: world, real } = self;
        let mut tasks = JoinSet::new();
        world.watch(&mut tasks).await;
        while let Err(error) = block_drains(&world).await {
            tracing::debug!(%error, "failed to set up a blocked drain; trying again");
            world.clock.sleep(std::time::Duration::from_secs(1)).await;
        }
        if !real.controllers {
            tasks.spawn(actor::garbage_collector::run(world.clone()));
            tasks.spawn(actor::jobs::run(world.clone()));
            tasks.spawn(actor::deployments::run(world.clone()));
            tasks.spawn(actor::daemon_sets::run(world.clone()));
            tasks.spawn(actor::endpoints::run(world.clone()));
        }
        if !real.machines {
            tasks.spawn(actor::kubelet::run(world.clone(), !real.kubelets));
        }
        if !real.system_upgrade {
            tasks.spawn(actor::system_upgrade::run(world.clone()));
        }
        tasks.spawn(actor::rancher::run(world.clone()));
        tasks.spawn(actor::rancher_planner::run(world.clone()));
        tasks.spawn(actor::machine_drain::run(world.clone()));
        tasks.spawn(actor::system_agent::run(world.clone()));
        tasks.spawn(actor::cdi::run(world.clone()));
        tasks.spawn(actor::kubevirt::run(world.clone()));
        tasks.spawn(actor::evacuation::run(world.clone()));
        tasks.spawn(actor::migrations::run(world.clone()));
        tasks.spawn(actor::node_down::run(world.clone()));
        tasks.spawn(actor::longhorn::run(world.clone()));
        tasks.spawn(actor::fleet::run(world.clone()));
        tasks.spawn(actor::addons::run(world.clone()));
        tasks.spawn(actor::saboteur::run(world.clone()));
        if world.shape.layout.is_some() {
            tasks.spawn(actor::workloads::run(world.clone()));
        }
        drop(world);
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "an actor ended");
            }
        }
    }
}

/// Puts a pod that cannot be evicted onto each node whose drain is to be blocked.
async fn block_drains(world: &Context) -> Result<()> {
    for node in &world.troubles().blocked_drains {
        let name = format!("stubborn-{node}");
        let labels = json!({"app": name});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "registry.suse.com/bci/bci-base:16.0"}]},
        });
        world.pods.create(&pod).await?;
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
        });
        world.budgets.create(&budget).await?;
        let status = json!({"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1});
        world
            .budgets
            .patch_status(&("default".to_owned(), name), &status)
            .await?;
    }
    Ok(())
}
