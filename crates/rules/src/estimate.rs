//! How long each part of an upgrade takes: expected durations by the size of the cluster, corrected by what the nodes of this
//! upgrade took. Pure: the time comes in.
//!
//! The defaults are those of a recorded upgrade of three nodes (v1.7.1 to v1.8.0): ISO 4:44, preload 10:01, cluster 15:15, twelve
//! minutes until Rancher takes the first node, 24 minutes for that node, 13 to 14 for each of the next ones, cleanup 2:13.

use api::{
    NodeUpgradeStatus, NodeUpgradeStatuses, UpgradePlanSpec, foreign::kubevirt::VirtualMachineInstanceSpec,
    node_progress::Stage, reasons,
};
use serde::{Deserialize, Serialize};

/// Seconds of one live migration, but for the copying of memory.
const MIGRATION: f64 = 5.0;
/// Seconds that one GiB of memory takes to be copied, over a link of 1 Gbit/s.
const MIGRATION_PER_GIB: f64 = 10.0;
/// How many VMs leave a node at once, by KubeVirt's default.
const MIGRATIONS_AT_ONCE: f64 = 2.0;
/// Seconds that one replica of a volume takes to be rebuilt with what changed.
const REBUILD: f64 = 20.0;
/// How many replicas of a node are rebuilt at once, by Longhorn's default.
const REBUILDS_AT_ONCE: f64 = 5.0;
/// Replicas of a volume, by Harvester's default.
const REPLICAS: f64 = 3.0;
/// Bytes of images that the recorded preload loaded; others take longer or shorter, within limits.
const IMAGE_BYTES: f64 = 6.0 * GIB;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// How large a cluster is, as far as it decides how long an upgrade takes. What is not known is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Size {
    /// Nodes that Harvester manages.
    pub nodes: usize,
    /// VMs that run.
    pub vms: usize,
    /// Memory of the VMs that run.
    pub vm_memory_bytes: u64,
    /// Volumes that are in use.
    pub volumes: usize,
    /// Bytes of the new images, where they are known.
    pub image_bytes: Option<u64>,
}

/// The memory that a VM is given, in bytes: of its guest, else what its domain requests.
#[must_use]
pub fn memory_bytes(spec: &VirtualMachineInstanceSpec) -> Option<u64> {
    let domain = &spec.domain.as_ref()?.other;
    let guest = domain.get("memory").and_then(|memory| memory.get("guest"));
    let requested = || domain.get("resources")?.get("requests")?.get("memory");
    quantity_bytes(guest.or_else(requested)?.as_str()?)
}

/// A quantity of bytes as Kubernetes writes it: `512Mi`, `2Gi`, `1.5G`, `1024`.
fn quantity_bytes(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 10] = [
        ("Ki", 1024.0),
        ("Mi", 1024.0 * 1024.0),
        ("Gi", GIB),
        ("Ti", 1024.0 * GIB),
        ("Pi", 1024.0 * 1024.0 * GIB),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
    ];
    let unit = UNITS
        .iter()
        .find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    let (number, bytes) = unit.unwrap_or((text, 1.0));
    let bytes = number.trim().parse::<f64>().ok()? * bytes;
    (bytes.is_finite() && bytes >= 0.0).then_some(bytes as u64)
}

/// The steps of one node, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeSteps {
    /// Its VMs leave it.
    pub empty: f64,
    /// Rancher drains it and updates RKE2.
    pub update: f64,
    /// The operating system is installed.
    pub install: f64,
    /// It reboots.
    pub reboot: f64,
    /// From its return until the next node begins: it is uncordoned, its replicas are rebuilt.
    pub settle: f64,
}

impl NodeSteps {
    /// From its beginning until it is back.
    #[must_use]
    pub fn work(&self) -> f64 {
        self.empty + self.update + self.install + self.reboot
    }

    /// With what follows until the next node begins.
    #[must_use]
    pub fn whole(&self) -> f64 {
        self.work() + self.settle
    }

