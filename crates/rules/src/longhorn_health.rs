//! Which Longhorn volumes keep a node from being drained. Pure: what Longhorn reports in, what is waited for out.
//!
//! Draining a node takes its engines and its copies away. The rules:
//!
//! 1. A volume concerns the node if its engine runs there or a whole copy of it is there. Other volumes may be as
//!    degraded as they like: the drain takes nothing from them. A copy that is still being rebuilt onto the node is
//!    nothing that could be taken either.
//! 2. Before VMs are moved, a volume that concerns the node must have all its copies: it is `healthy`; with one or two
//!    nodes, where it can never be, it has as many whole copies as there is room for (two, or one if it wants one).
//! 3. After VMs were moved, a volume that is in use on another node must have a whole copy on another node. Rule 2 lets
//!    volumes of a single copy pass, since the VM may yet be stopped or its volume detached; this one does not.
//! 4. That other copy must be on a node that is not cordoned: Longhorn lifts the budget that keeps an instance manager on its
//!    node only when every copy there has a whole one on a schedulable node, unless its setting `node-drain-policy` is
//!    `always-allow`. So a node that is paused while cordoned can keep another one from being drained.
//! 5. After VMs were moved, no volume may be attached here that no pod uses: nothing would detach it during the drain, and
//!    Longhorn keeps the instance manager for it. What pods use here is detached when they are evicted.
//!
//! Volumes that are not used, and those that an administrator named in [`api::annotations::SKIP_VOLUMES`], do not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::{
    ProgramWait,
    foreign::longhorn::{Engine, Replica, Volume},
    names,
};
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::Waiting;

/// Longhorn's label of the volume that an engine or a replica belongs to.
const VOLUME_LABEL: &str = "longhornvolume";
/// From this many nodes on, a volume can have all copies it wants while one node is down.
const NODES_FOR_ALL_COPIES: usize = 3;

/// Longhorn's word for a volume that has all its copies.
const HEALTHY: &str = "healthy";

/// How many volumes are named; the others are counted.
const NAMED: usize = 20;

/// What Longhorn and Kubernetes report.
#[derive(Clone, Copy, Debug)]
pub struct Storage<'a> {
    /// The node that is to be drained.
    pub node: &'a str,
    /// How many nodes hold volumes: see [`storage_nodes`].
    pub nodes: usize,
    /// All volumes.
    pub volumes: &'a [Arc<Volume>],
    /// All engines.
    pub engines: &'a [Arc<Engine>],
    /// All replicas.
    pub replicas: &'a [Arc<Replica>],
    /// Volumes that do not count.
    pub skipped: &'a BTreeSet<String>,
    /// Nodes that take no pods: see [`cordoned`].
    pub cordoned: &'a BTreeSet<String>,
    /// Claims that pods use, as `namespace/name`: see [`claims_in_use`].
    pub claims: &'a BTreeSet<String>,
    /// Longhorn lets every node be drained, whatever is on it: its setting [`DRAIN_POLICY`] is `always-allow`.
    pub always_allowed: bool,
}

/// Longhorn's setting on what keeps a node from being drained.
pub const DRAIN_POLICY: &str = "node-drain-policy";
/// The value of [`DRAIN_POLICY`] with which nothing does.
pub const ALWAYS_ALLOW: &str = "always-allow";

/// The nodes that are cordoned.
#[must_use]
pub fn cordoned<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> BTreeSet<String> {
    let cordoned = nodes
        .into_iter()
        .filter(|node| node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true));
    cordoned.filter_map(|node| node.metadata.name.clone()).collect()
}

/// The claims, as `namespace/name`, of pods that run or are about to.
#[must_use]
pub fn claims_in_use<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> BTreeSet<String> {
    let mut claims = BTreeSet::new();
    for pod in pods {
        if api::pod::has_ended(pod) {
            continue;
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            if let Some(claim) = &volume.persistent_volume_claim {
                claims.insert(format!("{namespace}/{}", claim.claim_name));
            }
            // Kubernetes makes the claim of an ephemeral volume, by this name.
            if volume.ephemeral.is_some() {
                claims.insert(format!("{namespace}/{name}-{}", volume.name));
            }
        }
    }
    claims
}

/// The nodes that volumes can be on: managed by Harvester and no witness.
#[must_use]
pub fn storage_nodes<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> usize {
    let counts = |node: &&Node| api::node::is_managed(node) && !api::node::is_witness(node);
    nodes.into_iter().filter(counts).count()
}

