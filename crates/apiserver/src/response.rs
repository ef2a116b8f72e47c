//! Bodies and headers of answers. Turns values into bytes; decides nothing.

use std::convert::Infallible;

use futures::{Stream, StreamExt};
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use serde_json::Value;

use crate::status::ApiError;

/// Body of every answer: whole or streamed, never failing.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Marks an answer that the client must never see (fault injection).
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyLost;

fn whole(code: u16, content_type: &'static str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

pub(crate) fn json(code: u16, value: &Value) -> Response<Body> {
    json_text(code, value.to_string())
}

pub(crate) fn json_text(code: u16, text: String) -> Response<Body> {
    whole(code, "application/json", Bytes::from(text))
}

pub(crate) fn text(code: u16, text: impl Into<String>) -> Response<Body> {
    whole(code, "text/plain; charset=utf-8", Bytes::from(text.into()))
}

pub(crate) fn raw(code: u16, content_type: &str, bytes: Bytes) -> Response<Body> {
    let mut response = whole(code, "application/octet-stream", bytes);
    if let Ok(value) = http::HeaderValue::from_str(content_type) {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response
}

pub(crate) fn error(error: &ApiError) -> Response<Body> {
    let mut response = json(error.code, &error.body());
    let wait = error
        .details
        .as_deref()
        .and_then(|details| details["retryAfterSeconds"].as_u64());
    if let Some(seconds) = wait {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, http::HeaderValue::from(seconds));
    }
    response
}

/// Lines of JSON for as long as the stream lasts.
pub(crate) fn stream(lines: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    stream_of("application/json", lines)
}

/// Plain text for as long as the stream lasts.
pub(crate) fn text_stream(text: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    stream_of("text/plain", text)
}

fn stream_of(content_type: &'static str, chunks: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let frames = chunks.map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

/// 204.
pub(crate) fn nothing() -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::new()).boxed_unsync());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Adds a `Warning` header that kubectl and client-go print.
pub(crate) fn warn(response: &mut Response<Body>, text: &str) {
    let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
    if let Ok(value) = http::HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
        response.headers_mut().append(header::WARNING, value);
    }
}
