//! Nodes and their disks.

use serde_json::{Value, json};
use snapshot::kinds::KubeletDisk;

use super::{Case, GIB, World, annotate, case};

fn set(world: &mut World, pointer: &[&str], value: Value) {
    world.change("nodes", "node-1", |node| {
        let mut place = &mut *node;
        for key in pointer {
            place = &mut place[*key];
        }
        *place = value.clone();
    });
}

fn pressure(world: &mut World, status: &str) {
    set(
        world,
        &["status", "conditions"],
        json!([{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": status}]),
    );
}

fn ntp(world: &mut World, status: &str) {
    let text = json!({"ntpSyncStatus": status, "currentNtpServers": ""}).to_string();
    set(
        world,
        &["metadata", "annotations", "node.harvesterhci.io/ntp-service"],
        json!(text),
    );
}

fn witness(world: &mut World, name: &str) {
    world.change("nodes", name, |node| {
        node["metadata"]["labels"]["node-role.harvesterhci.io/witness"] = json!("true");
        node["spec"]["taints"] =
            json!([{"key": "node-role.kubernetes.io/etcd", "value": "true", "effect": "NoExecute"}]);
    });
}

fn used(world: &mut World, gib: u64) {
    let disk = KubeletDisk {
        capacity_bytes: 100 * GIB,
        used_bytes: gib * GIB,
        image_gc_high_threshold_percent: 85.0,
    };
    world.snapshot.kubelet_disks.insert("node-1".to_owned(), Ok(disk));
}

fn event(world: &mut World, at: &str) {
    world.add(
        "events",
        json!({"metadata": {"name": "e", "namespace": "default"}, "type": "Warning", "reason": "FreeDiskSpaceFailed",
        "involvedObject": {"kind": "Node", "name": "node-1"}, "lastTimestamp": at}),
    );
}

pub(super) const CASES: [Case; 12] = [
    case(
        "P41",
        "node node-1 reports DiskPressure",
        |world| pressure(world, "True"),
        |world| pressure(world, "False"),
    ),
    case(
        "P42",
        "at most one witness",
        |world| {
            witness(world, "node-1");
            witness(world, "node-2");
        },
        |world| witness(world, "node-1"),
    ),
    case(
        "P42",
        "lack the taint",
        |world| {
            set(
                world,
                &["metadata", "labels", "node-role.harvesterhci.io/witness"],
                json!("true"),
            )
        },
        |world| witness(world, "node-1"),
    ),
    case(
        "P43",
        "NTP is \"unsynced\"",
        |world| ntp(world, "unsynced"),
        |world| ntp(world, "synced"),
    ),
    case(
        "P44",
        "kubelets of different versions",
        |world| {
            set(
                world,
                &["status", "nodeInfo", "kubeletVersion"],
                json!("v1.35.0+rke2r1"),
            )
        },
        |_| {},
    ),
    case(
        "P44",
        "different operating systems",
        |world| set(world, &["status", "nodeInfo", "osImage"], json!("Harvester v1.8.0")),
        |_| {},
    ),
    case(
        "P45",
        "node-1",
        |world| set(world, &["metadata", "deletionTimestamp"], json!("2026-03-13T11:00:00Z")),
        |_| {},
    ),
    case(
        "P46",
        "in maintenance mode (\"completed\")",
        |world| {
            set(
                world,
                &["metadata", "annotations", "harvesterhci.io/maintain-status"],
                json!("completed"),
            )
        },
        |world| {
            set(
                world,
                &["metadata", "annotations", "harvesterhci.io/maintain-status"],
                json!(""),
            )
        },
    ),
    case(
        "P48",
        "Node node-1 will reach 86.00%",
        |world| used(world, 73),
        |world| used(world, 72),
    ),
    case(
        "P48",
        "the kubelet of node node-1 did not say",
        |world| {
            drop(
                world
                    .snapshot
                    .kubelet_disks
                    .insert("node-1".to_owned(), Err("timed out".into())),
            )
        },
        |world| {
            used(world, 99);
            annotate(&mut world.plan, api::annotations::SKIP_GC_THRESHOLD_CHECK, "true");
        },
    ),
    case(
        "P49",
        "node-1",
        |world| event(world, "2026-03-13T10:00:00Z"),
        |world| event(world, "2026-03-13T09:59:59Z"),
    ),
    case(
        "P48",
        "0 bytes",
        |world| {
            let disk = KubeletDisk {
                capacity_bytes: 0,
                used_bytes: 0,
                image_gc_high_threshold_percent: 85.0,
            };
            world.snapshot.kubelet_disks.insert("node-1".to_owned(), Ok(disk));
        },
        |_| {},
    ),
];
