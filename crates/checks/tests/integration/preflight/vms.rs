//! VMs, and where they could go.

use serde_json::{Value, json};

use super::{Case, World, case};

/// A VM on a node, with the pod that it runs in.
pub(super) fn vm(world: &mut World, name: &str, node: &str, memory: &str, spec: Value) {
    world.add(
        "vmis",
        json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec,
        "status": {"phase": "Running", "nodeName": node}}),
    );
    world.add("pods", json!({
        "metadata": {"name": format!("virt-launcher-{name}"), "namespace": "default",
            "labels": {"kubevirt.io": "virt-launcher", "app": "web"},
            "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": name, "uid": "u"}]},
        "spec": {"nodeName": node, "containers": [{"name": "compute", "resources": {"requests": {"cpu": "100m", "memory": memory}}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }));
}

fn taken(world: &mut World, node: &str, memory: &str) {
    world.add(
        "pods",
        json!({"metadata": {"name": format!("busy-{node}"), "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"memory": memory}}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
}

fn apart() -> Value {
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}}})
}

fn model(world: &mut World, node: &str, own: &str, accepted: &str) {
    world.change("nodes", node, |node| {
        node["metadata"]["labels"][format!("host-model-cpu.node.kubevirt.io/{own}")] = json!("true");
        node["metadata"]["labels"][format!("cpu-model-migration.node.kubevirt.io/{accepted}")] = json!("true");
    });
}

fn plain_vm(world: &mut World, status: Value) {
    world.add(
        "vms",
        json!({"metadata": {"name": "web", "namespace": "default"}, "status": status}),
    );
}

fn migration(world: &mut World, phase: &str) {
    world.add("migrations", json!({"metadata": {"name": "m", "namespace": "default"}, "spec": {"vmiName": "web"}, "status": {"phase": phase}}));
}

fn single_node(world: &mut World) {
    for field in ["nodes", "machines"] {
        world.empty(field);
    }
    world.add("nodes", super::node(1));
    world.add("machines", crate::support::machine(1));
}

fn device() -> Value {
    json!({"domain": {"devices": {"hostDevices": [{"name": "gpu"}]}}})
}

