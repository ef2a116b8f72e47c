//! What all actors share: the client, the clock, one watch per kind, and what the simulated cluster is like.

use std::{sync::Arc, time::Duration};

use api::foreign::{
    capi::{Cluster as CapiCluster, Machine},
    catalog::ClusterRepo,
    fleet::{Bundle, Cluster as FleetCluster},
    harvester::{Addon, VirtualMachineImage},
    kubevirt::{KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration},
    longhorn::{Engine, InstanceManager, Replica, Volume},
    rancher::{Cluster, ManagedChart},
    suc::Plan,
};
use api::node::is_ready;
use clock::Clock;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, ReplicaSet},
        batch::v1::Job,
        core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod, Secret, Service},
        discovery::v1::EndpointSlice,
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Client, Resource};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    Durations, Shape, Troubles,
    error::Rke2NotRestarted,
    inbox::{Inbox, Kind},
    index,
    observed_plan::UpgradePlan,
    programs::{LogSink, ProgramStep},
    watched::Watched,
};

/// Makes the client that a program of a pod has: by the namespace and the service account.
pub(crate) type Accounts = Box<dyn Fn(String, String) -> BoxFuture<'static, Client> + Send + Sync>;

/// A listener for every step of a program that begins.
pub(crate) type StepListener = Box<dyn Fn(ProgramStep) + Send + Sync>;

/// Restarts RKE2 of a node with another version: by the node and the version of its kubelet.
pub(crate) type Rke2Restart =
    Box<dyn Fn(String, String) -> BoxFuture<'static, std::result::Result<(), Rke2NotRestarted>> + Send + Sync>;

/// What objects of a kind are found by besides their names.
macro_rules! index {
    () => {
        index::none
    };
    ($index:path) => {
        $index
    };
}

macro_rules! context {
    ($( $field:ident: $type:ident $( [$selector:expr] )? $( by $index:path )? ),* $(,)?) => {
        /// What all actors share.
        pub(crate) struct Context {
            pub(crate) client: Client,
            pub(crate) clock: Clock,
            pub(crate) shape: Shape,
            pub(crate) durations: Durations,
            troubles: std::sync::RwLock<Troubles>,
            /// The listener for steps of programs.
            listener: std::sync::OnceLock<StepListener>,
            /// Where what containers print goes.
            log_sink: std::sync::OnceLock<LogSink>,
            /// The identities of programs; without it, that of the world.
            accounts: std::sync::OnceLock<Accounts>,
            /// What restarts RKE2 of real nodes; without it the world writes what their kubelets would report.
            rke2_restart: std::sync::OnceLock<Rke2Restart>,
            /// When this world began; certificates are valid from then.
            pub(crate) began: Timestamp,
            $( pub(crate) $field: Watched<$type>, )*
        }

        impl Context {
            pub(crate) fn new(client: Client, clock: Clock, shape: Shape, durations: Durations, troubles: Troubles) -> Self {
                Self {
                    $( $field: Watched::new(&client, Kind::$type, concat!($($selector)?), index!($($index)?)), )*
                    began: clock.now_in_seconds(),
                    client, clock, shape, durations, troubles: std::sync::RwLock::new(troubles),
                    listener: std::sync::OnceLock::new(),
                    log_sink: std::sync::OnceLock::new(),
                    accounts: std::sync::OnceLock::new(),
                    rke2_restart: std::sync::OnceLock::new(),
                }
            }

            /// The current simulated failures.
            pub(crate) fn troubles(&self) -> Troubles {
                // Replaced whole, never edited in steps, so also whole after a panic.
                self.troubles.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
            }

            /// Changes the simulated failures from now on.
            pub(crate) fn set_troubles(&self, troubles: Troubles) {
                *self.troubles.write().unwrap_or_else(std::sync::PoisonError::into_inner) = troubles;
            }

            /// Starts all watches and waits until each has brought its first list.
            pub(crate) async fn watch(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
                $(
                    let context = self.clone();
                    tasks.spawn(async move { context.$field.run().await });
                )*
                $( self.$field.wait_until_synced().await; )*
            }
        }
    };
}

