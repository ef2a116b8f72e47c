//! What a Harvester cluster has besides nodes and VMs: the Rancher cluster, charts, addons, settings, the Version to
//! upgrade to, KubeVirt, the API server's endpoints.

use api::{annotations, foreign::rancher::ManagedChart, labels, names};
use serde_json::{Value, json};

use crate::{
    actor::{
        addons::{DEPLOYED, DISABLED},
        fleet,
    },
    release::Installed,
};

use super::{Shape, management, nodes::INSTALLED};

/// Of the ISO of a release, as its Version says.
pub(crate) const ISO_CHECKSUM: &str = "3c6f98efc02959da524828b0c44273c8375b7815ce5fcf1c11581479d979daa6e184f3d20535041137282c3d2b4a12d9ba3ce847b051e9aecb5310b73f19523c";

/// Where the charts of addons are.
pub(crate) const ADDON_REPO: &str = "http://harvester-cluster-repo.cattle-system.svc/charts";

/// A namespace for VMs besides `default`.
pub(super) const DEV_NAMESPACE: &str = "dev";

pub(super) fn namespaces() -> Vec<Value> {
    [
        names::HARVESTER_NAMESPACE,
        names::CATTLE_NAMESPACE,
        names::FLEET_NAMESPACE,
        names::LONGHORN_NAMESPACE,
        names::KUBE_SYSTEM_NAMESPACE,
        names::DEFAULT_NAMESPACE,
        DEV_NAMESPACE,
    ]
    .iter()
    .chain(&management::NAMESPACES)
    .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
    .collect()
}

pub(super) fn objects(shape: &Shape) -> Vec<Value> {
    let installed = shape.installed();
    let mut objects = vec![
        cluster(&installed),
        kubevirt(&installed),
        version(shape),
        endpoints(shape),
    ];
    let old_chart = shape.from.trim_start_matches('v');
    for (name, version) in [
        (names::HARVESTER_CHART, old_chart),
        ("harvester-crd", old_chart),
        ("rancher-monitoring-crd", &installed.monitoring_chart),
        ("rancher-logging-crd", &installed.logging_chart),
    ] {
        objects.extend(chart(name, version));
    }
    for (namespace, name, enabled) in [
        (names::KUBE_SYSTEM_NAMESPACE, names::DESCHEDULER_ADDON, true),
        ("cattle-monitoring-system", "rancher-monitoring", false),
        ("cattle-logging-system", "rancher-logging", false),
        (names::HARVESTER_NAMESPACE, "pcidevices-controller", true),
        (names::HARVESTER_NAMESPACE, "vm-import-controller", false),
        (names::HARVESTER_NAMESPACE, "harvester-seeder", false),
    ] {
        objects.push(addon(namespace, name, enabled, &installed));
    }
    for (name, value) in [
        (names::SERVER_VERSION_SETTING, shape.from.as_str()),
        ("cluster-registration-url", ""),
        ("support-bundle-timeout", "10"),
    ] {
        objects.push(json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "Setting", "metadata": {"name": name},
            "default": "", "value": value,
        }));
    }
    for (name, value) in [
        (names::REPLENISHMENT_SETTING, "600"),
        ("default-replica-count", "3"),
        ("node-drain-policy", "allow-if-replica-is-stopped"),
    ] {
        objects.push(json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Setting",
            "metadata": {"name": name, "namespace": names::LONGHORN_NAMESPACE}, "value": value,
        }));
    }
    objects.extend(shape.image.iter().flat_map(|name| image(shape, name)));
    objects
}

fn cluster(installed: &Installed) -> Value {
    let condition = |type_: &str| json!({"type": type_, "status": "True", "lastUpdateTime": INSTALLED, "lastTransitionTime": INSTALLED});
    json!({
        "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": names::LOCAL_CLUSTER, "namespace": names::FLEET_NAMESPACE,
            "labels": {"rke.cattle.io/init-node-machine-id": "1", "provider.cattle.io": "harvester"}},
        "spec": {
            "kubernetesVersion": installed.kubernetes,
            "localClusterAuthEndpoint": {},
            // Objects that an upgrade must keep.
            "rkeConfig": {
                "provisionGeneration": 0,
                "upgradeStrategy": {"controlPlaneConcurrency": "1", "workerConcurrency": "10%"},
                "chartValues": {},
                "machineGlobalConfig": {"cni": "multus,canal"},
                "registries": {"mirrors": {"docker.io": {"endpoint": ["https://registry.example.com"]}}},
            },
        },
        "status": {
            "ready": true, "clusterName": "local", "fleetWorkspaceName": names::FLEET_NAMESPACE,
            "conditions": [condition("Ready"), condition("Updated")],
        },
    })
}

