//! What is kept of a cluster to compare it later: who runs, what is healthy, which versions and settings there are. Compact:
//! ten thousand VMs take less than one ConfigMap. No specification of a VM and no value of a Secret is in it.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    foreign::{condition_is, kubevirt, longhorn},
    names, node,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use snapshot::{ListedOnce, NoAnswer, Snapshot};

use crate::finding::Missing;

/// A part of a record: nothing where it could not be read, and why.
pub type Part<T> = Result<T, NoAnswer>;

/// A cluster as it is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// When it was made.
    pub taken_at: Timestamp,
    /// VMs, by `namespace/name`: how KubeVirt shows their state.
    pub vms: Part<BTreeMap<String, Power>>,
    /// Longhorn's volumes: their robustness.
    pub volumes: Part<BTreeMap<String, String>>,
    /// Nodes.
    pub nodes: Part<BTreeMap<String, NodeRecord>>,
    /// Harvester's ManagedCharts.
    pub charts: Part<BTreeMap<String, ChartRecord>>,
    /// Addons, by `namespace/name`: whether they are enabled.
    pub addons: Part<BTreeMap<String, bool>>,
    /// Settings that upgrades change, by their name: their values.
    pub settings: BTreeMap<String, Part<String>>,
    /// Workloads with a pod that crashes, by `namespace/name`.
    pub crashing: Part<BTreeSet<String>>,
}

/// The power state of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Power {
    /// It has an instance.
    #[serde(rename = "on")]
    On,
    /// It has none; how KubeVirt shows that.
    #[serde(rename = "off")]
    Off(String),
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// Its operating system.
    pub os: String,
    /// Its kubelet.
    pub kubelet: String,
    /// It is Ready.
    pub ready: bool,
    /// Pods may be scheduled to it.
    pub schedulable: bool,
    /// Harvester manages it.
    pub managed: bool,
}

/// A ManagedChart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChartRecord {
    /// Its version.
    pub version: String,
    /// Fleet has applied it.
    pub ready: bool,
    /// Fleet does not apply it.
    pub paused: bool,
}

/// The name of the setting for which Rancher's strategy stands.
pub(super) const UPGRADE_STRATEGY: &str = "Cluster fleet-local/local upgradeStrategy";
/// The name of the setting for which KubeVirt's methods stand.
pub(super) const UPDATE_METHODS: &str = "KubeVirt harvester-system/kubevirt workloadUpdateMethods";

impl Record {
    /// What could not be read, and why.
    #[must_use]
    pub fn left_out(&self) -> Vec<String> {
        fn why<T>(part: &Part<T>) -> Option<&NoAnswer> {
            part.as_ref().err()
        }
        let parts = [
            ("virtualmachines", why(&self.vms)),
            ("volumes", why(&self.volumes)),
            ("nodes", why(&self.nodes)),
            ("managedcharts", why(&self.charts)),
            ("addons", why(&self.addons)),
            ("pods", why(&self.crashing)),
        ];
        let settings = self.settings.iter().map(|(name, value)| (name.as_str(), why(value)));
        let missing = parts.into_iter().chain(settings);
        missing
            .filter_map(|(what, why)| Some(format!("{what}: {}", why?)))
            .collect()
    }

    /// Of a cluster.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        Self {
            taken_at: snapshot.taken_at,
            vms: vms(snapshot),
            volumes: part(&snapshot.volumes).map(robustness),
            nodes: part(&snapshot.nodes)
                .map(|nodes| nodes.iter().map(|node| (node.name_any(), node_record(node))).collect()),
            charts: part(&snapshot.managed_charts).map(|charts| {
                let of = |chart: &api::foreign::rancher::ManagedChart| ChartRecord {
                    version: chart.spec.version.clone().unwrap_or_default(),
                    ready: condition_is(chart.status.conditions.as_deref().unwrap_or_default(), "Ready") == Some(true),
                    paused: chart.spec.paused == Some(true),
                };
                charts.iter().map(|chart| (chart.name_any(), of(chart))).collect()
            }),
            addons: part(&snapshot.addons).map(|addons| {
                addons
                    .iter()
                    .map(|addon| (key(addon), addon.spec.enabled == Some(true)))
                    .collect()
            }),
            settings: settings(snapshot),
            crashing: part(&snapshot.pods).map(|pods| pods.iter().filter(|pod| crashes(pod)).map(workload).collect()),
        }
    }
}

/// A part of a record, or that it is missing: which kind, when, and why.
pub(super) fn known<'a, T>(part: &'a Part<T>, kind: &str, when: &str) -> Result<&'a T, Missing> {
    part.as_ref().map_err(|why| Missing {
        kind: format!("{kind} {when} the upgrade"),
        why: why.clone(),
    })
}