/// The volumes that an administrator named, with commas between them.
#[must_use]
pub fn skipped(annotation: Option<&str>) -> BTreeSet<String> {
    let names = annotation.unwrap_or_default().split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Rule 2: what must be whole before VMs are moved off the node.
#[must_use]
pub fn before_evacuation(storage: &Storage<'_>) -> Vec<Waiting> {
    // Of thousands of volumes few are not whole: the others need not be looked at.
    let may_be_incomplete = |volume: &Volume| storage.nodes < NODES_FOR_ALL_COPIES || robustness(volume) != HEALTHY;
    in_use(storage, may_be_incomplete)
        .into_iter()
        .filter(|volume| volume.concerns(storage.node))
        .filter_map(|volume| volume.incomplete(storage.nodes))
        .collect()
}

/// Rules 3 to 5: what would lose its last whole copy while it is used on another node, and what Longhorn would keep the
/// instance manager of the node for.
#[must_use]
pub fn after_evacuation(storage: &Storage<'_>) -> Vec<Waiting> {
    let looked_at = |volume: &InUse<'_>| {
        if volume.node() == Some(storage.node) {
            volume.stale(storage)
        } else {
            volume.last_copy(storage)
        }
    };
    in_use(storage, |_| true).iter().filter_map(looked_at).collect()
}

/// Of very many volumes, some; the others are counted, since an object has room for some hundred at most.
#[must_use]
pub fn summed_up(node: &str, mut waiting: Vec<Waiting>) -> Vec<Waiting> {
    let count = waiting.len();
    if count > NAMED {
        waiting.truncate(NAMED);
        let in_all = Waiting {
            what: ProgramWait::VolumesLeft,
            object: format!("Node {node}"),
            message: format!("{count} volumes keep node {node} from being drained; {NAMED} of them are named"),
        };
        waiting.insert(0, in_all);
    }
    waiting
}

/// A volume that is in use.
struct InUse<'a> {
    volume: &'a Volume,
    /// What serves it.
    engine: &'a Engine,
    /// The nodes of its whole copies; `None` for a copy whose node is not known.
    copies: Vec<Option<&'a str>>,
}

/// Of the volumes that are looked at, those with a running engine, but for those that do not count.
fn in_use<'a>(storage: &Storage<'a>, is_looked_at: impl Fn(&Volume) -> bool) -> Vec<InUse<'a>> {
    let counted = |volume: &&'a Arc<Volume>| is_looked_at(volume) && !storage.skipped.contains(name(&volume.metadata));
    let volumes: Vec<&Volume> = storage.volumes.iter().filter(counted).map(AsRef::as_ref).collect();
    let mut engines: BTreeMap<&str, Vec<&Engine>> = volumes
        .iter()
        .map(|volume| (name(&volume.metadata), Vec::new()))
        .collect();
    if engines.is_empty() {
        return Vec::new();
    }
    for engine in storage.engines {
        let runs = engine.status.current_state.as_deref() == Some("running");
        if let Some(found) = volume_of(engine)
            .filter(|_| runs)
            .and_then(|volume| engines.get_mut(volume))
        {
            found.push(engine);
        }
    }
    let serving = volumes.into_iter().filter_map(|volume| {
        let engines = engines.get(name(&volume.metadata))?;
        // While a volume moves it has two engines; the one where it is attached knows its copies.
        let attached = volume.status.current_node_id.as_deref();
        let here = engines.iter().find(|engine| engine.spec.node_id.as_deref() == attached);
        Some((volume, *here.or_else(|| engines.first())?))
    });
    let serving: Vec<(&Volume, &Engine)> = serving.collect();
    let mut node_of_copy: BTreeMap<&str, Option<&str>> = serving
        .iter()
        .flat_map(|(_, engine)| whole_copies(engine))
        .map(|copy| (copy, None))
        .collect();
    for replica in storage.replicas {
        if let Some(node) = node_of_copy.get_mut(name(&replica.metadata)) {
            *node = replica.spec.node_id.as_deref();
        }
    }
    let in_use = |(volume, engine): (&'a Volume, &'a Engine)| InUse {
        volume,
        engine,
        copies: whole_copies(engine)
            .map(|copy| node_of_copy.get(copy).copied().flatten())
            .collect(),
    };
    serving.into_iter().map(in_use).collect()
}

/// The copies that an engine says are whole.
fn whole_copies(engine: &Engine) -> impl Iterator<Item = &str> {
    let modes = engine.status.replica_mode_map.iter().flatten();
    modes
        .filter(|(_, mode)| *mode == "RW")
        .map(|(replica, _)| replica.as_str())
}

fn robustness(volume: &Volume) -> &str {
    volume.status.robustness.as_deref().unwrap_or("unknown")
}

