//! Every kind the manager watches, one watch each, narrowed to what decisions read.

use std::sync::Arc;

use api::{
    UpgradePlan, annotations,
    foreign::{capi, harvester, kubevirt, longhorn, rancher, suc},
    labels, names,
};
use cache::Cache;
use futures::future::BoxFuture;
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    batch::v1::{Job, JobStatus},
    core::v1::{ConfigMap, ContainerStatus, Node, Pod, PodStatus, Secret, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client, runtime::watcher};
use tokio::sync::Notify;

use crate::{
    blockers,
    instance::{self, Instance},
};

/// All caches, and the bell that rings when any of them changes.
#[derive(Clone, Default)]
#[allow(missing_docs, reason = "each is the cache of the kind it is named after")]
pub struct Watched {
    pub plans: Cache<UpgradePlan>,
    pub nodes: Cache<Node>,
    pub versions: Cache<harvester::Version>,
    pub settings: Cache<harvester::Setting>,
    pub images: Cache<harvester::VirtualMachineImage>,
    pub addons: Cache<harvester::Addon>,
    pub deployments: Cache<Deployment>,
    pub replica_sets: Cache<ReplicaSet>,
    pub services: Cache<Service>,
    pub endpoint_slices: Cache<EndpointSlice>,
    pub suc_plans: Cache<suc::Plan>,
    pub jobs: Cache<Job>,
    /// The Jobs of system-upgrade-controller.
    pub suc_jobs: Cache<Job>,
    pub secrets: Cache<Secret>,
    pub machines: Cache<capi::Machine>,
    pub clusters: Cache<rancher::Cluster>,
    pub managed_charts: Cache<rancher::ManagedChart>,
    pub longhorn_settings: Cache<longhorn::Setting>,
    pub kubevirts: Cache<kubevirt::KubeVirt>,
    pub config_maps: Cache<ConfigMap>,
    pub pods: Cache<Pod>,
    /// The pods of the Jobs of system-upgrade-controller.
    pub suc_pods: Cache<Pod>,
    pub volumes: Cache<longhorn::Volume>,
    pub instances: Cache<kubevirt::VirtualMachineInstance>,
    /// Rings when any cache changes.
    pub changed: Arc<Notify>,
}

/// Kinds that the manager writes, for [`Watched::seen`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is the kind it is named after")]
pub enum Written {
    Plan,
    Node,
    Image,
    Addon,
    Deployment,
    Service,
    SucPlan,
    Job,
    Secret,
    Cluster,
    ManagedChart,
    LonghornSetting,
    KubeVirt,
}

impl Watched {
    /// The watches that keep the caches up to date; each runs for ever.
    #[must_use]
    pub fn watches(&self, client: &Client) -> Vec<BoxFuture<'static, ()>> {
        let all = watcher::Config::default;
        let ours = || all().labels(labels::UPGRADE_PLAN);
        let named = |name: &str| all().fields(&format!("metadata.name={name}"));
        let bell = || self.changed.clone();
        let c = client;
        let machine_plans = all().fields(&format!("type={}", annotations::MACHINE_PLAN_SECRET_TYPE));
        vec![
            Box::pin(self.plans.clone().run(Api::all(c.clone()), all(), |_| (), bell())),
            Box::pin(self.nodes.clone().run(Api::all(c.clone()), all(), prune_node, bell())),
            Box::pin(self.versions.clone().run(harvester_system(c), all(), |_| (), bell())),
            Box::pin(self.settings.clone().run(
                Api::all(c.clone()),
                named(names::SERVER_VERSION_SETTING),
                |_| (),
                bell(),
            )),
            Box::pin(self.images.clone().run(harvester_system(c), all(), |_| (), bell())),
            Box::pin(self.addons.clone().run(
                Api::namespaced(c.clone(), names::KUBE_SYSTEM_NAMESPACE),
                named(names::DESCHEDULER_ADDON),
                |_| (),
                bell(),
            )),
            Box::pin(
                self.deployments
                    .clone()
                    .run(harvester_system(c), ours(), |_| (), bell()),
            ),
            Box::pin(
                self.replica_sets
                    .clone()
                    .run(harvester_system(c), ours(), prune_replica_set, bell()),
            ),
            Box::pin(self.services.clone().run(harvester_system(c), ours(), |_| (), bell())),
            Box::pin(self.endpoint_slices.clone().run(
                harvester_system(c),
                all().labels(labels::SERVICE_NAME),
                |_| (),
                bell(),
            )),
            Box::pin(self.suc_plans.clone().run(cattle_system(c), ours(), |_| (), bell())),
            Box::pin(self.jobs.clone().run(harvester_system(c), ours(), prune_job, bell())),
            Box::pin(self.suc_jobs.clone().run(cattle_system(c), ours(), prune_job, bell())),
            Box::pin(
                self.secrets
                    .clone()
                    .run(fleet_local(c), machine_plans, prune_secret, bell()),
            ),
            Box::pin(
                self.machines
                    .clone()
                    .run(fleet_local(c), all(), |machine| machine.other.clear(), bell()),
            ),
            Box::pin(
                self.clusters
                    .clone()
                    .run(fleet_local(c), named(names::LOCAL_CLUSTER), |_| (), bell()),
            ),
            Box::pin(self.managed_charts.clone().run(fleet_local(c), all(), |_| (), bell())),
            Box::pin(self.longhorn_settings.clone().run(
                Api::namespaced(c.clone(), names::LONGHORN_NAMESPACE),
                named(names::REPLENISHMENT_SETTING),
                |_| (),
                bell(),
            )),
            Box::pin(
                self.kubevirts
                    .clone()
                    .run(harvester_system(c), named(names::KUBEVIRT), |_| (), bell()),
            ),
            Box::pin(
                self.config_maps
                    .clone()
                    .run(harvester_system(c), ours(), |_| (), bell()),
            ),
            Box::pin(self.pods.clone().run(harvester_system(c), ours(), prune_pod, bell())),
            Box::pin(self.suc_pods.clone().run(cattle_system(c), ours(), prune_pod, bell())),
            Box::pin(self.volumes.clone().run(
                Api::namespaced(c.clone(), names::LONGHORN_NAMESPACE),
                all(),
                prune_volume,
                bell(),
            )),
            Box::pin(self.instances.clone().run_as(
                Api::<Instance>::all(c.clone()),
                all().page_size(instance::PAGE),
                prune_instance,
                bell(),
            )),
        ]
    }

    /// Every first list has come in.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.plans.is_synced()
            && self.nodes.is_synced()
            && self.versions.is_synced()
            && self.settings.is_synced()
            && self.images.is_synced()
            && self.addons.is_synced()
            && self.deployments.is_synced()
            && self.replica_sets.is_synced()
            && self.services.is_synced()
            && self.endpoint_slices.is_synced()
            && self.suc_plans.is_synced()
            && self.jobs.is_synced()
            && self.suc_jobs.is_synced()
            && self.secrets.is_synced()
            && self.machines.is_synced()
            && self.clusters.is_synced()
            && self.managed_charts.is_synced()
            && self.longhorn_settings.is_synced()
            && self.kubevirts.is_synced()
            && self.config_maps.is_synced()
            && self.pods.is_synced()
            && self.suc_pods.is_synced()
            && self.volumes.is_synced()
            && self.instances.is_synced()
    }

    /// The newest version of a kind that came in.
    #[must_use]
    pub fn observed(&self, kind: Written) -> u64 {
        match kind {
            Written::Plan => self.plans.observed(),
            Written::Node => self.nodes.observed(),
            Written::Image => self.images.observed(),
            Written::Addon => self.addons.observed(),
            Written::Deployment => self.deployments.observed(),
            Written::Service => self.services.observed(),
            Written::SucPlan => self.suc_plans.observed(),
            Written::Job => self.jobs.observed(),
            Written::Secret => self.secrets.observed(),
            Written::Cluster => self.clusters.observed(),
            Written::ManagedChart => self.managed_charts.observed(),
            Written::LonghornSetting => self.longhorn_settings.observed(),
            Written::KubeVirt => self.kubevirts.observed(),
        }
    }
}

