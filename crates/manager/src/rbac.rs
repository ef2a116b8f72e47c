//! What the manager may do in a cluster: the one source of the roles that ship and of those the tests enforce.
//!
//! A rule is of a namespace unless its objects are in all of them or in none, and of a name where the name is known. A
//! list or watch of one name is requested with a field selector, which Kubernetes judges like the name itself.

mod accounts;
mod people;
mod programs;
mod role;

use api::{accounts as account, names};
use serde_json::{Value, json};

pub use accounts::{KUBELET_READER, accounts, roles_of};
pub use people::people;
pub use programs::{PROGRAMS, Program};
pub use role::Rule;
use role::{Holder, Scope, binding, role, with_prefixed_names};

use crate::{
    tls::managed,
    webhook::configurations::{MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION},
};

/// What a cache needs: single objects of a watched kind are not read.
const READ: &[&str] = &["list", "watch"];
const READ_PATCH: &[&str] = &["list", "watch", "patch"];
/// What we create is read when it already exists: it may be ours or not.
const OWN: &[&str] = &["get", "list", "watch", "create", "delete"];
/// All objects of a kind.
const ALL: &[&str] = &[];

/// Rules for the whole cluster: what is in no namespace or in all.
pub const CLUSTER_RULES: &[Rule] = &[
    ("", &["nodes"], READ_PATCH, ALL),
    // Which pods keep a drain from ending, and what keeps them from being evicted.
    ("", &["pods"], &["list"], ALL),
    ("policy", &["poddisruptionbudgets"], &["list"], ALL),
    // Who may use dangerous fields of a plan, and who may read metrics.
    ("authorization.k8s.io", &["subjectaccessreviews"], &["create"], ALL),
    ("harvesterhci.io", &["settings"], READ, &[names::SERVER_VERSION_SETTING]),
    ("kubevirt.io", &["virtualmachineinstances"], READ, ALL),
    ("management.harvesterhci.io", &["upgradeplans"], READ_PATCH, ALL),
    ("management.harvesterhci.io", &["upgradeplans/status"], &["update"], ALL),
    // An owner that blocks deletion may only be set by a client that may change its finalizers.
    (
        "management.harvesterhci.io",
        &["upgradeplans/finalizers"],
        &["update"],
        ALL,
    ),
    // Admission lists these when a plan is created: what must be idle before an upgrade may begin.
    (
        "harvesterhci.io",
        &["addons", "virtualmachinebackups", "schedulevmbackups"],
        &["list"],
        ALL,
    ),
    ("kubevirt.io", &["virtualmachines"], &["list"], ALL),
];

/// Rules for `harvester-system`: the release, its ISO, the repository and the Jobs.
pub const HARVESTER_RULES: &[Rule] = &[
    ("", &["configmaps"], READ, ALL),
    // The key of a repository. Kubernetes cannot limit `create` to a name; nothing here may be read, changed or deleted.
    ("", &["secrets"], &["create"], ALL),
    // Listing is allowed everywhere.
    ("", &["pods"], &["watch"], ALL),
    ("", &["services"], OWN, ALL),
    ("apps", &["deployments"], OWN, ALL),
    // Whose pods the pods of the repository are.
    ("apps", &["replicasets"], READ, ALL),
    (
        "batch",
        &["jobs"],
        &["get", "list", "watch", "create", "patch", "delete"],
        ALL,
    ),
    ("discovery.k8s.io", &["endpointslices"], READ, ALL),
    // Admission lists upgrades of Harvester's own controller: none may run together with ours.
    ("harvesterhci.io", &["upgrades"], &["list"], ALL),
    ("harvesterhci.io", &["versions"], READ, ALL),
    ("harvesterhci.io", &["virtualmachineimages"], OWN, ALL),
    ("kubevirt.io", &["kubevirts"], READ_PATCH, &[names::KUBEVIRT]),
];

/// Rules for `cattle-system`: Plans of system-upgrade-controller. Their Jobs are the controller's; one that failed is
/// deleted so that it makes another.
pub const CATTLE_RULES: &[Rule] = &[
    ("", &["pods"], &["watch"], ALL),
    ("batch", &["jobs"], &["list", "watch"], ALL),
    ("upgrade.cattle.io", &["plans"], OWN, ALL),
];

/// Rules for `fleet-local`: Rancher's own cluster and Harvester's charts.
pub const FLEET_RULES: &[Rule] = &[
    ("cluster.x-k8s.io", &["machines"], READ, ALL),
    ("management.cattle.io", &["managedcharts"], READ, ALL),
    (
        "management.cattle.io",
        &["managedcharts"],
        &["patch"],
        &names::MANAGED_CHARTS,
    ),
    (
        "provisioning.cattle.io",
        &["clusters"],
        READ_PATCH,
        &[names::LOCAL_CLUSTER],
    ),
];

