//! The objects of a Harvester v1.7 cluster of three nodes that a cluster upgrade meets, and the release it goes to.

use std::path::Path;

use serde_json::{Value, json};

use super::rancher_world::secret;

pub(super) const NAMESPACES: [&str; 8] = [
    "harvester-system",
    "cattle-system",
    "fleet-local",
    "longhorn-system",
    "cattle-fleet-system",
    "cattle-fleet-local-system",
    "cattle-monitoring-system",
    "cattle-logging-system",
];

pub(super) const RELEASE: &str = "harvester: v1.8.0\nharvesterChart: 1.8.0\nos: Harvester v1.8.0\n\
    kubernetes: v1.35.2+rke2r1\nrancher: v2.14.0\nmonitoringChart: 108.0.2+up77.9.1\nloggingChart: 108.0.1+up4.10.0\n\
    loggingChartHarvesterEventRouter: rancher/harvester-eventrouter:v0.4.0\nkubevirt: 1.7.0-150700.3\n\
    minUpgradableVersion: v1.7.0\nrancherDependencies:\n  fleet:\n    chart: 108.0.0+up0.14.0\n    app: 0.14.0\n  \
    fleet-crd:\n    chart: 108.0.0+up0.14.0\n    app: 0.14.0\n  rancher-webhook:\n    chart: 108.0.0+up0.9.0\n    app: 0.9.0\n";
pub(super) const BUNDLE: &str = "images:\n  agent:\n  - list: /a.txt\n    archive: /a.tar.zst\n";
pub(super) const SEEDER_VALUES: &str = "# edited by us\nimage:\n  tag: v1.7.1\nloglevel: debug\nextra: [1, 2]\n";

