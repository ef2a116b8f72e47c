//! Service accounts other than the manager's own, and what each may do.

use serde_json::{Value, json};

use super::{
    ALL,
    programs::{PROGRAMS, Program},
    role::{Holder, Rule, Scope, binding, role, with_prefixed_names},
};

/// The account whose tokens are sent to kubelets.
pub const KUBELET_READER: &str = "kubelet-reader";

/// Rules for the whole cluster: how full a kubelet's disks are, and when it begins to remove images.
const KUBELET_RULES: &[Rule] = &[("", &["nodes/configz", "nodes/stats"], &["get"], ALL)];

/// The accounts of an installation with their roles and bindings.
#[must_use]
pub fn accounts(prefix: &str, namespace: &str) -> Vec<Value> {
    let reader = role(prefix, "kubelet-reader-role", Scope::Cluster, KUBELET_RULES);
    let mut objects = account(prefix, (namespace, KUBELET_READER), false, vec![reader]);
    for program in PROGRAMS {
        let home = (program.namespace, program.account);
        objects.extend(account(prefix, home, program.automount, roles_of(prefix, &program)));
        if let Some(role) = program.bound_to {
            objects.push(bound(prefix, &program, role));
        }
    }
    objects
}

/// The roles of a program's account.
#[must_use]
pub fn roles_of(prefix: &str, program: &Program) -> Vec<Value> {
    let name = format!("{}-role", program.account);
    let mut roles = Vec::new();
    if !program.cluster.is_empty() {
        roles.push(role(prefix, &name, Scope::Cluster, program.cluster));
    }
    for (namespace, rules) in program.inside {
        roles.push(role(prefix, &name, Scope::Namespace(namespace), *rules));
    }
    if !program.tokens_of.is_empty() {
        let rules: &[Rule] = &[("", &["serviceaccounts/token"], &["create"], program.tokens_of)];
        let name = format!("{}-token-role", program.account);
        let role = role(prefix, &name, Scope::Namespace(program.namespace), rules);
        roles.push(with_prefixed_names(role, prefix));
    }
    roles
}

/// An account with its roles and their bindings.
fn account(prefix: &str, (namespace, name): (&str, &str), automount: bool, roles: Vec<Value>) -> Vec<Value> {
    let name = format!("{prefix}{name}");
    let holder = Holder {
        namespace,
        account: &name,
    };
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace},
        // A pod without its token cannot use it: pods that run as it request one, if they can.
        "automountServiceAccountToken": automount,
    })];
    for role in roles {
        let binding = binding(&role, holder);
        objects.extend([role, binding]);
    }
    objects
}

/// A binding to a role that is not ours.
fn bound(prefix: &str, program: &Program, role: &str) -> Value {
    let account = format!("{prefix}{}", program.account);
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("{account}-{role}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": program.namespace}],
    })
}
