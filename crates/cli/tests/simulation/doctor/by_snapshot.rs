//! Situations that the simulated cluster cannot play: they are written into a snapshot of a moment of an upgrade. Without the
//! change, the same snapshot has no such finding.

mod vms;
mod volumes;

use checks::doctor::examine;
use serde_json::{Value, json};

use self::{
    vms::{cpu, denied, foreign_budget, no_target, zombie},
    volumes::{VOLUME, backing_image, instance_manager, last_replica, no_place, rebuild, stale, volume},
};
use super::{
    Injected,
    edit::{Edit, condition, only},
    judged, named, play,
};

struct Change {
    id: &'static str,
    /// The moment of the upgrade.
    moment: &'static str,
    /// So many minutes pass.
    minutes: i64,
    /// Changes the snapshot; what the finding is to be about.
    change: fn(Edit) -> (Edit, String),
}

const CHANGES: [Change; 22] = [
    Change {
        id: "D01",
        moment: "PreDrained",
        minutes: 12,
        change: instance_manager,
    },
    Change {
        id: "D03",
        moment: "PreDraining",
        minutes: 12,
        change: last_replica,
    },
    Change {
        id: "D04",
        moment: "PreDraining",
        minutes: 1,
        change: rebuild,
    },
    Change {
        id: "D05",
        moment: "PreDraining",
        minutes: 1,
        change: no_place,
    },
    Change {
        id: "D06",
        moment: "PreDraining",
        minutes: 1,
        change: backing_image,
    },
    Change {
        id: "D07",
        moment: "PreDraining",
        minutes: 20,
        change: stale,
    },
    Change {
        id: "D08",
        moment: "PreDraining",
        minutes: 1,
        change: no_target,
    },
    Change {
        id: "D11",
        moment: "PreDraining",
        minutes: 20,
        change: denied,
    },
    Change {
        id: "D12",
        moment: "PreDraining",
        minutes: 0,
        change: cpu,
    },
    Change {
        id: "D13",
        moment: "PreDraining",
        minutes: 20,
        change: zombie,
    },
    Change {
        id: "D14",
        moment: "PreDraining",
        minutes: 0,
        change: foreign_budget,
    },
    Change {
        id: "D18",
        moment: "ClusterUpgrading",
        minutes: 0,
        change: rancher,
    },
    Change {
        id: "D22",
        moment: "PreDrained",
        minutes: 40,
        change: planner,
    },
    Change {
        id: "D23",
        moment: "PreDrained",
        minutes: 40,
        change: probes,
    },
    Change {
        id: "D24",
        moment: "PreDrained",
        minutes: 0,
        change: agent,
    },
    Change {
        id: "D26",
        moment: "PreDrained",
        minutes: 10,
        change: hook,
    },
    Change {
        id: "D28",
        moment: "ImagePreloading",
        minutes: 45,
        change: lost_plan,
    },
    Change {
        id: "D31",
        moment: "ISODownloading",
        minutes: 0,
        change: importer,
    },
    Change {
        id: "D34b",
        moment: "PostDraining",
        minutes: 15,
        change: attaching,
    },
    Change {
        id: "D35",
        moment: "ClusterUpgrading",
        minutes: 5,
        change: no_endpoint,
    },
    Change {
        id: "D40",
        moment: "WaitingReboot",
        minutes: 0,
        change: etcd,
    },
    Change {
        id: "D43",
        moment: "PreDraining",
        minutes: 0,
        change: kubevirt,
    },
];

pub(super) fn run() -> Vec<Injected> {
    let moments = play::moments();
    let run = |change: &Change| {
        let snapshot = moments
            .get(change.moment)
            .unwrap_or_else(|| panic!("no {}", change.moment));
        let before = Edit(snapshot.clone()).later(change.minutes);
        let unchanged = examine(&before.0);
        let (after, object) = (change.change)(before);
        let report = examine(&after.0);
        let mut injected = judged(change.id, "snapshot", &object, &report);
        if named(&unchanged, change.id, &object).is_some() {
            injected.result = Err(format!("{} {object} is found without the change too", change.id));
        }
        injected
    };
    CHANGES.iter().map(run).collect()
}

fn rancher(edit: Edit) -> (Edit, String) {
    let conditions = json!([condition(
        "Available",
        "False",
        &edit.ago(30),
        "does not have minimum availability"
    )]);
    let edit = edit.change(
        "deployments",
        only("rancher-webhook", |deployment| {
            deployment["status"]["conditions"] = conditions.clone();
        }),
    );
    (edit, "Deployment cattle-system/rancher-webhook".to_owned())
}

fn says(edit: Edit, message: &str) -> Edit {
    edit.with(
        "control_planes",
        json!({
            "metadata": {"name": "injected", "namespace": "fleet-local"},
            "status": {"conditions": [{"type": "Updated", "status": "Unknown", "message": message}]},
        }),
    )
}

fn planner(edit: Edit) -> (Edit, String) {
    (
        says(edit, "waiting for plan to be applied"),
        "RKEControlPlane fleet-local/injected".to_owned(),
    )
}

fn probes(edit: Edit) -> (Edit, String) {
    (
        says(edit, "waiting for probes: kube-scheduler"),
        "RKEControlPlane fleet-local/injected".to_owned(),
    )
}

