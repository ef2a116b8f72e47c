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

/// Which part of a collection is wanted.
struct Wanted<'a> {
    selection: &'a Selection,
    namespace: Option<&'a str>,
    after: Option<Key>,
    limit: Option<u64>,
    /// Whether what is left is counted. The real server does not when it would have to evaluate a selector.
    counts_rest: bool,
}

/// A part of a collection.
#[derive(Default)]
struct Page {
    items: Vec<Arc<Value>>,
    /// The last key, when there is more.
    more: Option<Key>,
    remaining: u64,
    visited: u64,
}

impl Wanted<'_> {
    fn page(&self, objects: &BTreeMap<Key, Arc<Value>>) -> Page {
        let mut page = Page::default();
        let mut last: Option<&Key> = None;
        let start = match (&self.after, self.namespace) {
            (Some(after), _) => Bound::Excluded(after.clone()),
            (None, Some(namespace)) => Bound::Included((namespace.to_owned(), String::new())),
            (None, None) => Bound::Unbounded,
        };
        let rest = objects.range((start, Bound::Unbounded));
        // Keys are ordered by namespace.
        for (key, object) in rest.take_while(|(key, _)| self.namespace.is_none_or(|wanted| key.0 == wanted)) {
            page.visited += 1;
            if !self.selection.matches(object) {
                continue;
            }
            if self.limit.is_some_and(|limit| page.items.len() as u64 >= limit) {
                page.more = last.cloned();
                page.remaining += 1;
                if !self.counts_rest {
                    break;
                }
                continue;
            }
            page.items.push(Arc::clone(object));
            last = Some(key);
        }
        page
    }
}

/// A part of the collection at a version: the newest, or an exact older one.
fn read(server: &Server, call: &Call, version: Option<u64>, wanted: &Wanted<'_>) -> ApiResult<(u64, Page)> {
    let mut state = server.store.lock();
    let newest = state.version;
    let Some(partition) = state.partitions.get(&call.kind().resource) else {
        return Ok((version.unwrap_or(newest), Page::default()));
    };
    let page = match version {
        None => wanted.page(&partition.objects),
        Some(version) => {
            let objects = partition.at(version).ok_or_else(|| {
                ApiError::expired(
                    "The provided continue parameter is too old to display a consistent list result. You must start a new \
                     list without the continue parameter.",
                )
            })?;
            wanted.page(&objects)
        }
    };
    state.count_listed(page.visited);
    Ok((version.unwrap_or(newest), page))
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
    let counts_rest = !call.query.has("labelSelector") && !call.query.has("fieldSelector");
    let wanted = Wanted {
        selection: &selection,
        namespace: call.target.namespace.as_deref(),
        after,
        limit,
        counts_rest,
    };
    let (version, page) = read(server, call, version, &wanted)?;
    let items: Vec<Arc<Value>> = page.items.iter().map(|object| kind.present(object)).collect();
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if let Some(last) = &page.more {
        metadata["continue"] = json!(token(version, last));
        if counts_rest {
            metadata["remainingItemCount"] = json!(page.remaining);
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
