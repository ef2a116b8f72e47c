//! PUT of an object or its status.

use crate::{
    body,
    request::Call,
    server::Server,
    status::{ApiError, ApiResult},
    write::{self, Draft, Ownership, Written},
};

pub(super) async fn update(server: &Server, call: &Call) -> ApiResult<Written> {
    let object = body::object(call)?;
    if object["metadata"].get("name").is_none() {
        return Err(ApiError::bad_request("name must be provided"));
    }
    let kind = call.kind();
    let exists = server
        .store
        .read(&kind.resource, call.namespace(), call.name())
        .is_some();
    // A few built-in kinds may be created by PUT.
    let creates = kind.group == "coordination.k8s.io" || matches!(kind.plural.as_str(), "events" | "endpoints");
    let unversioned = object["metadata"].get("resourceVersion").is_none() && object["metadata"].get("uid").is_none();
    if !exists && creates && unversioned && call.subresource().is_none() {
        return write::create(
            server,
            call,
            Draft {
                object,
                ownership: Ownership::Track,
                replaces: false,
            },
        )
        .await;
    }
    write::update(server, call, |_| {
        Ok(Draft {
            object: object.clone(),
            ownership: Ownership::Track,
            replaces: true,
        })
    })
    .await
}