fn object(version: &str, kind: &str, namespace: &str, name: &str, rest: Value) -> Value {
    let mut object = rest;
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    object["metadata"]["name"] = json!(name);
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

pub(super) fn upgrade_plan(from: &str) -> Value {
    let spec = json!({"version": "v1.8.0"});
    let status = json!({"previousVersion": from});
    object(
        "management.harvesterhci.io/v1beta1",
        "UpgradePlan",
        "",
        super::harness::PLAN,
        json!({"spec": spec, "status": status}),
    )
}

pub(super) fn node(name: &str, labels: &Value) -> Value {
    let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    object(
        "v1",
        "Node",
        "",
        name,
        json!({"metadata": {"labels": labels}, "status": status}),
    )
}

fn deployment(namespace: &str, name: &str, container: &str, image: &str) -> Value {
    let template =
        json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": container, "image": image}]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template});
    object("apps/v1", "Deployment", namespace, name, json!({ "spec": spec }))
}

pub(super) fn fleet_agent() -> Value {
    deployment(
        "cattle-fleet-local-system",
        "fleet-agent",
        "agent",
        "rancher/fleet-agent:v1",
    )
}

pub(super) fn pod(namespace: &str, app: &str) -> Value {
    let spec = json!({"containers": [{"name": app, "image": "x"}]});
    let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    object(
        "v1",
        "Pod",
        namespace,
        &format!("{app}-0"),
        json!({"metadata": {"labels": {"app": app}}, "spec": spec, "status": status}),
    )
}

fn chart(name: &str, version: &str) -> Value {
    let spec = json!({"chart": name, "version": version, "timeoutSeconds": 600, "values": {"kept": {"by": "users"}},
        "diff": {"comparePatches": [{"kind": "KubeVirt"}]}});
    let status = json!({"observedGeneration": 1, "summary": {"ready": 1, "desiredReady": 1}, "unavailable": 0});
    object(
        "management.cattle.io/v3",
        "ManagedChart",
        "fleet-local",
        name,
        json!({"spec": spec, "status": status}),
    )
}

pub(super) fn addon(namespace: &str, name: &str, enabled: bool, values: &str) -> Value {
    let repo = "http://harvester-cluster-repo.cattle-system.svc/charts";
    let spec = json!({"chart": name, "version": "1.0.0", "enabled": enabled, "valuesContent": values, "repo": repo});
    let status = json!({"status": if enabled { "AddonDeploySuccessful" } else { "AddonDisabled" }});
    object(
        "harvesterhci.io/v1beta1",
        "Addon",
        namespace,
        name,
        json!({"spec": spec, "status": status}),
    )
}

fn longhorn(kind: &str, name: &str, rest: Value) -> Value {
    object("longhorn.io/v1beta2", kind, "longhorn-system", name, rest)
}

pub(super) fn harvester_values(tag: &str) -> Value {
    json!({"longhorn": {"image": {"longhorn": {"manager": {"repository": "longhornio/longhorn-manager", "tag": tag}}}}})
}

pub(super) fn cluster() -> Vec<Value> {
    let managed = json!({"harvesterhci.io/managed": "true"});
    let chart_of = |name: &str| json!({"name": name, "version": "107.0.0", "appVersion": "0.13.0"});
    let fleet_config = json!({"apiServerURL": "https://10.0.0.9", "apiServerCA": "Y2E=", "agentImage": "rancher/fleet-agent:v0.13.0", "agentTLSMode": "system-store"}).to_string();
    let mut objects = vec![
        node("node-1", &managed),
        node("node-2", &managed),
        node("node-3", &managed),
        // Neither managed nor reachable: no step may wait for it.
        node("stranger", &json!({})),
        deployment("harvester-system", "up-repo", "repo", "toolkit"),
        deployment("cattle-system", "rancher", "rancher", "rancher/rancher:v2.13.0"),
        deployment("cattle-system", "rancher-webhook", "webhook", "w"),
        deployment(
            "cattle-system",
            "harvester-cluster-repo",
            "httpd",
            "rancher/harvester-cluster-repo:v1.7.1",
        ),
        deployment("cattle-fleet-system", "fleet-controller", "fleet", "f"),
        fleet_agent(),
        pod("cattle-fleet-system", "fleet-controller"),
        pod("cattle-fleet-local-system", "fleet-agent"),
        object(
            "v1",
            "ConfigMap",
            "cattle-fleet-system",
            "fleet-controller",
            json!({"data": {"config": fleet_config}}),
        ),
        chart("harvester", "1.7.1"),
        chart("harvester-crd", "1.7.1"),
        chart("rancher-monitoring-crd", "107.0.0"),
        chart("rancher-logging-crd", "107.0.0"),
        addon("harvester-system", "vm-import-controller", false, ""),
        addon(
            "harvester-system",
            "pcidevices-controller",
            true,
            "image:\n  tag: v1.7.1\n",
        ),
        addon("harvester-system", "harvester-seeder", false, SEEDER_VALUES),
        addon("kube-system", "descheduler", true, "loglevel: debug # mine\n"),
        addon(
            "cattle-monitoring-system",
            "rancher-monitoring",
            true,
            "prometheus:\n  retention: 9d # ours\n",
        ),
        addon(
            "cattle-logging-system",
            "rancher-logging",
            false,
            "eventTailer:\n  workloadOverrides:\n    containers:\n    - name: event-tailer\n      image: rancher/harvester-eventrouter:v0.3.0\n",
        ),
        object(
            "harvesterhci.io/v1beta1",
            "Setting",
            "",
            "overcommit-config",
            json!({"default": "{\"cpu\":1600}", "value": ""}),
        ),
        object(
            "harvesterhci.io/v1beta1",
            "Setting",
            "",
            "server-version",
            json!({"default": "", "value": "v1.7.1"}),
        ),
        object(
            "management.cattle.io/v3",
            "Setting",
            "",
            "server-version",
            json!({"default": "", "value": "v2.13.0"}),
        ),
        object(
            "management.cattle.io/v3",
            "Setting",
            "",
            "chart-default-branch",
            json!({"default": "", "value": "release-v2.13"}),
        ),
        object("management.cattle.io/v3", "Cluster", "", "local", json!({})),
        object(
            "provisioning.cattle.io/v1",
            "Cluster",
            "fleet-local",
            "local",
            json!({"spec": {"rkeConfig": {"machineGlobalConfig": {"kept": true}}}}),
        ),
        object(
            "cluster.x-k8s.io/v1beta2",
            "Cluster",
            "fleet-local",
            "local",
            json!({
                "spec": {"controlPlaneRef": {"apiGroup": "rke.cattle.io", "kind": "RKEControlPlane", "name": "local"}},
                "status": {"phase": "Provisioned", "observedGeneration": 1},
            }),
        ),
        object(
            "fleet.cattle.io/v1alpha1",
            "Cluster",
            "fleet-local",
            "local",
            json!({"spec": {}, "status": {"agentDeployedGeneration": 2, "conditions": [
                {"type": "Imported", "status": "True", "lastUpdateTime": "2026-01-01T00:00:00Z"}, {"type": "Ready", "status": "True"}]}}),
        ),
        object(
            "fleet.cattle.io/v1alpha1",
            "Bundle",
            "fleet-local",
            "mcc-harvester",
            json!({"status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}}),
        ),
        object(
            "kubevirt.io/v1",
            "KubeVirt",
            "harvester-system",
            "kubevirt",
            json!({"spec": {}, "status": {"phase": "Deployed", "observedKubeVirtVersion": "1.6.0"}}),
        ),
        longhorn(
            "Setting",
            "default-instance-manager-image",
            json!({"value": "longhornio/longhorn-instance-manager:v1.9"}),
        ),
        longhorn(
            "Setting",
            "node-drain-policy",
            json!({"value": "block-if-contains-last-replica"}),
        ),
        secret(
            "cattle-system",
            "rancher",
            1,
            &chart_of("rancher"),
            &json!({"rancherImageTag": "v2.13.0", "hostname": "h"}),
            "deployed",
            "",
            "2026-01-01T00:00:00Z",
        ),
        secret(
            "cattle-system",
            "rancher-webhook",
            1,
            &chart_of("rancher-webhook"),
            &json!({}),
            "deployed",
            "",
            "2026-01-01T00:00:00Z",
        ),
        secret(
            "cattle-fleet-system",
            "fleet",
            1,
            &chart_of("fleet"),
            &json!({}),
            "deployed",
            "",
            "2026-01-01T00:00:00Z",
        ),
        secret(
            "cattle-fleet-system",
            "fleet-crd",
            1,
            &chart_of("fleet-crd"),
            &json!({}),
            "deployed",
            "",
            "2026-01-01T00:00:00Z",
        ),
        secret(
            "harvester-system",
            "harvester",
            1,
            &chart_of("harvester"),
            &harvester_values("v1.9"),
            "deployed",
            "",
            "2026-01-01T00:00:00Z",
        ),
    ];
    for repo in [
        "rancher-charts",
        "rancher-rke2-charts",
        "rancher-partner-charts",
        "harvester-charts",
    ] {
        let status = json!({"downloadTime": "2026-01-01T00:00:00Z", "observedGeneration": 1});
        objects.push(object(
            "catalog.cattle.io/v1",
            "ClusterRepo",
            "",
            repo,
            json!({"spec": {}, "status": status}),
        ));
    }
    let template = json!({"metadata": {"labels": {"app": "longhorn-manager"}}, "spec": {"containers": [{"name": "m", "image": "longhornio/longhorn-manager:v1.9"}]}});
    let spec = json!({"selector": {"matchLabels": {"app": "longhorn-manager"}}, "template": template});
    objects.push(object(
        "apps/v1",
        "DaemonSet",
        "longhorn-system",
        "longhorn-manager",
        json!({ "spec": spec }),
    ));
    for name in ["node-1", "node-2", "node-3"] {
        objects.push(longhorn("Node", name, json!({})));
    }
    objects
}

/// The manifests that come with the program: all addons but kubeovn's, and one of CDI's.
pub(super) fn write_manifests(folder: &Path) {
    let addons = folder.join("addons");
    std::fs::create_dir_all(&addons).unwrap();
    for (namespace, name, values) in [
        ("harvester-system", "vm-import-controller", "fullnameOverride: x"),
        ("harvester-system", "pcidevices-controller", "image:\n      tag: v1.8.0"),
        (
            "harvester-system",
            "harvester-seeder",
            "image:\n      tag: v1.8.0\n    loglevel: info",
        ),
        (
            "harvester-system",
            "nvidia-driver-toolkit",
            "driverLocation: https://placeholder",
        ),
        ("kube-system", "descheduler", "loglevel: info"),
    ] {
        let text = format!(
            "apiVersion: harvesterhci.io/v1beta1\nkind: Addon\nmetadata:\n  name: {name}\n  namespace: {namespace}\nspec:\n  \
             enabled: false\n  repo: http://charts\n  chart: {name}\n  version: 1.8.0\n  valuesContent: |\n    {values}\n"
        );
        std::fs::write(addons.join(format!("{name}.yaml")), text).unwrap();
    }
    let cdi = folder.join("cdi");
    std::fs::create_dir_all(&cdi).unwrap();
    let text = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: logs.cdi.kubevirt.io\n\
        spec:\n  group: cdi.kubevirt.io\n  scope: Namespaced\n  names: {plural: logs, singular: log, kind: Log, listKind: LogList}\n\
        \x20 versions:\n  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}\n";
    std::fs::write(cdi.join("operator.yaml"), text).unwrap();
}
