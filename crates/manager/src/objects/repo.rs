//! Deployment and Service of the repository that serves the ISO's content.

use api::{UpgradePlan, labels::component, names};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::ResourceExt;
use plan::{image, observed::Settings};
use serde_json::json;

use super::{component_labels, metadata};

/// Mounts the ISO where nginx serves files from, and serves it.
const SERVE: &str = "set -e\n\
    root=/srv/www/htdocs/harvester-iso\n\
    mkdir -p \"$root\"\n\
    mount -o loop,ro /iso/disk.img \"$root\"\n\
    exec nginx -g 'daemon off;'\n";
/// Served once the ISO is mounted, and only then.
const PROBE: &str = "harvester-iso/harvester-release.yaml";

/// The Deployment.
///
/// # Errors
/// Never for a plan that the API server accepted.
pub fn deployment(
    plan: &UpgradePlan,
    settings: &Settings,
    replicas: i32,
    claim: &str,
) -> Result<Deployment, serde_json::Error> {
    let labels = component_labels(plan, component::REPO);
    let image = format!("{}:{}", image::repository(plan), image::tag(plan, &settings.own_tag));
    serde_json::from_value(json!({
        "metadata": metadata(plan, names::HARVESTER_NAMESPACE, names::repo(&plan.name_any()), labels.clone()),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "affinity": {
                        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                            "weight": 100,
                            "podAffinityTerm": {
                                "labelSelector": {"matchLabels": labels},
                                "topologyKey": "kubernetes.io/hostname",
                            },
                        }]},
                        // A witness has no storage network and little disk.
                        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{
                            "matchExpressions": [{"key": api::labels::WITNESS, "operator": "DoesNotExist"}],
                        }]}},
                    },
                    "containers": [{
                        "name": "nginx-iso-server",
                        "image": image,
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["sh", "-c", SERVE],
                        "ports": [{"containerPort": 80, "protocol": "TCP"}],
                        "securityContext": {"privileged": true},
                        "volumeMounts": [{"name": "iso", "mountPath": "/iso"}],
                        "livenessProbe": {"exec": {"command": ["sh", "-c", format!("test -f /srv/www/htdocs/{PROBE}")]}},
                        "readinessProbe": {"httpGet": {"path": format!("/{PROBE}"), "port": 80}},
                    }],
                    "volumes": [{"name": "iso", "persistentVolumeClaim": {"claimName": claim}}],
                },
            },
        },
    }))
}

/// The Service.
///
/// # Errors
/// Never for a plan that the API server accepted.
pub fn service(plan: &UpgradePlan) -> Result<Service, serde_json::Error> {
    let labels = component_labels(plan, component::REPO);
    serde_json::from_value(json!({
        "metadata": metadata(plan, names::HARVESTER_NAMESPACE, names::repo(&plan.name_any()), labels.clone()),
        "spec": {
            "type": "ClusterIP",
            "selector": labels,
            "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}],
        },
    }))
}
