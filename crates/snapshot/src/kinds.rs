//! Every kind that a snapshot has, in one table: from a row follow the field, where it is listed, and how an object from a file
//! finds its place.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use api::{
    UpgradePlan,
    foreign::{capi, cdi, fleet, harvester, kubevirt, longhorn, rancher, suc, whereabouts},
    names,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apps::v1::{DaemonSet, Deployment},
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event, Node, PersistentVolumeClaim, Pod, ResourceQuota, Secret},
    discovery::v1::EndpointSlice,
    policy::v1::PodDisruptionBudget,
    storage::v1::VolumeAttachment,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    listed::{ListedOnce, NoAnswer, Shared},
    prune,
    secret::SecretSummary,
};

/// Where objects of a kind are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In no namespace, or in all.
    Everywhere,
    /// In this namespace.
    In(&'static str),
}

/// Which objects of a kind are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    All,
    /// Those that a label selector matches.
    Labels(&'static str),
    /// Those that a field selector matches.
    Fields(&'static str),
}

/// How a kind of a snapshot is addressed.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The field of the snapshot.
    pub field: &'static str,
    /// API group; empty for the core.
    pub group: &'static str,
    /// API version that our type is of.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural, lower case.
    pub plural: &'static str,
    /// Where its objects are listed.
    pub place: Place,
    /// Which of them.
    pub which: Which,
}

/// Where a snapshot comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// A cluster that was asked.
    #[default]
    Cluster,
    /// A support bundle. VMs of most namespaces, and Secrets, are not in one.
    SupportBundle,
    /// A folder of manifests. What is not in it is not known.
    Folder,
}

/// What a kubelet says about its disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeletDisk {
    /// Bytes in all.
    pub capacity_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Above this, it removes images.
    pub image_gc_high_threshold_percent: f64,
}

