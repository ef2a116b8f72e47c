//! Deployment and Service of the repository that serves the ISO's content.

use std::{collections::BTreeMap, path::Path};

use api::{Component, UpgradePlan, annotations, names};
use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::Deployment,
        core::v1::{Secret, Service},
    },
};
use kube::ResourceExt;
use plan::{
    image,
    observed::{RepoServer, Settings},
    preflight,
};
use release::{nginx, tls::Identity};
use serde::de::Error as _;
use serde_json::{Value, json};

use super::{component_labels, metadata};

/// Mounts the ISO where nginx serves files from, and serves it with the configuration in `$NGINX_CONFIG`.
const MOUNT_AND_SERVE: &str = "set -e\n\
    root=/srv/www/htdocs/harvester-iso\n\
    mkdir -p \"$root\"\n\
    mount -o loop,ro /iso/disk.img \"$root\"\n\
    upgrade-toolkit release manifest $ISO_CHECKSUM /iso/disk.img > \"$root.manifest\"\n\
    printf '%s' \"$NGINX_CONFIG\" > /run/nginx-iso.conf\n\
    exec nginx -c /run/nginx-iso.conf\n";
/// Served once all of the ISO was read, and only then.
const PROBE: &str = "harvester-iso.manifest";
/// What it listens on: an unprivileged port; the Service has port 80. Probes come here, and tools that know no certificate.
const PORT: u16 = 8080;
/// The same over TLS; the Service has port 443. The manager and the programs of Jobs come here only.
const SECURE_PORT: u16 = 8443;
/// Where the certificate is, with its key.
const CERTIFICATE_FOLDER: &str = "/tls";
/// User and group of CDI's importer, who leaves the ISO behind as `disk.img`, readable for this user and this group only.
/// To be in the group by `fsGroup` is not enough: two replicas share the volume (ReadWriteMany), and there Longhorn has
/// the kubelet ignore `fsGroup` (`fsGroupPolicy: ReadWriteOnceWithFSType`).
const IMPORTER: u32 = 107;

/// Of the files of the Secret: for their owner and their group.
const SECRET_MODE: u32 = 0o440;

/// The label that pods of one plan's repository have, and those of another plan of its name do not.
const PLAN_UID: &str = "management.harvesterhci.io/upgrade-plan-uid";

/// The labels of its pods, by which its Service finds them.
fn pod_labels(plan: &UpgradePlan) -> BTreeMap<String, String> {
    let mut labels = component_labels(plan, Component::Repo);
    labels.insert(PLAN_UID.to_owned(), plan.uid().unwrap_or_default());
    labels
}

/// What serves the ISO: what the plan sets, or the manager's default.
fn server(plan: &UpgradePlan, settings: &Settings) -> RepoServer {
    // A plan with an unknown one does not get this far.
    let asked = preflight::repo_server(plan).ok().flatten();
    asked.unwrap_or(settings.repo_server)
}

/// The ISO that is served.
#[derive(Clone, Copy, Debug)]
pub struct Iso<'a> {
    /// The claim that contains it.
    pub claim: &'a str,
    /// The SHA-512 that it should have, if it is given.
    pub checksum: Option<&'a str>,
}

/// What the container listens on.
fn ports() -> Value {
    json!([
        {"name": "http", "containerPort": PORT, "protocol": "TCP"},
        {"name": "https", "containerPort": SECURE_PORT, "protocol": "TCP"},
    ])
}

/// Our own server: reads the image as it is, so it needs neither a mount nor a privilege.
fn toolkit(image: &str, checksum: Option<&str>) -> Value {
    let mut args = vec!["repo", "--iso", "/iso/disk.img", "--listen", ":8080"];
    args.extend([
        "--tls-listen",
        ":8443",
        "--tls-cert",
        "/tls/tls.crt",
        "--tls-key",
        "/tls/tls.key",
    ]);
    if let Some(checksum) = checksum {
        args.extend(["--checksum", checksum]);
    }
    json!({
        "name": "iso-server",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["upgrade-toolkit"],
        "args": args,
        "ports": ports(),
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "runAsUser": IMPORTER,
            "runAsGroup": IMPORTER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "iso", "mountPath": "/iso", "readOnly": true},
            {"name": "tls", "mountPath": CERTIFICATE_FOLDER, "readOnly": true},
        ],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": PORT}},
        "readinessProbe": {"httpGet": {"path": format!("/{PROBE}"), "port": PORT}},
    })
}

