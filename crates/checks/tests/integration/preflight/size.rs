//! A large cluster is checked in less than a second.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{World, node, vms::vm};

#[test]
#[allow(clippy::disallowed_methods, reason = "the time that a check takes is measured")]
fn a_hundred_nodes_with_a_thousand_vms_and_five_thousand_pods_take_less_than_a_second() {
    let mut world = World::healthy();
    world.empty("nodes");
    world.empty("machines");
    for number in 1..=100 {
        world.add("nodes", node(number));
        world.add("machines", crate::support::machine(number));
    }
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "none"}}}]}}});
    for number in 0..1_000 {
        vm(
            &mut world,
            &format!("vm-{number}"),
            &format!("node-{}", number % 100 + 1),
            "3Gi",
            apart.clone(),
        );
        world.add(
            "volumes",
            super::storage::volume(&format!("pvc-{number}"), 3, "attached", "healthy"),
        );
    }
    for number in 0..4_000 {
        world.add(
            "pods",
            json!({"metadata": {"name": format!("pod-{number}"), "namespace": "default"},
            "spec": {"nodeName": format!("node-{}", number % 100 + 1), "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
        );
    }
    let start = Instant::now();
    let report = world.report();
    let took = start.elapsed();
    println!("{} checks took {took:?}", report.checked);
    assert!(took < Duration::from_secs(1), "{took:?}");
}
