//! `rehearse --snapshot`: clusters of odd shapes are put into snapshots, and the forecast names what is odd about them.

mod support;

use std::{path::Path, time::Duration};

use api::UpgradePlan;
use checks::finding::ObjectRef;
use cli::rehearsal::Rehearsal;
use kube::ResourceExt;
use serde_json::{Value, json};
use view::forecast::{BlockerKind, Verdict};
use world::Shape;

use self::support::{blocker, foretell, foretell_with, odd, pod, seen, start, volume_of};
use crate::{doctor::edit::Edit, run::in_paused_time};

#[test]
fn everything_that_would_block_a_node_is_named_with_its_object_and_the_forecast_continues_to_the_end() {
    let snapshot = odd();
    let volume = volume_of(&snapshot, "db-2-disk-0");
    let found = foretell(&snapshot);
    let replica = blocker(
        &found,
        BlockerKind::Replica,
        &ObjectRef::new("Volume", Some("longhorn-system"), &volume),
    );
    assert_eq!(replica.node.as_deref(), Some("node-2"));
    let budget = blocker(
        &found,
        BlockerKind::Budget,
        &ObjectRef::new("PodDisruptionBudget", Some("default"), "shop"),
    );
    assert_eq!(
        (budget.node.as_deref(), budget.id.as_deref()),
        (Some("node-4"), Some("D02"))
    );
    let room = blocker(
        &found,
        BlockerKind::Room,
        &ObjectRef::new("VirtualMachineInstance", Some("default"), "build-8"),
    );
    assert_eq!(
        (room.node.as_deref(), room.id.as_deref()),
        (Some("node-5"), Some("D08"))
    );
    blocker(&found, BlockerKind::Disk, &ObjectRef::new("Node", None, "node-1"));
    assert_eq!(found.blockers.len(), 4, "{:#?}", found.blockers);
    assert!(found.blockers.iter().all(|blocker| blocker.in_rehearsal.is_some()));
    assert!(found.completed, "{:#?}", found.blockers);
    assert!(matches!(found.verdict, Verdict::Refused | Verdict::Blocked));
    // Each can be changed before the upgrade.
    for blocker in &found.blockers {
        let named = |object: &ObjectRef| found.change_first.iter().any(|change| change.objects.contains(object));
        assert!(
            blocker.objects.iter().any(named),
            "{blocker:#?} {:#?}",
            found.change_first
        );
    }
    // The VM with a device is off while its node is upgraded, and so is the one that fits nowhere.
    let off = |vm: &str| {
        let mut shutdowns = found.shutdowns.iter();
        shutdowns
            .find(|off| off.vm == vm)
            .unwrap_or_else(|| panic!("{vm}: {:#?}", found.shutdowns))
    };
    assert_eq!(off("dev/ml-3").why, "it uses a device of its node");
    assert!(off("dev/ml-3").restored && off("dev/ml-3").seconds.unwrap() > 300);
    assert!(off("default/build-8").restored, "{:#?}", found.shutdowns);
    // The others move, and never to the witness.
    assert!(
        found
            .moves
            .iter()
            .any(|moved| moved.vm == "default/db-2" && moved.from == "node-2")
    );
    assert!(
        found.moves.iter().all(|moved| moved.to != "node-3"),
        "{:#?}",
        found.moves
    );
    // Waits are not counted: five nodes take about two hours.
    assert!((5_000..12_000).contains(&found.seconds), "{}", found.seconds);
    assert_eq!(found.nodes.len(), 5);
    assert!(found.nodes.iter().all(|node| node.seconds.is_some()));
}

