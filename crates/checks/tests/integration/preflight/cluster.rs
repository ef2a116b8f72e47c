//! Cluster API, Rancher, etcd, the manager, certificates.

use serde_json::{Value, json};

use super::{Case, World, annotate, case, lease};

fn machine_plan(world: &mut World, machine: &str, data: Value) {
    world.add(
        "machine_plans",
        json!({"type": "rke.cattle.io/machine-plan", "data": data, "metadata": {
        "name": "plan-1", "namespace": "fleet-local", "labels": {"rke.cattle.io/machine-name": machine}}}),
    );
}

fn etcd_pod(world: &mut World, ready: &str) {
    world.add("pods", json!({"metadata": {"name": "etcd-node-1", "namespace": "kube-system", "labels": {"component": "etcd"},
        "creationTimestamp": "2026-03-13T11:59:00Z"},
        "spec": {"containers": []}, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}}));
}

fn condition(world: &mut World, status: &str) {
    let conditions = json!([{"type": "Updated", "status": status, "message": "waiting for plan to be applied"}]);
    world.change("rancher_clusters", "local", |cluster| {
        cluster["status"]["conditions"] = conditions.clone()
    });
}

fn not_ready(world: &mut World, names: &[&str]) {
    for name in names {
        world.change("nodes", name, |node| {
            node["status"]["conditions"][0]["status"] = json!("Unknown")
        });
    }
}

pub(super) const CASES: [Case; 17] = [
    case(
        "P25",
        "is paused",
        |world| {
            world.change("capi_clusters", "local", |cluster| {
                cluster["spec"]["paused"] = json!(true)
            })
        },
        |world| {
            world.change("capi_clusters", "local", |cluster| {
                cluster["spec"]["paused"] = json!(false)
            })
        },
    ),
    case(
        "P26",
        "is Provisioning, not Provisioned",
        |world| {
            world.change("capi_clusters", "local", |cluster| {
                cluster["status"]["phase"] = json!("Provisioning")
            })
        },
        |_| {},
    ),
    case(
        "P27",
        "Updated is Unknown (\"waiting for plan to be applied\")",
        |world| condition(world, "Unknown"),
        |world| condition(world, "True"),
    ),
    case(
        "P27",
        "its control plane fleet-local/local",
        |world| {
            let conditions = json!([{"type": "Ready", "status": "False"}]);
            world.add("control_planes", json!({"metadata": {"name": "local", "namespace": "fleet-local"}, "status": {"conditions": conditions}}));
        },
        |world| {
            // Not one of those that an upgrade waits for.
            let conditions = json!([{"type": "Bootstrapped", "status": "False"}]);
            world.add("control_planes", json!({"metadata": {"name": "local", "namespace": "fleet-local"}, "status": {"conditions": conditions}}));
        },
    ),
    case(
        "P28",
        "fleet-local/machine-1",
        |world| {
            world.change("machines", "machine-1", |machine| {
                machine["metadata"]["deletionTimestamp"] = json!("2026-03-13T11:00:00Z");
            });
        },
        |_| {},
    ),
    case(
        "P29",
        "machine machine-9, which does not exist",
        |world| machine_plan(world, "machine-9", json!({})),
        |world| machine_plan(world, "machine-1", json!({})),
    ),
    // The values are base64: 3, 0, b, a.
    case(
        "P30",
        "failed 3 times",
        |world| machine_plan(world, "machine-1", json!({"failure-count": "Mw=="})),
        |world| machine_plan(world, "machine-1", json!({"failure-count": "MA=="})),
    ),
    case(
        "P30",
        "has not applied its plan",
        |world| machine_plan(world, "machine-1", json!({"plan": "Yg==", "appliedPlan": "YQ=="})),
        |world| machine_plan(world, "machine-1", json!({"plan": "Yg==", "appliedPlan": "Yg=="})),
    ),
    case(
        "P31",
        "2 of 3 etcd members are ready",
        |world| not_ready(world, &["node-1"]),
        |_| {},
    ),
    case(
        "P31",
        "etcd has two members",
        |world| {
            world.change("nodes", "node-3", |node| {
                node["metadata"]["labels"] = json!({"harvesterhci.io/managed": "true"})
            });
        },
        |world| {
            for name in ["node-2", "node-3"] {
                world.change("nodes", name, |node| {
                    node["metadata"]["labels"] = json!({"harvesterhci.io/managed": "true"})
                });
            }
        },
    ),
    case(
        "P32",
        "kube-system/etcd-node-1",
        |world| etcd_pod(world, "False"),
        |world| etcd_pod(world, "True"),
    ),
    case(
        "P33",
        "lacks the label",
        |world| {
            world.change("kubeconfig_secrets", "local-kubeconfig", |secret| {
                secret["metadata"]["labels"] = json!({})
            })
        },
        |_| {},
    ),
    case(
        "P34",
        "no manager of UpgradePlans has ever run",
        |world| world.empty("leases"),
        |_| {},
    ),
    case(
        "P34",
        "was not renewed",
        |world| {
            world.empty("leases");
            world.add(
                "leases",
                lease("harvester-system", api::names::LEASE, "2026-03-13T11:57:59.000000Z"),
            );
        },
        |world| {
            world.empty("leases");
            world.add(
                "leases",
                lease("harvester-system", api::names::LEASE, "2026-03-13T11:58:00.000000Z"),
            );
        },
    ),
    case(
        "P35",
        "earliest expiring cert for default/kubernetes ClusterIP is 2026-03-19",
        |world| {
            let ends = Ok("2026-03-19T12:00:00Z".parse().unwrap());
            world.snapshot.certificates.insert("10.0.0.2:6443".to_owned(), ends);
        },
        |world| {
            let ends = Ok("2026-03-20T12:00:00Z".parse().unwrap());
            world.snapshot.certificates.insert("10.0.0.2:6443".to_owned(), ends);
        },
    ),
    case(
        "P35",
        "no whole number above 0",
        |world| annotate(&mut world.plan, api::annotations::MIN_CERTS_EXPIRATION_IN_DAY, "0"),
        |world| {
            annotate(&mut world.plan, api::annotations::MIN_CERTS_EXPIRATION_IN_DAY, "3");
            let ends = Ok("2026-03-17T12:00:00Z".parse().unwrap());
            world.snapshot.certificates.insert("10.0.0.2:6443".to_owned(), ends);
        },
    ),
    case(
        "P47",
        "node-1",
        |world| {
            world.add(
                "leases",
                lease("kube-node-lease", "node-1", "2026-03-13T11:54:59.000000Z"),
            )
        },
        |world| {
            world.add(
                "leases",
                lease("kube-node-lease", "node-1", "2026-03-13T11:55:00.000000Z"),
            )
        },
    ),
];