fn part<K>(list: &ListedOnce<K>) -> Part<&[K]> {
    match list {
        Ok(objects) => Ok(objects),
        Err(why) => Err(why.clone()),
    }
}

fn key<K: Resource>(object: &K) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

fn vms(snapshot: &Snapshot) -> Part<BTreeMap<String, Power>> {
    let instances = part(&snapshot.vmis)?;
    Ok(power_states(part(&snapshot.vms)?, instances))
}

/// The robustness of volumes, by their names.
#[must_use]
pub fn robustness<'a>(volumes: impl IntoIterator<Item = &'a longhorn::Volume>) -> BTreeMap<String, String> {
    let of = |volume: &longhorn::Volume| volume.status.robustness.clone().unwrap_or_default();
    let volumes = volumes.into_iter();
    volumes.map(|volume| (volume.name_any(), of(volume))).collect()
}

/// The power states of VMs, by `namespace/name`: one with an instance runs.
#[must_use]
pub fn power_states<'a>(
    vms: impl IntoIterator<Item = &'a kubevirt::VirtualMachine>,
    instances: impl IntoIterator<Item = &'a kubevirt::VirtualMachineInstance>,
) -> BTreeMap<String, Power> {
    let instances = instances.into_iter().filter(|vmi| !rules::migration::has_ended(vmi));
    let running: BTreeSet<String> = instances.map(key).collect();
    let of = |vm: &kubevirt::VirtualMachine| {
        let name = key(vm);
        let power = if running.contains(&name) {
            Power::On
        } else {
            Power::Off(
                vm.status
                    .printable_status
                    .clone()
                    .unwrap_or_else(|| "Stopped".to_owned()),
            )
        };
        (name, power)
    };
    vms.into_iter().map(of).collect()
}

fn node_record(node: &k8s_openapi::api::core::v1::Node) -> NodeRecord {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    NodeRecord {
        os: info.map(|info| info.os_image.clone()).unwrap_or_default(),
        kubelet: info.map(|info| info.kubelet_version.clone()).unwrap_or_default(),
        ready: node::is_ready(node),
        schedulable: !node::is_cordoned(node),
        managed: node::is_managed(node),
    }
}

/// The settings that an upgrade changes on its way and restores at its end.
fn settings(snapshot: &Snapshot) -> BTreeMap<String, Part<String>> {
    let longhorn = part(&snapshot.longhorn_settings).map(|settings| {
        let found = settings
            .iter()
            .find(|setting| setting.name_any() == names::REPLENISHMENT_SETTING);
        found.map(|setting| setting.value.clone()).unwrap_or_default()
    });
    let methods = part(&snapshot.kubevirts).map(|kubevirts| {
        let found = kubevirts.iter().find(|kubevirt| kubevirt.name_any() == names::KUBEVIRT);
        let strategy = found.and_then(|kubevirt| kubevirt.spec.workload_update_strategy.as_ref());
        strategy
            .and_then(|strategy| strategy.workload_update_methods.as_ref())
            .map(|methods| methods.join(","))
            .unwrap_or_default()
    });
    let strategy = part(&snapshot.rancher_clusters).map(|clusters| {
        let found = clusters
            .iter()
            .find(|cluster| cluster.name_any() == names::LOCAL_CLUSTER);
        let config = found.and_then(|cluster| cluster.spec.rke_config.as_ref());
        // Sorted by key, so that the same strategy is the same text.
        config
            .and_then(|config| config.upgrade_strategy.as_ref())
            .map(ToString::to_string)
            .unwrap_or_default()
    });
    [
        (
            format!("Setting longhorn-system/{}", names::REPLENISHMENT_SETTING),
            longhorn,
        ),
        (UPDATE_METHODS.to_owned(), methods),
        (UPGRADE_STRATEGY.to_owned(), strategy),
    ]
    .into()
}

/// A container of the pod ends again and again.
#[must_use]
pub fn crashes(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let containers = status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
        .flatten();
    let reasons = containers.filter_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
    reasons.into_iter().any(|reason| reason == "CrashLoopBackOff")
}

/// What the pod belongs to, by a name that a new version of it has too.
fn workload(pod: &Pod) -> String {
    let hash = pod.labels().get("pod-template-hash");
    let owner = pod
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true));
    let name = owner.map_or_else(|| pod.name_any(), |owner| owner.name.clone());
    let name = hash
        .and_then(|hash| name.strip_suffix(hash.as_str())?.strip_suffix('-'))
        .map_or(name.clone(), str::to_owned);
    format!("{}/{name}", pod.namespace().unwrap_or_default())
}
