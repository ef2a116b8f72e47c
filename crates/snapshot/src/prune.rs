//! What no check reads is dropped before an object is kept: a snapshot of a hundred nodes stays small, and carries nothing
//! that does not belong into a report.

use serde_json::Value;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// No annotation that a check reads is longer.
const LONGEST_ANNOTATION: usize = 4096;

/// Of any object: who wrote which field, and copies of it in annotations.
pub(crate) fn metadata(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    metadata.remove("managedFields");
    metadata.remove("selfLink");
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, value| {
            key != LAST_APPLIED && value.as_str().is_none_or(|text| text.len() <= LONGEST_ANNOTATION)
        });
    }
}

pub(crate) fn nothing(_: &mut Value) {}

/// The address of an image may have credentials in it.
pub(crate) fn image(object: &mut Value) {
    without_credentials(&mut object["spec"]["url"]);
}

/// The address of an ISO too.
pub(crate) fn version(object: &mut Value) {
    without_credentials(&mut object["spec"]["isoURL"]);
}

/// Removes user, password and query of an address.
fn without_credentials(address: &mut Value) {
    let Some(text) = address.as_str() else { return };
    let text = text.split(['?', '#']).next().unwrap_or_default();
    let plain = match text.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = host.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => text.to_owned(),
    };
    *address = Value::String(plain);
}

pub(crate) fn node(object: &mut Value) {
    drop_fields(
        object,
        "status",
        &["images", "volumesInUse", "volumesAttached", "runtimeHandlers"],
    );
}

/// Values of settings can hold credentials; those that checks read do not.
pub(crate) fn setting(object: &mut Value) {
    const READ: [&str; 9] = [
        "server-version",
        "upgrade-config",
        "storage-network",
        "rwx-network",
        "kubevirt-migration",
        "ntp-servers",
        "overcommit-config",
        "upgrade-checker-enabled",
        "release-download-url",
    ];
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if !READ.contains(&name) {
        drop_fields_at(object, &["value", "default"]);
    }
}

pub(crate) fn control_plane(object: &mut Value) {
    drop_fields_at(object, &["spec"]);
}

pub(crate) fn replica(object: &mut Value) {
    drop_fields(object, "status", &["logFetched", "storageIP", "ip", "port"]);
}

pub(crate) fn engine(object: &mut Value) {
    drop_fields(
        object,
        "status",
        &[
            "snapshots",
            "backupStatus",
            "restoreStatus",
            "purgeStatus",
            "cloneStatus",
        ],
    );
}

pub(crate) fn longhorn_node(object: &mut Value) {
    if let Some(disks) = object["status"].get_mut("diskStatus").and_then(Value::as_object_mut) {
        for disk in disks.values_mut() {
            drop_fields_at(disk, &["scheduledReplica", "scheduledBackingImage"]);
        }
    }
}

pub(crate) fn instance_manager(object: &mut Value) {
    for field in ["instanceEngines", "instanceReplicas"] {
        if let Some(instances) = object["status"].get_mut(field).and_then(Value::as_object_mut) {
            for instance in instances.values_mut() {
                *instance = serde_json::json!({ "state": instance["status"]["state"].clone() });
            }
        }
    }
}

pub(crate) fn vm_backup(object: &mut Value) {
    drop_fields(object, "status", &["source", "volumeBackups", "secretBackups"]);
}

/// Passwords and keys of guests are in what initialises them.
pub(crate) fn vm(object: &mut Value) {
    if let Some(spec) = object.pointer_mut("/spec/template/spec") {
        guest(spec);
    }
    drop_fields(object, "spec", &["dataVolumeTemplates"]);
    drop_fields(object, "status", &["volumeSnapshotStatuses", "controllerRevisionRefs"]);
}

pub(crate) fn vmi(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec") {
        guest(spec);
    }
    drop_fields(
        object,
        "status",
        &[
            "guestOSInfo",
            "interfaces",
            "volumeStatus",
            "memory",
            "virtualMachineRevisionName",
            "phaseTransitionTimestamps",
        ],
    );
}

