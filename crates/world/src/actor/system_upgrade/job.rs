//! The Job that applies a Plan to a node. Pure, after `pkg/upgrade/job/job.go` and `pkg/upgrade/container/container.go`
//! of system-upgrade-controller, with the environment that Rancher's chart gives it.

use api::{foreign::suc::Plan, labels, names};
use k8s_openapi::api::{batch::v1::Job, core::v1::Node};
use serde_json::{Map, Value, json};

use crate::inbox::Key;

use super::select::{HOSTNAME, hostname, mark};

pub(super) const CONTROLLER: &str = "upgrade.cattle.io/controller";
pub(super) const PLAN: &str = "upgrade.cattle.io/plan";
pub(super) const VERSION: &str = "upgrade.cattle.io/version";
pub(super) const NAME: &str = "system-upgrade-controller";
const TTL: &str = "upgrade.cattle.io/ttl-seconds-after-finished";
/// `SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT` in Rancher's chart. The controller's own default is 2.
const BACKOFF_LIMIT: i32 = 99;
const TTL_SECONDS: i32 = 900;
const DEFAULT_DEADLINE_SECONDS: i64 = 600;

/// The name of the Job on a node.
pub(super) fn name(plan: &str, node: &str, hash: &str) -> String {
    let short = node.split('.').next().unwrap_or(node);
    names::safe_concat(&["apply", plan, "on", short, "with", hash])
}

/// The Job. It has no pod until its node is in `status.applying`.
pub(super) fn build(plan: &Plan, key: &Key, node: &Node) -> Value {
    let (version, hash) = (
        plan.status.latest_version.as_deref().unwrap_or_default(),
        plan.status.latest_hash.as_deref().unwrap_or_default(),
    );
    let node_name = node.metadata.name.as_deref().unwrap_or_default();
    let labels = labels_of(plan, key, node_name, version, hash);
    let of_plan = plan.metadata.annotations.iter().flatten();
    let annotations: Map<String, Value> = of_plan
        .filter(|(name, _)| !name.contains("cattle.io/") && !name.contains("kubectl.kubernetes.io/"))
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    let mut on_job = annotations.clone();
    on_job.insert(TTL.to_owned(), json!(TTL_SECONDS.to_string()));
    let is_applying = plan.status.applying.iter().flatten().any(|name| name == hostname(node));
    let mut spec = json!({
        "completions": 1, "parallelism": i32::from(is_applying), "backoffLimit": BACKOFF_LIMIT,
        "podReplacementPolicy": "TerminatingOrFailed", "ttlSecondsAfterFinished": TTL_SECONDS,
        "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod(plan, key, node, version, hash)},
    });
    match plan.spec.job_active_deadline_secs {
        Some(0) => {}
        Some(seconds) if seconds > 0 => spec["activeDeadlineSeconds"] = json!(seconds),
        _ => spec["activeDeadlineSeconds"] = json!(DEFAULT_DEADLINE_SECONDS),
    }
    json!({
        "apiVersion": <Job as k8s_openapi::Resource>::API_VERSION, "kind": "Job",
        "metadata": {
            "name": name(&key.1, node_name, hash), "namespace": key.0, "labels": labels, "annotations": on_job,
            // Its apply owns what it makes, and blocks nothing.
            "ownerReferences": [{
                "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "name": key.1, "uid": plan.metadata.uid,
                "controller": true, "blockOwnerDeletion": false,
            }],
        },
        "spec": spec,
    })
}

fn labels_of(plan: &Plan, key: &Key, node: &str, version: &str, hash: &str) -> Map<String, Value> {
    let of_plan = plan.metadata.labels.iter().flatten();
    let ours = of_plan.filter(|(name, _)| !name.contains("cattle.io/"));
    let mut labels: Map<String, Value> = ours.map(|(name, value)| (name.clone(), json!(value))).collect();
    for (name, value) in [
        (CONTROLLER, NAME),
        ("upgrade.cattle.io/exclusive", "false"),
        (labels::SUC_NODE, node),
        (PLAN, &key.1),
        (VERSION, version),
        (&mark(&key.1), hash),
    ] {
        labels.insert(name.to_owned(), json!(value));
    }
    labels
}

