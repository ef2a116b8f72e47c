//! One file per verb. This one only finds the right file for a write.

mod apply;
mod create;
mod delete;
mod delete_collection;
mod eviction;
mod get;
mod list;
mod log;
mod log_options;
mod patch;
mod review;
mod scale;
mod token;
mod update;
mod watch;

pub(crate) use get::get;
pub(crate) use list::list;
pub(crate) use review::review;
pub(crate) use watch::watch;

use crate::{
    history::Verb,
    identity::Identity,
    request::Call,
    route::Answer,
    server::Server,
    status::{ApiError, ApiResult},
    write::Written,
};

/// Carries out a write.
pub(crate) async fn write(server: &Server, who: &Identity, call: &Call) -> ApiResult<Answer> {
    let kind = call.kind();
    let written = match (call.verb, call.subresource()) {
        (Verb::Create, None) if call.target.name.is_none() => create::create(server, call).await?,
        (Verb::Create, Some("eviction")) if kind.kind == "Pod" => return eviction::evict(server, call).await,
        (Verb::Create, Some("binding")) if kind.kind == "Pod" => return eviction::bind(server, call).await,
        (Verb::Create, Some("token")) if kind.kind == "ServiceAccount" => return token::issue(server, call),
        (Verb::Update | Verb::Patch, Some("scale")) if kind.scale.is_some() => return scale::write(server, call).await,
        (Verb::Update, Some("finalize")) if kind.kind == "Namespace" => update::update(server, call).await?,
        (Verb::Update, sub) if sub.is_none() || is_status(call) => update::update(server, call).await?,
        (Verb::Patch, sub) if sub.is_none() || is_status(call) => patch::patch(server, call).await?,
        (Verb::Delete, None) => return delete::delete(server, call).await,
        (Verb::DeleteCollection, None) => return delete_collection::delete_collection(server, who, call).await,
        (_, None) => return Err(ApiError::method_not_allowed()),
        (_, Some(_)) => return Err(ApiError::no_such_path()),
    };
    let Written {
        object,
        created,
        changed,
        warnings,
        ..
    } = written;
    Ok(Answer::Object {
        code: if created { 201 } else { 200 },
        object,
        changed,
        warnings,
    })
}

fn is_status(call: &Call) -> bool {
    call.subresource() == Some("status") && call.kind().status
}