impl<'a> InUse<'a> {
    /// Where it is used.
    fn node(&self) -> Option<&'a str> {
        self.engine.spec.node_id.as_deref()
    }

    fn copies_on(&self, node: &str) -> usize {
        self.copies.iter().filter(|copy| **copy == Some(node)).count()
    }

    fn concerns(&self, node: &str) -> bool {
        self.node() == Some(node) || self.copies_on(node) > 0
    }

    /// Rules 3 and 4, of a volume that is used on another node.
    fn last_copy(&self, storage: &Storage<'_>) -> Option<Waiting> {
        let node = storage.node;
        let here = self.copies_on(node);
        if here == 0 {
            return None;
        }
        let user = self.node().unwrap_or("another node");
        if here == self.copies.len() {
            let why = format!(
                "the only healthy replica is on {node}, and it is used on {user}: add a replica on another node, or stop what uses it"
            );
            return Some(self.waiting(&why));
        }
        let others = self.copies.iter().filter(|copy| **copy != Some(node));
        let cordoned: BTreeSet<&str> = others
            .clone()
            .filter_map(|copy| copy.filter(|on| storage.cordoned.contains(*on)))
            .collect();
        let is_protected = others
            .into_iter()
            .any(|copy| copy.is_none_or(|on| !cordoned.contains(on)));
        if is_protected || storage.always_allowed {
            return None;
        }
        let cordoned = cordoned.into_iter().collect::<Vec<_>>().join(", ");
        let why = format!(
            "its other whole copies are on {cordoned}, which is cordoned, so Longhorn keeps the disruption budget of the \
             instance manager on {node}: finish or uncordon {cordoned}, or add a replica on another node"
        );
        Some(self.waiting(&why))
    }

    /// Rule 5, of a volume that is attached here. One that serves no claim is ignored.
    fn stale(&self, storage: &Storage<'_>) -> Option<Waiting> {
        let claim = self.claim()?;
        if storage.claims.contains(&claim) {
            return None;
        }
        let volume = name(&self.volume.metadata);
        let why = format!(
            "it is attached to {}, but no pod uses it, so Longhorn keeps the instance manager there: detach it in Longhorn, \
             or remove its tickets from VolumeAttachment {}/{volume}",
            storage.node,
            names::LONGHORN_NAMESPACE,
        );
        let waiting = self.waiting(&why);
        Some(Waiting {
            what: ProgramWait::StaleAttachment,
            ..waiting
        })
    }

    /// The claim that the volume serves, as `namespace/name`.
    fn claim(&self) -> Option<String> {
        let status = self.volume.status.kubernetes_status.as_ref()?;
        let (name, namespace) = status.pvc_name.as_deref().zip(status.namespace.as_deref())?;
        (!name.is_empty()).then(|| format!("{namespace}/{name}"))
    }

    /// Why the volume does not have all the copies that it can have.
    fn incomplete(&self, nodes: usize) -> Option<Waiting> {
        let wanted = usize::try_from(self.volume.spec.number_of_replicas.unwrap_or(1)).unwrap_or(1);
        let robustness = robustness(self.volume);
        let complete = if nodes >= NODES_FOR_ALL_COPIES {
            robustness == HEALTHY
        } else {
            self.copies.len() >= wanted.min(2)
        };
        (!complete).then(|| {
            let why = format!("{robustness}, {} of {wanted} replicas healthy", self.copies.len());
            self.waiting(&format!("{why}{}", self.repair()))
        })
    }

    /// What is being done about a copy that is missing.
    fn repair(&self) -> String {
        let rebuilds = self.engine.status.rebuild_status.iter().flat_map(BTreeMap::values);
        let mut said = String::new();
        for rebuild in rebuilds {
            if let Some(error) = rebuild.error.as_deref().filter(|error| !error.is_empty()) {
                said.push_str(&format!(", a rebuild failed: {error}"));
            } else if rebuild.is_rebuilding == Some(true) || rebuild.state.as_deref() == Some("in_progress") {
                said.push_str(&format!(", rebuilding {} %", rebuild.progress.unwrap_or_default()));
            }
        }
        let conditions = self.volume.status.conditions.iter().flatten();
        let unscheduled = conditions
            .filter(|condition| condition.type_ == "Scheduled" && condition.status.as_deref() == Some("False"))
            .find_map(|condition| condition.message.as_deref());
        if let Some(message) = unscheduled.filter(|_| said.is_empty()) {
            said = format!(", no place for a copy: {message}");
        }
        said
    }

    fn waiting(&self, why: &str) -> Waiting {
        let volume = name(&self.volume.metadata);
        let namespace = self
            .volume
            .metadata
            .namespace
            .as_deref()
            .unwrap_or(names::LONGHORN_NAMESPACE);
        let of = self
            .claim()
            .map(|claim| format!(" of claim {claim}"))
            .unwrap_or_default();
        Waiting {
            what: ProgramWait::LonghornVolume,
            object: format!("Volume {namespace}/{volume}"),
            message: format!("volume {volume}{of}: {why}"),
        }
    }
}

fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

fn volume_of(engine: &Engine) -> Option<&str> {
    let labels = engine.metadata.labels.as_ref();
    let label = || labels.and_then(|labels| labels.get(VOLUME_LABEL)).map(String::as_str);
    engine.spec.volume_name.as_deref().or_else(label)
}

#[cfg(test)]
mod tests;