fn harvester_system<K>(client: &Client) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), names::HARVESTER_NAMESPACE)
}

fn cattle_system<K>(client: &Client) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), names::CATTLE_NAMESPACE)
}

fn fleet_local<K>(client: &Client) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), names::FLEET_NAMESPACE)
}

/// A node's list of images is long and nobody here reads it; its heartbeats are no news.
fn prune_node(node: &mut Node) {
    if let Some(status) = &mut node.status {
        status.images = None;
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
        status.volumes_attached = None;
        status.volumes_in_use = None;
    }
}

/// Of a Job, decisions read its metadata, whether it is held, its conditions, and how many of its pods have failed.
fn prune_job(job: &mut Job) {
    if let Some(spec) = &mut job.spec {
        spec.template = Default::default();
    }
    job.status = job.status.take().map(|status| JobStatus {
        conditions: status.conditions,
        failed: status.failed,
        ..JobStatus::default()
    });
}

/// Of a ReplicaSet, decisions read whose it is.
fn prune_replica_set(set: &mut ReplicaSet) {
    set.spec = None;
    set.status = None;
}

/// Of a pod, decisions read its labels, why it does not start, what its program says that it waits for, and why it failed.
/// A program that has ended waits for nothing, whatever it said last.
pub(crate) fn prune_pod(pod: &mut Pod) {
    pod.spec = None;
    let ended = api::pod::has_ended(pod);
    if let Some(kept) = &mut pod.metadata.annotations {
        kept.retain(|key, _| key == annotations::WAITING_FOR && !ended);
    }
    let Some(status) = pod.status.take() else { return };
    pod.status = Some(PodStatus {
        phase: status.phase.filter(|_| ended),
        conditions: status
            .conditions
            .map(|all| all.into_iter().filter(blockers::is_unschedulable).collect()),
        container_statuses: status.container_statuses.map(telling_only),
        init_container_statuses: status.init_container_statuses.map(telling_only),
        ..PodStatus::default()
    });
}

/// Containers that cannot start, and those whose termination message matters.
fn telling_only(statuses: Vec<ContainerStatus>) -> Vec<ContainerStatus> {
    let tells = |one: &ContainerStatus| {
        blockers::stuck(one).is_some()
            || blockers::termination_message(one).is_some()
            || blockers::ended_without_reboot(one)
            || blockers::armed_in(one).is_some()
    };
    statuses.into_iter().filter(tells).collect()
}

/// Of a volume, decisions read whether it is healthy and whom it serves.
fn prune_volume(volume: &mut longhorn::Volume) {
    volume.spec = longhorn::VolumeSpec::default();
    volume.other.clear();
    volume.status.other.clear();
    volume.status.conditions = None;
    volume.status.state = None;
    volume.status.current_node_id = None;
    volume.metadata.annotations = None;
    volume.metadata.labels = None;
}

/// Of the conditions of a running VM, decisions read one.
fn prune_instance(instance: &mut kubevirt::VirtualMachineInstance) {
    let conditions = instance.status.conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ == blockers::LIVE_MIGRATABLE);
}

/// Rancher's plans are long and full of secrets; we only ever need their annotations.
fn prune_secret(secret: &mut Secret) {
    secret.data = None;
    secret.string_data = None;
}
