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
//!
//! Volumes that nobody uses, and those that an administrator named in [`api::annotations::SKIP_VOLUMES`], do not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::{
    foreign::longhorn::{Engine, Replica, Volume},
    labels, names,
};
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use crate::report::Waiting;

/// Longhorn's label of the volume that an engine or a replica belongs to.
const VOLUME_LABEL: &str = "longhornvolume";
/// From this many nodes on, a volume can have all copies it wants while one node is down.
const NODES_FOR_ALL_COPIES: usize = 3;

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
}

/// The nodes that volumes can be on: managed by Harvester and no witness.
#[must_use]
pub fn storage_nodes<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> usize {
    let counts = |node: &&Node| {
        let labels = node.metadata.labels.as_ref();
        labels.is_some_and(|labels| {
            labels.get(labels::MANAGED).is_some_and(|managed| managed == "true")
                && !labels.contains_key(labels::WITNESS)
        })
    };
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
    in_use(storage)
        .into_iter()
        .filter(|volume| volume.concerns(storage.node))
        .filter_map(|volume| volume.incomplete(storage.nodes))
        .collect()
}

/// Rule 3: what would lose its last whole copy while it is used on another node.
#[must_use]
pub fn after_evacuation(storage: &Storage<'_>) -> Vec<Waiting> {
    in_use(storage)
        .into_iter()
        .filter(|volume| volume.node() != Some(storage.node))
        .filter(|volume| volume.copies_on(storage.node) > 0 && volume.copies.len() == volume.copies_on(storage.node))
        .map(|volume| {
            let why = format!(
                "the only whole copy is on {}, and it is used on {}: add a copy on another node, or stop what uses it",
                storage.node,
                volume.node().unwrap_or("another node"),
            );
            volume.waiting(&why)
        })
        .collect()
}

/// A volume that is in use.
struct InUse<'a> {
    volume: &'a Volume,
    /// What serves it.
    engine: &'a Engine,
    /// The nodes of its whole copies; `None` for a copy whose node is not known.
    copies: Vec<Option<&'a str>>,
}