fn guest(spec: &mut Value) {
    drop_fields_at(spec, &["networks", "accessCredentials"]);
    if let Some(domain) = spec.get_mut("domain") {
        drop_fields_at(domain, &["firmware", "features", "clock"]);
        if let Some(devices) = domain.get_mut("devices") {
            drop_fields_at(devices, &["interfaces", "inputs"]);
        }
    }
    for volume in spec
        .get_mut("volumes")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        for field in ["cloudInitNoCloud", "cloudInitConfigDrive", "sysprep"] {
            if volume.get(field).is_some() {
                volume[field] = serde_json::json!({});
            }
        }
    }
}

pub(crate) fn kubevirt(object: &mut Value) {
    drop_fields(object, "status", &["generations", "observedDeploymentConfig"]);
}

/// Values of charts can hold credentials. What checks read of them is how VMs are updated.
pub(crate) fn managed_chart(object: &mut Value) {
    drop_fields(object, "spec", &["values", "targets"]);
}

pub(crate) fn addon(object: &mut Value) {
    drop_fields(object, "spec", &["valuesContent"]);
}

pub(crate) fn bundle(object: &mut Value) {
    let has_helm = object.pointer("/spec/helm").is_some();
    drop_fields_at(object, &["spec"]);
    if has_helm {
        object["spec"] = serde_json::json!({"helm": {}});
    }
    drop_fields(object, "status", &["resourceKey", "partitions"]);
}

pub(crate) fn bundle_deployment(object: &mut Value) {
    drop_fields_at(object, &["spec"]);
    drop_fields(object, "status", &["resources", "resourceCounts"]);
}

pub(crate) fn pod(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec") {
        pod_spec(spec);
    }
    let Some(status) = object.get_mut("status") else { return };
    drop_fields_at(status, &["podIPs", "hostIPs"]);
    for field in [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ] {
        for container in items(status, field) {
            drop_fields_at(
                container,
                &[
                    "imageID",
                    "containerID",
                    "volumeMounts",
                    "resources",
                    "allocatedResources",
                    "user",
                ],
            );
        }
    }
}

/// Of Jobs, Deployments, DaemonSets: the template as of a pod.
pub(crate) fn workload(object: &mut Value) {
    if let Some(spec) = object.pointer_mut("/spec/template/spec") {
        pod_spec(spec);
    }
}

fn pod_spec(spec: &mut Value) {
    drop_fields_at(
        spec,
        &[
            "securityContext",
            "dnsPolicy",
            "enableServiceLinks",
            "readinessGates",
            "imagePullSecrets",
            "hostAliases",
        ],
    );
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        for container in items(spec, field) {
            drop_fields(container, "resources", &["limits", "claims"]);
            drop_fields_at(
                container,
                &[
                    "imagePullPolicy",
                    "resizePolicy",
                    "terminationMessagePath",
                    "terminationMessagePolicy",
                    "env",
                    "envFrom",
                    "volumeMounts",
                    "volumeDevices",
                    "livenessProbe",
                    "readinessProbe",
                    "startupProbe",
                    "securityContext",
                    "lifecycle",
                    "command",
                    "args",
                    "ports",
                ],
            );
        }
    }
    // Of volumes, only those with claims count. There are very many others.
    if let Some(volumes) = spec.get_mut("volumes").and_then(Value::as_array_mut) {
        volumes.retain(|volume| volume.get("persistentVolumeClaim").is_some());
        for volume in volumes.iter_mut().filter_map(Value::as_object_mut) {
            volume.retain(|key, _| key == "name" || key == "persistentVolumeClaim");
        }
    }
}

/// The elements of a list; nothing if it is none.
fn items<'a>(part: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    part.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

pub(crate) fn endpoint_slice(object: &mut Value) {
    for endpoint in object
        .get_mut("endpoints")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        drop_fields_at(endpoint, &["deprecatedTopology", "hints"]);
    }
}

pub(crate) fn webhooks(object: &mut Value) {
    for webhook in object
        .get_mut("webhooks")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(config) = webhook.get_mut("clientConfig") {
            drop_fields_at(config, &["caBundle"]);
        }
    }
}

pub(crate) fn secret_values(object: &mut Value) {
    drop_fields_at(object, &["data", "stringData"]);
}

fn drop_fields(object: &mut Value, below: &str, fields: &[&str]) {
    if let Some(part) = object.get_mut(below) {
        drop_fields_at(part, fields);
    }
}

fn drop_fields_at(part: &mut Value, fields: &[&str]) {
    if let Some(part) = part.as_object_mut() {
        for field in fields {
            part.remove(*field);
        }
    }
}