context! {
    upgrade_plans: UpgradePlan,
    nodes: Node by index::node,
    pods: Pod by index::pod,
    jobs: Job,
    plans: Plan,
    deployments: Deployment,
    replica_sets: ReplicaSet,
    daemon_sets: DaemonSet,
    services: Service,
    endpoint_slices: EndpointSlice,
    budgets: PodDisruptionBudget,
    // Only machine plans, certificates of repositories and our own restore lists matter here.
    machine_plans: Secret["rke.cattle.io/machine-name"],
    repo_secrets: Secret["management.harvesterhci.io/upgrade-component"],
    config_maps: ConfigMap["management.harvesterhci.io/upgrade-plan"],
    claims: PersistentVolumeClaim,
    clusters: Cluster,
    capi_clusters: CapiCluster,
    fleet_clusters: FleetCluster,
    repos: ClusterRepo,
    machines: Machine,
    charts: ManagedChart,
    bundles: Bundle,
    addons: Addon,
    images: VirtualMachineImage,
    kubevirts: KubeVirt,
    vms: VirtualMachine,
    vmis: VirtualMachineInstance by index::instance,
    migrations: VirtualMachineInstanceMigration by index::migration,
    volumes: Volume,
    replicas: Replica by index::replica,
    engines: Engine,
    instance_managers: InstanceManager,
}

impl Context {
    /// An empty inbox.
    pub(crate) fn inbox(&self) -> Inbox {
        Inbox::new(self.clock.clone())
    }

    /// Reports a step that begins to the listener.
    pub(crate) fn report_step(&self, step: impl FnOnce() -> ProgramStep) {
        if let Some(listener) = self.listener.get() {
            listener(step());
        }
    }

    /// Sets the listener. Only the first call counts.
    pub(crate) fn listen(&self, listener: StepListener) {
        let _ = self.listener.set(listener);
    }

    /// What containers print goes there from now on. Only the first call counts.
    pub(crate) fn print_to(&self, sink: LogSink) {
        let _ = self.log_sink.set(sink);
    }

    /// Where what containers print goes.
    pub(crate) fn log_sink(&self) -> Option<&LogSink> {
        self.log_sink.get()
    }

    /// Programs use their own accounts from now on. Only the first call counts.
    pub(crate) fn run_programs_as(&self, accounts: Accounts) {
        let _ = self.accounts.set(accounts);
    }

    /// RKE2 of real nodes is restarted by this from now on. Only the first call counts.
    pub(crate) fn restart_rke2_by(&self, restart: Rke2Restart) {
        let _ = self.rke2_restart.set(restart);
    }

    /// What restarts RKE2 of real nodes, if nodes are real.
    pub(crate) fn rke2_restart(&self) -> Option<&Rke2Restart> {
        self.rke2_restart.get()
    }

    /// The client of a pod's program.
    pub(crate) async fn client_of(&self, pod: &Pod) -> Client {
        let Some(accounts) = self.accounts.get() else {
            return self.client.clone();
        };
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        accounts(namespace, account.unwrap_or_else(|| "default".to_owned())).await
    }

    /// Now, as Kubernetes writes it.
    pub(crate) fn stamp(&self) -> String {
        self.clock.now_in_seconds().to_string()
    }

    /// Waits until a test holds, checked again on every change that an inbox receives.
    pub(crate) async fn until(&self, inbox: &Inbox, mut test: impl FnMut(&Self) -> bool) {
        while !test(self) {
            inbox.changed().await;
        }
    }

    /// The node of that name runs and answers.
    pub(crate) fn is_up(&self, node: &str) -> bool {
        self.nodes.get("", node).is_some_and(|node| is_ready(&node))
    }
}

/// A time plus a duration.
pub(crate) fn after(moment: Timestamp, duration: Duration) -> Timestamp {
    moment.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// A label of an object.
pub(crate) fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

/// An annotation of an object.
pub(crate) fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The owner of a kind.
pub(crate) fn owner<'a>(meta: &'a ObjectMeta, kind: &str) -> Option<&'a OwnerReference> {
    meta.owner_references.as_ref()?.iter().find(|owner| owner.kind == kind)
}

/// A reference to an object that controls others.
pub(crate) fn controlled_by<K: Resource<DynamicType = ()>>(object: &K) -> Value {
    json!([{
        "apiVersion": K::api_version(&()), "kind": K::kind(&()),
        "name": object.meta().name, "uid": object.meta().uid,
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// A pod's phase; empty when it has none yet.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// A pod's node; empty when it has none.
pub(crate) fn node_of(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

/// The first hexadecimal digits of a digest of a text: names that look random and are not.
pub(crate) fn digest(text: &str, digits: usize) -> String {
    use sha2::{Digest, Sha256};
    let bytes = Sha256::digest(text.as_bytes());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()[..digits.min(64)].to_owned()
}