/// Volumes with a running engine, but for those that do not count.
fn in_use<'a>(storage: &Storage<'a>) -> Vec<InUse<'a>> {
    let node_of_replica: BTreeMap<&str, Option<&str>> = storage
        .replicas
        .iter()
        .map(|replica| (name(&replica.metadata), replica.spec.node_id.as_deref()))
        .collect();
    let mut engines: BTreeMap<&str, Vec<&Engine>> = BTreeMap::new();
    for engine in storage.engines {
        let runs = engine.status.current_state.as_deref() == Some("running");
        if let Some(volume) = volume_of(engine).filter(|_| runs) {
            engines.entry(volume).or_default().push(engine);
        }
    }
    let counted = storage
        .volumes
        .iter()
        .filter(|volume| !storage.skipped.contains(name(&volume.metadata)));
    counted
        .filter_map(|volume| {
            let engines = engines.get(name(&volume.metadata))?;
            // While a volume moves it has two engines; the one where it is attached knows its copies.
            let attached = volume.status.current_node_id.as_deref();
            let here = engines.iter().find(|engine| engine.spec.node_id.as_deref() == attached);
            let engine = here.or_else(|| engines.first())?;
            let modes = engine.status.replica_mode_map.iter().flatten();
            let whole = modes.filter(|(_, mode)| *mode == "RW");
            let copies = whole
                .map(|(replica, _)| node_of_replica.get(replica.as_str()).copied().flatten())
                .collect();
            Some(InUse { volume, engine, copies })
        })
        .collect()
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

    /// Why the volume does not have all the copies that it can have.
    fn incomplete(&self, nodes: usize) -> Option<Waiting> {
        let wanted = usize::try_from(self.volume.spec.number_of_replicas.unwrap_or(1)).unwrap_or(1);
        let robustness = self.volume.status.robustness.as_deref().unwrap_or("unknown");
        let complete = if nodes >= NODES_FOR_ALL_COPIES {
            robustness == "healthy"
        } else {
            self.copies.len() >= wanted.min(2)
        };
        (!complete).then(|| {
            let why = format!("{robustness}, {} of {wanted} copies are whole", self.copies.len());
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
        let claim = self.volume.status.kubernetes_status.as_ref();
        let claim = claim.and_then(|claim| claim.pvc_name.as_deref().zip(claim.namespace.as_deref()));
        let of = claim
            .map(|(claim, namespace)| format!(" of claim {namespace}/{claim}"))
            .unwrap_or_default();
        Waiting {
            what: "LonghornVolume",
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
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A volume that is used on a node, with copies as `(node, mode)`.
    struct Case {
        volume: Value,
        engine: Value,
        replicas: Vec<Value>,
    }

    fn case(name: &str, wanted: i64, robustness: &str, engine_on: &str, copies: &[(&str, &str)]) -> Case {
        let replica = |node: &str| format!("{name}-r-{node}");
        let modes: serde_json::Map<String, Value> =
            copies.iter().map(|(node, mode)| (replica(node), json!(mode))).collect();
        Case {
            volume: json!({
                "metadata": {"name": name, "namespace": "longhorn-system"},
                "spec": {"numberOfReplicas": wanted},
                "status": {
                    "state": "attached", "robustness": robustness, "currentNodeID": engine_on,
                    "kubernetesStatus": {"namespace": "default", "pvcName": format!("disk-of-{name}")},
                },
            }),
            engine: json!({
                "metadata": {"name": format!("{name}-e"), "labels": {"longhornvolume": name}},
                "spec": {"volumeName": name, "nodeID": engine_on},
                "status": {"currentState": "running", "replicaModeMap": modes},
            }),
            replicas: copies
                .iter()
                .map(|(node, _)| json!({"metadata": {"name": replica(node)}, "spec": {"volumeName": name, "nodeID": node}}))
                .collect(),
        }
    }

    fn read<'a, K: serde::de::DeserializeOwned>(values: impl Iterator<Item = &'a Value>) -> Vec<Arc<K>> {
        values
            .map(|value| Arc::new(serde_json::from_value(value.clone()).unwrap()))
            .collect()
    }

    fn look(rule: fn(&Storage<'_>) -> Vec<Waiting>, nodes: usize, cases: &[Case], skip: &str) -> Vec<String> {
        let volumes: Vec<Arc<Volume>> = read(cases.iter().map(|case| &case.volume));
        let engines: Vec<Arc<Engine>> = read(cases.iter().map(|case| &case.engine));
        let replicas: Vec<Arc<Replica>> = read(cases.iter().flat_map(|case| &case.replicas));
        let skipped = skipped(Some(skip));
        let storage = Storage {
            node: "node-1",
            nodes,
            volumes: &volumes,
            engines: &engines,
            replicas: &replicas,
            skipped: &skipped,
        };
        rule(&storage).into_iter().map(|waiting| waiting.message).collect()
    }

    #[test]
    fn a_degraded_volume_with_a_whole_copy_here_is_waited_for_with_its_rebuild() {
        let mut case = case(
            "v",
            3,
            "degraded",
            "node-2",
            &[("node-1", "RW"), ("node-2", "RW"), ("node-3", "WO")],
        );
        case.engine["status"]["rebuildStatus"] = json!({"tcp://10.0.0.3:1": {
            "isRebuilding": true, "progress": 43, "state": "in_progress", "error": ""}});
        assert_eq!(
            look(before_evacuation, 3, &[case], ""),
            ["volume v of claim default/disk-of-v: degraded, 2 of 3 copies are whole, rebuilding 43 %"]
        );
    }

    #[test]
    fn a_degraded_volume_that_only_its_engine_has_here_is_waited_for() {
        let copies = [("node-2", "RW"), ("node-3", "RW")];
        let case = case("v", 3, "degraded", "node-1", &copies);
        assert_eq!(look(before_evacuation, 4, &[case], "").len(), 1);
    }

    #[test]
    fn a_degraded_volume_elsewhere_is_none_of_this_node() {
        let elsewhere = case("v", 3, "degraded", "node-2", &[("node-2", "RW"), ("node-3", "RW")]);
        // Its copy is being rebuilt onto this node: the drain takes nothing whole.
        let arriving = case(
            "w",
            3,
            "degraded",
            "node-2",
            &[("node-1", "WO"), ("node-2", "RW"), ("node-3", "RW")],
        );
        assert!(look(before_evacuation, 4, &[elsewhere, arriving], "").is_empty());
    }

    #[test]
    fn a_degraded_volume_whose_last_whole_copy_is_here_is_waited_for_before_and_after() {
        let degraded = || case("v", 3, "degraded", "node-2", &[("node-1", "RW"), ("node-2", "ERR")]);
        assert_eq!(look(before_evacuation, 4, &[degraded()], "").len(), 1);
        let after = look(after_evacuation, 4, &[degraded()], "");
        assert_eq!(
            after,
            [
                "volume v of claim default/disk-of-v: the only whole copy is on node-1, and it is used on node-2: add a \
              copy on another node, or stop what uses it"
            ]
        );
    }

    #[test]
    fn a_volume_of_one_copy_passes_first_and_is_waited_for_once_its_vm_runs_elsewhere() {
        let here = || case("v", 1, "healthy", "node-1", &[("node-1", "RW")]);
        assert!(look(before_evacuation, 3, &[here()], "").is_empty());
        assert!(
            look(after_evacuation, 3, &[here()], "").is_empty(),
            "what uses it here is drained with the node"
        );
        let moved = case("v", 1, "healthy", "node-2", &[("node-1", "RW")]);
        assert_eq!(look(after_evacuation, 3, &[moved], "").len(), 1);
    }

    #[test]
    fn with_two_nodes_as_many_copies_as_there_is_room_for_are_enough() {
        let full = case("v", 3, "degraded", "node-1", &[("node-1", "RW"), ("node-2", "RW")]);
        let lacks = case("w", 3, "degraded", "node-1", &[("node-1", "RW"), ("node-2", "WO")]);
        let single = case("x", 1, "healthy", "node-1", &[("node-1", "RW")]);
        let waiting = look(before_evacuation, 2, &[full, lacks, single], "");
        assert_eq!(
            waiting,
            ["volume w of claim default/disk-of-w: degraded, 1 of 3 copies are whole"]
        );
    }

    #[test]
    fn volumes_that_nobody_uses_or_that_are_skipped_do_not_count() {
        let mut detached = case("v", 3, "degraded", "node-1", &[("node-1", "RW")]);
        detached.engine["status"]["currentState"] = json!("stopped");
        let skipped = case("w", 3, "degraded", "node-1", &[("node-1", "RW")]);
        assert!(look(before_evacuation, 3, &[detached, skipped], "x, w ,").is_empty());
    }

    #[test]
    fn a_copy_that_finds_no_place_says_so() {
        let mut case = case("v", 3, "degraded", "node-1", &[("node-1", "RW"), ("node-2", "RW")]);
        case.volume["status"]["conditions"] =
            json!([{"type": "Scheduled", "status": "False", "message": "insufficient storage"}]);
        let waiting = look(before_evacuation, 3, &[case], "");
        assert!(
            waiting[0].ends_with("no place for a copy: insufficient storage"),
            "{waiting:?}"
        );
    }

    #[test]
    fn a_volume_on_its_way_has_two_engines_and_the_attached_one_is_asked() {
        let mut case = case("v", 2, "healthy", "node-2", &[("node-1", "RW"), ("node-2", "RW")]);
        case.volume["status"]["currentNodeID"] = json!("node-2");
        let mut target = case.engine.clone();
        target["metadata"]["name"] = json!("v-a");
        target["spec"]["nodeID"] = json!("node-3");
        target["status"]["replicaModeMap"] = json!({});
        let target = Case {
            volume: json!({"metadata": {"name": "none"}}),
            engine: target,
            replicas: Vec::new(),
        };
        assert!(look(after_evacuation, 3, &[target, case], "").is_empty());
    }

    #[test]
    fn a_witness_and_what_harvester_does_not_manage_hold_no_volumes() {
        let node = |labels: Value| serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
        let nodes: Vec<Node> = vec![
            node(json!({"harvesterhci.io/managed": "true"})),
            node(json!({"harvesterhci.io/managed": "true", "node-role.harvesterhci.io/witness": ""})),
            node(json!({})),
        ];
        assert_eq!(storage_nodes(&nodes), 1);
    }
}
