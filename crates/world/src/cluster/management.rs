//! Rancher, Fleet and the parts of Longhorn that a cluster upgrade waits for: what Helm installed, what runs, what they
//! say of themselves.

use api::names;
use cluster_upgrade::rancher::{FLEET_AGENT_SYSTEM, FLEET_SYSTEM};
use serde_json::{Value, json};

use crate::{helm, release::Installed};

use super::{Shape, nodes::INSTALLED};

/// The name of Rancher, of its release and of its Deployment.
pub(crate) const RANCHER: &str = "rancher";
pub(crate) const RANCHER_WEBHOOK: &str = "rancher-webhook";
pub(crate) const FLEET_CONTROLLER: &str = "fleet-controller";
pub(crate) const FLEET_AGENT: &str = "fleet-agent";
pub(crate) const LONGHORN_MANAGER: &str = "longhorn-manager";
pub(crate) const INSTANCE_MANAGER_IMAGE: &str = "default-instance-manager-image";
/// The catalogs that Rancher brings.
pub(crate) const RANCHER_REPOS: [&str; 3] = ["rancher-charts", "rancher-rke2-charts", "rancher-partner-charts"];
const HARVESTER_REPO: &str = "harvester-charts";

pub(super) const NAMESPACES: [&str; 2] = [FLEET_SYSTEM, FLEET_AGENT_SYSTEM];

pub(super) fn objects(shape: &Shape) -> Vec<Value> {
    let installed = shape.installed();
    let mut objects = deployments(shape, &installed);
    objects.extend(releases(shape, &installed));
    objects.extend(settings(&installed));
    objects.extend(clusters());
    objects.extend(RANCHER_REPOS.map(|name| repo(name, Some(INSTALLED))));
    objects.push(repo(HARVESTER_REPO, Some(INSTALLED)));
    objects.extend(longhorn(shape, installed.longhorn));
    objects
}

fn object(version: &str, kind: &str, (namespace, name): (&str, &str), mut rest: Value) -> Value {
    rest["apiVersion"] = json!(version);
    rest["kind"] = json!(kind);
    rest["metadata"]["name"] = json!(name);
    if !namespace.is_empty() {
        rest["metadata"]["namespace"] = json!(namespace);
    }
    rest
}

fn template(app: &str, container: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": container, "image": image}]},
    })
}

fn deployment(namespace: &str, name: &str, container: &str, image: &str) -> Value {
    let spec = json!({
        "replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template(name, container, image),
    });
    object("apps/v1", "Deployment", (namespace, name), json!({ "spec": spec }))
}

/// What Fleet deploys in each cluster, and again on request.
pub(crate) fn fleet_agent(version: &str) -> Value {
    let image = fleet_agent_image(version);
    deployment(FLEET_AGENT_SYSTEM, FLEET_AGENT, FLEET_AGENT, &image)
}

/// The image of that agent, as Fleet's configuration names it.
pub(crate) fn fleet_agent_image(version: &str) -> String {
    format!("rancher/fleet-agent:v{version}")
}

fn deployments(shape: &Shape, installed: &Installed) -> Vec<Value> {
    let image = |repository: &str, tag: &str| format!("rancher/{repository}:{tag}");
    vec![
        deployment(
            names::CATTLE_NAMESPACE,
            RANCHER,
            RANCHER,
            &image("rancher", &installed.rancher),
        ),
        deployment(
            names::CATTLE_NAMESPACE,
            RANCHER_WEBHOOK,
            RANCHER_WEBHOOK,
            &image("rancher-webhook", &format!("v{}", installed.rancher_webhook.1)),
        ),
        deployment(
            names::CATTLE_NAMESPACE,
            "harvester-cluster-repo",
            "httpd",
            &image("harvester-cluster-repo", &shape.from),
        ),
        deployment(
            FLEET_SYSTEM,
            FLEET_CONTROLLER,
            FLEET_CONTROLLER,
            &image("fleet", &format!("v{}", installed.fleet.1)),
        ),
        fleet_agent(installed.fleet.1),
        // Its work is that of an actor; that it runs is what people and checks look at.
        deployment(
            names::CATTLE_NAMESPACE,
            "system-upgrade-controller",
            "system-upgrade-controller",
            &image("system-upgrade-controller", "v0.17.0"),
        ),
        object(
            "v1",
            "Secret",
            (names::FLEET_NAMESPACE, "local-kubeconfig"),
            json!({
                "type": "cluster.x-k8s.io/secret",
                "metadata": {"labels": {"cluster.x-k8s.io/cluster-name": names::LOCAL_CLUSTER}},
                "data": {"value": names::digest("local-kubeconfig")},
            }),
        ),
        object(
            "v1",
            "ConfigMap",
            (FLEET_SYSTEM, FLEET_CONTROLLER),
            json!({"data": {"config": json!({
                "apiServerURL": "https://192.168.0.131", "apiServerCA": "LS0tLS1CRUdJTg==",
                "agentImage": fleet_agent_image(installed.fleet.1), "agentTLSMode": "system-store",
            }).to_string()}}),
        ),
    ]
}

