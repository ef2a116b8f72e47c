//! Which volumes are waited for, and which are not.

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
    // What is attached is used, if a test does not say otherwise.
    let claims = cases.iter().map(|case| {
        let name = case.volume["metadata"]["name"].as_str().unwrap_or_default();
        format!("default/disk-of-{name}")
    });
    look_at(rule, nodes, cases, skip, (&[], &claims.collect(), false))
}

/// The same with nodes that are cordoned, claims that are used, and whether Longhorn lets every node be drained.
fn look_at(
    rule: fn(&Storage<'_>) -> Vec<Waiting>,
    nodes: usize,
    cases: &[Case],
    skip: &str,
    (cordoned, claims, always_allowed): (&[&str], &BTreeSet<String>, bool),
) -> Vec<String> {
    let cordoned = cordoned.iter().map(|node| (*node).to_owned()).collect();
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
        cordoned: &cordoned,
        claims,
        always_allowed,
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
        ["volume v of claim default/disk-of-v: degraded, 2 of 3 replicas healthy, rebuilding 43 %"]
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
            "volume v of claim default/disk-of-v: the only healthy replica is on node-1, and it is used on node-2: add a \
          replica on another node, or stop what uses it"
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
        ["volume w of claim default/disk-of-w: degraded, 1 of 3 replicas healthy"]
    );
}

#[test]
fn volumes_that_no_pod_uses_or_that_are_skipped_do_not_count() {
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

#[test]
fn r58_a_copy_on_a_cordoned_node_does_not_free_this_one_and_the_node_is_named() {
    let used = case("v", 3, "healthy", "node-3", &[("node-1", "RW"), ("node-2", "RW")]);
    let look = |cordoned: &[&str], always| {
        let cases = std::slice::from_ref(&used);
        look_at(after_evacuation, 3, cases, "", (cordoned, &BTreeSet::new(), always))
    };
    // The node that is drained is cordoned itself.
    assert!(look(&["node-1"], false).is_empty());
    let held = look(&["node-1", "node-2"], false);
    assert_eq!(held.len(), 1, "{held:?}");
    for part in [
        "volume v of claim default/disk-of-v",
        "are on node-2, which is cordoned",
        "disruption budget",
    ] {
        assert!(held[0].contains(part), "{held:?}");
    }
    assert!(look(&["node-1", "node-2"], true).is_empty(), "always-allow");
    let spread = case(
        "v",
        3,
        "healthy",
        "node-3",
        &[("node-1", "RW"), ("node-2", "RW"), ("node-3", "RW")],
    );
    let claims = BTreeSet::new();
    let cordoned: &[&str] = &["node-1", "node-2"];
    assert!(look_at(after_evacuation, 3, &[spread], "", (cordoned, &claims, false)).is_empty());
}

#[test]
fn r40_a_volume_that_is_attached_here_and_that_no_pod_uses_is_named_with_what_to_do() {
    let here = case("v", 3, "healthy", "node-1", &[("node-1", "RW"), ("node-2", "RW")]);
    let there = case("w", 3, "healthy", "node-2", &[("node-1", "RW"), ("node-2", "RW")]);
    let mut bare = case("x", 3, "healthy", "node-1", &[("node-1", "RW"), ("node-2", "RW")]);
    bare.volume["status"]["kubernetesStatus"] = json!({"pvcName": "", "namespace": ""});
    let look = |skip: &str, claims: &BTreeSet<String>| {
        let cases = [&here, &there, &bare].map(|case| Case {
            volume: case.volume.clone(),
            engine: case.engine.clone(),
            replicas: case.replicas.clone(),
        });
        look_at(after_evacuation, 3, &cases, skip, (&["node-1"], claims, false))
    };
    let stale = look("", &BTreeSet::new());
    assert_eq!(stale.len(), 1, "{stale:?}");
    for part in [
        "volume v of claim default/disk-of-v",
        "no pod uses it",
        "VolumeAttachment longhorn-system/v",
    ] {
        assert!(stale[0].contains(part), "{stale:?}");
    }
    assert!(look("v", &BTreeSet::new()).is_empty(), "skipped");
    assert!(
        look("", &BTreeSet::from(["default/disk-of-v".to_owned()])).is_empty(),
        "a pod uses it"
    );
}

#[test]
fn r40_claims_are_in_use_while_a_pod_that_names_them_has_not_ended() {
    let pod = |phase: &str| -> Pod {
        serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": "p"}, "status": {"phase": phase},
            "spec": {"containers": [], "volumes": [
                {"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "b", "emptyDir": {}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
        }))
        .unwrap()
    };
    for phase in ["Running", "Pending"] {
        assert_eq!(
            claims_in_use([&pod(phase)]),
            BTreeSet::from(["default/data".to_owned(), "default/p-scratch".to_owned()])
        );
    }
    for phase in ["Succeeded", "Failed"] {
        assert!(claims_in_use([&pod(phase)]).is_empty());
    }
}

#[test]
fn r33_of_very_many_volumes_some_are_named_and_all_are_counted() {
    let waiting = |number: usize| Waiting {
        what: ProgramWait::LonghornVolume,
        object: format!("Volume longhorn-system/v-{number}"),
        message: "degraded".to_owned(),
    };
    let few: Vec<Waiting> = (0..NAMED).map(waiting).collect();
    assert_eq!(summed_up("node-1", few.clone()), few);
    let many = summed_up("node-1", (0..800).map(waiting).collect());
    assert_eq!(many.len(), NAMED + 1);
    assert_eq!(
        (many[0].what, many[0].object.as_str()),
        (ProgramWait::VolumesLeft, "Node node-1")
    );
    assert!(many[0].message.starts_with("800 volumes"), "{}", many[0].message);
}
