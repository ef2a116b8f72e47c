//! From rules to roles and bindings.

use std::borrow::Cow;

use serde_json::{Value, json};

/// A rule: API group, resources, verbs, and the names that it is about; no names are all.
pub type Rule = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);

/// A rule as it goes into a role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RoleRule {
    pub(super) group: Cow<'static, str>,
    pub(super) resources: Vec<Cow<'static, str>>,
    pub(super) names: Vec<&'static str>,
    pub(super) verbs: Vec<&'static str>,
}

impl From<&Rule> for RoleRule {
    fn from((group, resources, verbs, names): &Rule) -> Self {
        Self {
            group: Cow::Borrowed(group),
            resources: resources.iter().map(|one| Cow::Borrowed(*one)).collect(),
            names: names.to_vec(),
            verbs: verbs.to_vec(),
        }
    }
}

/// Where rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope<'a> {
    Cluster,
    Namespace(&'a str),
}

/// Who gets roles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder<'a> {
    pub(super) namespace: &'a str,
    pub(super) account: &'a str,
}

/// A role.
pub(super) fn role(
    prefix: &str,
    name: &str,
    scope: Scope<'_>,
    rules: impl IntoIterator<Item: Into<RoleRule>>,
) -> Value {
    let mut metadata = json!({"name": format!("{prefix}{name}")});
    let kind = match scope {
        Scope::Cluster => "ClusterRole",
        Scope::Namespace(namespace) => {
            metadata["namespace"] = json!(namespace);
            "Role"
        }
    };
    let rules = rules.into_iter().map(|given| {
        let given: RoleRule = given.into();
        let mut rule = json!({"apiGroups": [given.group], "resources": given.resources, "verbs": given.verbs});
        if !given.names.is_empty() {
            rule["resourceNames"] = json!(given.names);
        }
        rule
    });
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
        "rules": rules.collect::<Vec<_>>(),
    })
}

/// The binding of a role: its own name, and its subjects.
pub(super) fn binding(role: &Value, holder: Holder<'_>) -> Value {
    let kind = role["kind"].as_str().unwrap_or_default();
    let name = role["metadata"]["name"].as_str().unwrap_or_default();
    let mut metadata = role["metadata"].clone();
    metadata["name"] = json!(format!("{name}binding"));
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": holder.account, "namespace": holder.namespace}],
    })
}

/// The names in the rules are those of an installation.
pub(super) fn with_prefixed_names(mut role: Value, prefix: &str) -> Value {
    for rule in role["rules"].as_array_mut().into_iter().flatten() {
        for name in rule["resourceNames"].as_array_mut().into_iter().flatten() {
            *name = json!(format!("{prefix}{}", name.as_str().unwrap_or_default()));
        }
    }
    role
}
