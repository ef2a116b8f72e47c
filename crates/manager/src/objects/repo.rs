//! Deployment and Service of the repository that serves the ISO's content.

use std::path::Path;

use api::{UpgradePlan, labels::component, names};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::ResourceExt;
use plan::{
    image,
    observed::{RepoServer, Settings},
    preflight,
};
use release::nginx;
use serde::de::Error as _;
use serde_json::{Value, json};

use super::{component_labels, metadata};

/// Mounts the ISO where nginx serves files from, and serves it with the configuration in `$NGINX_CONFIG`.
const MOUNT_AND_SERVE: &str = "set -e\n\
    root=/srv/www/htdocs/harvester-iso\n\
    mkdir -p \"$root\"\n\
    mount -o loop,ro /iso/disk.img \"$root\"\n\
    printf '%s' \"$NGINX_CONFIG\" > /run/nginx-iso.conf\n\
    exec nginx -c /run/nginx-iso.conf\n";
/// Served once the ISO can be read, and only then.
const PROBE: &str = "harvester-iso/harvester-release.yaml";
/// What it listens on: an unprivileged port; the Service has port 80.
const PORT: u16 = 8080;
/// Runs nothing but the repository, and owns nothing.
const NOBODY: u32 = 65534;

/// What serves the ISO: what the plan asks for, or what the manager is set to.
fn server(plan: &UpgradePlan, settings: &Settings) -> RepoServer {
    // A plan that asks for an unknown one does not get this far.
    let asked = preflight::repo_server(plan).ok().flatten();
    asked.unwrap_or(settings.repo_server)
}

/// Our own server: reads the image as it is, so it needs neither a mount nor a privilege.
fn toolkit(image: &str) -> Value {
    json!({
        "name": "iso-server",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["upgrade-toolkit"],
        "args": ["repo", "--iso", "/iso/disk.img", "--listen", ":8080"],
        "ports": [{"containerPort": PORT, "protocol": "TCP"}],
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "runAsUser": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": "iso", "mountPath": "/iso", "readOnly": true}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": PORT}},
        "readinessProbe": {"httpGet": {"path": format!("/{PROBE}"), "port": PORT}},
    })
}

/// nginx over a loop mount, which takes a privileged container.
fn nginx(image: &str) -> Result<Value, serde_json::Error> {
    let run = nginx::Nginx {
        listen: "8080",
        root: Path::new(nginx::DOCUMENT_ROOT),
        state: Path::new("/run"),
    };
    let config = nginx::config(&run).map_err(serde_json::Error::custom)?;
    Ok(json!({
        "name": "nginx-iso-server",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", MOUNT_AND_SERVE],
        "env": [{"name": "NGINX_CONFIG", "value": config}],
        "ports": [{"containerPort": PORT, "protocol": "TCP"}],
        "securityContext": {"privileged": true},
        "volumeMounts": [{"name": "iso", "mountPath": "/iso"}],
        "livenessProbe": {"exec": {"command": ["sh", "-c", format!("test -f /srv/www/htdocs/{PROBE}")]}},
        "readinessProbe": {"httpGet": {"path": format!("/{PROBE}"), "port": PORT}},
    }))
}

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
    let (container, pod_security) = match server(plan, settings) {
        // The volume is a file that belongs to root; the group lets others read it.
        RepoServer::Toolkit => (
            toolkit(&image),
            json!({"fsGroup": NOBODY, "fsGroupChangePolicy": "OnRootMismatch"}),
        ),
        RepoServer::Nginx => (nginx(&image)?, json!({})),
    };
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
                    "securityContext": pod_security,
                    "containers": [container],
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
            "ports": [{"port": 80, "targetPort": PORT, "protocol": "TCP"}],
        },
    }))
}

#[cfg(test)]
mod tests {
    use api::annotations;

    use super::*;

    fn container(server: Option<&str>, settings: &Settings) -> Value {
        let mut plan = UpgradePlan::new("up", Default::default());
        plan.metadata.annotations = server.map(|name| [(annotations::REPO_SERVER.to_owned(), name.to_owned())].into());
        let built = serde_json::to_value(deployment(&plan, settings, 2, "claim").unwrap()).unwrap();
        built["spec"]["template"]["spec"]["containers"][0].clone()
    }

    #[test]
    fn our_own_server_needs_no_privilege_and_is_the_default() {
        let container = container(None, &Settings::default());
        assert_eq!(container["args"][0], "repo");
        assert_eq!(container["securityContext"]["runAsNonRoot"], true);
        assert!(container["securityContext"].get("privileged").is_none());
    }

    #[test]
    fn nginx_serves_where_a_plan_or_the_manager_wants_it() {
        let settings = Settings {
            repo_server: RepoServer::Nginx,
            ..Settings::default()
        };
        for container in [
            container(Some("nginx"), &Settings::default()),
            container(None, &settings),
        ] {
            assert_eq!(container["name"], "nginx-iso-server");
            let config = container["env"][0]["value"].as_str().unwrap();
            assert!(
                config.contains("listen 8080") && config.contains("/srv/www/htdocs"),
                "{config}"
            );
        }
        assert_eq!(container(Some("toolkit"), &settings)["name"], "iso-server");
    }
}
