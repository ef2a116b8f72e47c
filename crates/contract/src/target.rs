//! Whom the contract is asked of.

use std::{collections::BTreeMap, pin::Pin};

/// An answer, read to its end.
pub struct Answer {
    /// The code.
    pub status: u16,
    /// The headers by name.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub text: String,
}

/// An answer that is on its way.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A Kubernetes API.
pub trait Target {
    /// Sends a request and reads the answer to its end.
    fn send<'a>(
        &'a self,
        method: &'a str,
        path: &'a str,
        headers: &'a BTreeMap<String, String>,
        body: String,
    ) -> Later<'a, Answer>;
    /// Whether bookmarks may come whenever the server likes.
    fn bookmarks_at_will(&self) -> bool;
    /// A namespace for one case.
    fn namespace(&self) -> Later<'_, String>;
    /// Makes sure that the invented kind is served.
    fn ensure_widgets(&self) -> Later<'_, ()>;
}

/// A request with the headers that every client sends.
///
/// # Panics
/// It cannot be sent.
#[must_use]
pub fn request(method: &str, path: &str, headers: &BTreeMap<String, String>, body: String) -> http::Request<Vec<u8>> {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if !headers.contains_key("content-type") {
        let patch = method == "PATCH";
        request = request.header(
            "content-type",
            if patch {
                "application/merge-patch+json"
            } else {
                "application/json"
            },
        );
    }
    if !headers.contains_key("accept") {
        request = request.header("accept", "application/json");
    }
    request.body(body.into_bytes()).unwrap()
}

/// Headers by name.
#[must_use]
pub fn header_map(headers: &http::HeaderMap) -> BTreeMap<String, String> {
    headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned()))
        .collect()
}
