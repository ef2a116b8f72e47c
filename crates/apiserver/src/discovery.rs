//! What the server says about itself: versions, groups, resources, health. Reads the registry only.

use std::collections::BTreeMap;

use http::{Method, Response};
use serde_json::{Value, json};

use crate::{
    history::Verb,
    identity::Identity,
    kind::{Kind, Registry},
    openapi,
    rbac::{self, Question},
    response::{self, Body},
    server::Server,
    status::{ApiError, ApiResult},
};

const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// Answers paths that are not about objects; none when the path may be about objects.
pub(crate) fn answer(
    server: &Server,
    who: &Identity,
    method: &Method,
    path: &str,
    accept: &str,
) -> Option<ApiResult<Response<Body>>> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let about_self = match parts.as_slice() {
        []
        | [
            "version" | "api" | "apis" | "healthz" | "livez" | "readyz" | "openapi" | "metrics",
            ..,
        ] if parts.len() < 2 => true,
        ["healthz" | "livez" | "readyz" | "openapi", ..] => true,
        ["api", _] | ["apis", _] | ["apis", _, _] => true,
        ["api" | "apis", ..] => false,
        // Every other path is unknown, and only authorized clients get that response.
        _ => true,
    };
    if !about_self {
        return None;
    }
    if server.config.enforce_rbac {
        let verb = if method == Method::GET { "get" } else { "post" };
        let question = Question {
            verb,
            path: Some(path),
            ..Question::default()
        };
        if !rbac::is_open(Verb::Get, path) && !rbac::allows(&server.store, who, &question) {
            let message = format!("forbidden: {}", rbac::refusal(who, &question));
            return Some(Err(ApiError::new(403, "Forbidden", message)));
        }
    }
    if method != Method::GET && method != Method::HEAD {
        return Some(Err(ApiError::method_not_allowed()));
    }
    let aggregated = accept
        .split(',')
        .next()
        .is_some_and(|first| first.contains("as=APIGroupDiscoveryList"));
    let registry = server.registry();
    let value = match parts.as_slice() {
        [] => {
            json!({"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]})
        }
        ["healthz" | "livez" | "readyz", ..] => return Some(Ok(response::text(200, "ok"))),
        ["version"] => version(&server.git_version()),
        ["api"] if aggregated => return Some(Ok(aggregate(&registry, true, accept))),
        ["apis"] if aggregated => return Some(Ok(aggregate(&registry, false, accept))),
        ["api"] => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ["apis"] => {
            let groups: Vec<Value> = groups(&registry)
                .iter()
                .filter(|(name, _)| !name.is_empty())
                .map(|(name, versions)| group(name, versions))
                .collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["apis", name] => {
            let groups = groups(&registry);
            let Some(versions) = groups.get(*name) else {
                return Some(Err(ApiError::no_such_path()));
            };
            let mut value = group(name, versions);
            value["kind"] = json!("APIGroup");
            value["apiVersion"] = json!("v1");
            value
        }
        ["api", version] => return Some(resource_list(&registry, "", version)),
        ["apis", group, version] => return Some(resource_list(&registry, group, version)),
        ["openapi", rest @ ..] => {
            drop(registry);
            return Some(openapi::answer(server, rest, accept));
        }
        _ => return Some(Err(ApiError::no_such_path())),
    };
    Some(Ok(response::json(200, &value)))
}

fn version(git_version: &str) -> Value {
    let numbers: Vec<&str> = git_version.trim_start_matches('v').split('.').collect();
    json!({
        "major": numbers.first().unwrap_or(&"1"), "minor": numbers.get(1).unwrap_or(&"0"), "gitVersion": git_version,
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none",
        "compiler": "rustc", "platform": "linux/amd64",
    })
}

/// Groups with their versions, best first.
fn groups(registry: &Registry) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for kind in registry.all() {
        let versions = groups.entry(kind.group.clone()).or_default();
        if !versions.contains(&kind.version) {
            versions.push(kind.version.clone());
        }
    }
    for versions in groups.values_mut() {
        versions.sort_by_key(|version| std::cmp::Reverse(rank(version)));
    }
    groups
}

/// Stability, then number: v2 > v1 > v1beta2 > v1beta1 > v1alpha1.
fn rank(version: &str) -> (u8, u32, u32) {
    let digits = |text: &str| text.parse().unwrap_or_default();
    let rest = version.strip_prefix('v').unwrap_or_default();
    if let Some((major, minor)) = rest.split_once("beta") {
        (1, digits(major), digits(minor))
    } else if let Some((major, minor)) = rest.split_once("alpha") {
        (0, digits(major), digits(minor))
    } else {
        (2, digits(rest), 0)
    }
}

fn group(name: &str, versions: &[String]) -> Value {
    let entries: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "versions": entries, "preferredVersion": entries.first()})
}

