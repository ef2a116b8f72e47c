//! POST to a collection.

use crate::{
    body,
    request::Call,
    server::Server,
    status::ApiResult,
    write::{self, Draft, Ownership, Written},
};

pub(super) async fn create(server: &Server, call: &Call) -> ApiResult<Written> {
    let object = body::object(call)?;
    write::create(
        server,
        call,
        Draft {
            object,
            ownership: Ownership::Track,
            replaces: false,
        },
    )
    .await
}
