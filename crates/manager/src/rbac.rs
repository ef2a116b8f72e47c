//! What the manager may do in a cluster: the one source of the roles that ship and of those the tests enforce.

mod people;

use serde_json::{Value, json};

pub use people::people;

use crate::{
    tls::managed,
    webhook::configurations::{MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION},
};

/// A rule: API group, resources, verbs.
pub type Rule = (&'static str, &'static [&'static str], &'static [&'static str]);
/// A rule on objects of certain names: API group, resources, verbs, names.
pub type NamedRule = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);

/// What a cache needs: nobody reads single objects of a kind that is watched.
const READ: &[&str] = &["list", "watch"];
const READ_PATCH: &[&str] = &["list", "watch", "patch"];
/// What we create is looked at when it is there already: it may be ours or somebody else's.
const OWN: &[&str] = &["get", "list", "watch", "create", "deletecollection"];

/// Rules for the whole cluster.
pub const CLUSTER_RULES: &[Rule] = &[
    ("", &["configmaps", "nodes", "pods"], READ),
    ("", &["events"], &["create"]),
    ("", &["nodes"], &["patch"]),
    ("", &["nodes/proxy"], &["get"]),
    ("", &["services"], OWN),
    ("apps", &["deployments"], OWN),
    (
        "batch",
        &["jobs"],
        &["get", "list", "watch", "create", "patch", "delete", "deletecollection"],
    ),
    ("cluster.x-k8s.io", &["machines"], READ),
    ("discovery.k8s.io", &["endpointslices"], READ),
    ("harvesterhci.io", &["addons"], READ_PATCH),
    ("harvesterhci.io", &["settings", "versions"], READ),
    ("harvesterhci.io", &["virtualmachineimages"], OWN),
    ("kubevirt.io", &["kubevirts"], READ_PATCH),
    ("kubevirt.io", &["virtualmachineinstances"], READ),
    ("longhorn.io", &["settings"], READ_PATCH),
    ("longhorn.io", &["volumes"], READ),
    ("management.cattle.io", &["managedcharts"], READ_PATCH),
    ("management.harvesterhci.io", &["upgradeplans"], READ_PATCH),
    ("management.harvesterhci.io", &["upgradeplans/status"], &["update"]),
    // An owner that blocks deletion may only be named by who may touch its finalizers.
    ("management.harvesterhci.io", &["upgradeplans/finalizers"], &["update"]),
    // What keeps the pods of a node from being evicted.
    ("policy", &["poddisruptionbudgets"], &["list"]),
    // Admission lists these when a plan is created: what must be at rest before an upgrade may begin.
    (
        "harvesterhci.io",
        &["virtualmachinebackups", "schedulevmbackups", "upgrades"],
        &["list"],
    ),
    ("kubevirt.io", &["virtualmachines"], &["list"]),
    ("provisioning.cattle.io", &["clusters"], READ_PATCH),
    ("upgrade.cattle.io", &["plans"], OWN),
];

/// Rules for namespace `fleet-local` only: Secrets nowhere else.
pub const FLEET_RULES: &[Rule] = &[("", &["secrets"], READ_PATCH)];

/// Rules for the manager's own namespace: leader election.
pub const LEASE_RULES: &[Rule] = &[("coordination.k8s.io", &["leases"], &["get", "create", "update"])];

/// Rules for the manager's own namespace: the Secret with the webhook's certificate. Kubernetes cannot limit `create`
/// to a name; reading and changing is limited to this one.
pub const CERTIFICATE_RULES: &[NamedRule] = &[
    ("", &["secrets"], &["create"], &[]),
    ("", &["secrets"], &["get", "update"], &[managed::SECRET]),
];

/// Rules for the whole cluster, on names behind the prefix of an installation: the authority of the webhook's
/// certificate goes into these two.
pub const WEBHOOK_RULES: &[NamedRule] = &[
    (
        "admissionregistration.k8s.io",
        &["mutatingwebhookconfigurations"],
        &["get", "patch"],
        &[MUTATING_CONFIGURATION],
    ),
    (
        "admissionregistration.k8s.io",
        &["validatingwebhookconfigurations"],
        &["get", "patch"],
        &[VALIDATING_CONFIGURATION],
    ),
];

/// Rules for the whole cluster: asking whether somebody may read metrics.
pub const METRICS_RULES: &[Rule] = &[
    ("authentication.k8s.io", &["tokenreviews"], &["create"]),
    ("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
];

/// The role that lets somebody read metrics. Who that is, is for the cluster's administrator to say.
#[must_use]
pub fn metrics_reader(prefix: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("{prefix}metrics-reader")},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    })
}

/// All roles and bindings for a service account.
#[must_use]
pub fn objects(prefix: &str, namespace: &str, service_account: &str) -> Vec<Value> {
    let subject = json!([{"kind": "ServiceAccount", "name": service_account, "namespace": namespace}]);
    let role = |kind: &str, name: &str, namespace: Option<&str>, rules: &[Rule]| {
        let mut metadata = json!({"name": format!("{prefix}{name}")});
        if let Some(namespace) = namespace {
            metadata["namespace"] = json!(namespace);
        }
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
            "rules": rules.iter().map(|(group, resources, verbs)| {
                json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
            }).collect::<Vec<_>>(),
        })
    };
    let binding = |role: &Value| {
        let kind = role["kind"].as_str().unwrap_or_default();
        let name = role["metadata"]["name"].as_str().unwrap_or_default();
        let mut metadata = role["metadata"].clone();
        metadata["name"] = json!(format!("{name}binding"));
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": subject,
        })
    };
    let named_role = |kind: &str, name: &str, namespace: Option<&str>, names_prefix: &str, rules: &[NamedRule]| {
        let mut role = role(kind, name, namespace, &[]);
        let rules = rules.iter().map(|(group, resources, verbs, names)| {
            let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
            if !names.is_empty() {
                rule["resourceNames"] = names.iter().map(|name| format!("{names_prefix}{name}")).collect();
            }
            rule
        });
        role["rules"] = rules.collect();
        role
    };
    let roles = [
        role("ClusterRole", "manager-role", None, CLUSTER_RULES),
        role(
            "Role",
            "machine-plan-role",
            Some(api::names::FLEET_NAMESPACE),
            FLEET_RULES,
        ),
        role("Role", "leader-election-role", Some(namespace), LEASE_RULES),
        named_role(
            "Role",
            "webhook-certificate-role",
            Some(namespace),
            "",
            CERTIFICATE_RULES,
        ),
        named_role("ClusterRole", "webhook-role", None, prefix, WEBHOOK_RULES),
        role("ClusterRole", "metrics-auth-role", None, METRICS_RULES),
    ];
    roles
        .into_iter()
        .flat_map(|role| [binding(&role), role])
        .rev()
        .collect()
}
