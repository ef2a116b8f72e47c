//! What a request gets. Pure: the image's tree and the request in, status, headers and places of bytes out.

use std::time::SystemTime;

use super::{
    PREFIX, listing,
    path::{BadTarget, Place, locate},
    range::{self, Part},
    request::{Method, Request},
};
use crate::iso::{Content, Extent, FindError, Iso, Kind, Node};

/// What a request gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Body,
}

/// What comes after the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Nothing, and nothing is said about its length.
    None,
    /// A text.
    Text(String),
    /// Bytes of the image.
    Bytes(Vec<Extent>),
}

impl Body {
    /// How long it is.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Text(text) => Some(text.len() as u64),
            Self::Bytes(extents) => Some(extents.iter().map(|extent| extent.length).sum()),
        }
    }
}

impl Answer {
    /// A status in words.
    pub(super) fn status(status: u16) -> Self {
        Self::text(
            status,
            "text/plain; charset=utf-8",
            format!("{status} {}\n", reason(status)),
        )
    }

    fn text(status: u16, kind: &str, text: String) -> Self {
        Self {
            status,
            headers: vec![("content-type", kind.to_owned())],
            body: Body::Text(text),
        }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// Decides what a request gets.
pub(super) fn answer(iso: &Iso, request: &Request) -> Answer {
    let (tree, fingerprint) = (iso.tree(), iso.fingerprint());
    if request.method == Method::Other {
        return Answer::status(405).with("allow", "GET, HEAD");
    }
    let (path, slash) = match locate(&request.target) {
        Err(BadTarget) => return Answer::status(400),
        Ok(Place::Nowhere) => return Answer::status(404),
        Ok(Place::Health) => return Answer::text(200, "text/plain; charset=utf-8", "ok\n".to_owned()),
        Ok(Place::Manifest) => {
            return match iso.manifest() {
                Some(text) => Answer::text(200, "application/json", text.to_owned()),
                None => Answer::status(503).with("retry-after", "5"),
            };
        }
        Ok(Place::Top) => return moved(""),
        Ok(Place::Image { path, slash }) => (path, slash),
    };
    let (real, node) = match tree.find(&path) {
        Ok(found) => found,
        Err(FindError::Outside) => return Answer::status(403),
        Err(FindError::Missing | FindError::Endless) => return Answer::status(404),
    };
    match &node.kind {
        Kind::Directory(names) if slash => {
            let title = if path.is_empty() {
                format!("/{PREFIX}/")
            } else {
                format!("/{PREFIX}/{path}/")
            };
            let page = listing::page(tree, &real, names, &title);
            Answer::text(200, "text/html; charset=utf-8", page)
        }
        Kind::Directory(_) => moved(&path),
        Kind::File(content) if !slash => file(node, content, &path, fingerprint, request),
        Kind::File(_) => Answer::status(404),
        Kind::Link(_) | Kind::Other => Answer::status(403),
    }
}

/// A folder is at its path with a slash, so that names on its page lead into it.
fn moved(path: &str) -> Answer {
    let elements = std::iter::once(PREFIX).chain(path.split('/').filter(|element| !element.is_empty()));
    let path: String = elements
        .map(|element| format!("/{}", listing::encode(element)))
        .collect();
    Answer::status(301).with("location", format!("{path}/"))
}

fn file(node: &Node, content: &Content, path: &str, fingerprint: &str, request: &Request) -> Answer {
    // The place in the image and the image itself: two files, or two versions of one, never share it.
    let place = content.extents().first().map_or(0, |extent| extent.offset);
    let tag = format!("\"{fingerprint}-{place:x}-{:x}\"", content.size());
    let modified = node.modified.map(SystemTime::from);
    let date = modified.map(httpdate::fmt_http_date);
    let part = match &request.range {
        Some(range) if range_holds(request, &tag, date.as_deref()) => range::parse(range, content.size()),
        _ => Part::Whole,
    };
    let (status, body) = if is_unchanged(request, &tag, modified) {
        (304, Body::None)
    } else {
        match part {
            Part::Whole => (200, Body::Bytes(content.extents().to_vec())),
            Part::Bytes { begin, length } => (206, Body::Bytes(content.part(begin, length))),
            Part::Nothing => {
                return Answer::status(416).with("content-range", format!("bytes */{}", content.size()));
            }
        }
    };
    let mut answer = Answer {
        status,
        headers: Vec::new(),
        body,
    };
    if status != 304 {
        answer = answer
            .with("content-type", content_type(path))
            .with("accept-ranges", "bytes");
    }
    if let (206, Part::Bytes { begin, length }) = (status, part) {
        let range = format!("bytes {begin}-{}/{}", begin + length - 1, content.size());
        answer = answer.with("content-range", range);
    }
    answer = answer.with("etag", tag);
    match date {
        Some(date) => answer.with("last-modified", date),
        None => answer,
    }
}

/// Whether a part is wanted, given what the client has of the file: only of this very version.
fn range_holds(request: &Request, tag: &str, date: Option<&str>) -> bool {
    match request.if_range.as_deref() {
        None => true,
        Some(condition) => condition == tag || Some(condition) == date,
    }
}

/// Whether the client has this very version. A date counts only when no tag was sent.
fn is_unchanged(request: &Request, tag: &str, modified: Option<SystemTime>) -> bool {
    if let Some(tags) = &request.if_none_match {
        let mut tags = tags.split(',').map(str::trim);
        return tags.any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag);
    }
    let since = request.if_modified_since.as_deref();
    match (modified, since.and_then(|date| httpdate::parse_http_date(date).ok())) {
        (Some(modified), Some(since)) => modified <= since,
        _ => false,
    }
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("txt" | "yaml" | "yml" | "cfg" | "sha512") => "text/plain; charset=utf-8",
        Some("zst") => "application/zstd",
        _ => "application/octet-stream",
    }
}

/// The words of a status.
pub(super) fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        301 => "Moved Permanently",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        416 => "Range Not Satisfiable",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Unknown",
    }
}
