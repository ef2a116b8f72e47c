//! A Harvester on a real control plane: Kubernetes' own controllers are real, and system-upgrade-controller where there
//! is one; kwok stands for the kubelets, and the world plays what else a Harvester has. The manager runs in this process with the roles that ship.

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::SocketAddr,
    sync::{Arc, LazyLock},
    time::Duration,
};

use api::{Phase, UpgradePlan, UpgradePlanSpec, foreign::rancher, names};
use cli::rehearsal::{PREFIX, SERVICE_ACCOUNT, external_probes::Simulated, install_roles};
use clock::Clock;
use futures::FutureExt;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, PersistentVolume, ServiceAccount},
};
use kube::{
    Api, Client, Resource,
    api::{ListParams, PostParams},
    runtime::wait::{Condition, await_condition},
};
use manager::{client::for_product, field_validation::Mode, rbac::PROGRAMS};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use testbed::{ControlPlane, Part};
use tokio::task::{AbortHandle, JoinSet};
use world::{Definitions, Durations, Facts, Real, Shape, Troubles, World};

use crate::{kubelets, network::Network};

/// The manager in the audit log.
pub(crate) const MANAGER: &str = "upgrade-toolkit";
/// What the world plays, in the audit log.
const WORLD: &str = "world";
/// The node whose kubelet answers for all.
const FIRST_NODE: &str = "node-1";
/// How often a list is looked at again.
const PAUSE: Duration = Duration::from_millis(200);
/// How long setting up may take.
const SETUP: Duration = Duration::from_secs(60);

/// Runs a test on a cluster of its own, when its turn has come.
pub(crate) fn on_cluster(shape: Shape, durations: Durations, test: impl AsyncFnOnce(&mut Harvester)) {
    if !testbed::is_wanted() {
        return;
    }
    let _turn = crate::turn();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut harvester = Harvester::start(shape, durations).await;
        test(&mut harvester).await;
    });
}

/// A cluster with its world. Everything ends when it is dropped.
pub(crate) struct Harvester {
    pub(crate) control_plane: ControlPlane,
    pub(crate) client: Client,
    pub(crate) network: Network,
    /// Where kubelets listen.
    pub(crate) kubelets: SocketAddr,
    pub(crate) facts: Facts,
    shape: Shape,
    pub(crate) tasks: JoinSet<()>,
}

