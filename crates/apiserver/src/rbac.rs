//! RBAC as a table: may this identity do this? Reads stored roles and bindings; writes nothing.

use std::sync::Arc;

use serde_json::Value;

use crate::{history::Verb, identity::Identity, kind::ResourceId, store::Store};

const GROUP: &str = "rbac.authorization.k8s.io";

/// One request of a user.
#[derive(Debug, Clone, Default)]
pub(crate) struct Question<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: Option<&'a str>,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// A path that is not about objects (`/healthz`).
    pub(crate) path: Option<&'a str>,
}

fn lists(list: &Value, wanted: &str) -> bool {
    list.as_array()
        .into_iter()
        .flatten()
        .any(|entry| entry == "*" || entry == wanted)
}

fn rule_allows(rule: &Value, question: &Question<'_>) -> bool {
    if !lists(&rule["verbs"], question.verb) {
        return false;
    }
    if let Some(path) = question.path {
        return rule["nonResourceURLs"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .any(|pattern| {
                pattern == path || pattern.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
            });
    }
    let resource_matches = match question.subresource {
        None => lists(&rule["resources"], question.resource),
        Some(subresource) => {
            let both = format!("{}/{subresource}", question.resource);
            let any_resource = format!("*/{subresource}");
            lists(&rule["resources"], &both) || lists(&rule["resources"], &any_resource)
        }
    };
    let names = &rule["resourceNames"];
    let name_matches = names.as_array().is_none_or(Vec::is_empty)
        || names.as_array().into_iter().flatten().any(|name| name == question.name);
    lists(&rule["apiGroups"], question.group) && resource_matches && name_matches
}

fn subject_is(subject: &Value, who: &Identity, binding_namespace: &str) -> bool {
    match subject["kind"].as_str() {
        Some("User") => subject["name"] == who.user,
        Some("Group") => who.groups.iter().any(|group| subject["name"] == *group),
        Some("ServiceAccount") => {
            let namespace = subject["namespace"].as_str().unwrap_or(binding_namespace);
            let name = subject["name"].as_str().unwrap_or_default();
            let account = who.user.strip_prefix("system:serviceaccount:");
            account.and_then(|account| account.split_once(':')) == Some((namespace, name))
        }
        _ => false,
    }
}

fn rules(store: &Store, role_ref: &Value, namespace: &str) -> Option<Arc<Value>> {
    let name = role_ref["name"].as_str()?;
    match role_ref["kind"].as_str()? {
        "ClusterRole" => store.read(&ResourceId::new(GROUP, "clusterroles"), "", name),
        "Role" => store.read(&ResourceId::new(GROUP, "roles"), namespace, name),
        _ => None,
    }
}

/// Whether some binding gives `who` a rule that covers the question.
pub(crate) fn allows(store: &Store, who: &Identity, question: &Question<'_>) -> bool {
    if who.is_master() {
        return true;
    }
    let grants = |binding: &Value, namespace: &str| {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        subjects.into_iter().any(|subject| subject_is(subject, who, namespace))
            && rules(store, &binding["roleRef"], namespace).is_some_and(|role| {
                role["rules"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .any(|rule| rule_allows(rule, question))
            })
    };
    if store
        .list(GROUP, "clusterrolebindings", None)
        .iter()
        .any(|binding| grants(binding, ""))
    {
        return true;
    }
    !question.namespace.is_empty()
        && store
            .list(GROUP, "rolebindings", Some(question.namespace))
            .iter()
            .any(|binding| grants(binding, question.namespace))
}

/// The refusal in the words of the real server.
pub(crate) fn refusal(who: &Identity, question: &Question<'_>) -> String {
    let user = &who.user;
    let verb = question.verb;
    if let Some(path) = question.path {
        return format!("User \"{user}\" cannot {verb} path \"{path}\"");
    }
    let resource = match question.subresource {
        Some(subresource) => format!("{}/{subresource}", question.resource),
        None => question.resource.to_owned(),
    };
    let scope = if question.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", question.namespace)
    };
    format!(
        "User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{}\" {scope}",
        question.group
    )
}

/// Paths that all authenticated users may read.
pub(crate) fn is_open(verb: Verb, path: &str) -> bool {
    verb == Verb::Get
        && (["/healthz", "/livez", "/readyz", "/version", "/api", "/apis", "/openapi"].contains(&path)
            || ["/api/", "/apis/", "/openapi/", "/version/", "/livez/", "/readyz/"]
                .iter()
                .any(|prefix| path.starts_with(prefix)))
}