/// nginx over a loop mount, which takes a privileged container.
fn nginx(image: &str, checksum: Option<&str>) -> Result<Value, serde_json::Error> {
    let run = nginx::Nginx {
        listen: "8080",
        secure: Some(nginx::Secure {
            listen: "8443",
            folder: Path::new(CERTIFICATE_FOLDER),
        }),
        root: Path::new(nginx::DOCUMENT_ROOT),
        state: Path::new("/run"),
    };
    let config = nginx::config(&run).map_err(serde_json::Error::custom)?;
    Ok(json!({
        "name": "nginx-iso-server",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", MOUNT_AND_SERVE],
        "env": [
            {"name": "NGINX_CONFIG", "value": config},
            {"name": "ISO_CHECKSUM", "value": checksum.map(|sum| format!("--checksum={sum}"))},
        ],
        "ports": ports(),
        // The image's own user may not mount, however privileged the container is.
        "securityContext": {"privileged": true, "runAsUser": 0, "runAsGroup": 0},
        "volumeMounts": [
            {"name": "iso", "mountPath": "/iso"},
            {"name": "tls", "mountPath": CERTIFICATE_FOLDER, "readOnly": true},
        ],
        "livenessProbe": {"exec": {"command": ["sh", "-c", format!("test -f /srv/www/htdocs/{PROBE}")]}},
        "readinessProbe": {"httpGet": {"path": format!("/{PROBE}"), "port": PORT}},
    }))
}

/// The Deployment. Its server reads the ISO from a claim; where a SHA-512 is given for it, it looks for its end by that. It
/// serves over TLS with what is in the Secret: no pod that does not mount it can.
///
/// # Errors
/// Never for a plan that the API server accepted.
pub fn deployment(
    plan: &UpgradePlan,
    settings: &Settings,
    replicas: i32,
    Iso { claim, checksum }: Iso<'_>,
    secret: &str,
) -> Result<Deployment, serde_json::Error> {
    let labels = pod_labels(plan);
    let image = image::of(plan, settings).to_string();
    let (container, pod_security) = match server(plan, settings) {
        // For volumes that the kubelet does give to a group.
        RepoServer::Toolkit => (
            toolkit(&image, checksum),
            json!({"fsGroup": IMPORTER, "fsGroupChangePolicy": "OnRootMismatch"}),
        ),
        RepoServer::Nginx => (nginx(&image, checksum)?, json!({})),
    };
    let mut metadata = metadata(
        plan,
        names::HARVESTER_NAMESPACE,
        names::repo(&plan.name_any()),
        labels.clone(),
    );
    metadata.annotations = Some(
        [
            (annotations::SERVES_MANIFEST.to_owned(), "true".to_owned()),
            (annotations::REPO_SECRET.to_owned(), secret.to_owned()),
        ]
        .into(),
    );
    serde_json::from_value(json!({
        "metadata": metadata,
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
                    // It serves files, to all clients: what it does not have cannot be stolen.
                    "automountServiceAccountToken": false,
                    "securityContext": pod_security,
                    "containers": [container],
                    "volumes": [
                        {"name": "iso", "persistentVolumeClaim": {"claimName": claim}},
                        // For the group that the server runs in: the files are root's.
                        {"name": "tls", "secret": {"secretName": secret, "defaultMode": SECRET_MODE}},
                    ],
                },
            },
        },
    }))
}

/// Whether a Deployment is one of those that serve a manifest. An older manager made others.
#[must_use]
pub fn serves_manifest(deployment: &Deployment) -> bool {
    let serves = deployment.annotations().get(annotations::SERVES_MANIFEST);
    serves.is_some_and(|value| value == "true")
}

/// The Secret with which a Deployment serves. An older manager made others, which have none.
#[must_use]
pub fn secret_of(deployment: &Deployment) -> Option<String> {
    deployment.annotations().get(annotations::REPO_SECRET).cloned()
}