impl Harvester {
    /// Starts one in which things take so long.
    pub(crate) async fn start(shape: Shape, durations: Durations) -> Self {
        let system_upgrade = has_system_upgrade_controller();
        let mut parts = vec![Part::ControllerManager, Part::Scheduler, Part::Kubelets];
        parts.extend(system_upgrade.then_some(Part::SystemUpgradeController));
        let control_plane = tokio::task::spawn_blocking(move || ControlPlane::start(&parts))
            .await
            .unwrap()
            .unwrap();
        let client = control_plane.client("user").await.unwrap();
        let objects = shape.objects();
        tokio::time::timeout(SETUP, prepare(&client, &objects, "/nowhere"))
            .await
            .unwrap();
        let (definitions, mode) = definitions();
        let (strict, _) = for_product(client.clone(), mode);
        world::install_by(&strict, definitions, &objects).await.unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), names::HARVESTER_NAMESPACE);
        ensure(&accounts, json!({"metadata": {"name": SERVICE_ACCOUNT}})).await;
        install_roles(&client, PREFIX, SERVICE_ACCOUNT).await.unwrap();
        let troubles = Troubles::default();
        let actors = control_plane.client_without_retries(WORLD).await.unwrap();
        let (actors, _) = for_product(actors, mode);
        let programs = programs(&control_plane, mode).await;
        let others = actors.clone();
        let world = World::new(actors, Clock::system(), shape.clone(), durations, troubles)
            .with_real(Real {
                controllers: true,
                kubelets: true,
                machines: false,
                system_upgrade,
            })
            .with_programs_as(move |namespace, name| {
                let client = programs.get(&(namespace, name)).unwrap_or(&others).clone();
                std::future::ready(client).boxed()
            });
        let facts = world.facts();
        let mut tasks = JoinSet::new();
        let socket = control_plane.kubelet_socket();
        let network = Network::serve(&socket, node_addresses(&objects), facts.clone(), &mut tasks);
        let first = (FIRST_NODE, client.clone(), facts.clone());
        let kubelets = kubelets::serve(control_plane.directory(), "kubelet", first, &mut tasks).await;
        tasks.spawn(world.run());
        // Kubelets answer from what the world has seen; before it has seen the nodes there are none.
        let answers = || matches!(facts.kubelet(FIRST_NODE, "configz"), Some((200, ..)));
        let world_has_seen_the_nodes = async {
            while !answers() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        let seen = tokio::time::timeout(SETUP, world_has_seen_the_nodes).await;
        seen.expect("the world sees the nodes");
        Self {
            control_plane,
            client,
            network,
            kubelets,
            facts,
            shape,
            tasks,
        }
    }

    /// Starts a manager in this process; aborting it is killing it.
    pub(crate) async fn start_manager(&mut self) -> AbortHandle {
        self.start_manager_with(manager::run::Config::default()).await
    }

    /// Starts a manager in this process that runs in a certain way.
    pub(crate) async fn start_manager_with(&mut self, config: manager::run::Config) -> AbortHandle {
        let client = self
            .control_plane
            .client_of(names::HARVESTER_NAMESPACE, SERVICE_ACCOUNT, MANAGER)
            .await
            .unwrap();
        let (client, _) = for_product(client, definitions().1);
        let probes = Arc::new(Simulated::new(self.facts.clone()));
        self.tasks.spawn(async move {
            let ended = manager::run::run(client, Clock::system(), probes, config, None, std::future::pending());
            ended.await.unwrap();
        })
    }

    /// Creates a plan as a user would.
    pub(crate) async fn create_plan(&self, name: &str, spec: UpgradePlanSpec) {
        let mut plan = UpgradePlan::new(name, spec);
        plan.spec.version.get_or_insert_with(|| self.shape.to.clone());
        self.plans().create(&PostParams::default(), &plan).await.unwrap();
    }

    /// Gives another service account the roles of the manager.
    pub(crate) async fn add_account(&self, account: &str) {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), names::HARVESTER_NAMESPACE);
        ensure(&accounts, json!({"metadata": {"name": account}})).await;
        install_roles(&self.client, &prefix_of(account), account).await.unwrap();
    }

    /// Rancher's counter of orders to upgrade nodes.
    pub(crate) async fn provision_generation(&self) -> Option<i64> {
        let clusters: Api<rancher::Cluster> = Api::namespaced(self.client.clone(), names::FLEET_NAMESPACE);
        let cluster = clusters.get(names::LOCAL_CLUSTER).await.unwrap();
        cluster.spec.rke_config.unwrap().provision_generation
    }

    pub(crate) fn plans(&self) -> Api<UpgradePlan> {
        Api::all(self.client.clone())
    }

    /// The plan once it has Succeeded; fails when it ends otherwise.
    pub(crate) async fn succeeded(&self, name: &str, limit: Duration) -> UpgradePlan {
        let ended = |plan: &UpgradePlan| plan.phase().is_some_and(Phase::is_terminal);
        let plan = self.plan_when(name, limit, "ended", ended).await;
        assert_eq!(plan.phase(), Some(Phase::Succeeded), "{:#?}", plan.status);
        plan
    }

    /// Waits until there is no object of a kind.
    pub(crate) async fn until_none<K>(&self, api: &Api<K>, limit: Duration)
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
    {
        self.until_none_of(api, &ListParams::default(), limit).await;
    }

    /// Waits until there is no object of a kind that a list would show.
    pub(crate) async fn until_none_of<K>(&self, api: &Api<K>, which: &ListParams, limit: Duration)
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let end = tokio::time::sleep(limit);
        tokio::pin!(end);
        loop {
            let left = api.list(which).await.unwrap();
            if left.items.is_empty() {
                return;
            }
            tokio::select! {
                () = &mut end => panic!("still there: {left:#?}"),
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    /// The plan once a test holds; fails with the plan as it is then when that takes too long.
    pub(crate) async fn plan_when(
        &self,
        name: &str,
        limit: Duration,
        what: &str,
        test: impl Fn(&UpgradePlan) -> bool,
    ) -> UpgradePlan {
        if let Some(found) = self.plan_within(name, limit, test).await {
            return found;
        }
        let plan = self.plans().get_opt(name).await.unwrap();
        let plan = serde_json::to_string_pretty(&plan).unwrap();
        panic!("plan {name} is not {what} after {} s:\n{plan}", limit.as_secs());
    }

    /// The plan once a test holds; nothing when that takes too long.
    pub(crate) async fn plan_within(
        &self,
        name: &str,
        limit: Duration,
        test: impl Fn(&UpgradePlan) -> bool,
    ) -> Option<UpgradePlan> {
        let condition = |plan: Option<&UpgradePlan>| plan.is_some_and(&test);
        let found = tokio::time::timeout(limit, await_condition(self.plans(), name, condition)).await;
        found.ok().map(|found| found.unwrap().unwrap())
    }

    /// Waits until a manager leads; returns its name.
    pub(crate) async fn leader(&self) -> String {
        self.leader_other_than("").await
    }

    /// Waits until another manager leads than this one; returns its name.
    pub(crate) async fn leader_other_than(&self, other: &str) -> String {
        let holder = |lease: Option<&Lease>| lease.and_then(|lease| lease.spec.as_ref()?.holder_identity.clone());
        let is_another = |lease: Option<&Lease>| holder(lease).is_some_and(|found| !found.is_empty() && found != other);
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), names::HARVESTER_NAMESPACE);
        let found = await_condition(leases, names::LEASE, is_another);
        let found = tokio::time::timeout(SETUP, found).await;
        let found = found.expect("somebody takes the lease").unwrap();
        holder(found.as_ref()).unwrap()
    }
}

