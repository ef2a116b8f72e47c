//! POST of `serviceaccounts/token`: a bearer token that stands for the service account.

use serde_json::json;

use crate::{
    identity::Identity,
    metadata::time_text,
    request::Call,
    route::Answer,
    server::Server,
    status::{ApiError, ApiResult},
};

/// What clients get when they do not ask for a lifetime. Tokens do not expire here.
const LIFETIME: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

pub(super) fn issue(server: &Server, call: &Call) -> ApiResult<Answer> {
    if server
        .store
        .get("", "serviceaccounts", call.namespace(), call.name())
        .is_none()
    {
        return Err(ApiError::not_found(call.kind(), call.name()));
    }
    let who = Identity::service_account(call.namespace(), call.name());
    let token = server.tokens().issue(&who);
    let expires = server.now().checked_add(LIFETIME).map_err(ApiError::internal)?;
    let value = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": call.name(), "namespace": call.namespace()},
        "spec": {"audiences": ["embedded"], "expirationSeconds": LIFETIME.as_secs()},
        "status": {"token": token, "expirationTimestamp": time_text(expires)},
    });
    Ok(Answer::Value {
        code: 201,
        value,
        changed: false,
    })
}
