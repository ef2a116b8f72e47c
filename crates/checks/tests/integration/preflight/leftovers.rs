//! What earlier upgrades left behind.

use serde_json::{Value, json};

use super::{Case, World, case};
use crate::support::other;

fn under_way(world: &mut World) {
    world.add(
        "plans",
        serde_json::to_value(other("old", "NodeUpgrading", Some("True"))).unwrap(),
    );
}

fn paused_chart(world: &mut World) {
    world.add(
        "managed_charts",
        json!({"metadata": {"name": "harvester", "namespace": "fleet-local"}, "spec": {"paused": true}}),
    );
}

fn hook(world: &mut World) {
    world.add(
        "machine_plans",
        json!({"type": "rke.cattle.io/machine-plan", "metadata": {"name": "plan-1", "namespace": "fleet-local",
        "labels": {"rke.cattle.io/machine-name": "machine-1"}, "annotations": {"rke.cattle.io/pre-drain": "{}"}}}),
    );
}

fn taint(world: &mut World) {
    let taints = json!([{"key": "kubevirt.io/drain", "effect": "NoSchedule"}]);
    world.change("nodes", "node-1", |node| node["spec"]["taints"] = taints.clone());
}

fn labelled(name: &str, plan: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "cattle-system", "labels": {"management.harvesterhci.io/upgrade-plan": plan}}})
}

pub(super) const CASES: [Case; 6] = [
    case("P36", "fleet-local/harvester", paused_chart, |world| {
        under_way(world);
        paused_chart(world);
    }),
    case("P37", "machine-1 still has rke.cattle.io/pre-drain", hook, |world| {
        under_way(world);
        hook(world);
    }),
    case(
        "P38",
        "plan gone does not exist any more and left behind Plan cattle-system/gone-prepare",
        |world| world.add("suc_plans", labelled("gone-prepare", "gone")),
        |world| {
            under_way(world);
            world.add("suc_plans", labelled("old-prepare", "old"));
        },
    ),
    case(
        "P39",
        "the last plan, old, failed",
        |world| world.add("plans", serde_json::to_value(other("old", "Failed", None)).unwrap()),
        |world| {
            world.add("plans", serde_json::to_value(other("old", "Failed", None)).unwrap());
            let mut newer = serde_json::to_value(other("newer", "Succeeded", None)).unwrap();
            newer["metadata"]["creationTimestamp"] = json!("2026-03-12T12:00:00Z");
            world.add("plans", newer);
        },
    ),
    case("P40", "has the taint kubevirt.io/drain", taint, |world| {
        under_way(world);
        taint(world);
    }),
    case(
        "P40",
        "after a reboot of an earlier upgrade",
        |world| {
            world.change("nodes", "node-1", |node| {
                node["metadata"]["annotations"]["management.harvesterhci.io/pendingOSImage"] =
                    json!("Harvester v1.7.1");
            });
        },
        |_| {},
    ),
];
