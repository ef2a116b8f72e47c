//! GET of a collection: selected, in order, in pages.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use base64::Engine as _;
use http::Response;
use serde_json::{Value, json};

use crate::{
    request::{Call, Form},
    response::{self, Body},
    selector::Selection,
    server::Server,
    status::{ApiError, ApiResult},
    store::Key,
    table,
};

const CODEC: base64::engine::GeneralPurpose = base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Where the next page starts: a version and the last key of this page.
fn token(version: u64, key: &Key) -> String {
    CODEC.encode(json!({"v": "meta.k8s.io/v1", "rv": version, "start": [key.0, key.1]}).to_string())
}

fn read_token(text: &str) -> ApiResult<(u64, Key)> {
    let invalid = || ApiError::bad_request("continue key is not valid: unable to decode");
    let bytes = CODEC.decode(text).map_err(|_| invalid())?;
    let token: Value = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
    let part = |index: usize| token["start"][index].as_str().map(str::to_owned).ok_or_else(invalid);
    Ok((token["rv"].as_u64().ok_or_else(invalid)?, (part(0)?, part(1)?)))
}

/// The objects of the collection at a version: the newest, or an exact older one.
fn snapshot(server: &Server, call: &Call, version: Option<u64>) -> ApiResult<(u64, BTreeMap<Key, Arc<Value>>)> {
    let state = server.store.lock();
    let Some(partition) = state.partitions.get(&call.kind().resource) else {
        return Ok((version.unwrap_or(state.version), BTreeMap::new()));
    };
    let Some(version) = version else {
        return Ok((state.version, partition.objects.clone()));
    };
    let objects = partition.at(version).ok_or_else(|| {
        ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You must start a new list \
             without the continue parameter.",
        )
    })?;
    Ok((version, objects))
}

pub(crate) fn list(server: &Server, call: &Call, older_by: u64) -> ApiResult<Response<Body>> {
    let kind = call.kind();
    let selection = Selection::parse(kind, call.target.namespace.as_deref(), None, &call.query)?;
    let limit = call.query.number("limit")?.filter(|limit| *limit > 0);
    let newest = server.store.resource_version();
    let wanted = call.query.number("resourceVersion")?;
    if let Some(wanted) = wanted
        && wanted > newest
    {
        let mut error = ApiError::new(
            504,
            "Timeout",
            format!("Too large resource version: {wanted}, current: {newest}"),
        );
        error.details = Some(Box::new(json!({"retryAfterSeconds": 1,
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]})));
        return Err(error);
    }
    let (version, after) = match call.query.get("continue") {
        Some(text) => read_token(text).map(|(version, key)| (Some(version), Some(key)))?,
        None if call.query.get("resourceVersionMatch") == Some("Exact") => (wanted, None),
        None if older_by > 0 => (Some(newest.saturating_sub(older_by).max(oldest(server, call))), None),
        None => (None, None),
    };
    let (version, objects) = snapshot(server, call, version)?;
    let start = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut items: Vec<Arc<Value>> = Vec::new();
    let mut more: Option<String> = None;
    let mut last: Option<&Key> = None;
    let mut remaining = 0_u64;
    for (key, object) in objects.range((start, Bound::Unbounded)) {
        if !selection.matches(object) {
            continue;
        }
        if limit.is_some_and(|limit| items.len() as u64 >= limit) {
            more = last.map(|last| token(version, last));
            remaining += 1;
            continue;
        }
        items.push(kind.present(object));
        last = Some(key);
    }
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if let Some(more) = more {
        metadata["continue"] = json!(more);
        // The real server does not count when it would have to evaluate a selector.
        if !call.query.has("labelSelector") && !call.query.has("fieldSelector") {
            metadata["remainingItemCount"] = json!(remaining);
        }
    }
    Ok(render(server, call, &items, &metadata))
}

fn oldest(server: &Server, call: &Call) -> u64 {
    server
        .store
        .lock()
        .partitions
        .get(&call.kind().resource)
        .map_or(0, |partition| partition.compacted)
}

fn render(server: &Server, call: &Call, items: &[Arc<Value>], metadata: &Value) -> Response<Body> {
    let kind = call.kind();
    match call.form {
        Form::Whole => {
            // Objects are written one after the other: a list is never in memory twice.
            let mut text = format!(
                "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
                json!(kind.list_kind()),
                json!(kind.api_version())
            );
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&item.to_string());
            }
            text.push_str("]}");
            response::raw(200, "application/json", text.into())
        }
        Form::Table => {
            let columns = table::Columns::of(kind, call.query.get("includeObject"), server.now());
            response::json(200, &columns.table(items, metadata))
        }
        Form::Metadata => {
            let items: Vec<Value> = items.iter().map(|item| table::metadata_only(item)).collect();
            let list = json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items,
            });
            response::json(200, &list)
        }
    }
}