/// Subresources of a kind: name, kind and group/version of what they take, verbs.
fn subresources(kind: &Kind) -> Vec<(&'static str, &str, &str, &str, Vec<&'static str>)> {
    let mut found: Vec<(&'static str, &str, &str, &str, Vec<&'static str>)> = Vec::new();
    if kind.status {
        found.push((
            "status",
            &kind.kind,
            &kind.group,
            &kind.version,
            vec!["get", "patch", "update"],
        ));
    }
    if kind.scale.is_some() {
        found.push(("scale", "Scale", "autoscaling", "v1", vec!["get", "patch", "update"]));
    }
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => {
            found.push(("eviction", "Eviction", "policy", "v1", vec!["create"]));
            found.push(("log", "Pod", "", "v1", vec!["get"]));
            found.push(("binding", "Binding", "", "v1", vec!["create"]));
        }
        ("", "Node") => found.push(("proxy", "NodeProxyOptions", "", "v1", vec!["get"])),
        ("", "ServiceAccount") => found.push(("token", "TokenRequest", "authentication.k8s.io", "v1", vec!["create"])),
        ("", "Namespace") => found.push(("finalize", "Namespace", "", "v1", vec!["update"])),
        _ => {}
    }
    found
}

fn verbs(kind: &Kind) -> Vec<&'static str> {
    if kind.create_only {
        vec!["create"]
    } else {
        VERBS.to_vec()
    }
}

fn resource_list(registry: &Registry, group: &str, version: &str) -> ApiResult<Response<Body>> {
    let mut resources = Vec::new();
    for kind in registry
        .all()
        .filter(|kind| kind.group == group && kind.version == version)
    {
        let mut entry = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": verbs(kind),
        });
        if !kind.short_names.is_empty() {
            entry["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            entry["categories"] = json!(kind.categories);
        }
        resources.push(entry);
        for (name, sub_kind, sub_group, sub_version, verbs) in subresources(kind) {
            let mut entry = json!({
                "name": format!("{}/{name}", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                "kind": sub_kind, "verbs": verbs,
            });
            if sub_group != kind.group {
                entry["group"] = json!(sub_group);
                entry["version"] = json!(sub_version);
            }
            resources.push(entry);
        }
    }
    if resources.is_empty() {
        return Err(ApiError::no_such_path());
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    Ok(response::json(
        200,
        &json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}),
    ))
}

/// Everything in one answer, as recent clients prefer.
fn aggregate(registry: &Registry, core: bool, accept: &str) -> Response<Body> {
    let version = if accept.contains("v=v2beta1") && !accept.contains("v=v2;") && !accept.contains("v=v2,") {
        "v2beta1"
    } else {
        "v2"
    };
    let mut items = Vec::new();
    for (name, versions) in groups(registry) {
        if name.is_empty() != core {
            continue;
        }
        let versions: Vec<Value> = versions
            .iter()
            .map(|version| {
                let kinds = registry
                    .all()
                    .filter(|kind| kind.group == name && kind.version == *version);
                let resources: Vec<Value> = kinds.map(|kind| aggregated_resource(kind)).collect();
                json!({"version": version, "resources": resources, "freshness": "Current"})
            })
            .collect();
        let metadata = if core {
            json!({"creationTimestamp": null})
        } else {
            json!({"name": name, "creationTimestamp": null})
        };
        items.push(json!({"metadata": metadata, "versions": versions}));
    }
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"), "metadata": {}, "items": items,
    });
    let content_type = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    response::raw(200, &content_type, list.to_string().into())
}

fn aggregated_resource(kind: &Kind) -> Value {
    let mut entry = json!({
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": verbs(kind),
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    let subs: Vec<Value> = subresources(kind)
        .into_iter()
        .map(|(name, sub_kind, group, version, verbs)| {
            json!({"subresource": name, "responseKind": {"group": group, "version": version, "kind": sub_kind}, "verbs": verbs})
        })
        .collect();
    if !subs.is_empty() {
        entry["subresources"] = json!(subs);
    }
    entry
}
