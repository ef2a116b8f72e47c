//! Which nodes, pods and volumes count for Longhorn, and what is said of a volume that is not whole.

use api::ProgramWait;
use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Pod};
use rstest::rstest;
use rules::{
    Waiting,
    longhorn_health::{
        Storage, after_evacuation, before_evacuation, claims_in_use, cordoned, skipped, storage_nodes, summed_up,
    },
};
use serde_json::{Value, json};

use crate::read;

#[test]
fn cordoned_nodes_are_those_that_take_no_pods() {
    let nodes: Vec<Node> = [
        json!({"metadata": {"name": "a"}, "spec": {"unschedulable": true}}),
        json!({"metadata": {"name": "b"}, "spec": {"unschedulable": false}}),
        json!({"metadata": {"name": "c"}}),
    ]
    .map(read)
    .into();
    assert_eq!(cordoned(&nodes), ["a".to_owned()].into());
    assert_eq!(storage_nodes(&nodes), 0, "Harvester manages none of them");
}

#[test]
fn volumes_are_on_managed_nodes_that_are_no_witnesses() {
    let node = |labels: Value| -> Node { read(json!({"metadata": {"name": "n", "labels": labels}})) };
    let managed = node(json!({"harvesterhci.io/managed": "true"}));
    let witness = node(json!({"harvesterhci.io/managed": "true", "node-role.harvesterhci.io/witness": "true"}));
    assert_eq!(storage_nodes([&managed]), 1);
    assert_eq!(storage_nodes([&witness]), 0);
    assert_eq!(storage_nodes([&managed, &witness, &managed]), 2);
}

#[test]
fn volumes_that_are_skipped_are_named_with_commas() {
    assert_eq!(skipped(None), BTreeSet::new());
    assert_eq!(skipped(Some(" a,, b ")), ["a".to_owned(), "b".to_owned()].into());
}

#[test]
fn claims_of_running_pods_are_in_use() {
    let pod = |phase: &str, volume: Value| -> Pod {
        read(
            json!({"metadata": {"name": "p", "namespace": "default"}, "status": {"phase": phase},
            "spec": {"containers": [], "volumes": [volume]}}),
        )
    };
    let claim = json!({"name": "v", "persistentVolumeClaim": {"claimName": "disk"}});
    let ephemeral = json!({"name": "v", "ephemeral": {}});
    let used = |pod: Pod| claims_in_use([&pod]).into_iter().collect::<Vec<_>>();
    assert_eq!(used(pod("Running", claim.clone())), ["default/disk"]);
    assert_eq!(used(pod("Pending", ephemeral)), ["default/p-v"]);
    assert_eq!(used(pod("Succeeded", claim)), [""; 0]);
    assert_eq!(used(pod("Running", json!({"name": "v", "emptyDir": {}}))), [""; 0]);
}

#[rstest]
#[case(0)]
#[case(20)]
#[case(21)]
fn more_than_twenty_volumes_are_counted(#[case] count: usize) {
    let one = |number: usize| Waiting {
        what: ProgramWait::LonghornVolume,
        object: format!("Volume {number}"),
        message: String::new(),
    };
    let shown = summed_up("node-1", (0..count).map(one).collect());
    if count <= 20 {
        assert_eq!(shown.len(), count);
        return;
    }
    assert_eq!(shown.len(), 21);
    assert_eq!(shown[0].object, "Node node-1");
    assert_eq!(
        shown[0].message,
        "21 volumes keep node node-1 from being drained; 20 of them are named"
    );
    assert_eq!(shown[20].object, "Volume 19");
}

/// A volume `v` used on `user`, with whole copies on these nodes, as fields that a case may change.
struct World {
    volume: Value,
    engine: Value,
    /// Engines of the volume where it is not attached.
    others: Vec<Value>,
    copies: Vec<&'static str>,
    nodes: usize,
    always_allowed: bool,
}