/// The machine of the node in flight.
fn machine(edit: &Edit) -> String {
    let node = edit.node();
    let nodes = edit.0.nodes.as_ref().unwrap();
    let node = nodes
        .iter()
        .find(|one| one.metadata.name.as_deref() == Some(&node))
        .unwrap();
    node.metadata.annotations.as_ref().unwrap()[api::annotations::MACHINE].clone()
}

fn agent(edit: Edit) -> (Edit, String) {
    let (node, machine) = (edit.node(), machine(&edit));
    let edit = edit.change("machine_plans", |secret| {
        if secret["metadata"]["labels"][api::labels::MACHINE_NAME] == machine {
            secret["isApplied"] = json!(false);
            secret["progress"] = json!({"failure-count": "7", "failed-checksum": "abc"});
        }
    });
    (edit, format!("Node {node}"))
}

fn hook(edit: Edit) -> (Edit, String) {
    let machine = machine(&edit);
    let is_it = |secret: &Value| secret["metadata"]["labels"][api::labels::MACHINE_NAME] == machine;
    let (namespace, name) = edit.name("machinePlans", is_it);
    let edit = edit.change(
        "machine_plans",
        only(&name, |secret| {
            secret["metadata"]["annotations"][api::annotations::RKE_PRE_DRAIN] = json!("newer");
        }),
    );
    (edit, format!("Secret {namespace}/{name}"))
}

fn lost_plan(edit: Edit) -> (Edit, String) {
    let name = api::names::suc_plan(&edit.plan(), api::Component::ImagePreload);
    let mut edit = edit;
    edit.0.jobs = Ok(Vec::new().into());
    let edit = edit.change(
        "suc_plans",
        only(&name, |plan| plan["status"]["applying"] = json!(["node-2"])),
    );
    (edit, format!("Plan cattle-system/{name}"))
}

fn importer(edit: Edit) -> (Edit, String) {
    let pod = json!({
        "metadata": {"name": "importer-prime-1", "namespace": "harvester-system"}, "spec": {"containers": [{"name": "importer"}]},
        "status": {"phase": "Running", "containerStatuses": [{
            "name": "importer", "image": "", "imageID": "", "ready": false, "restartCount": 540,
            "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
        }]},
    });
    (
        edit.with("pods", pod),
        "Pod harvester-system/importer-prime-1".to_owned(),
    )
}

fn attaching(edit: Edit) -> (Edit, String) {
    let (node, plan) = (edit.node(), edit.plan());
    let image = play::plan(&edit.0).and_then(|plan| plan.status.as_ref()?.iso_image_id.clone());
    let mounted = edit.0.pods.as_ref().unwrap().iter().find_map(|pod| {
        let is_repo = pod
            .metadata
            .name
            .as_deref()
            .is_some_and(|name| name.starts_with(&api::names::repo(&plan)));
        let volumes = pod.spec.as_ref()?.volumes.as_ref().filter(|_| is_repo)?;
        Some(
            volumes
                .iter()
                .find_map(|volume| volume.persistent_volume_claim.as_ref())?
                .claim_name
                .clone(),
        )
    });
    let claim = json!({"namespace": "harvester-system", "pvcName": mounted.or(image).unwrap_or_default()});
    let mut edit = edit;
    edit.0.volumes = Ok(Vec::new().into());
    let replica = json!({
        "metadata": {"name": "pvc-injected-r", "namespace": "longhorn-system"},
        "spec": {"volumeName": "pvc-injected", "nodeID": node},
    });
    let volume = volume("", json!({"state": "attaching", "kubernetesStatus": claim}));
    (
        edit.with("volumes", volume).with("replicas", replica),
        VOLUME.to_owned(),
    )
}

fn no_endpoint(edit: Edit) -> (Edit, String) {
    let service = api::names::repo(&edit.plan());
    let edit = edit.change("endpoint_slices", |slice| {
        if slice["metadata"]["labels"][api::labels::SERVICE_NAME] == service {
            slice["endpoints"] = json!([]);
        }
    });
    (edit, format!("Service harvester-system/{service}"))
}

fn etcd(edit: Edit) -> (Edit, String) {
    let (node, since) = (edit.node(), edit.ago(20));
    let pod = json!({
        "metadata": {"name": format!("etcd-{node}"), "namespace": "kube-system", "labels": {"component": "etcd"}},
        "spec": {"nodeName": node, "containers": [{"name": "etcd"}]},
        "status": {"phase": "Running", "conditions": [condition("Ready", "False", &since, "containers not ready")]},
    });
    let edit = edit
        .change(
            "nodes",
            only(&node, |node| node["status"]["nodeInfo"]["bootID"] = json!("after")),
        )
        .with("pods", pod);
    (edit, format!("Pod kube-system/etcd-{node}"))
}

fn kubevirt(edit: Edit) -> (Edit, String) {
    let conditions = json!([condition(
        "Available",
        "False",
        &edit.ago(30),
        "virt-handler is not ready"
    )]);
    let edit = edit.change(
        "kubevirts",
        only("kubevirt", |kubevirt| {
            kubevirt["status"]["conditions"] = conditions.clone();
        }),
    );
    (edit, "KubeVirt harvester-system/kubevirt".to_owned())
}
