//! A whole cluster in this process: the embedded API, the simulated world, and the real manager on top.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use api::names;
use apiserver::{ApiServer, ContainerInstance, Identity};
use clock::Clock;
use futures::FutureExt;
use jiff::Timestamp;
use kube::api::DynamicObject;
use manager::{
    client::for_product,
    field_validation::Mode,
    lease::LeaseTiming,
    run::{Config, run},
};
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
};
use world::{Definitions, Durations, Facts, PrintedLine, ProgramStep, Shape, Troubles, World};

pub mod administrator;
mod admission;
mod bars;
pub mod external_probes;
pub mod follow;
pub mod forecast;
pub mod from_snapshot;
pub mod kubeconfig;
mod plans;
mod screen;
mod setup;
pub mod summary;
pub mod trouble;

pub use bars::Bars;
pub use plans::has_ended;
pub use setup::{Templates, install_roles};

use admission::Admission;
use setup::Beginning;

/// The service account that the manager runs as: it may do what the shipped roles allow, and nothing else.
pub const SERVICE_ACCOUNT: &str = "harvester-upgrade-manager-controller-manager";
/// What the names of the manager's roles and webhooks begin with.
pub const PREFIX: &str = "upgrade-toolkit-";
/// Harvester's and Rancher's own accounts, which older managers gave to their Jobs: administrators of the cluster.
const ADMINISTRATORS: [&str; 2] = ["harvester", "system-upgrade-controller"];
/// When the rehearsed upgrade begins.
const BEGINNING: &str = "2026-03-13T03:57:09Z";

/// How long a manager that ended is away.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// What is rehearsed.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// The cluster.
    pub shape: Shape,
    /// Durations of the simulated cluster.
    pub durations: Durations,
    /// Simulated failures.
    pub troubles: Troubles,
    /// Whether others than the manager and the world write: they may use server-side apply.
    pub open: bool,
    /// By which definitions foreign kinds are served. With given ones no client may write an unknown field.
    pub definitions: Definitions,
}

/// A running cluster.
pub struct Rehearsal {
    /// The API server, with its store.
    pub server: ApiServer,
    /// The time in the cluster.
    pub clock: Clock,
    facts: Facts,
    shape: Shape,
    validation: Mode,
    world: JoinSet<()>,
    plan_writes: Arc<AtomicU64>,
    plan_changes: watch::Receiver<u64>,
    step_listeners: StepListeners,
    _admission: Admission,
}

/// The listener for steps of programs.
type StepListeners = Arc<Mutex<Vec<Box<dyn Fn(&ProgramStep) + Send + Sync>>>>;

/// The container that printed a line.
fn container_of<'a>(line: &PrintedLine<'a>) -> ContainerInstance<'a> {
    ContainerInstance {
        namespace: line.namespace,
        pod: line.pod,
        uid: line.uid,
        container: line.container,
        restart: line.restart,
    }
}