/// The accounts that ship for programs, with their namespaces.
pub(crate) fn accounts() -> impl Iterator<Item = (String, String)> {
    PROGRAMS
        .into_iter()
        .map(|program| (program.namespace.to_owned(), format!("{PREFIX}{}", program.account)))
}

/// A client for each of them, with a token of its own. In the audit log it calls itself by its account.
async fn programs(control_plane: &ControlPlane, mode: Mode) -> BTreeMap<(String, String), Client> {
    let mut clients = BTreeMap::new();
    for (namespace, name) in accounts() {
        let client = control_plane.client_of(&namespace, &name, &name).await.unwrap();
        clients.insert((namespace, name), for_product(client, mode).0);
    }
    clients
}

/// What the names of the roles of an account of the manager begin with.
pub(crate) fn prefix_of(account: &str) -> String {
    match account {
        SERVICE_ACCOUNT => PREFIX.to_owned(),
        other => format!("{other}-"),
    }
}

/// Who runs Plans, in the audit log.
pub(crate) fn runs_plans() -> &'static str {
    if has_system_upgrade_controller() {
        "system-upgrade-controller"
    } else {
        WORLD
    }
}

/// Whether the real one runs the Plans; without it the world does. One line says which, whatever the number of tests.
fn has_system_upgrade_controller() -> bool {
    static FOUND: LazyLock<bool> = LazyLock::new(|| {
        let found = ControlPlane::has(Part::SystemUpgradeController);
        let who = if found {
            "the real one"
        } else {
            "the world plays it (KUBEBUILDER_ASSETS may name a directory that has one)"
        };
        // Straight to stderr: what a passing test prints is captured.
        drop(writeln!(std::io::stderr(), "system-upgrade-controller: {who}"));
        found
    });
    *FOUND
}

/// The real definitions of foreign kinds where there are any; then no client may write fields that they do not name.
pub(crate) fn definitions() -> (Definitions, Mode) {
    match testbed::real_definitions() {
        Some(real) => (Definitions::Given(real), Mode::Strict),
        None => (Definitions::Ours, Mode::Warn),
    }
}

/// What a new control plane lacks before the cluster can be put onto it: namespaces with their default accounts, the
/// accounts of Harvester's own programs, and a volume for the ISO, which Longhorn would provide: a folder of each node.
pub(crate) async fn prepare(client: &Client, objects: &[Value], iso_folder: &str) {
    let namespaces: Vec<&str> = objects
        .iter()
        .filter(|object| object["kind"] == "Namespace")
        .filter_map(|object| object["metadata"]["name"].as_str())
        .collect();
    for name in &namespaces {
        ensure::<Namespace>(&Api::all(client.clone()), json!({"metadata": {"name": name}})).await;
    }
    for (namespace, name) in [
        (names::HARVESTER_NAMESPACE, "harvester"),
        (names::CATTLE_NAMESPACE, "system-upgrade-controller"),
    ] {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
        ensure(&accounts, json!({"metadata": {"name": name}})).await;
    }
    for name in &namespaces {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
        await_condition(accounts, "default", exists()).await.unwrap();
    }
    let volume = json!({
        "metadata": {"name": "iso"},
        "spec": {
            "storageClassName": "longhorn-static", "accessModes": ["ReadWriteMany"], "capacity": {"storage": "10Gi"},
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": iso_folder},
        },
    });
    ensure::<PersistentVolume>(&Api::all(client.clone()), volume).await;
}

fn exists<K>() -> impl Condition<K> {
    |object: Option<&K>| object.is_some()
}

async fn ensure<K>(api: &Api<K>, object: Value)
where
    K: Resource + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => panic!("{error}"),
    }
}

/// The nodes by their addresses.
fn node_addresses(objects: &[Value]) -> BTreeMap<String, String> {
    let nodes = objects.iter().filter(|object| object["kind"] == "Node");
    nodes
        .filter_map(|node| {
            let addresses = node["status"]["addresses"].as_array()?;
            let internal = addresses.iter().find(|address| address["type"] == "InternalIP")?;
            let name = node["metadata"]["name"].as_str()?;
            Some((internal["address"].as_str()?.to_owned(), name.to_owned()))
        })
        .collect()
}