    /// Between which parts of its work a node in this stage is.
    #[must_use]
    pub fn bounds(&self, stage: Stage) -> (f64, f64) {
        let emptied = self.empty;
        let updated = emptied + self.update;
        let installed = updated + self.install;
        match stage {
            Stage::Preloading | Stage::Preloaded | Stage::Paused => (0.0, 0.0),
            Stage::Emptying => (0.0, emptied),
            Stage::Emptied => (emptied, updated),
            Stage::Installing => (updated, installed),
            Stage::Rebooting => (installed, self.work()),
            Stage::Ended | Stage::Cleaning | Stage::Cleaned => (self.work(), self.work()),
        }
    }

    fn scaled(self, scale: f64, settle: f64) -> Self {
        Self {
            empty: self.empty * scale,
            update: self.update * scale,
            install: self.install * scale,
            reboot: self.reboot * scale,
            settle,
        }
    }
}

/// What an upgrade is expected to take, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// Checks before anything begins.
    pub initialize: f64,
    /// The import of the ISO.
    pub iso: f64,
    /// The repository.
    pub repository: f64,
    /// The release metadata.
    pub metadata: f64,
    /// Loading images onto all nodes.
    pub preload: f64,
    /// The cluster's components.
    pub cluster: f64,
    /// From the order to upgrade nodes to the first node.
    pub lead: f64,
    /// The first node.
    pub first: NodeSteps,
    /// Every other node.
    pub next: NodeSteps,
    /// Removing stale images from all nodes.
    pub cleanup: f64,
    /// How many nodes of this upgrade the numbers of nodes come from.
    pub finished_nodes: usize,
    /// The fastest and the slowest finished node, relative to what was expected of them by size.
    pub range: Option<(f64, f64)>,
}

impl Expected {
    /// By size alone.
    #[must_use]
    pub fn by_size(spec: &UpgradePlanSpec, size: &Size) -> Self {
        let nodes = size.nodes.max(1) as f64;
        let option = spec.image_preload_option.as_ref();
        let concurrency = option.and_then(|option| option.concurrency).unwrap_or(0);
        let waves = match concurrency {
            ..0 => 0.0,
            0 => 1.0,
            at_once => (nodes / at_once as f64).ceil().max(1.0),
        };
        let images = size.image_bytes.filter(|bytes| *bytes > 0);
        let images = images.map_or(1.0, |bytes| (bytes as f64 / IMAGE_BYTES).clamp(0.5, 3.0));
        let single = size.nodes == 1;
        let steps = |others: f64, extra: f64| NodeSteps {
            empty: 62.0 + evacuation(size, others),
            update: 30.0 + 240.0 + extra,
            install: 242.0,
            reboot: 230.0,
            settle: 20.0 + rebuild(size),
        };
        let (first, next) = if single {
            // Everything is in one Job: its VMs stop, RKE2 and the operating system are replaced, it reboots.
            let only = NodeSteps {
                empty: 722.0,
                update: 0.0,
                install: 0.0,
                reboot: 230.0,
                settle: 15.0,
            };
            (only, only)
        } else {
            // VMs of the nodes before are on the others by then.
            (steps(nodes, 620.0), steps((nodes - 1.0).max(1.0), 0.0))
        };
        Self {
            initialize: 5.0,
            iso: if spec.image.is_some() { 10.0 } else { 284.0 },
            repository: 10.0,
            metadata: 5.0,
            preload: if waves > 0.0 { 600.0 * images * waves } else { 15.0 },
            cluster: 915.0,
            lead: if single { 10.0 } else { 722.0 },
            first,
            next,
            cleanup: 44.0 * nodes,
            finished_nodes: 0,
            range: None,
        }
    }

    /// By size, corrected by the nodes of this upgrade that are done.
    #[must_use]
    pub fn of(spec: &UpgradePlanSpec, nodes: &NodeUpgradeStatuses, size: &Size) -> Self {
        let mut expected = Self::by_size(spec, size);
        expected.learn(nodes);
        expected
    }