impl World {
    fn new(user: &str, copies: &[&'static str]) -> Self {
        Self {
            volume: json!({
                "metadata": {"name": "v", "namespace": "longhorn-system"},
                "spec": {"numberOfReplicas": 2},
                "status": {"robustness": "healthy", "currentNodeID": user,
                    "kubernetesStatus": {"namespace": "default", "pvcName": "disk"}},
            }),
            engine: json!({
                "metadata": {"name": "v-e"}, "spec": {"volumeName": "v", "nodeID": user},
                "status": {"currentState": "running"},
            }),
            others: Vec::new(),
            copies: copies.to_vec(),
            nodes: 3,
            always_allowed: false,
        }
    }

    fn look(&self, rule: fn(&Storage<'_>) -> Vec<Waiting>) -> Vec<Waiting> {
        let mut engine = self.engine.clone();
        let modes = self.copies.iter().map(|node| (format!("r-{node}"), json!("RW")));
        engine["status"]["replicaModeMap"] = Value::Object(modes.collect());
        let replica = |node: &&str| {
            Arc::new(read(
                json!({"metadata": {"name": format!("r-{node}")}, "spec": {"volumeName": "v", "nodeID": node}}),
            ))
        };
        rule(&Storage {
            node: "node-1",
            nodes: self.nodes,
            volumes: &[Arc::new(read(self.volume.clone()))],
            engines: &self
                .others
                .iter()
                .cloned()
                .chain([engine])
                .map(|engine| Arc::new(read(engine)))
                .collect::<Vec<_>>(),
            replicas: &self.copies.iter().map(replica).collect::<Vec<_>>(),
            skipped: &BTreeSet::new(),
            cordoned: &["node-3".to_owned()].into(),
            claims: &["default/disk".to_owned()].into(),
            always_allowed: self.always_allowed,
        })
    }

    fn says(&self, rule: fn(&Storage<'_>) -> Vec<Waiting>) -> String {
        let said: Vec<String> = self.look(rule).into_iter().map(|waiting| waiting.message).collect();
        said.join("\n")
    }
}

#[test]
fn with_three_nodes_health_counts_and_with_two_the_copies_do() {
    let mut world = World::new("node-1", &["node-1", "node-2"]);
    assert_eq!(world.says(before_evacuation), "");
    world.volume["status"]["robustness"] = json!("degraded");
    let degraded = "volume v of claim default/disk: degraded, 2 of 2 replicas healthy";
    assert_eq!(world.says(before_evacuation), degraded);
    world.nodes = 2;
    assert_eq!(world.says(before_evacuation), "");
    world.copies.pop();
    assert_eq!(
        world.says(before_evacuation),
        "volume v of claim default/disk: degraded, 1 of 2 replicas healthy"
    );
    world.volume["spec"]["numberOfReplicas"] = json!(1);
    assert_eq!(world.says(before_evacuation), "");
    world.volume["spec"]["numberOfReplicas"] = json!(3);
    world.copies.push("node-2");
    assert_eq!(world.says(before_evacuation), "", "two nodes have no room for three");
}

#[test]
fn a_volume_concerns_the_node_by_its_engine_or_a_copy() {
    let degraded = |user: &str, copies: &[&'static str]| {
        let mut world = World::new(user, copies);
        world.volume["status"]["robustness"] = json!("degraded");
        world.look(before_evacuation).len()
    };
    assert_eq!(degraded("node-1", &["node-2"]), 1);
    assert_eq!(degraded("node-2", &["node-1"]), 1);
    assert_eq!(degraded("node-2", &["node-2"]), 0);
    let mut stopped = World::new("node-1", &[]);
    stopped.volume["status"]["robustness"] = json!("degraded");
    stopped.engine["status"]["currentState"] = json!("stopped");
    assert_eq!(stopped.look(before_evacuation), []);
}

#[rstest]
#[case(json!({"isRebuilding": true, "progress": 7}), ", rebuilding 7 %")]
#[case(json!({"isRebuilding": false, "state": "in_progress", "progress": 7}), ", rebuilding 7 %")]
#[case(json!({"isRebuilding": false, "state": "complete"}), "")]
#[case(json!({"isRebuilding": true, "error": "no space"}), ", a rebuild failed: no space")]
#[case(json!({"isRebuilding": true, "error": ""}), ", rebuilding 0 %")]
fn a_repair_is_described(#[case] rebuild: Value, #[case] expected: &str) {
    let mut world = World::new("node-1", &["node-1"]);
    world.volume["status"]["robustness"] = json!("degraded");
    world.volume["metadata"]["namespace"] = json!(null);
    world.engine["status"]["rebuildStatus"] = json!({"tcp://1": rebuild});
    let said = world.says(before_evacuation);
    assert_eq!(
        said,
        format!("volume v of claim default/disk: degraded, 1 of 2 replicas healthy{expected}")
    );
    assert_eq!(world.look(before_evacuation)[0].object, "Volume longhorn-system/v");
}

#[rstest]
#[case("Scheduled", "False", ", no place for a copy: disks are full")]
#[case("Scheduled", "True", "")]
#[case("TooManySnapshots", "False", "")]
fn a_copy_without_a_place_is_described(#[case] type_: &str, #[case] status: &str, #[case] expected: &str) {
    let mut world = World::new("node-1", &["node-1"]);
    world.volume["status"]["robustness"] = json!("degraded");
    world.volume["status"]["conditions"] = json!([{"type": type_, "status": status, "message": "disks are full"}]);
    let whole = "volume v of claim default/disk: degraded, 1 of 2 replicas healthy";
    assert_eq!(world.says(before_evacuation), format!("{whole}{expected}"));
    world.engine["status"]["rebuildStatus"] = json!({"tcp://1": {"isRebuilding": true, "progress": 1}});
    assert_eq!(world.says(before_evacuation), format!("{whole}, rebuilding 1 %"));
}

#[test]
fn after_the_evacuation_a_copy_must_be_left_on_a_schedulable_node() {
    let says = |copies: &[&'static str]| World::new("node-2", copies).says(after_evacuation);
    assert_eq!(says(&["node-2"]), "");
    assert_eq!(says(&["node-1", "node-2"]), "");
    assert_eq!(says(&["node-1", "node-2", "node-3"]), "");
    assert!(says(&["node-1"]).contains("the only healthy replica is on node-1, and it is used on node-2"));
    assert!(says(&["node-1", "node-3"]).contains("its other whole copies are on node-3, which is cordoned"));
    let mut allowed = World::new("node-2", &["node-1", "node-3"]);
    allowed.always_allowed = true;
    assert_eq!(allowed.says(after_evacuation), "");
}

#[test]
fn after_the_evacuation_nothing_may_be_attached_here_that_no_pod_uses() {
    let mut world = World::new("node-1", &["node-1"]);
    assert_eq!(world.look(after_evacuation), []);
    world.volume["status"]["kubernetesStatus"]["pvcName"] = json!("other");
    let found = world.look(after_evacuation);
    assert_eq!((found.len(), found[0].what), (1, ProgramWait::StaleAttachment));
    assert!(
        found[0]
            .message
            .contains("it is attached to node-1, but no pod uses it"),
        "{}",
        found[0].message
    );
    assert!(
        found[0].message.contains("VolumeAttachment longhorn-system/v"),
        "{}",
        found[0].message
    );
    for unclaimed in [
        json!({"namespace": "default", "pvcName": ""}),
        json!({"namespace": "default"}),
        json!(null),
    ] {
        world.volume["status"]["kubernetesStatus"] = unclaimed;
        assert_eq!(world.look(after_evacuation), []);
    }
}

#[test]
fn an_engine_is_of_the_volume_that_it_names_or_that_its_label_names() {
    let mut world = World::new("node-1", &["node-2"]);
    world.volume["status"]["robustness"] = json!("degraded");
    world.engine["spec"] = json!({"nodeID": "node-1"});
    assert_eq!(world.look(before_evacuation), []);
    world.engine["metadata"]["labels"] = json!({"longhornvolume": "v"});
    assert_eq!(world.look(before_evacuation).len(), 1);
    world.engine["metadata"]["labels"] = json!({"longhornvolume": "w"});
    assert_eq!(world.look(before_evacuation), []);
}

#[test]
fn of_two_engines_the_one_where_the_volume_is_attached_knows_its_copies() {
    let mut world = World::new("node-2", &["node-2"]);
    world.others = vec![json!({
        "metadata": {"name": "v-e-2"}, "spec": {"volumeName": "v", "nodeID": "node-1"},
        "status": {"currentState": "running", "replicaModeMap": {"r-node-1": "RW"}},
    })];
    world.volume["status"]["robustness"] = json!("degraded");
    assert_eq!(
        world.look(before_evacuation),
        [],
        "it is used on node-2, and its copy is there"
    );
    world.volume["status"]["currentNodeID"] = json!("node-1");
    assert_eq!(world.look(before_evacuation).len(), 1);
}