pub(super) const CASES: [Case; 16] = [
    case(
        "P65",
        "default/big (0.1 CPUs, 40.0 GiB)",
        |world| {
            vm(world, "big", "node-1", "40Gi", json!({}));
            taken(world, "node-2", "25Gi");
            taken(world, "node-3", "25Gi");
        },
        |world| {
            vm(world, "big", "node-1", "40Gi", json!({}));
            taken(world, "node-2", "25Gi");
            taken(world, "node-3", "24Gi");
        },
    ),
    case(
        "P65",
        "VMs of node node-1",
        |world| {
            for (name, node) in [("a", "node-1"), ("b", "node-2"), ("c", "node-3")] {
                vm(world, name, node, "1Gi", apart());
            }
        },
        |world| {
            for (name, node) in [("a", "node-1"), ("b", "node-2")] {
                vm(world, name, node, "1Gi", apart());
            }
        },
    ),
    // A taint that the VM does not tolerate.
    case(
        "P65",
        "VMs of node node-1",
        |world| {
            vm(world, "a", "node-1", "1Gi", json!({}));
            for name in ["node-2", "node-3"] {
                world.change("nodes", name, |node| {
                    node["spec"]["taints"] = json!([{"key": "dedicated", "effect": "NoSchedule"}])
                });
            }
        },
        |world| {
            vm(world, "a", "node-1", "1Gi", json!({}));
            for name in ["node-2", "node-3"] {
                world.change("nodes", name, |node| {
                    node["spec"]["taints"] = json!([{"key": "dedicated", "effect": "PreferNoSchedule"}])
                });
            }
        },
    ),
    // What cannot move at all is the subject of P10.
    case(
        "P65",
        "default/a",
        |world| vm(world, "a", "node-1", "65Gi", json!({})),
        |world| vm(world, "a", "node-1", "65Gi", device()),
    ),
    case(
        "P66",
        "left over would be: default/c (0.1 CPUs, 40.0 GiB)",
        |world| {
            for name in ["a", "b", "c"] {
                vm(world, name, "node-1", "40Gi", json!({}));
            }
        },
        |world| {
            for name in ["a", "b"] {
                vm(world, name, "node-1", "40Gi", json!({}));
            }
        },
    ),
    case(
        "P67",
        "default/a",
        |world| {
            vm(world, "a", "node-1", "1Gi", json!({}));
            model(world, "node-1", "Icelake", "Icelake");
            model(world, "node-2", "Haswell", "Haswell");
        },
        |world| {
            vm(world, "a", "node-1", "1Gi", json!({}));
            model(world, "node-1", "Icelake", "Icelake");
            model(world, "node-2", "Haswell", "Icelake");
        },
    ),
    case(
        "P67",
        "default/a",
        |world| {
            vm(
                world,
                "a",
                "node-1",
                "1Gi",
                json!({"domain": {"cpu": {"model": "host-model"}}}),
            );
            model(world, "node-1", "Icelake", "Icelake");
        },
        |world| {
            vm(
                world,
                "a",
                "node-1",
                "1Gi",
                json!({"domain": {"cpu": {"model": "Haswell"}}}),
            );
            model(world, "node-1", "Icelake", "Icelake");
        },
    ),
    case(
        "P68",
        "default/web",
        |world| {
            plain_vm(
                world,
                json!({"conditions": [{"type": "RestartRequired", "status": "True"}]}),
            )
        },
        |world| {
            plain_vm(
                world,
                json!({"conditions": [{"type": "RestartRequired", "status": "False"}]}),
            )
        },
    ),
    case(
        "P69",
        "started again: default/a",
        |world| {
            world.plan.spec.restore_vm = Some(true);
            vm(world, "a", "node-1", "1Gi", device());
        },
        |world| vm(world, "a", "node-1", "1Gi", device()),
    ),
    case(
        "P69",
        "only if the plan has spec.restoreVM: true: default/a",
        |world| {
            single_node(world);
            vm(world, "a", "node-1", "1Gi", json!({}));
        },
        |world| vm(world, "a", "node-1", "1Gi", json!({})),
    ),
    case(
        "P69",
        "default/a",
        |world| {
            world.plan.spec.on_migration_failure = Some(api::OnMigrationFailure::Stop);
            unmigratable(world);
        },
        |world| {
            world.plan.spec.on_migration_failure = Some(api::OnMigrationFailure::Block);
            unmigratable(world);
        },
    ),
    case(
        "P70",
        "default/a",
        |world| vm(world, "a", "node-1", "1Gi", json!({"evictionStrategy": "None"})),
        |world| vm(world, "a", "node-1", "1Gi", json!({"evictionStrategy": "LiveMigrate"})),
    ),
    case(
        "P70",
        "default/a",
        |world| vm(world, "a", "node-1", "1Gi", json!({"evictionStrategy": "External"})),
        |world| {
            single_node(world);
            vm(world, "a", "node-1", "1Gi", json!({"evictionStrategy": "External"}));
        },
    ),
    case(
        "P71",
        "default/m",
        |world| migration(world, "Running"),
        |world| migration(world, "Succeeded"),
    ),
    case(
        "P72",
        "default/a",
        |world| {
            vm(world, "a", "node-1", "1Gi", json!({}));
            world.empty("pods");
            taken(world, "node-1", "1Gi");
        },
        |world| vm(world, "a", "node-1", "1Gi", json!({})),
    ),
    // Pods of the namespace are not in the bundle.
    case(
        "P72",
        "default/a",
        |world| {
            vm(world, "a", "node-1", "1Gi", json!({}));
            world.empty("pods");
            taken(world, "node-1", "1Gi");
        },
        |world| {
            vm(world, "a", "node-1", "1Gi", json!({}));
            world.empty("pods");
        },
    ),
];

fn unmigratable(world: &mut World) {
    vm(world, "a", "node-1", "1Gi", json!({}));
    world.change("vmis", "a", |vmi| {
        vmi["status"]["conditions"] = json!([{"type": "LiveMigratable", "status": "False"}])
    });
}
