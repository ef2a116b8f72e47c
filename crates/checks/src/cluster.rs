//! What checks read of a cluster: a plain, serialisable value.

use std::{ops::Deref, sync::Arc};

use api::{
    UpgradePlan,
    foreign::{capi, harvester, kubevirt, longhorn, rancher},
};
use k8s_openapi::api::core::v1::Node;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why the API server gave no answer, in its words where it had some. They are shown, and nothing follows from them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(transparent)]
#[error("{0}")]
pub struct NoAnswer(String);

impl<T: Into<String>> From<T> for NoAnswer {
    fn from(why: T) -> Self {
        Self(why.into())
    }
}

/// All objects of a kind, or why they could not be listed.
pub type Listed<K> = Result<Vec<K>, NoAnswer>;

/// All objects of a kind of which a cluster may have very many, or why they could not be listed: all readers share the
/// same list.
pub type ListedOnce<K> = Result<Shared<K>, NoAnswer>;

/// Objects that several read at once.
#[derive(Debug, PartialEq)]
pub struct Shared<K>(Arc<Vec<K>>);

impl<K> Clone for Shared<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> From<Vec<K>> for Shared<K> {
    fn from(objects: Vec<K>) -> Self {
        Self(Arc::new(objects))
    }
}

impl<K> Deref for Shared<K> {
    type Target = [K];

    fn deref(&self) -> &[K] {
        &self.0
    }
}

impl<K: Serialize> Serialize for Shared<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_slice().serialize(serializer)
    }
}

impl<'de, K: Deserialize<'de>> Deserialize<'de> for Shared<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

/// What checks read of a cluster. Each kind may be missing by itself: a check that needs it then says so, the others
/// continue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// All UpgradePlans.
    pub plans: Listed<UpgradePlan>,
    /// All Nodes.
    pub nodes: Listed<Node>,
    /// The Versions of namespace `harvester-system`.
    pub versions: Listed<harvester::Version>,
    /// The Rancher clusters of namespace `fleet-local`.
    pub rancher_clusters: Listed<rancher::Cluster>,
    /// The Machines of namespace `fleet-local`.
    pub machines: Listed<capi::Machine>,
    /// The Longhorn volumes of namespace `longhorn-system`.
    pub volumes: ListedOnce<longhorn::Volume>,
    /// The VM backups of all namespaces.
    pub vm_backups: ListedOnce<harvester::VirtualMachineBackup>,
    /// The backup schedules of all namespaces.
    pub backup_schedules: ListedOnce<harvester::ScheduleVMBackup>,
    /// The VMs of all namespaces, running or not.
    pub vms: ListedOnce<kubevirt::VirtualMachine>,
    /// The running VMs of all namespaces.
    pub vmis: ListedOnce<kubevirt::VirtualMachineInstance>,
    /// The ManagedCharts of namespace `fleet-local`.
    pub managed_charts: ListedOnce<rancher::ManagedChart>,
    /// The Addons of all namespaces.
    pub addons: ListedOnce<harvester::Addon>,
    /// The VM images of namespace `harvester-system`.
    pub images: Listed<harvester::VirtualMachineImage>,
    /// The upgrades of the older kind (V1), of namespace `harvester-system`.
    pub v1_upgrades: ListedOnce<harvester::Upgrade>,
}

impl Cluster {
    /// A cluster of which nothing is known, because of `why`.
    #[must_use]
    pub fn unknown(why: &str) -> Self {
        Self {
            plans: Err(why.into()),
            nodes: Err(why.into()),
            versions: Err(why.into()),
            rancher_clusters: Err(why.into()),
            machines: Err(why.into()),
            volumes: Err(why.into()),
            vm_backups: Err(why.into()),
            backup_schedules: Err(why.into()),
            vms: Err(why.into()),
            vmis: Err(why.into()),
            managed_charts: Err(why.into()),
            addons: Err(why.into()),
            images: Err(why.into()),
            v1_upgrades: Err(why.into()),
        }
    }

    /// A cluster in which there is nothing.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            plans: Ok(Vec::new()),
            nodes: Ok(Vec::new()),
            versions: Ok(Vec::new()),
            rancher_clusters: Ok(Vec::new()),
            machines: Ok(Vec::new()),
            volumes: Ok(Vec::new().into()),
            vm_backups: Ok(Vec::new().into()),
            backup_schedules: Ok(Vec::new().into()),
            vms: Ok(Vec::new().into()),
            vmis: Ok(Vec::new().into()),
            managed_charts: Ok(Vec::new().into()),
            addons: Ok(Vec::new().into()),
            images: Ok(Vec::new()),
            v1_upgrades: Ok(Vec::new().into()),
        }
    }
}