/// Rules for `fleet-local`: the Secrets with Rancher's hooks and their answers. Nowhere else are Secrets read but for
/// the webhook's own.
pub const MACHINE_PLAN_RULES: &[Rule] = &[("", &["secrets"], READ_PATCH, ALL)];

/// Rules for `longhorn-system`.
pub const LONGHORN_RULES: &[Rule] = &[
    (
        "longhorn.io",
        &["settings"],
        READ_PATCH,
        &[names::REPLENISHMENT_SETTING],
    ),
    ("longhorn.io", &["volumes"], READ, ALL),
];

/// Rules for `kube-system`: the descheduler. Listing addons is allowed everywhere.
pub const ADDON_RULES: &[Rule] = &[(
    "harvesterhci.io",
    &["addons"],
    &["watch", "patch"],
    &[names::DESCHEDULER_ADDON],
)];

/// Rules for `default`: where events of plans go, and where the addresses of the API servers are.
pub const DEFAULT_RULES: &[Rule] = &[
    ("", &["events"], &["create"], ALL),
    ("discovery.k8s.io", &["endpointslices"], &["list"], ALL),
];

/// Rules for the manager's own namespace: leader election. Kubernetes cannot limit `create` to a name.
pub const LEASE_RULES: &[Rule] = &[
    ("coordination.k8s.io", &["leases"], &["create"], ALL),
    ("coordination.k8s.io", &["leases"], &["get", "update"], &[names::LEASE]),
];

/// Rules for the manager's own namespace: the Secret with the webhook's certificate.
pub const CERTIFICATE_RULES: &[Rule] = &[
    ("", &["secrets"], &["create"], ALL),
    ("", &["secrets"], &["get", "update"], &[managed::SECRET]),
];

/// Rules for the manager's own namespace, on names behind the prefix of an installation: a token for kubelets.
pub const TOKEN_RULES: &[Rule] = &[("", &["serviceaccounts/token"], &["create"], &[KUBELET_READER])];

/// Rules for `harvester-system`, on names behind the prefix of an installation: whether the accounts of Jobs are there,
/// without which no pod of theirs comes to be.
pub const JOB_ACCOUNT_RULES: &[Rule] = &[("", &["serviceaccounts"], &["get"], &account::OF_JOBS)];

/// Rules for `cattle-system`, likewise: the account of Plans.
pub const PLAN_ACCOUNT_RULES: &[Rule] = &[("", &["serviceaccounts"], &["get"], &[account::NODE_PLANS])];

/// Rules for the whole cluster, on names behind the prefix of an installation: the authority of the webhook's
/// certificate goes into these two.
pub const WEBHOOK_RULES: &[Rule] = &[
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

/// Rules for the whole cluster: reviews of clients that read metrics.
pub const METRICS_RULES: &[Rule] = &[("authentication.k8s.io", &["tokenreviews"], &["create"], ALL)];

/// The role for reading metrics. The cluster's administrator binds it.
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
    let holder = Holder {
        namespace,
        account: service_account,
    };
    let cluster = |name: &str, rules: &[Rule]| role(prefix, name, Scope::Cluster, rules);
    let inside = |namespace: &str, name: &str, rules: &[Rule]| role(prefix, name, Scope::Namespace(namespace), rules);
    let roles = [
        cluster("manager-role", CLUSTER_RULES),
        inside(names::HARVESTER_NAMESPACE, "manager-harvester-role", HARVESTER_RULES),
        inside(names::CATTLE_NAMESPACE, "manager-cattle-role", CATTLE_RULES),
        inside(names::FLEET_NAMESPACE, "manager-fleet-role", FLEET_RULES),
        inside(names::FLEET_NAMESPACE, "machine-plan-role", MACHINE_PLAN_RULES),
        inside(names::LONGHORN_NAMESPACE, "manager-longhorn-role", LONGHORN_RULES),
        inside(names::KUBE_SYSTEM_NAMESPACE, "manager-addon-role", ADDON_RULES),
        inside(names::DEFAULT_NAMESPACE, "manager-default-role", DEFAULT_RULES),
        inside(namespace, "leader-election-role", LEASE_RULES),
        inside(namespace, "webhook-certificate-role", CERTIFICATE_RULES),
        with_prefixed_names(inside(namespace, "kubelet-token-role", TOKEN_RULES), prefix),
        with_prefixed_names(
            inside(names::HARVESTER_NAMESPACE, "job-account-role", JOB_ACCOUNT_RULES),
            prefix,
        ),
        with_prefixed_names(
            inside(names::CATTLE_NAMESPACE, "plan-account-role", PLAN_ACCOUNT_RULES),
            prefix,
        ),
        with_prefixed_names(cluster("webhook-role", WEBHOOK_RULES), prefix),
        cluster("metrics-auth-role", METRICS_RULES),
    ];
    roles
        .into_iter()
        .flat_map(|role| [binding(&role, holder), role])
        .rev()
        .collect()
}