#[test]
fn a_snapshot_of_the_usual_cluster_succeeds_and_takes_as_long_as_its_rehearsal() {
    let shape = Shape {
        seed: 1,
        ..Shape::default()
    };
    let found = foretell(&seen(&shape));
    assert_eq!(found.refusals, []);
    assert_eq!(found.blockers, []);
    assert_eq!(found.errors, []);
    assert_eq!(found.verdict, Verdict::Succeeds);
    let usual = in_paused_time(async {
        let rehearsal = start(&shape).await;
        let _manager = rehearsal.start_only_manager();
        let plan = rehearsal.create(&rehearsal.plan(true, &[])).await.unwrap();
        let ended = |plan: &UpgradePlan| plan.phase().is_some_and(api::Phase::is_terminal);
        let limit = Some(Duration::from_secs(12 * 3600));
        rehearsal.follow(&plan.name_any(), limit, ended).await.unwrap()
    });
    let history = &usual.status.as_ref().unwrap().phase_transition_timestamps;
    let moment = |change: &api::PhaseTransition| change.phase_transition_timestamp.0;
    let usual = moment(history.last().unwrap())
        .duration_since(moment(&history[0]))
        .as_secs();
    assert!(
        (found.seconds - usual).abs() * 10 <= usual,
        "{} and {usual}",
        found.seconds
    );
    let mut nodes: Vec<&str> = found.nodes.iter().map(|node| node.name.as_str()).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["node-1", "node-2", "node-3"]);
    assert!(!found.moves.is_empty() && !found.shutdowns.is_empty());
}

#[test]
fn the_same_snapshot_gives_the_same_forecast() {
    let snapshot = odd();
    assert_eq!(foretell(&snapshot), foretell(&snapshot));
}

#[test]
fn without_restore_vm_a_vm_with_a_device_is_refused_and_the_rest_is_forecast_all_the_same() {
    let shape = Shape::default();
    let found = foretell_with(&seen(&shape), false);
    assert_eq!(found.verdict, Verdict::Refused);
    assert!(
        found.refusals.iter().any(|refusal| refusal.id == "P10"),
        "{:#?}",
        found.refusals
    );
    assert!(found.completed && found.seconds > 0);
    assert!(
        found.shutdowns.iter().any(|off| !off.restored),
        "{:#?}",
        found.shutdowns
    );
}

#[test]
fn a_folder_of_manifests_gives_a_forecast_that_says_what_the_folder_lacks() {
    let folder = tempfile::tempdir().unwrap();
    in_paused_time(async {
        let rehearsal = start(&Shape::default()).await;
        for (group, plural) in [("", "nodes"), ("kubevirt.io", "virtualmachineinstances"), ("", "pods")] {
            save(&rehearsal, folder.path(), group, plural);
        }
        save(&rehearsal, folder.path(), "longhorn.io", "volumes");
        save(&rehearsal, folder.path(), "longhorn.io", "replicas");
    });
    let found = foretell(&snapshot::load(folder.path()).unwrap());
    assert!(found.completed, "{:#?}", found.blockers);
    assert_eq!((found.cluster.nodes, found.cluster.vms), (3, 5));
    assert!(found.cluster.volumes > 0 && !found.moves.is_empty());
    let unknown = found.unknown.join("\n");
    for expected in [
        "PodDisruptionBudgets: not in the folder: disruption budgets are not part of the forecast.",
        "Disks of nodes are not known",
    ] {
        assert!(unknown.contains(expected), "{unknown}");
    }
}

fn save(rehearsal: &Rehearsal, folder: &Path, group: &str, plural: &str) {
    let items: Vec<Value> = rehearsal
        .server
        .store()
        .list(group, plural, None)
        .iter()
        .map(|object| (**object).clone())
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let text = serde_saphyr::to_string(&list).unwrap();
    std::fs::write(folder.join(format!("{plural}.yaml")), text).unwrap();
}

#[test]
fn vms_of_namespaces_that_a_bundle_lacks_are_said_to_be_missing() {
    let mut snapshot = seen(&Shape::default());
    let why = "it did not collect namespaces dev".to_owned();
    snapshot.partial.insert("vmis".to_owned(), why);
    let found = foretell(&snapshot);
    let expected =
        "Running VMs: it did not collect namespaces dev: those that are missing are not part of the forecast.";
    assert!(
        found.unknown.iter().any(|line| line == expected),
        "{:#?}",
        found.unknown
    );
}