/// Counts how often the manager changes plans, and reports every change of one.
fn watch_plans(server: &ApiServer) -> (Arc<AtomicU64>, watch::Receiver<u64>) {
    let count = Arc::new(AtomicU64::new(0));
    let (newest, changes) = watch::channel(0);
    let (counted, manager) = (count.clone(), manager_user());
    server.store().observe(move |change| {
        if change.resource.plural != "upgradeplans" {
            return;
        }
        if change.user == manager {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        newest.send_replace(change.resource_version);
    });
    (count, changes)
}

/// The time at which rehearsals begin.
#[must_use]
pub fn beginning() -> Timestamp {
    BEGINNING.parse().unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The user name of the manager.
#[must_use]
pub fn manager_user() -> String {
    format!("system:serviceaccount:{}:{SERVICE_ACCOUNT}", names::HARVESTER_NAMESPACE)
}

/// The group that one manager alone is in.
#[must_use]
pub fn manager_group(identity: &str) -> String {
    format!("rehearsal:manager:{identity}")
}

impl Rehearsal {
    /// Sets a cluster up and starts its world.
    ///
    /// # Errors
    /// The cluster's objects were refused.
    pub async fn start(scenario: Scenario, clock: Clock) -> anyhow::Result<Self> {
        Self::begin(scenario, clock, None).await
    }

    /// The same for many clusters: one that was set up before is copied.
    ///
    /// # Errors
    /// The cluster's objects were refused.
    pub async fn start_again(scenario: Scenario, clock: Clock, templates: &Templates) -> anyhow::Result<Self> {
        Self::begin(scenario, clock, Some(templates)).await
    }

    async fn begin(scenario: Scenario, clock: Clock, templates: Option<&Templates>) -> anyhow::Result<Self> {
        let Scenario {
            shape,
            durations,
            troubles,
            open,
            definitions,
        } = scenario;
        let validation = match definitions {
            Definitions::Ours => Mode::Warn,
            Definitions::Given(_) => Mode::Strict,
        };
        let templates = templates.map(|known| (known, Beginning::new(&shape, open, definitions, &clock)));
        let known = templates.as_ref().and_then(|(known, beginning)| known.find(beginning));
        let config = setup::config(shape.seed, open, &clock);
        let server = match &known {
            Some(template) => ApiServer::from_template(config, template),
            None => ApiServer::new(config),
        };
        let (plan_writes, plan_changes) = watch_plans(&server);
        let admission = Admission::start(&server);
        if known.is_none() {
            setup::install(&server, &shape, definitions, validation).await?;
            if let Some((known, beginning)) = templates {
                known.keep(beginning, server.template());
            }
        }
        let world_client = server.client_as(Identity {
            user: "system:world".to_owned(),
            groups: vec!["system:masters".to_owned()],
        });
        let step_listeners = StepListeners::default();
        let listeners = step_listeners.clone();
        let listener = move |step: ProgramStep| {
            let listeners = listeners.lock().unwrap_or_else(PoisonError::into_inner);
            listeners.iter().for_each(|listener| listener(&step));
        };
        let (world_client, _) = for_product(world_client, validation);
        // The server asks the world about kubelets: if the world kept the server, neither would ever end.
        let accounts = server.downgrade();
        let logs = server.logs();
        let simulation = World::new(world_client, clock.clone(), shape.clone(), durations, troubles)
            .listened_to_by(listener)
            .with_logs_to(move |line| logs.append(&container_of(line), line.at, line.text))
            .with_programs_as(move |namespace, name| {
                let Some(server) = accounts.upgrade() else {
                    return std::future::pending().boxed();
                };
                let mut account = Identity::service_account(&namespace, &name);
                if ADMINISTRATORS.contains(&name.as_str()) {
                    account.groups.push("system:masters".to_owned());
                }
                let (client, _) = for_product(server.client_as(account), validation);
                std::future::ready(client).boxed()
            });
        let facts = simulation.facts();
        let kubelets = facts.clone();
        server.set_node_proxy(Arc::new(move |node, path| kubelets.kubelet(node, path)));
        let mut world = JoinSet::new();
        world.spawn(simulation.run());
        Ok(Self {
            server,
            clock,
            facts,
            shape,
            validation,
            world,
            plan_writes,
            plan_changes,
            step_listeners,
            _admission: admission,
        })
    }

    /// Reports to a listener every step of a program that begins from now on.
    pub fn observe_steps(&self, listener: impl Fn(&ProgramStep) + Send + Sync + 'static) {
        let mut listeners = self.step_listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.push(Box::new(listener));
    }

    /// Starts a manager. Aborting the task is killing the manager.
    #[must_use]
    pub fn start_manager(&self, identity: &str) -> JoinHandle<()> {
        self.start_manager_with(Config {
            identity: identity.to_owned(),
            ..Config::default()
        })
    }

    /// Starts the only manager: it renews its lease rarely, since hours pass in no time.
    #[must_use]
    pub fn start_only_manager(&self) -> JoinHandle<()> {
        self.start_manager_with(Config {
            identity: "rehearsal".to_owned(),
            lease_timing: LeaseTiming::with_duration(Duration::from_mins(15)),
            ..Config::default()
        })
    }

    /// Starts a manager that does not compete for the lease. In time that runs many times as fast as real time, a
    /// lease of 30 seconds is shorter than what a busy machine needs to renew it.
    #[must_use]
    pub fn start_lone_manager(&self) -> JoinHandle<()> {
        self.start_manager_with(Config {
            lease_namespace: None,
            ..Config::default()
        })
    }

    /// Starts a manager that is configured so.
    #[must_use]
    pub fn start_manager_with(&self, config: Config) -> JoinHandle<()> {
        let mut identity = Identity::service_account(names::HARVESTER_NAMESPACE, SERVICE_ACCOUNT);
        // So that the API server, which fault plans live in, can distinguish managers.
        identity.groups.push(manager_group(&config.identity));
        let (client, _) = for_product(self.server.client_as(identity), self.validation);
        let facts = self.facts.clone();
        let clock = self.clock.clone();
        tokio::spawn(async move {
            // A manager that has lost its lease ends, and its Deployment starts it again.
            loop {
                let probes = Arc::new(external_probes::Simulated::new(facts.clone()));
                let ended = run(
                    client.clone(),
                    clock.clone(),
                    probes,
                    config.clone(),
                    None,
                    std::future::pending(),
                );
                let Err(error) = ended.await else { return };
                tracing::info!(%error, "the manager ended; it is started again");
                clock.sleep(RESTART_PAUSE).await;
            }
        })
    }

    /// All objects of a kind, for users and tests.
    #[must_use]
    pub fn objects(&self, group: &str, plural: &str) -> Vec<DynamicObject> {
        let objects = self.server.store().list(group, plural, None);
        objects
            .iter()
            .filter_map(|object| serde_json::from_value((**object).clone()).ok())
            .collect()
    }

    /// Changes the simulated failures from now on.
    pub fn set_troubles(&self, troubles: Troubles) {
        self.facts.set_troubles(troubles);
    }

    /// How often the manager wrote to plans, and to anything.
    #[must_use]
    pub fn writes(&self) -> (u64, u64) {
        let by_user = self.server.store().counters().writes_by_user;
        let all = by_user.get(&manager_user()).copied().unwrap_or_default();
        (self.plan_writes.load(Ordering::Relaxed), all)
    }

    /// Ends the world.
    pub fn stop(mut self) {
        self.world.abort_all();
    }
}