    fn learn(&mut self, nodes: &NodeUpgradeStatuses) {
        let done = finished(nodes);
        let Some((first, others)) = done.split_first() else {
            return;
        };
        self.finished_nodes = done.len();
        let settle = settle(&done, self.next.settle).unwrap_or(self.next.settle);
        let ratios: Vec<f64> = others.iter().map(|node| node.seconds() / self.next.work()).collect();
        let scale = match median(&ratios) {
            Some(ratio) => ratio,
            None => first_ratio(first.seconds(), self),
        };
        let (least, most) = ratios.iter().fold((scale, scale), |(least, most), ratio| {
            (f64::min(least, *ratio), f64::max(most, *ratio))
        });
        self.range = Some((least / scale, most / scale));
        self.first = self.first.scaled(first.seconds() / self.first.work(), settle);
        self.next = self.next.scaled(scale, settle);
    }
}

/// How much longer the next nodes take than expected, by the first one alone. Of the first one it is not known how much of its
/// time was Rancher's beginning: where it was faster than expected, that part may have been short or the whole cluster fast.
fn first_ratio(seconds: f64, expected: &Expected) -> f64 {
    let (whole, next) = (expected.first.work(), expected.next.work());
    let ratio = seconds / whole;
    let ratio = if ratio < 1.0 {
        f64::midpoint(ratio, (seconds / next).min(1.0))
    } else {
        ratio
    };
    ratio.clamp(0.1, 10.0)
}

/// Seconds until the VMs of a node have left it, where they are spread over so many nodes.
fn evacuation(size: &Size, nodes: f64) -> f64 {
    let gib = size.vm_memory_bytes as f64 / GIB;
    (size.vms as f64 * MIGRATION + gib * MIGRATION_PER_GIB) / nodes / MIGRATIONS_AT_ONCE
}

/// Seconds until the replicas of a node are whole again.
fn rebuild(size: &Size) -> f64 {
    let nodes = size.nodes.max(1) as f64;
    let on_node = size.volumes as f64 * REPLICAS.min(nodes) / nodes;
    (on_node / REBUILDS_AT_ONCE).ceil() * REBUILD
}

/// When a node began and ended, in seconds of some clock.
struct Finished {
    began: f64,
    ended: f64,
}

impl Finished {
    fn seconds(&self) -> f64 {
        (self.ended - self.began).max(1.0)
    }
}

/// The nodes that are done, in the order in which they began. A node that left the cluster, or was there already, says nothing.
fn finished(nodes: &NodeUpgradeStatuses) -> Vec<Finished> {
    let of = |node: &NodeUpgradeStatus| {
        let (began, ended) = (node.started_at.as_ref()?, node.finished_at.as_ref()?);
        let (began, ended) = (began.0.as_second() as f64, ended.0.as_second() as f64);
        // A node that another plan upgraded begins and ends in the same write.
        (ended - began > 5.0 && !has_left(node)).then_some(Finished { began, ended })
    };
    let mut done: Vec<Finished> = nodes.values().filter_map(of).collect();
    done.sort_by(|a, b| a.began.total_cmp(&b.began));
    done
}

/// The node has left the cluster.
#[must_use]
pub fn has_left(node: &NodeUpgradeStatus) -> bool {
    node.reason.as_deref() == Some(reasons::NODE_REMOVED)
}

/// What lay between two nodes, where nothing but the upgrade did: a paused node is no measure.
fn settle(done: &[Finished], expected: f64) -> Option<f64> {
    let gaps = done.windows(2).map(|pair| pair[1].began - pair[0].ended);
    let gaps: Vec<f64> = gaps.filter(|gap| (0.0..4.0 * expected + 300.0).contains(gap)).collect();
    median(&gaps)
}

fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    match values.len() % 2 {
        0 => Some(f64::midpoint(*values.get(middle.checked_sub(1)?)?, upper)),
        _ => Some(upper),
    }
}

#[cfg(test)]
mod tests;
