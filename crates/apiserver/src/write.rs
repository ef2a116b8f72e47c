//! What every write has in common: defaults, admission, validation, generation, managedFields, commit.
//! The verbs say what the new object is; this file decides whether and how it is kept.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    admission::{self, Operation},
    body, builtin_fields, builtin_rules,
    kind::Kind,
    managed::{self, Manager},
    metadata,
    request::Call,
    server::Server,
    status::{ApiError, ApiResult, FieldError},
    store::{Commit, Key},
};

/// How often a write that lost a race is tried again.
const ATTEMPTS: usize = 10;

/// What a write led to.
#[derive(Debug)]
pub(crate) struct Written {
    /// The object as the request's version shows it.
    pub(crate) object: Arc<Value>,
    pub(crate) created: bool,
    /// Whether anything was committed.
    pub(crate) changed: bool,
    pub(crate) warnings: Vec<String>,
}

/// Who owns the fields of the new object.
#[derive(Debug, Clone)]
pub(crate) enum Ownership {
    /// The writer owns the fields that changed.
    Track,
    /// Server-side apply worked it out already.
    Given(Vec<Manager>),
}

/// What a verb makes of an object.
pub(crate) struct Draft {
    pub(crate) object: Value,
    pub(crate) ownership: Ownership,
    /// A PUT: custom resources must then name the version they replace.
    pub(crate) replaces: bool,
}

/// Brings an object into the shape in which it is kept.
fn shape(kind: &Kind, object: &mut Value) -> Vec<String> {
    if let Some(schema) = &kind.schema {
        let unknown = schema.prune(object);
        schema.apply_defaults(object);
        unknown
    } else {
        builtin_rules::shape(kind, object);
        Vec::new()
    }
}

fn check(kind: &Kind, old: Option<&Value>, object: &Value) -> ApiResult<()> {
    let mut errors = Vec::new();
    metadata::check(kind, object, &mut errors);
    if let Some(old) = old {
        metadata::check_finalizers(old, object, &mut errors);
    }
    match &kind.schema {
        Some(schema) => errors.extend(schema.check(object, old)),
        None => builtin_rules::check(kind, old, object, &mut errors),
    }
    if errors.is_empty() {
        return Ok(());
    }
    let name = object["metadata"]["name"]
        .as_str()
        .or(object["metadata"]["generateName"].as_str());
    Err(ApiError::invalid(kind, name.unwrap_or_default(), &errors))
}