/// What Helm knows.
fn releases(shape: &Shape, parts: &Installed) -> Vec<Value> {
    let installed = |namespace: &str, name: &str, versions: (&str, &str), values: Value| {
        helm::installed(namespace, name, (name, versions.0, versions.1), values, INSTALLED)
    };
    let Installed {
        rancher: version,
        fleet,
        rancher_webhook,
        longhorn,
        ..
    } = parts;
    let rancher = json!({"hostname": "rancher.local", "rancherImageTag": version, "replicas": -1});
    let chart = shape.from.trim_start_matches('v');
    vec![
        installed(
            names::CATTLE_NAMESPACE,
            RANCHER,
            (version.trim_start_matches('v'), version),
            rancher,
        ),
        installed(names::CATTLE_NAMESPACE, RANCHER_WEBHOOK, *rancher_webhook, json!({})),
        installed(FLEET_SYSTEM, "fleet", *fleet, json!({})),
        installed(FLEET_SYSTEM, "fleet-crd", *fleet, json!({})),
        installed(
            names::HARVESTER_NAMESPACE,
            names::HARVESTER_CHART,
            (chart, &shape.from),
            harvester_values(longhorn),
        ),
    ]
}

/// The values of the Harvester chart that say which Longhorn it brings.
pub(crate) fn harvester_values(longhorn: &str) -> Value {
    let manager = json!({"repository": "longhornio/longhorn-manager", "tag": longhorn});
    json!({"longhorn": {"image": {"longhorn": {"manager": manager}}}})
}

fn settings(installed: &Installed) -> Vec<Value> {
    let of_rancher = |name: &str, value: &str| {
        let rest = json!({"default": "", "value": value});
        object("management.cattle.io/v3", "Setting", ("", name), rest)
    };
    vec![
        of_rancher(names::SERVER_VERSION_SETTING, &installed.rancher),
        of_rancher("chart-default-branch", "release-v2.13"),
        object(
            "harvesterhci.io/v1beta1",
            "Setting",
            ("", "overcommit-config"),
            json!({"default": "{\"cpu\":1600,\"memory\":150,\"storage\":200}", "value": ""}),
        ),
    ]
}

/// The one cluster, as each of the three that care sees it.
fn clusters() -> [Value; 3] {
    let local = (names::FLEET_NAMESPACE, names::LOCAL_CLUSTER);
    [
        object(
            "management.cattle.io/v3",
            "Cluster",
            ("", names::LOCAL_CLUSTER),
            json!({}),
        ),
        object(
            "cluster.x-k8s.io/v1beta2",
            "Cluster",
            local,
            json!({"spec": {
                "controlPlaneRef": {"apiGroup": "rke.cattle.io", "kind": "RKEControlPlane", "name": names::LOCAL_CLUSTER},
                "infrastructureRef": {"apiGroup": "rke.cattle.io", "kind": "RKECluster", "name": names::LOCAL_CLUSTER},
            }, "status": {"phase": "Provisioned", "observedGeneration": 1}}),
        ),
        object(
            "fleet.cattle.io/v1alpha1",
            "Cluster",
            local,
            json!({"spec": {"redeployAgentGeneration": 1}, "status": {
                "agentDeployedGeneration": 1, "conditions": imported(INSTALLED),
            }}),
        ),
    ]
}

/// What Fleet says of a cluster that it has taken in.
pub(crate) fn imported(at: &str) -> Value {
    json!([
        {"type": "Imported", "status": "True", "lastUpdateTime": at},
        {"type": "Ready", "status": "True", "lastUpdateTime": at},
    ])
}

/// A catalog of charts, and when it was read.
pub(crate) fn repo(name: &str, read: Option<&str>) -> Value {
    let mut rest = json!({"spec": {}});
    if let Some(read) = read {
        rest["status"] = json!({"downloadTime": read, "observedGeneration": 1});
    }
    object("catalog.cattle.io/v1", "ClusterRepo", ("", name), rest)
}

pub(crate) fn manager_image(longhorn: &str) -> String {
    format!("longhornio/longhorn-manager:{longhorn}")
}

pub(crate) fn instance_manager_image(longhorn: &str) -> String {
    format!("longhornio/longhorn-instance-manager:{longhorn}")
}

/// Longhorn's manager on all nodes that carry data, and what it says of them.
fn longhorn(shape: &Shape, version: &str) -> Vec<Value> {
    let of_longhorn = |name: &str, kind: &str, rest: Value| {
        object("longhorn.io/v1beta2", kind, (names::LONGHORN_NAMESPACE, name), rest)
    };
    let spec = json!({
        "selector": {"matchLabels": {"app": LONGHORN_MANAGER}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
        "template": template(LONGHORN_MANAGER, LONGHORN_MANAGER, &manager_image(version)),
    });
    let mut objects = vec![
        object(
            "apps/v1",
            "DaemonSet",
            (names::LONGHORN_NAMESPACE, LONGHORN_MANAGER),
            json!({ "spec": spec }),
        ),
        of_longhorn(
            INSTANCE_MANAGER_IMAGE,
            "Setting",
            json!({"value": instance_manager_image(version)}),
        ),
    ];
    objects.extend(
        shape
            .data_nodes()
            .iter()
            .map(|node| of_longhorn(node, "Node", json!({}))),
    );
    objects
}
