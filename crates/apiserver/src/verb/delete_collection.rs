//! DELETE of a collection: each selected object as if deleted by name.

use std::sync::Arc;

use serde_json::{Value, json};

use super::delete::{self, Deleted, Options};
use crate::{
    identity::Identity,
    request::Call,
    route::Answer,
    selector::Selection,
    server::Server,
    status::{ApiError, ApiResult},
    store::key_of,
};

pub(super) async fn delete_collection(server: &Server, _who: &Identity, call: &Call) -> ApiResult<Answer> {
    let kind = call.kind();
    // Objects of all namespaces at once, or all namespaces, are too easily lost.
    if (kind.namespaced && call.target.namespace.is_none()) || kind.kind == "Namespace" {
        return Err(ApiError::method_not_allowed());
    }
    let options = Options::of(call)?;
    let selection = Selection::parse(kind, call.target.namespace.as_deref(), None, &call.query)?;
    let namespace = call.target.namespace.as_deref();
    let selected = server
        .store
        .list(&kind.resource.group, &kind.resource.plural, namespace);
    let mut items: Vec<Arc<Value>> = Vec::new();
    for object in selected.iter().filter(|object| selection.matches(object)) {
        match delete::remove(server, call, kind, &key_of(object), &options).await {
            Ok(Deleted::Gone(object) | Deleted::Waiting(object, _)) => items.push(object),
            // Another client was faster: it is gone, as requested.
            Err(error) if error.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let changed = !items.is_empty() && !options.is_dry_run();
    let items: Vec<Value> = items.iter().map(|item| (**item).clone()).collect();
    let list = json!({
        "kind": kind.list_kind(), "apiVersion": kind.api_version(),
        "metadata": {"resourceVersion": server.store.resource_version().to_string()}, "items": items,
    });
    Ok(Answer::Value {
        code: 200,
        value: list,
        changed,
    })
}