#[test]
fn anti_affinity_keeps_vms_apart_so_that_one_of_them_has_no_place() {
    // Three hosts, three VMs that keep away from each other: whichever has to move finds no place.
    let shape = Shape {
        vms: 3,
        seed: 6,
        ..Shape::default()
    };
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"tier": "db"}},
    }]}});
    let edit = Edit(seen(&shape)).change("vmis", |vmi| {
        vmi["metadata"]["namespace"] = json!("default");
        vmi["metadata"]["labels"]["tier"] = json!("db");
        vmi["spec"]["affinity"] = apart.clone();
    });
    let found = foretell(&edit.0);
    assert!(
        found.blockers.iter().any(|blocker| blocker.kind == BlockerKind::Room),
        "{:#?}",
        found.blockers
    );
    assert!(found.completed);
}

#[test]
fn a_hostile_snapshot_of_ten_thousand_vms_does_not_break_the_forecast() {
    let mut snapshot = seen(&Shape::default());
    for number in 0..10_000 {
        let stopped = json!({
            "metadata": {"name": format!("vm-{number}"), "namespace": "default"}, "spec": {"runStrategy": "Halted"},
        });
        snapshot.add("vms", stopped).unwrap();
        let nameless = json!({
            "metadata": {"name": format!("\u{1b}[2J{number}\n"), "namespace": "a/../b"},
            "status": {"phase": "Running", "nodeName": "node-1"},
        });
        snapshot.add("vmis", nameless).unwrap();
    }
    let far = json!({
        "metadata": {"name": "far", "namespace": "default", "labels": {"a\u{1b}": "b", "c": "\u{202e}"}},
        "spec": {"domain": {"memory": {"guest": "1e300Gi"}, "devices": {}}},
        "status": {"phase": "Running", "nodeName": "no-such-node"},
    });
    snapshot.add("vmis", far).unwrap();
    snapshot
        .add("nodes", json!({"metadata": {"name": "\u{1b}]0;node\u{7}"}}))
        .unwrap();
    let found = foretell(&snapshot);
    assert!(found.completed, "{:#?}", found.blockers);
    assert_eq!((found.cluster.nodes, found.cluster.vms), (3, 5));
    let unknown = found.unknown.join("\n");
    assert!(
        unknown.contains("10000 VMs have names that Kubernetes does not allow"),
        "{unknown}"
    );
    let shown = view::forecast::text(&found, 100, view::style::Style::default());
    assert!(!shown.contains('\u{1b}') && !view::forecast::markdown(&found).contains('\u{1b}'));
}

#[test]
fn a_volume_of_a_pod_follows_it_so_that_its_only_replica_blocks_its_node() {
    let in_longhorn = |kind: &str, name: &str, spec: Value, status: Value| {
        json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": kind,
            "metadata": {"name": name, "namespace": "longhorn-system"}, "spec": spec, "status": status,
        })
    };
    let mut store = pod("default", "store-0", "node-1", &json!({"app": "store"}), "1Gi");
    store["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let volume = in_longhorn(
        "Volume",
        "pvc-data",
        json!({"numberOfReplicas": 1, "nodeID": "node-1", "size": "1073741824"}),
        json!({
            "state": "attached", "robustness": "healthy", "currentNodeID": "node-1",
            "kubernetesStatus": {"namespace": "default", "pvcName": "data"},
        }),
    );
    let of_volume = |node: &str| json!({"volumeName": "pvc-data", "nodeID": node});
    let modes = json!({"currentState": "running", "replicaModeMap": {"pvc-data-r-x": "RW"}});
    let running = json!({"currentState": "running"});
    let edit = Edit(seen(&Shape::default()))
        .with("pods", store)
        .with("volumes", volume)
        .with(
            "engines",
            in_longhorn("Engine", "pvc-data-e-x", of_volume("node-1"), modes),
        )
        .with(
            "replicas",
            in_longhorn("Replica", "pvc-data-r-x", of_volume("node-3"), running),
        );
    let found = foretell(&edit.0);
    // The pod left node-1, which was upgraded first; its data is still on node-3.
    let wanted = ObjectRef::new("Volume", Some("longhorn-system"), "pvc-data");
    let replica = blocker(&found, BlockerKind::Replica, &wanted);
    assert_eq!(replica.node.as_deref(), Some("node-3"));
    assert_eq!(found.blockers.len(), 1, "{:#?}", found.blockers);
    assert!(found.completed);
}
