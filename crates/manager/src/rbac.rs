//! What the manager may do in a cluster: the one source of the roles that ship and of those the tests enforce.
//!
//! A rule is of a namespace unless its objects are in all of them or in none, and of a name where the name is known. A
//! list or watch of one name is requested with a field selector, which Kubernetes judges like the name itself.

mod accounts;
mod caches;
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
    watched::Place,
    webhook::configurations::{MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION},
};

/// All objects of a kind.
const ALL: &[&str] = &[];

/// Rules for the whole cluster in addition to those that follow from [`crate::watched`].
const CLUSTER_RULES: &[Rule] = &[
    // Which pods keep a drain from ending, and what keeps them from being evicted.
    ("", &["pods"], &["list"], ALL),
    ("policy", &["poddisruptionbudgets"], &["list"], ALL),
    // Who may use dangerous fields of a plan, and who may read metrics.
    ("authorization.k8s.io", &["subjectaccessreviews"], &["create"], ALL),
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

/// Likewise for `harvester-system`.
const HARVESTER_RULES: &[Rule] = &[
    // The key of a repository. Kubernetes cannot limit `create` to a name; nothing here may be read, changed or deleted.
    ("", &["secrets"], &["create"], ALL),
    // Admission lists upgrades of Harvester's own controller: none may run together with ours.
    ("harvesterhci.io", &["upgrades"], &["list"], ALL),
];

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
    let watched = Place::ALL.iter().map(|place| {
        let scope = place.namespace().map_or(Scope::Cluster, Scope::Namespace);
        role(prefix, place.role(), scope, caches::rules_of(*place))
    });
    let others = [
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
    watched
        .chain(others)
        .flat_map(|role| [binding(&role, holder), role])
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect()
}