fn pod(plan: &Plan, key: &Key, node: &Node, version: &str, hash: &str) -> Value {
    let upgrade = plan.spec.upgrade.clone().unwrap_or_default();
    let mut tolerations =
        vec![json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"})];
    let asked = plan.spec.tolerations.iter().flatten();
    tolerations.extend(asked.map(|toleration| json!(toleration)));
    let privileged = json!({"privileged": true, "capabilities": {"add": ["CAP_SYS_BOOT"]}});
    let context = upgrade.security_context.as_ref();
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let text = |name: &str, value: &str| json!({"name": name, "value": value});
    let mut env = vec![
        field("SYSTEM_UPGRADE_NODE_NAME", "spec.nodeName"),
        field("SYSTEM_UPGRADE_POD_NAME", "metadata.name"),
        field("SYSTEM_UPGRADE_POD_UID", "metadata.uid"),
    ];
    env.extend(upgrade.env.iter().flatten().map(|variable| json!(variable)));
    env.extend([
        text("SYSTEM_UPGRADE_PLAN_NAME", &key.1),
        text("SYSTEM_UPGRADE_PLAN_LATEST_HASH", hash),
        text("SYSTEM_UPGRADE_PLAN_LATEST_VERSION", version),
    ]);
    json!({
        "restartPolicy": "Never", "hostPID": true, "hostIPC": true, "hostNetwork": true,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "serviceAccountName": plan.spec.service_account_name,
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [hostname(node)]}]},
            ]}},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": {"matchExpressions": [{"key": PLAN, "operator": "In", "values": [key.1]}]},
                "topologyKey": HOSTNAME,
            }]},
        },
        "tolerations": tolerations,
        "containers": [{
            "name": "upgrade", "image": image(&upgrade.image.unwrap_or_default(), version), "command": upgrade.command,
            "args": upgrade.args, "env": env, "securityContext": context.map_or(privileged, |context| json!(context)),
            "imagePullPolicy": "IfNotPresent",
            "volumeMounts": [
                {"name": "host-root", "mountPath": "/host"},
                {"name": "pod-info", "mountPath": "/run/system-upgrade/pod", "readOnly": true},
            ],
        }],
        "volumes": [
            {"name": "host-root", "hostPath": {"path": "/", "type": "Directory"}},
            {"name": "pod-info", "downwardAPI": {"defaultMode": 420, "items": [
                {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels", "apiVersion": "v1"}},
                {"path": "annotations", "fieldRef": {"fieldPath": "metadata.annotations", "apiVersion": "v1"}},
            ]}},
        ],
    })
}

/// An image without tag and digest gets the version as its tag, in the short form that users write; any other is kept.
fn image(image: &str, version: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains([':', '@']) || !is_tag(version) {
        return image.to_owned();
    }
    let familiar = image.strip_prefix("docker.io/").unwrap_or(image);
    let familiar = familiar.strip_prefix("library/").unwrap_or(familiar);
    format!("{familiar}:{version}")
}

/// A text can be a tag.
fn is_tag(text: &str) -> bool {
    let mut letters = text.chars();
    let first = letters
        .next()
        .is_some_and(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    first && text.len() <= 128 && letters.all(|letter| letter.is_ascii_alphanumeric() || "_.-".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r50_an_image_keeps_the_tag_it_has_and_gets_the_version_where_it_has_none() {
        for (given, version, expected) in [
            ("rancher/toolkit", "v1.9.0", "rancher/toolkit:v1.9.0"),
            ("rancher/toolkit:v1.9.0", "57410ea4", "rancher/toolkit:v1.9.0"),
            ("registry:5000/toolkit", "v1", "registry:5000/toolkit:v1"),
            ("registry:5000/toolkit:dev", "v1", "registry:5000/toolkit:dev"),
            ("rancher/toolkit@sha256:0123", "v1", "rancher/toolkit@sha256:0123"),
            ("docker.io/library/busybox", "v1", "busybox:v1"),
            ("rancher/toolkit", "", "rancher/toolkit"),
            ("rancher/toolkit", "not a tag", "rancher/toolkit"),
        ] {
            assert_eq!(image(given, version), expected);
        }
    }
}