/// The Secret with a certificate and its key.
///
/// # Errors
/// Never for a plan that the API server accepted.
pub fn secret(plan: &UpgradePlan, name: &str, identity: &Identity) -> Result<Secret, serde_json::Error> {
    let labels = component_labels(plan, Component::Repo);
    serde_json::from_value(json!({
        "metadata": metadata(plan, names::HARVESTER_NAMESPACE, name.to_owned(), labels),
        "type": "kubernetes.io/tls",
        "immutable": true,
        "data": {
            "tls.crt": ByteString(identity.certificate.clone().into_bytes()),
            "tls.key": ByteString(identity.key.clone().into_bytes()),
        },
    }))
}

/// The Service.
///
/// # Errors
/// Never for a plan that the API server accepted.
pub fn service(plan: &UpgradePlan) -> Result<Service, serde_json::Error> {
    let labels = component_labels(plan, Component::Repo);
    serde_json::from_value(json!({
        "metadata": metadata(plan, names::HARVESTER_NAMESPACE, names::repo(&plan.name_any()), labels),
        "spec": {
            "type": "ClusterIP",
            "selector": pod_labels(plan),
            // Several ports need names.
            "ports": [
                {"name": "http", "port": 80, "targetPort": PORT, "protocol": "TCP"},
                {"name": "https", "port": 443, "targetPort": SECURE_PORT, "protocol": "TCP"},
            ],
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iso(checksum: Option<&str>) -> Iso<'_> {
        Iso {
            claim: "claim",
            checksum,
        }
    }

    fn container(server: Option<&str>, settings: &Settings) -> Value {
        let mut plan = UpgradePlan::new("up", Default::default());
        plan.metadata.annotations = server.map(|name| [(annotations::REPO_SERVER.to_owned(), name.to_owned())].into());
        let built =
            serde_json::to_value(deployment(&plan, settings, 2, iso(Some("ab")), "up-repo-x").unwrap()).unwrap();
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
    fn only_our_own_server_reads_what_the_importer_left_behind() {
        use std::os::unix::{fs::PermissionsExt, process::CommandExt};
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let image = folder.path().join("disk.img");
        std::fs::write(&image, "iso").unwrap();
        // As CDI's importer leaves it. The numbers are CDI's, so they stand here once more.
        std::fs::set_permissions(&image, std::fs::Permissions::from_mode(0o660)).unwrap();
        if std::os::unix::fs::chown(&image, Some(107), Some(107)).is_err() {
            eprintln!("skipped: only root can give a file away");
            return;
        }
        let is_readable = |user: u32, group: u32| {
            let mut read = std::process::Command::new("cat");
            read.arg(&image).uid(user).gid(group);
            read.output().unwrap().status.success()
        };
        let container = container(None, &Settings::default());
        let id = |field: &str| {
            let id = container["securityContext"][field].as_u64();
            u32::try_from(id.unwrap_or_else(|| panic!("{field} is not set"))).unwrap()
        };
        assert!(is_readable(id("runAsUser"), id("runAsGroup")));
        assert!(
            !is_readable(65534, 65534),
            "all users can read it, so this test shows nothing"
        );
    }

    #[test]
    fn s16_a_repository_has_no_token_of_the_cluster() {
        for server in ["toolkit", "nginx"] {
            let mut plan = UpgradePlan::new("up", Default::default());
            plan.metadata.annotations = Some([(annotations::REPO_SERVER.to_owned(), server.to_owned())].into());
            let built = deployment(&plan, &Settings::default(), 2, iso(None), "up-repo-x").unwrap();
            let pod = built.spec.unwrap().template.spec.unwrap();
            assert_eq!(pod.automount_service_account_token, Some(false), "{server}");
        }
    }

    #[test]
    fn nginx_runs_as_root_since_it_mounts() {
        let context = &container(Some("nginx"), &Settings::default())["securityContext"];
        assert_eq!(
            (&context["privileged"], &context["runAsUser"]),
            (&json!(true), &json!(0))
        );
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
