//! Checks of admission, and those about the release.

use serde_json::json;

use super::{Case, World, annotate, case};
use crate::support::other;

fn plan_of(world: &mut World, phase: &str, progressing: Option<&str>) {
    world.add("plans", serde_json::to_value(other("old", phase, progressing)).unwrap());
}

fn image(world: &mut World, annotations: serde_json::Value, status: serde_json::Value) {
    world.plan = checks::preflight::hypothetical(None, Some("iso"));
    world.add(
        "images",
        json!({"metadata": {"name": "iso", "namespace": "harvester-system", "annotations": annotations},
        "spec": {"backend": "cdi", "checksum": "00"}, "status": status}),
    );
}

fn vmi(world: &mut World, spec: serde_json::Value) {
    world.add(
        "vmis",
        json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec,
        "status": {"phase": "Running", "nodeName": "node-1"}}),
    );
    launcher(world);
}

fn launcher(world: &mut World) {
    world.add(
        "pods",
        json!({"metadata": {"name": "virt-launcher-web", "namespace": "default",
        "labels": {"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": "web"}},
        "spec": {"nodeName": "node-1", "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
}

fn upgrade(world: &mut World, state: &str) {
    world.add(
        "v1_upgrades",
        json!({"metadata": {"name": "hvst", "namespace": "harvester-system",
        "labels": {"harvesterhci.io/upgradeState": state}}}),
    );
}

const UPGRADE_IMAGE: &str = "harvesterhci.io/os-upgrade-image";

pub(super) const CASES: [Case; 26] = [
    case("P01", "v1.8.0", |world| world.empty("versions"), |_| {}),
    case(
        "P02",
        "another upgrade \"old\" is in progress",
        |world| plan_of(world, "ISODownloading", Some("True")),
        |world| plan_of(world, "Succeeded", Some("False")),
    ),
    case(
        "P03",
        "node \"node-1\" is unschedulable",
        |world| world.change("nodes", "node-1", |node| node["spec"]["unschedulable"] = json!(true)),
        |world| world.change("nodes", "node-1", |node| node["spec"]["unschedulable"] = json!(false)),
    ),
    case(
        "P04",
        "cluster is not ready",
        |world| {
            world.change("rancher_clusters", "local", |cluster| {
                cluster["status"]["ready"] = json!(false)
            })
        },
        |_| {},
    ),
    case(
        "P05",
        "machine fleet-local/machine-1 is not running",
        |world| {
            world.change("machines", "machine-1", |machine| {
                machine["status"]["phase"] = json!("Provisioning")
            })
        },
        |_| {},
    ),
    case(
        "P06",
        "has no node reference",
        |world| {
            world.change("machines", "machine-1", |machine| {
                machine["status"]["nodeRef"] = json!(null)
            })
        },
        |_| {},
    ),
    case(
        "P07",
        "degraded volumes",
        |world| world.add("volumes", super::storage::volume("v", 3, "attached", "degraded")),
        |world| world.add("volumes", super::storage::volume("v", 3, "attached", "healthy")),
    ),
    case(
        "P08",
        "default/b is under processing",
        |world| world.add("vm_backups", json!({"metadata": {"name": "b", "namespace": "default"}})),
        |world| {
            let done = json!({"metadata": {"name": "b", "namespace": "default"}, "status": {"readyToUse": true}});
            world.add("vm_backups", done);
        },
    ),
    case(
        "P09",
        "default/nightly is running",
        |world| {
            world.add(
                "backup_schedules",
                json!({"metadata": {"name": "nightly", "namespace": "default"}}),
            )
        },
        |world| {
            let suspended =
                json!({"metadata": {"name": "nightly", "namespace": "default"}, "status": {"suspended": true}});
            world.add("backup_schedules", suspended);
        },
    ),
    case(
        "P10",
        "default/web",
        |world| {
            vmi(
                world,
                json!({"domain": {"devices": {"hostDevices": [{"name": "gpu"}]}}}),
            )
        },
        |world| vmi(world, json!({})),
    ),
    case(
        "P11",
        "default/web",
        |world| {
            let vm = json!({"metadata": {"name": "web", "namespace": "default"}, "status": {"volumeRequests": [{}]}});
            world.add("vms", vm);
        },
        |world| world.add("vms", json!({"metadata": {"name": "web", "namespace": "default"}})),
    ),
    case(
        "P12",
        "managed chart harvester is not ready",
        |world| {
            let status = json!({"conditions": [{"type": "Ready", "status": "False"}]});
            world.add(
                "managed_charts",
                json!({"metadata": {"name": "harvester", "namespace": "fleet-local"}, "status": status}),
            );
        },
        |world| {
            world.add(
                "managed_charts",
                json!({"metadata": {"name": "harvester", "namespace": "fleet-local"}}),
            )
        },
    ),
    case(
        "P13",
        "addon harvester-system/a is enabled",
        |world| {
            world.add(
                "addons",
                json!({"metadata": {"name": "a", "namespace": "harvester-system"}, "spec": {"enabled": true},
                "status": {"status": "AddonEnabling"}}),
            );
        },
        |world| {
            world.add(
                "addons",
                json!({"metadata": {"name": "a", "namespace": "harvester-system"}, "spec": {"enabled": true},
                "status": {"status": "AddonDeploySuccessful"}}),
            );
        },
    ),
    case(
        "P14",
        "still cleaning up",
        |world| plan_of(world, "CleaningUp", None),
        |world| plan_of(world, "Succeeded", None),
    ),
    case(
        "P15",
        "not marked as an upgrade image",
        |world| image(world, json!({}), json!({})),
        |world| image(world, json!({UPGRADE_IMAGE: "True"}), json!({})),
    ),
    case(
        "P16",
        "node-9",
        |world| {
            world.plan.spec.node_upgrade_option = serde_json::from_value(json!({"pauseNodes": ["node-9"]})).unwrap()
        },
        |world| {
            world.plan.spec.node_upgrade_option = serde_json::from_value(json!({"pauseNodes": ["node-1"]})).unwrap()
        },
    ),
    case(
        "P17",
        "hvst",
        |world| upgrade(world, "UpgradingNodes"),
        |world| upgrade(world, "Succeeded"),
    ),
    case(
        "P18",
        "no more than 63 characters",
        |world| world.plan.metadata.name = Some("a".repeat(64)),
        |world| world.plan.metadata.name = Some("a".repeat(63)),
    ),
    case(
        "P19",
        "spec.upgrade holds the tag",
        |world| annotate(&mut world.plan, api::annotations::UPGRADE_TOOLKIT_IMAGE, "me/mine:v3"),
        |world| annotate(&mut world.plan, api::annotations::UPGRADE_TOOLKIT_IMAGE, "me/mine"),
    ),
    case(
        "P20",
        "spec.isoChecksum of Version v1.8.0 is not set",
        |world| {
            world.change("versions", "v1.8.0", |version| {
                version["spec"]["isoChecksum"] = json!("")
            })
        },
        |_| {},
    ),
    case(
        "P21",
        "v1.7.1 cannot be upgraded to v1.8.0 (its minimum is v1.7.2)",
        |world| {
            world.change("versions", "v1.8.0", |version| {
                version["spec"]["minUpgradableVersion"] = json!("v1.7.2")
            })
        },
        |world| {
            world.change("versions", "v1.8.0", |version| {
                version["spec"]["minUpgradableVersion"] = json!("v1.7.2")
            });
            world.plan.spec.force = Some(true);
        },
    ),
    case(
        "P22",
        "no http or https address",
        |world| {
            world.change("versions", "v1.8.0", |version| {
                version["spec"]["isoURL"] = json!("ftp://a/b.iso")
            })
        },
        |world| {
            world.change("versions", "v1.8.0", |version| {
                version["spec"]["isoURL"] = json!("http://a/b.iso")
            })
        },
    ),
    case(
        "P22",
        "is no SHA-512",
        |world| {
            world.change("versions", "v1.8.0", |version| {
                version["spec"]["isoChecksum"] = json!("0".repeat(64))
            })
        },
        |world| {
            world.change("versions", "v1.8.0", |version| {
                version["spec"]["isoChecksum"] = json!("AB".repeat(64))
            })
        },
    ),
    case(
        "P23",
        "no such host",
        |world| {
            let failed = json!({"conditions": [{"type": "Imported", "status": "False", "message": "no such host"}]});
            image(world, json!({UPGRADE_IMAGE: "True"}), failed);
        },
        |world| {
            let running = json!({"conditions": [{"type": "Imported", "status": "Unknown", "message": "50%"}]});
            image(world, json!({UPGRADE_IMAGE: "True"}), running);
        },
    ),
    case(
        "P24",
        "older than v1.7",
        |world| {
            world.change("settings", "server-version", |setting| {
                setting["value"] = json!("v1.6.1")
            })
        },
        |_| {},
    ),
    case(
        "P24",
        "which releases name as their minimum",
        |world| {
            world.change("settings", "server-version", |setting| {
                setting["value"] = json!("v1.7.0")
            })
        },
        |world| {
            world.change("settings", "server-version", |setting| {
                setting["value"] = json!("v1.7-head")
            })
        },
    ),
];
