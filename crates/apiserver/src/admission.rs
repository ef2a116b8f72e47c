//! Admission webhooks: which are called, with what, and how their responses are used.
//! Targets are functions in this process; an unregistered target is a webhook that is down.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::{
    kind::ResourceId,
    match_conditions::{self, Subject},
    patch::apply_json_patch,
    request::Call,
    selector::LabelSelector,
    server::Server,
    status::{ApiError, ApiResult},
};

/// An in-process admission target: `AdmissionReview` in, `AdmissionReview` out. It may take its time, and may read the cluster
/// in the meantime: other requests continue.
pub type WebhookHandler = Arc<dyn Fn(Value) -> BoxFuture<'static, Value> + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// What is being admitted, besides the object itself.
pub(crate) struct Request<'a> {
    pub(crate) operation: Operation,
    pub(crate) old: Option<&'a Value>,
    pub(crate) options: Value,
}

/// Lets mutating webhooks change the object. True when one did.
pub(crate) async fn mutate(
    server: &Server,
    call: &Call,
    request: &Request<'_>,
    object: &mut Value,
    warnings: &mut Vec<String>,
) -> ApiResult<bool> {
    let mut changed = false;
    for hook in hooks(server, call, request.operation, "mutatingwebhookconfigurations") {
        if !concerns(server, &hook, call, request, Some(object)) {
            continue;
        }
        let Some(response) = ask(server, &hook, call, request, Some(object), warnings).await? else {
            continue;
        };
        let encoded = &response["patch"];
        if encoded.is_null() {
            continue;
        }
        let patch = decode_patch(encoded).ok_or_else(|| ApiError::internal("webhook sent an unreadable patch"))?;
        *object = apply_json_patch(object, &patch).map_err(|error| ApiError::internal(error.message))?;
        changed = true;
    }
    Ok(changed)
}

/// Lets validating webhooks refuse.
pub(crate) async fn validate(
    server: &Server,
    call: &Call,
    request: &Request<'_>,
    object: Option<&Value>,
    warnings: &mut Vec<String>,
) -> ApiResult<()> {
    for hook in hooks(server, call, request.operation, "validatingwebhookconfigurations") {
        if concerns(server, &hook, call, request, object) {
            ask(server, &hook, call, request, object, warnings).await?;
        }
    }
    Ok(())
}

/// The webhooks whose rules cover a request. Most requests concern none: nothing is copied for those.
fn hooks(server: &Server, call: &Call, operation: Operation, plural: &str) -> Vec<Value> {
    // Webhook configurations themselves are never sent to webhooks: a broken one must stay fixable.
    if call.kind().group == "admissionregistration.k8s.io" {
        return Vec::new();
    }
    let resource = ResourceId::new("admissionregistration.k8s.io", plural);
    let state = server.store.lock();
    let Some(partition) = state.partitions.get(&resource) else {
        return Vec::new();
    };
    let configurations = partition.objects.values();
    configurations
        .flat_map(|object| object["webhooks"].as_array().into_iter().flatten())
        .filter(|hook| covers(hook, call, operation))
        .cloned()
        .collect()
}

fn lists(list: &Value, wanted: &str) -> bool {
    list.as_array()
        .into_iter()
        .flatten()
        .any(|entry| entry == "*" || entry == wanted)
}

fn rule_covers(rule: &Value, call: &Call, operation: Operation) -> bool {
    let kind = call.kind();
    let resource_covers = |pattern: &str| {
        let (wanted, wanted_sub) = match pattern.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource)),
            None => (pattern, None),
        };
        if pattern == "*/*" {
            return true;
        }
        (wanted == "*" || wanted == kind.plural)
            && match (wanted_sub, call.subresource()) {
                (None, None) | (Some("*"), _) => true,
                (Some(wanted), Some(found)) => wanted == found,
                _ => false,
            }
    };
    let scope_covers = match rule["scope"].as_str() {
        Some("Namespaced") => kind.namespaced,
        Some("Cluster") => !kind.namespaced,
        _ => true,
    };
    scope_covers
        && lists(&rule["operations"], operation.name())
        && lists(&rule["apiGroups"], &kind.group)
        // matchPolicy Equivalent: another version of the same resource is covered too.
        && (lists(&rule["apiVersions"], &kind.version) || kind.is_custom())
        && rule["resources"].as_array().into_iter().flatten().filter_map(Value::as_str).any(resource_covers)
}

fn covers(hook: &Value, call: &Call, operation: Operation) -> bool {
    let mut rules = hook["rules"].as_array().into_iter().flatten();
    rules.any(|rule| rule_covers(rule, call, operation))
}