/// Keeps a new object.
pub(crate) async fn create(server: &Server, call: &Call, draft: Draft) -> ApiResult<Written> {
    let kind = call.kind();
    let Draft {
        mut object, ownership, ..
    } = draft;
    if object["metadata"]
        .get("resourceVersion")
        .is_some_and(|version| version != "0")
    {
        return Err(ApiError::untranslated(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    server.check_namespace(kind, call.namespace())?;
    let given = object["metadata"]["name"].as_str().map(str::to_owned);
    let prefix = object["metadata"]["generateName"].as_str().map(str::to_owned);
    let mut warnings = Vec::new();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in [
            "resourceVersion",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "managedFields",
        ] {
            metadata.remove(field);
        }
        if let (None, Some(prefix)) = (&given, &prefix) {
            // The real server keeps room for the suffix within 63 characters.
            let prefix: String = prefix.chars().take(58).collect();
            metadata.insert("name".into(), json!(format!("{prefix}{}", server.store.next_suffix())));
        }
        metadata.insert("uid".into(), json!(server.store.next_uid()));
        metadata.insert("creationTimestamp".into(), json!(metadata::time_text(server.now())));
        metadata.remove("generation");
        if kind.generation || kind.is_custom() {
            metadata.insert("generation".into(), json!(1));
        }
    }
    builtin_rules::prepare_create(kind, &mut object, server.now());
    let mut unknown = shape(kind, &mut object);
    unknown.extend(builtin_fields::unknown(call, &object)?);
    body::unknown_fields(call, kind, &unknown, &mut warnings)?;
    let request = admission::Request {
        operation: Operation::Create,
        old: None,
        options: Value::Null,
    };
    if admission::mutate(server, call, &request, &mut object, &mut warnings).await? {
        body::tidy(kind, &mut object)?;
        shape(kind, &mut object);
    }
    check(kind, None, &object)?;
    admission::validate(server, call, &request, Some(&object), &mut warnings).await?;
    let managers = match ownership {
        Ownership::Given(managers) => managers,
        Ownership::Track if !server.config.track_owners => Vec::new(),
        Ownership::Track => managed::after_update(kind, None, &object, Vec::new(), &server.writer(call)),
    };
    managed::put(&mut object, &managers);
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let key: Key = (call.namespace().to_owned(), name.clone());
    if call.dry_run()? {
        if server.store.read(&kind.resource, &key.0, &key.1).is_some() {
            return Err(ApiError::already_exists(kind, &name));
        }
        return Ok(Written {
            object: Arc::new(object),
            created: true,
            changed: false,
            warnings,
        });
    }
    let kept = kind.absorb(object);
    let stored = server
        .store
        .commit(&kind.resource, &key, None, Commit::Put(kept), &call.origin())
        .map_err(|_| ApiError::already_exists(kind, &name))?;
    server.after_commit(call, kind, &stored, false);
    Ok(Written {
        object: kind.present(&stored),
        created: true,
        changed: true,
        warnings,
    })
}

/// Fields the server alone sets: whatever the client sends, the old ones stay.
fn restore_system_fields(old: &Value, new: &mut Value) {
    let Some(metadata) = new["metadata"].as_object_mut() else {
        return;
    };
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "namespace",
    ] {
        match old["metadata"].get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
    metadata.remove("selfLink");
    metadata.remove("managedFields");
}

/// The main resource does not touch the status, and the status subresource nothing else.
fn split_status(kind: &Kind, subresource: Option<&str>, old: &Value, new: &mut Value) {
    let put = |target: &mut Value, field: &str, value: Option<&Value>| {
        let Some(map) = target.as_object_mut() else { return };
        match value {
            Some(value) => map.insert(field.into(), value.clone()),
            None => map.remove(field),
        };
    };
    if subresource == Some("status") {
        let status = new.get_mut("status").map(Value::take);
        let metadata = if kind.is_custom() {
            let mut metadata = old["metadata"].clone();
            metadata["resourceVersion"] = new["metadata"]["resourceVersion"].take();
            metadata
        } else {
            new["metadata"].take()
        };
        // Of the old object, everything but what is replaced anyway: a status may be large.
        let kept = old.as_object().into_iter().flatten();
        let kept = kept.filter(|(field, _)| !["metadata", "status"].contains(&field.as_str()));
        *new = Value::Object(kept.map(|(field, value)| (field.clone(), value.clone())).collect());
        new["metadata"] = metadata;
        if let Some(status) = status {
            new["status"] = status;
        }
    } else if kind.status {
        put(new, "status", old.get("status"));
    }
}

fn check_preconditions(call: &Call, old: &Value, draft: &Draft) -> ApiResult<()> {
    let (kind, name) = (call.kind(), call.name());
    let (was, sent) = (&old["metadata"], &draft.object["metadata"]);
    if let Some(found) = sent["name"].as_str()
        && found != name
    {
        let error = FieldError::invalid("metadata.name", &sent["name"], "field is immutable");
        return Err(ApiError::invalid(kind, name, &[error]));
    }
    if let Some(uid) = sent["uid"].as_str()
        && was["uid"] != uid
    {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            was["uid"].as_str().unwrap_or_default()
        );
        return Err(ApiError::conflict(kind, name, &why));
    }
    match sent["resourceVersion"].as_str() {
        Some(version) if was["resourceVersion"] == version => Ok(()),
        Some(version) if version.parse::<u64>().is_err() => {
            let error = FieldError::invalid("metadata.resourceVersion", &json!(version), "must be a number");
            Err(ApiError::invalid(kind, name, &[error]))
        }
        Some(_) => Err(ApiError::modified(kind, name)),
        None if draft.replaces && kind.is_custom() => {
            let field = "metadata.resourceVersion";
            let message = "Invalid value: 0: must be specified for an update".to_owned();
            Err(ApiError::invalid(
                kind,
                name,
                &[FieldError::other(field, "FieldValueInvalid", message)],
            ))
        }
        None => Ok(()),
    }
}

/// Whether anything but metadata (and status) differs.
fn is_new_generation(kind: &Kind, old: &Value, new: &Value) -> bool {
    let counts = |field: &str| field != "metadata" && field != "apiVersion" && !(kind.status && field == "status");
    let differs = |a: &Value, b: &Value| {
        let mut fields = a.as_object().into_iter().flatten();
        fields.any(|(field, value)| counts(field) && b.get(field) != Some(value))
    };
    differs(old, new) || differs(new, old)
}

/// Changes an existing object. `change` gets the object as the request's version shows it; it may be asked again when
/// another write came in between.
pub(crate) async fn update(
    server: &Server,
    call: &Call,
    mut change: impl FnMut(&Value) -> ApiResult<Draft> + Send,
) -> ApiResult<Written> {
    let kind = call.kind();
    for _ in 0..ATTEMPTS {
        let Some(stored) = server.store.read(&kind.resource, call.namespace(), call.name()) else {
            return Err(ApiError::not_found(kind, call.name()));
        };
        let old = kind.present(&stored);
        let draft = change(&old)?;
        if let Some(written) = attempt(server, call, &stored, &old, draft).await? {
            return Ok(written);
        }
    }
    Err(ApiError::modified(kind, call.name()))
}

/// One try; none when another write was faster.
async fn attempt(
    server: &Server,
    call: &Call,
    stored: &Arc<Value>,
    old: &Arc<Value>,
    mut draft: Draft,
) -> ApiResult<Option<Written>> {
    let kind = call.kind();
    body::tidy(kind, &mut draft.object)?;
    check_preconditions(call, old, &draft)?;
    let mut new = draft.object;
    let mut warnings = Vec::new();
    new["apiVersion"] = json!(kind.api_version());
    new["kind"] = json!(kind.kind);
    new["metadata"]["name"] = json!(call.name());
    let sent = managed::sent(old, &new);
    restore_system_fields(old, &mut new);
    split_status(kind, call.subresource(), old, &mut new);
    restore_system_fields(old, &mut new);
    let mut unknown = shape(kind, &mut new);
    unknown.extend(builtin_fields::unknown(call, &new)?);
    body::unknown_fields(call, kind, &unknown, &mut warnings)?;
    new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
    let request = admission::Request {
        operation: Operation::Update,
        old: Some(old),
        options: Value::Null,
    };
    if admission::mutate(server, call, &request, &mut new, &mut warnings).await? {
        body::tidy(kind, &mut new)?;
        restore_system_fields(old, &mut new);
        shape(kind, &mut new);
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
    }
    check(kind, Some(old), &new)?;
    admission::validate(server, call, &request, Some(&new), &mut warnings).await?;
    if (kind.generation || kind.is_custom()) && is_new_generation(kind, old, &new) {
        new["metadata"]["generation"] = json!(old["metadata"]["generation"].as_i64().unwrap_or_default() + 1);
    }
    let before = managed::take(old);
    let same = managed::same_but_managed(old, &new);
    let managers = match draft.ownership {
        Ownership::Given(managers) => managers,
        Ownership::Track => {
            let known = sent.unwrap_or_else(|| before.clone());
            if same || !server.config.track_owners {
                known
            } else {
                managed::after_update(kind, Some(old), &new, known, &server.writer(call))
            }
        }
    };
    let unchanged = same && managed::same_owners(&before, &managers);
    // A pod that has time left to end stays until its kubelet deletes it without delay.
    let has_time_left = old["metadata"]["deletionGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|left| left > 0);
    let going = metadata::is_deleting(&new)
        && metadata::has_no_finalizers(&new)
        && !has_time_left
        && !server.keeps_namespace(kind, &new);
    if unchanged && !going {
        let object = Arc::clone(old);
        return Ok(Some(Written {
            object,
            created: false,
            changed: false,
            warnings,
        }));
    }
    managed::put(&mut new, &managers);
    if call.dry_run()? {
        return Ok(Some(Written {
            object: Arc::new(new),
            created: false,
            changed: false,
            warnings,
        }));
    }
    let key: Key = (call.namespace().to_owned(), call.name().to_owned());
    let kept = kind.absorb(new);
    let action = if going { Commit::Remove(kept) } else { Commit::Put(kept) };
    let Ok(stored) = server
        .store
        .commit(&kind.resource, &key, Some(stored), action, &call.origin())
    else {
        return Ok(None);
    };
    server.after_commit(call, kind, &stored, going);
    let object = kind.present(&stored);
    Ok(Some(Written {
        object,
        created: false,
        changed: true,
        warnings,
    }))
}