fn kubevirt(installed: &Installed) -> Value {
    let mut object = kubevirt_manifest(None);
    object["status"] = json!({
        "phase": "Deployed", "observedKubeVirtVersion": installed.kubevirt,
        "conditions": [{"type": "Available", "status": "True"}],
    });
    object
}

/// The KubeVirt object as its chart has it, with other workloadUpdateMethods than its own.
pub(crate) fn kubevirt_manifest(methods: Option<&Value>) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
        "metadata": {"name": names::KUBEVIRT, "namespace": names::HARVESTER_NAMESPACE},
        "spec": {
            "configuration": {"network": {"defaultNetworkInterface": "bridge"}},
            "workloadUpdateStrategy": {"workloadUpdateMethods": methods.cloned().unwrap_or(json!(["LiveMigrate"]))},
        },
    })
}

fn version(shape: &Shape) -> Value {
    let to = &shape.to;
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "Version",
        "metadata": {"name": to, "namespace": names::HARVESTER_NAMESPACE},
        "spec": {
            "isoURL": format!("https://releases.rancher.com/harvester/{to}/harvester-{to}-amd64.iso"),
            "isoChecksum": ISO_CHECKSUM,
        },
    })
}

fn endpoints(shape: &Shape) -> Value {
    let servers = shape.node_layouts().into_iter();
    let servers = servers.filter(|node| node.is_control_plane() && !node.is_witness());
    let servers: Vec<Value> = servers
        .map(|node| json!({"addresses": [node.address], "conditions": {"ready": true}}))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": names::KUBERNETES_SERVICE, "namespace": names::DEFAULT_NAMESPACE,
            "labels": {labels::SERVICE_NAME: names::KUBERNETES_SERVICE}},
        "endpoints": servers, "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
    })
}

fn chart(name: &str, version: &str) -> [Value; 2] {
    let chart = json!({
        "apiVersion": "management.cattle.io/v3", "kind": "ManagedChart",
        "metadata": {"name": name, "namespace": names::FLEET_NAMESPACE},
        "spec": {
            "chart": name, "version": version, "repoName": "harvester-charts", "releaseName": name,
            "defaultNamespace": names::HARVESTER_NAMESPACE, "timeoutSeconds": 600,
            "targets": [{"clusterName": "local"}],
        },
        "status": fleet::at_rest(INSTALLED),
    });
    // Values in memory are always what they were made of.
    let typed = serde_json::from_value(chart.clone()).unwrap_or_else(|_| ManagedChart::named(name));
    let key = (names::FLEET_NAMESPACE.to_owned(), format!("mcc-{name}"));
    let mut bundle = fleet::bundle(&key, &fleet::bundle_spec(&typed));
    bundle["status"] = fleet::at_rest(INSTALLED);
    [chart, bundle]
}

pub(super) fn addon(namespace: &str, name: &str, enabled: bool, installed: &Installed) -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "Addon",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "enabled": enabled, "chart": name, "version": installed.addon, "valuesContent": "",
            "repo": ADDON_REPO,
        },
        "status": {"status": if enabled { DEPLOYED } else { DISABLED }},
    })
}

/// An ISO that a user uploaded before.
fn image(shape: &Shape, name: &str) -> [Value; 2] {
    let condition = |type_: &str| json!({"type": type_, "status": "True", "lastUpdateTime": INSTALLED});
    [
        json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
            "metadata": {"name": name, "namespace": names::HARVESTER_NAMESPACE,
                "annotations": {annotations::OS_UPGRADE_IMAGE: "True"}},
            "spec": {
                "backend": "cdi", "displayName": format!("harvester-{}-amd64.iso", shape.to), "sourceType": "upload",
                "retry": 3, "checksum": "", "targetStorageClassName": "longhorn-static",
            },
            "status": {"progress": 100, "size": 7_516_192_768_u64, "conditions": [condition("Initialized"), condition("Imported")]},
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": names::HARVESTER_NAMESPACE},
            "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "longhorn-static",
                "resources": {"requests": {"storage": "7516192768"}}},
            "status": {"phase": "Bound"},
        }),
    ]
}
