//! What checks read of a cluster: a plain, serialisable value.

use api::{
    UpgradePlan,
    foreign::{capi, harvester, kubevirt, longhorn, rancher},
    names,
};
use k8s_openapi::api::core::v1::Node;
use serde::{Deserialize, Serialize};
use snapshot::{Listed, ListedOnce, Snapshot};

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
    /// The Setting `server-version`, and no other.
    pub settings: Listed<harvester::Setting>,
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
            settings: Err(why.into()),
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
            settings: Ok(Vec::new()),
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

fn is_server_version(setting: &harvester::Setting) -> bool {
    setting.metadata.name.as_deref() == Some(names::SERVER_VERSION_SETTING)
}

/// The version of Harvester that runs, of its Settings.
#[must_use]
pub fn server_version(settings: &[harvester::Setting]) -> Option<&str> {
    let setting = settings.iter().find(|setting| is_server_version(setting))?;
    let values = [&setting.value, &setting.default];
    values.into_iter().map(String::as_str).find(|value| !value.is_empty())
}

/// What admission reads of a snapshot.
impl From<&Snapshot> for Cluster {
    fn from(snapshot: &Snapshot) -> Self {
        fn few<K: Clone>(list: &ListedOnce<K>) -> Listed<K> {
            list.clone().map(|objects| objects.to_vec())
        }
        Self {
            plans: few(&snapshot.plans),
            nodes: few(&snapshot.nodes),
            versions: few(&snapshot.versions),
            settings: snapshot.settings.clone().map(|settings| {
                let settings = settings.iter();
                settings.filter(|setting| is_server_version(setting)).cloned().collect()
            }),
            rancher_clusters: few(&snapshot.rancher_clusters),
            machines: few(&snapshot.machines),
            volumes: snapshot.volumes.clone(),
            vm_backups: snapshot.vm_backups.clone(),
            backup_schedules: snapshot.backup_schedules.clone(),
            vms: snapshot.vms.clone(),
            vmis: snapshot.vmis.clone(),
            managed_charts: snapshot.managed_charts.clone(),
            addons: snapshot.addons.clone(),
            images: few(&snapshot.images),
            v1_upgrades: snapshot.v1_upgrades.clone(),
        }
    }
}
