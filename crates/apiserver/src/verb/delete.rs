//! DELETE of one object: at once, or after its finalizers are gone.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    admission::{self, Operation},
    body, builtin_rules,
    kind::Kind,
    metadata,
    request::Call,
    route::Answer,
    server::Server,
    status::{ApiError, ApiResult},
    store::{Commit, Key},
};

/// The default grace period of a pod, in seconds.
const DEFAULT_GRACE: i64 = 30;

/// `DeleteOptions` of a request, from its body or its query.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    uid: Option<String>,
    resource_version: Option<String>,
    propagation: Option<String>,
    grace: Option<i64>,
    dry_run: bool,
    raw: Value,
}

impl Options {
    pub(super) fn of(call: &Call) -> ApiResult<Self> {
        let sent = if call.body.iter().all(u8::is_ascii_whitespace) {
            json!({})
        } else {
            body::parse(call)?
        };
        if !sent.is_object() {
            return Err(ApiError::bad_request(
                "the object provided is unrecognized: expected DeleteOptions",
            ));
        }
        if sent["kind"].as_str().is_some_and(|kind| kind != "DeleteOptions") {
            return Err(ApiError::bad_request(format!(
                "the kind in the data ({}) does not match the expected kind (DeleteOptions)",
                sent["kind"]
            )));
        }
        Self::from_value(call, &sent)
    }

    pub(super) fn from_value(call: &Call, sent: &Value) -> ApiResult<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let propagation = text(&sent["propagationPolicy"]).or(call.query.get("propagationPolicy").map(str::to_owned));
        if let Some(policy) = &propagation
            && !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan")
        {
            let message = format!(
                "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"{policy}\": \
                 supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
            );
            return Err(ApiError::new(422, "Invalid", message));
        }
        let in_query = call.query.get("gracePeriodSeconds").and_then(|text| text.parse().ok());
        let dry_list = sent["dryRun"]
            .as_array()
            .is_some_and(|list| list.iter().any(|entry| entry == "All"));
        Ok(Self {
            uid: text(&sent["preconditions"]["uid"]),
            resource_version: text(&sent["preconditions"]["resourceVersion"]),
            propagation,
            grace: sent["gracePeriodSeconds"].as_i64().or(in_query),
            dry_run: dry_list || call.dry_run()?,
            raw: sent.clone(),
        })
    }
}

impl Options {
    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run
    }
}

/// What a deletion led to.
pub(super) enum Deleted {
    /// The object is gone.
    Gone(Arc<Value>),
    /// The object waits for its finalizers.
    Waiting(Arc<Value>, bool),
}

pub(super) async fn delete(server: &Server, call: &Call) -> ApiResult<Answer> {
    let options = Options::of(call)?;
    let kind = call.kind();
    Ok(
        match remove(
            server,
            call,
            kind,
            &(call.namespace().to_owned(), call.name().to_owned()),
            &options,
        )
        .await?
        {
            Deleted::Waiting(object, changed) => Answer::Object {
                code: 200,
                object,
                changed,
                warnings: Vec::new(),
            },
            // Pods are answered with the pod, as by the real server.
            Deleted::Gone(object) if kind.kind == "Pod" && kind.group.is_empty() => Answer::Object {
                code: 200,
                object,
                changed: !options.dry_run,
                warnings: Vec::new(),
            },
            Deleted::Gone(object) => {
                let mut details = json!({"name": call.name(), "kind": kind.plural, "uid": object["metadata"]["uid"]});
                if !kind.group.is_empty() {
                    details["group"] = json!(kind.group);
                }
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
                });
                Answer::Value {
                    code: 200,
                    value: status,
                    changed: !options.dry_run,
                }
            }
        },
    )
}

fn check_preconditions(kind: &Kind, object: &Value, options: &Options) -> ApiResult<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let wanted = [
        ("UID", &options.uid, "uid", "deleted and then recreated"),
        (
            "ResourceVersion",
            &options.resource_version,
            "resourceVersion",
            "modified",
        ),
    ];
    for (label, wanted, field, consequence) in wanted {
        let found = object["metadata"][field].as_str().unwrap_or_default();
        if let Some(wanted) = wanted
            && wanted != found
        {
            let message = format!(
                "Operation cannot be fulfilled on {} \"{name}\": the {label} in the precondition ({wanted}) does not match the \
                 {label} in record ({found}). The object might have been {}",
                kind.kind, consequence
            );
            return Err(ApiError::conflict(kind, name, "").with_message(message));
        }
    }
    Ok(())
}