/// Whether a webhook that covers a request selects its object and namespace.
fn concerns(server: &Server, hook: &Value, call: &Call, request: &Request<'_>, object: Option<&Value>) -> bool {
    let selected = |selector: &Value, labels: &Value| match LabelSelector::from_object(selector) {
        Some(selector) => selector.matches(labels),
        None => true,
    };
    let by_object = |object: &Value| selected(&hook["objectSelector"], &object["metadata"]["labels"]);
    if !object.is_some_and(by_object) && !request.old.is_some_and(by_object) {
        return false;
    }
    let namespace = if call.kind().namespaced { call.namespace() } else { "" };
    if namespace.is_empty() || hook.get("namespaceSelector").is_none() {
        return true;
    }
    let found = server.store.get("", "namespaces", "", namespace);
    let labels = found
        .map(|namespace| namespace["metadata"]["labels"].clone())
        .unwrap_or_default();
    selected(&hook["namespaceSelector"], &labels)
}

/// The keys under which a handler may be registered.
fn addresses(hook: &Value) -> Vec<String> {
    let config = &hook["clientConfig"];
    if let Some(url) = config["url"].as_str() {
        return vec![url.to_owned()];
    }
    let service = &config["service"];
    let text = |field: &str| service[field].as_str().unwrap_or_default();
    let path = text("path");
    vec![
        format!(
            "{}/{}/{}",
            text("namespace"),
            text("name"),
            path.trim_start_matches('/')
        ),
        path.to_owned(),
    ]
}

/// What a webhook is asked, but for the objects: most are not asked after all, and the objects may be large.
fn asked(server: &Server, call: &Call, request: &Request<'_>, object: Option<&Value>) -> Value {
    let kind = call.kind();
    let subject = object.or(request.old).unwrap_or(&Value::Null);
    let name = subject["metadata"]["name"].as_str().unwrap_or_else(|| call.name());
    let mut asked = json!({
        "uid": server.store.next_uid(),
        "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
        "requestKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "requestResource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
        "name": name,
        "operation": request.operation.name(),
        "userInfo": {"username": call.user, "groups": call.groups},
        "object": null,
        "oldObject": null,
        "dryRun": call.query.get("dryRun").is_some(),
        "options": request.options,
    });
    if kind.namespaced {
        asked["namespace"] = json!(call.namespace());
    }
    if let Some(subresource) = call.subresource() {
        asked["subResource"] = json!(subresource);
    }
    asked
}

/// Calls one webhook. None when its conditions do not match, or it is down and may be ignored.
async fn ask(
    server: &Server,
    hook: &Value,
    call: &Call,
    request: &Request<'_>,
    object: Option<&Value>,
    warnings: &mut Vec<String>,
) -> ApiResult<Option<Value>> {
    let mut asked = asked(server, call, request, object);
    let subject = Subject {
        request: &asked,
        object,
        old: request.old,
    };
    if !match_conditions::hold(hook, &subject)? {
        return Ok(None);
    }
    let name = hook["name"].as_str().unwrap_or_default();
    let addresses = addresses(hook);
    let handler = addresses.iter().find_map(|address| server.webhook(address));
    let Some(handler) = handler else {
        if hook["failurePolicy"] == "Ignore" {
            return Ok(None);
        }
        let target = addresses.first().cloned().unwrap_or_default();
        return Err(ApiError::internal(format!(
            "failed calling webhook \"{name}\": failed to call webhook: Post \"{target}\": connection refused"
        )));
    };
    asked["object"] = object.cloned().unwrap_or_default();
    asked["oldObject"] = request.old.cloned().unwrap_or_default();
    let mut review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"});
    review["request"] = asked;
    let response = handler(review).await["response"].take();
    for warning in response["warnings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        warnings.push(warning.to_owned());
    }
    if response["allowed"] == true {
        return Ok(Some(response));
    }
    let status = &response["status"];
    let code = status["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok())
        .filter(|code| *code >= 400);
    let detail = status["message"].as_str().or(status["reason"].as_str());
    let message = match detail {
        Some(detail) => format!("admission webhook \"{name}\" denied the request: {detail}"),
        None => format!("admission webhook \"{name}\" denied the request without explanation"),
    };
    let code = code.unwrap_or(403);
    let reason = status["reason"]
        .as_str()
        .unwrap_or(if code == 403 { "Forbidden" } else { "" });
    let mut error = ApiError::new(code, reason, message);
    // Causes pass through to the user as the webhook gave them.
    error.details = status.get("details").cloned().map(Box::new);
    Err(error)
}

/// Bytes come as base64 or, as Go reads them too, as a list of numbers.
fn decode_patch(encoded: &Value) -> Option<Value> {
    use base64::Engine as _;
    let bytes = match encoded.as_str() {
        Some(text) => base64::engine::general_purpose::STANDARD.decode(text).ok()?,
        None => serde_json::from_value(encoded.clone()).ok()?,
    };
    serde_json::from_slice(&bytes).ok()
}