macro_rules! kinds {
    ($(
        $(#[$doc:meta])*
        $field:ident: $kind:ty $(=> $form:ty)?, $place:expr, $which:expr, $prune:expr;
    )*) => {
        /// A cluster at one moment.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct Snapshot {
            /// When it was taken.
            pub taken_at: Timestamp,
            /// Where it comes from.
            #[serde(default)]
            pub source: Source,
            /// Lists that are known to lack objects, by field, and why.
            #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
            pub partial: BTreeMap<String, String>,
            /// The only namespaces whose objects are known; all when unset.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub only_namespaces: Option<BTreeSet<String>>,
            /// What kubelets say about their disks, by node.
            #[serde(default)]
            pub kubelet_disks: BTreeMap<String, Result<KubeletDisk, NoAnswer>>,
            /// When certificates of API servers end, by address.
            #[serde(default)]
            pub certificates: BTreeMap<String, Result<Timestamp, NoAnswer>>,
            $(
                $(#[$doc])*
                #[serde(default = "not_in_the_file")]
                pub $field: ListedOnce<form!($kind $(, $form)?)>,
            )*
        }

        impl Snapshot {
            /// Objects of the namespace are known: one that is not here does not exist.
            #[must_use]
            pub fn knows_namespace(&self, namespace: &str) -> bool {
                self.only_namespaces
                    .as_ref()
                    .is_none_or(|known| known.contains(namespace))
            }

            /// All kinds, in the order in which they are listed.
            #[must_use]
            pub fn kinds() -> Vec<Kind> {
                vec![$(kind_of::<$kind>(stringify!($field), $place, $which),)*]
            }

            /// A cluster of which nothing is known, because of `why`.
            #[must_use]
            pub fn unknown(taken_at: Timestamp, why: &str) -> Self {
                Self {
                    taken_at,
                    source: Source::default(),
                    partial: BTreeMap::new(),
                    only_namespaces: None,
                    kubelet_disks: BTreeMap::new(),
                    certificates: BTreeMap::new(),
                    $($field: Err(why.into()),)*
                }
            }

            /// A cluster in which there is nothing.
            #[must_use]
            pub fn empty(taken_at: Timestamp) -> Self {
                Self {
                    taken_at,
                    source: Source::default(),
                    partial: BTreeMap::new(),
                    only_namespaces: None,
                    kubelet_disks: BTreeMap::new(),
                    certificates: BTreeMap::new(),
                    $($field: Ok(Shared::default()),)*
                }
            }

            /// The list of the field is not known, because of `why`.
            pub fn set_unknown(&mut self, field: &str, why: &str) {
                match field {
                    $(stringify!($field) => self.$field = Err(why.into()),)*
                    _ => {}
                }
            }

            /// The field has a list, empty if nothing was added to it yet.
            pub fn set_listed(&mut self, field: &str) {
                match field {
                    $(stringify!($field) => if self.$field.is_err() {
                        self.$field = Ok(Shared::default());
                    },)*
                    _ => {}
                }
            }

            /// Adds an object to the list of the field, without what no check reads. A list that was unknown begins with it.
            ///
            /// # Errors
            /// It is not an object of this kind.
            pub fn add(&mut self, field: &str, mut object: Value) -> Result<(), serde_json::Error> {
                prune::metadata(&mut object);
                match field {
                    $(stringify!($field) => {
                        let prune: fn(&mut Value) = $prune;
                        prune(&mut object);
                        let object: $kind = serde_json::from_value(object)?;
                        push(&mut self.$field, object.into());
                    })*
                    _ => {}
                }
                Ok(())
            }

            /// Sorts every list by namespace and name, and removes doubles.
            pub fn sort(&mut self) {
                $(sort(&mut self.$field, |object| &object.metadata);)*
            }

            /// What could not be read: the plural of each kind, and why.
            #[must_use]
            pub fn unknown_kinds(&self) -> Vec<(&'static str, String)> {
                let mut unknown = Vec::new();
                $(if let Err(why) = &self.$field {
                    unknown.push((stringify!($field), why.to_string()));
                })*
                unknown
            }

            /// How many objects there are, by field.
            #[must_use]
            pub fn counts(&self) -> Vec<(&'static str, usize)> {
                vec![$((stringify!($field), self.$field.as_ref().map_or(0, |list| list.len())),)*]
            }
        }
    };
}

macro_rules! form {
    ($kind:ty) => {
        $kind
    };
    ($kind:ty, $form:ty) => {
        $form
    };
}

const HARVESTER: Place = Place::In(names::HARVESTER_NAMESPACE);
const FLEET: Place = Place::In(names::FLEET_NAMESPACE);
const LONGHORN: Place = Place::In(names::LONGHORN_NAMESPACE);
const CATTLE: Place = Place::In(names::CATTLE_NAMESPACE);
const EVERYWHERE: Place = Place::Everywhere;

kinds! {
    /// All UpgradePlans.
    plans: UpgradePlan, EVERYWHERE, Which::All, prune::nothing;
    /// All Nodes.
    nodes: Node, EVERYWHERE, Which::All, prune::node;
    /// The Versions of namespace `harvester-system`.
    versions: harvester::Version, HARVESTER, Which::All, prune::version;
    /// The settings of Harvester.
    settings: harvester::Setting, EVERYWHERE, Which::All, prune::setting;
    /// The Rancher clusters of namespace `fleet-local`.
    rancher_clusters: rancher::Cluster, FLEET, Which::All, prune::nothing;
    /// The control planes as Rancher's planner sees them.
    control_planes: rancher::RKEControlPlane, FLEET, Which::All, prune::control_plane;
    /// The Machines of namespace `fleet-local`.
    machines: capi::Machine, FLEET, Which::All, prune::nothing;
    /// The clusters of Cluster API.
    capi_clusters: capi::Cluster, FLEET, Which::All, prune::nothing;
    /// The Longhorn volumes.
    volumes: longhorn::Volume, LONGHORN, Which::All, prune::nothing;
    /// The replicas of volumes.
    replicas: longhorn::Replica, LONGHORN, Which::All, prune::replica;
    /// The engines of volumes.
    engines: longhorn::Engine, LONGHORN, Which::All, prune::engine;
    /// Longhorn's nodes.
    longhorn_nodes: longhorn::Node, LONGHORN, Which::All, prune::longhorn_node;
    /// Longhorn's instance managers.
    instance_managers: longhorn::InstanceManager, LONGHORN, Which::All, prune::instance_manager;
    /// Longhorn's settings.
    longhorn_settings: longhorn::Setting, LONGHORN, Which::All, prune::nothing;
    /// Longhorn's backing images.
    backing_images: longhorn::BackingImage, LONGHORN, Which::All, prune::nothing;
    /// Who wants Longhorn volumes to be attached.
    longhorn_attachments: longhorn::VolumeAttachment, LONGHORN, Which::All, prune::nothing;
    /// Longhorn's share managers.
    share_managers: longhorn::ShareManager, LONGHORN, Which::All, prune::nothing;
    /// Longhorn's recurring jobs.
    recurring_jobs: longhorn::RecurringJob, LONGHORN, Which::All, prune::nothing;
    /// Longhorn's backup targets.
    backup_targets: longhorn::BackupTarget, LONGHORN, Which::All, prune::nothing;
    /// The VM backups of all namespaces.
    vm_backups: harvester::VirtualMachineBackup, EVERYWHERE, Which::All, prune::vm_backup;
    /// The backup schedules of all namespaces.
    backup_schedules: harvester::ScheduleVMBackup, EVERYWHERE, Which::All, prune::nothing;
    /// The VMs of all namespaces, running or not.
    vms: kubevirt::VirtualMachine, EVERYWHERE, Which::All, prune::vm;
    /// The running VMs of all namespaces.
    vmis: kubevirt::VirtualMachineInstance, EVERYWHERE, Which::All, prune::vmi;
    /// The migrations of VMs.
    migrations: kubevirt::VirtualMachineInstanceMigration, EVERYWHERE, Which::All, prune::nothing;
    /// KubeVirt.
    kubevirts: kubevirt::KubeVirt, HARVESTER, Which::All, prune::kubevirt;
    /// The ManagedCharts of namespace `fleet-local`.
    managed_charts: rancher::ManagedChart, FLEET, Which::All, prune::managed_chart;
    /// Fleet's bundles.
    bundles: fleet::Bundle, FLEET, Which::All, prune::bundle;
    /// Fleet's bundles as they are on clusters.
    bundle_deployments: fleet::BundleDeployment, EVERYWHERE, Which::All, prune::bundle_deployment;
    /// Fleet's clusters.
    fleet_clusters: fleet::Cluster, FLEET, Which::All, prune::nothing;
    /// The Addons of all namespaces.
    addons: harvester::Addon, EVERYWHERE, Which::All, prune::addon;
    /// The VM images of namespace `harvester-system`.
    images: harvester::VirtualMachineImage, HARVESTER, Which::All, prune::image;
    /// Imports of disks in namespace `harvester-system`.
    data_volumes: cdi::DataVolume, HARVESTER, Which::All, prune::nothing;
    /// The upgrades of the older kind (V1), of namespace `harvester-system`.
    v1_upgrades: harvester::Upgrade, HARVESTER, Which::All, prune::nothing;
    /// system-upgrade-controller's Plans.
    suc_plans: suc::Plan, CATTLE, Which::All, prune::nothing;
    /// All pods.
    pods: Pod, EVERYWHERE, Which::All, prune::pod;
    /// All Jobs.
    jobs: Job, EVERYWHERE, Which::All, prune::workload;
    /// All Deployments.
    deployments: Deployment, EVERYWHERE, Which::All, prune::workload;
    /// All DaemonSets.
    daemon_sets: DaemonSet, EVERYWHERE, Which::All, prune::workload;
    /// All PodDisruptionBudgets.
    budgets: PodDisruptionBudget, EVERYWHERE, Which::All, prune::nothing;
    /// All claims.
    claims: PersistentVolumeClaim, EVERYWHERE, Which::All, prune::nothing;
    /// Attachments that Kubernetes wants.
    attachments: VolumeAttachment, EVERYWHERE, Which::All, prune::nothing;
    /// Events of type Warning.
    events: Event, EVERYWHERE, Which::Fields("type=Warning"), prune::nothing;
    /// Endpoints of Services.
    endpoint_slices: EndpointSlice, EVERYWHERE, Which::All, prune::endpoint_slice;
    /// ConfigMaps of upgrades.
    config_maps: ConfigMap, HARVESTER, Which::Labels("management.harvesterhci.io/upgrade-plan"), prune::nothing;
    /// Leases of nodes and controllers.
    leases: Lease, EVERYWHERE, Which::All, prune::nothing;
    /// All ResourceQuotas.
    quotas: ResourceQuota, EVERYWHERE, Which::All, prune::nothing;
    /// Webhooks that validate.
    validating_webhooks: ValidatingWebhookConfiguration, EVERYWHERE, Which::All, prune::webhooks;
    /// Webhooks that change.
    mutating_webhooks: MutatingWebhookConfiguration, EVERYWHERE, Which::All, prune::webhooks;
    /// Ranges of addresses of the storage network.
    ip_pools: whereabouts::IPPool, EVERYWHERE, Which::All, prune::nothing;
    /// The plans of nodes' agents.
    machine_plans: Secret => SecretSummary, FLEET, Which::Fields("type=rke.cattle.io/machine-plan"), prune::nothing;
    /// Helm's releases: names, labels and status, never values.
    helm_releases: Secret => SecretSummary, EVERYWHERE, Which::Fields("type=helm.sh/release.v1"), prune::secret_values;
    /// The Secret with which Cluster API reaches the cluster: its labels, never its values.
    kubeconfig_secrets: Secret => SecretSummary, FLEET, Which::Fields("metadata.name=local-kubeconfig"), prune::secret_values;
}

fn kind_of<K: Resource<DynamicType = ()>>(field: &'static str, place: Place, which: Which) -> Kind {
    Kind {
        field,
        group: leak(K::group(&())),
        version: leak(K::version(&())),
        kind: leak(K::kind(&())),
        plural: leak(K::plural(&())),
        place,
        which,
    }
}

/// Names of kinds are constants; their type does not say so. The table is made a few times in the life of a process.
fn leak(text: Cow<'static, str>) -> &'static str {
    match text {
        Cow::Borrowed(text) => text,
        Cow::Owned(text) => Box::leak(text.into_boxed_str()),
    }
}

fn not_in_the_file<K>() -> ListedOnce<K> {
    Err("not in the snapshot".into())
}

fn push<K: Clone>(list: &mut ListedOnce<K>, object: K) {
    if let Ok(objects) = list {
        objects.make_mut().push(object);
    } else {
        *list = Ok(Shared::from(vec![object]));
    }
}

fn sort<K: Clone>(list: &mut ListedOnce<K>, metadata: fn(&K) -> &ObjectMeta) {
    if let Ok(objects) = list {
        let objects = objects.make_mut();
        let key = |object: &K| {
            let metadata = metadata(object);
            (metadata.namespace.clone(), metadata.name.clone())
        };
        objects.sort_by_cached_key(key);
        objects.dedup_by(|a, b| {
            let (a, b) = (metadata(a), metadata(b));
            a.name.is_some() && (&a.namespace, &a.name) == (&b.namespace, &b.name)
        });
    }
}