/// Deletes one object, or marks it as being deleted.
pub(super) async fn remove(
    server: &Server,
    call: &Call,
    kind: &Kind,
    key: &Key,
    options: &Options,
) -> ApiResult<Deleted> {
    loop {
        let Some(stored) = server.store.read(&kind.resource, &key.0, &key.1) else {
            return Err(ApiError::not_found(kind, &key.1));
        };
        let shown = kind.present(&stored);
        check_preconditions(kind, &shown, options)?;
        let request = admission::Request {
            operation: Operation::Delete,
            old: Some(&shown),
            options: options.raw.clone(),
        };
        admission::validate(server, call, &request, None, &mut Vec::new()).await?;
        let mut object = (*stored).clone();
        mark(server, kind, &mut object, options);
        let stays = !metadata::has_no_finalizers(&object)
            || is_filled_namespace(server, kind, &object)
            || (is_pod(kind) && object["metadata"]["deletionGracePeriodSeconds"] != 0);
        if options.dry_run {
            let object = Arc::new(object);
            return Ok(if stays {
                Deleted::Waiting(object, false)
            } else {
                Deleted::Gone(object)
            });
        }
        if stays {
            if object == *stored {
                return Ok(Deleted::Waiting(shown, false));
            }
            let action = Commit::Put(object);
            let Ok(kept) = server
                .store
                .commit(&kind.resource, key, Some(&stored), action, &call.origin())
            else {
                continue;
            };
            if kind.kind == "Namespace" && kind.group.is_empty() {
                return Ok(empty_namespace(server, call, kind, key, &kept).await);
            }
            return Ok(Deleted::Waiting(kind.present(&kept), true));
        }
        let action = Commit::Remove((*stored).clone());
        let Ok(gone) = server
            .store
            .commit(&kind.resource, key, Some(&stored), action, &call.origin())
        else {
            continue;
        };
        server.after_commit(call, kind, &gone, true);
        return Ok(Deleted::Gone(kind.present(&gone)));
    }
}

/// Sets what a deletion sets, once.
fn mark(server: &Server, kind: &Kind, object: &mut Value, options: &Options) {
    let extra = match options.propagation.as_deref() {
        Some("Foreground") => Some("foregroundDeletion"),
        Some("Orphan") => Some("orphan"),
        _ => None,
    };
    let first = !metadata::is_deleting(object);
    let grace = if is_pod(kind) { grace_of(object, options) } else { 0 };
    let now_given = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
    if !first && now_given.is_some_and(|given| grace < given) {
        // Sooner than it was asked before.
        object["metadata"]["deletionTimestamp"] = ends_at(server, grace);
        object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    }
    if let Some(extra) = extra {
        let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if !finalizers.iter().any(|finalizer| finalizer == extra) {
            finalizers.push(json!(extra));
            object["metadata"]["finalizers"] = Value::Array(finalizers);
        }
    }
    if !first {
        return;
    }
    object["metadata"]["deletionTimestamp"] = ends_at(server, grace);
    object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    if let Some(generation) = object["metadata"]["generation"].as_i64() {
        object["metadata"]["generation"] = json!(generation + 1);
    }
    if kind.kind == "Namespace" && kind.group.is_empty() {
        builtin_rules::at(object, "status")["phase"] = json!("Terminating");
    }
}

fn is_pod(kind: &Kind) -> bool {
    kind.kind == "Pod" && kind.group.is_empty()
}

/// When something ends that has so many seconds left.
fn ends_at(server: &Server, grace: i64) -> Value {
    let at = server.now().saturating_add(jiff::SignedDuration::from_secs(grace));
    json!(metadata::time_text(at.unwrap_or(jiff::Timestamp::MAX)))
}

/// How long a pod has to end. One that no node has, or that has ended, goes at once; any other stays until its kubelet deletes
/// it without delay.
fn grace_of(pod: &Value, options: &Options) -> i64 {
    let is_nowhere = pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty);
    if is_nowhere || matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64();
    options.grace.or(own).unwrap_or(DEFAULT_GRACE).max(0)
}

fn is_filled_namespace(server: &Server, kind: &Kind, object: &Value) -> bool {
    server.keeps_namespace(kind, object)
}

/// Everything in the namespace goes first; what has finalizers keeps the namespace waiting.
async fn empty_namespace(server: &Server, call: &Call, kind: &Kind, key: &Key, kept: &Arc<Value>) -> Deleted {
    for (resource, object) in server.contents(&key.1) {
        let Some(content_kind) = server.registry().of_resource(&resource) else {
            continue;
        };
        let content_key = crate::store::key_of(&object);
        // Whatever refuses to go now keeps the namespace, as it does on a real cluster.
        let options = Options::default();
        let _ = Box::pin(remove(server, call, &content_kind, &content_key, &options)).await;
    }
    let waiting = Deleted::Waiting(kind.present(kept), true);
    if !metadata::has_no_finalizers(kept) || !server.contents(&key.1).is_empty() {
        return waiting;
    }
    let action = Commit::Remove((**kept).clone());
    match server
        .store
        .commit(&kind.resource, key, Some(kept), action, &call.origin())
    {
        Ok(gone) => Deleted::Gone(kind.present(&gone)),
        Err(_) => waiting,
    }
}
