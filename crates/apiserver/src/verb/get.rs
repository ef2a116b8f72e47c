//! GET of one object, and of the subresources that are not objects of the kind: scale, node proxy; `log` has a file of its own.

use hyper::body::Bytes;

use super::{log, scale};
use crate::{
    request::Call,
    response,
    route::Answer,
    server::Server,
    status::{ApiError, ApiResult},
};

pub(crate) fn get(server: &Server, call: &Call) -> ApiResult<Answer> {
    let kind = call.kind();
    if kind.kind == "Node" && call.subresource() == Some("proxy") {
        return proxy(server, call);
    }
    if kind.kind == "Pod" && kind.group.is_empty() && call.subresource() == Some("log") {
        return log::read(server, call).map(Answer::Ready);
    }
    let stored = server.store.read(&kind.resource, call.namespace(), call.name());
    let stored = stored.ok_or_else(|| ApiError::not_found(kind, call.name()))?;
    match call.subresource() {
        None => {}
        Some("status") if kind.status => {}
        Some("scale") if kind.scale.is_some() => return scale::read(kind, &stored),
        Some(_) => return Err(ApiError::no_such_path()),
    }
    Ok(Answer::Object {
        code: 200,
        object: kind.present(&stored),
        changed: false,
        warnings: Vec::new(),
    })
}

fn proxy(server: &Server, call: &Call) -> ApiResult<Answer> {
    // `name:port` is how clients say which port of the node they mean.
    let node = call.name().split(':').next().unwrap_or_default();
    if server.store.get("", "nodes", "", node).is_none() {
        return Err(ApiError::not_found(call.kind(), node));
    }
    let unreachable = || {
        ApiError::new(
            503,
            "ServiceUnavailable",
            format!("error trying to reach service: node {node} does not answer"),
        )
    };
    let proxy = server.node_proxy().ok_or_else(unreachable)?;
    let (code, content_type, bytes): (u16, String, Bytes) = proxy(node, &call.target.rest).ok_or_else(unreachable)?;
    Ok(Answer::Ready(response::raw(code, &content_type, bytes)))
}
