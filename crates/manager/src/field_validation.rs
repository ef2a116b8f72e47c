//! Field validation of what we write.
//!
//! A field that a kind does not have is dropped, and the write succeeds. Only a `Warning` header reports it, to clients
//! that request it: a misspelt field once left every Job of an upgrade without its environment, unnoticed. So every
//! write requests it, and warnings are logged. Tests ask the API server to refuse such writes instead.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex, PoisonError},
};

use http::{HeaderMap, Method, Request, Response, Uri, header::WARNING};
use kube::{Client, client::Body};
use serde_json::Value;

use crate::client::readdressed;

const PARAMETER: &str = "fieldValidation";

/// Aggregated API of KubeVirt: its writes are calls without an object.
const CALLS: &str = "/apis/subresources.kubevirt.io/";

/// How many different warnings are remembered. Some texts have names in them, and a manager runs for months.
const REMEMBERED: usize = 500;

/// What the API server does about a field that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It drops the field and says so.
    Warn,
    /// It refuses the write.
    Strict,
}

impl Mode {
    /// As a setting says: refused only where it is `Strict`, to the letter. Production warns.
    #[must_use]
    pub fn of(setting: Option<&str>) -> Self {
        match setting {
            Some("Strict") => Self::Strict,
            _ => Self::Warn,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Warn => "Warn",
            Self::Strict => "Strict",
        }
    }
}

/// What a text was first about: the kind of object that it is about, and the text.
type Warned = (String, String);

/// The warnings that came back so far.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<BTreeMap<Warned, String>>>);

impl Warnings {
    /// Each text once, with the object that it was first about.
    #[must_use]
    pub fn recorded(&self) -> Vec<(String, String)> {
        let recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recorded
            .iter()
            .map(|((_, text), object)| (object.clone(), text.clone()))
            .collect()
    }

    /// Logs a warning unless that was done before.
    fn record(&self, kind: &str, object: &str, text: &str) {
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.len() >= REMEMBERED {
            recorded.clear();
        }
        let first = (kind.to_owned(), text.to_owned());
        if let Entry::Vacant(first) = recorded.entry(first) {
            first.insert(object.to_owned());
            tracing::warn!(object, warning = text, "the API server warns of what was written");
        }
    }
}

/// Sends a write that requests field validation, and logs the warnings.
pub(crate) async fn send(
    client: &Client,
    request: Request<Body>,
    mode: Mode,
    warnings: &Warnings,
) -> kube::Result<Response<Body>> {
    let method = request.method().clone();
    let (mut parts, body) = request.into_parts();
    parts.uri = asking(&parts.uri, mode);
    let path = parts.uri.path().to_owned();
    // Bodies of writes are in memory already.
    let sent = body.collect_bytes().await?;
    let request = Request::from_parts(parts, Body::from(sent.to_vec()));
    let response = client.send(request).await?;
    for text in texts(response.headers()) {
        let kind = kind_of(&path);
        warnings.record(&kind, &object_of(&kind, &method, &path, &sent), &text);
    }
    Ok(response)
}

/// Whether a request writes an object.
pub(crate) fn is_write(method: &Method, path: &str) -> bool {
    let writes = [Method::POST, Method::PUT, Method::PATCH].contains(method);
    writes && path.starts_with("/api") && !path.starts_with(CALLS) && !path.contains("/proxy/")
}

/// The address with the parameter, unless the caller has set one.
fn asking(uri: &Uri, mode: Mode) -> Uri {
    let query = uri.query().unwrap_or_default();
    if query.split('&').any(|pair| pair.starts_with(PARAMETER)) {
        return uri.clone();
    }
    let parameter = format!("{PARAMETER}={}", mode.name());
    let query = match query.trim_end_matches('&') {
        "" => parameter,
        given => format!("{given}&{parameter}"),
    };
    readdressed(uri, &format!("{}?{query}", uri.path()))
}

/// The texts of all warnings: `299 - "text"`, with quotes and backslashes escaped.
fn texts(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(WARNING).iter();
    let values = values.filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
    values.flat_map(quoted).collect()
}

/// Every quoted text, since several warnings may share a header.
fn quoted(value: &str) -> Vec<String> {
    let (mut found, mut current, mut escaped) = (Vec::new(), None::<String>, false);
    for letter in value.chars() {
        match (&mut current, letter) {
            (Some(text), _) if escaped => {
                text.push(letter);
                escaped = false;
            }
            (Some(_), '\\') => escaped = true,
            (Some(_), '"') => found.extend(current.take()),
            (Some(text), _) => text.push(letter),
            (None, '"') => current = Some(String::new()),
            (None, _) => {}
        }
    }
    found
}

/// The parts of a path behind its group and version, and the group.
fn split(path: &str) -> (&str, Vec<&str>) {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        ["apis", group, _, rest @ ..] => (group, rest.to_vec()),
        ["api", _, rest @ ..] => ("", rest.to_vec()),
        _ => ("", Vec::new()),
    }
}

/// `plans.upgrade.cattle.io`.
fn kind_of(path: &str) -> String {
    let (group, rest) = split(path);
    let plural = match rest.as_slice() {
        ["namespaces", _, plural, ..] | [plural, ..] => plural,
        [] => path,
    };
    if group.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
    }
}

/// The kind with namespace and name; a new object has its name in the body only.
fn object_of(kind: &str, method: &Method, path: &str, sent: &[u8]) -> String {
    let (_, rest) = split(path);
    let (namespace, named) = match rest.as_slice() {
        ["namespaces", namespace, _, named @ ..] => (Some(*namespace), named.first().copied()),
        [_, named @ ..] => (None, named.first().copied()),
        [] => (None, None),
    };
    let name = match named {
        Some(name) => name.to_owned(),
        None if *method == Method::POST => {
            let body: Value = serde_json::from_slice(sent).unwrap_or_default();
            let metadata = &body["metadata"];
            let name = metadata["name"].as_str().or(metadata["generateName"].as_str());
            name.unwrap_or_default().to_owned()
        }
        None => String::new(),
    };
    match namespace {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn only_the_literal_strict_has_unknown_fields_refused() {
        assert_eq!(Mode::of(Some("Strict")), Mode::Strict);
        for setting in [None, Some(""), Some("Warn"), Some("strict")] {
            assert_eq!(Mode::of(setting), Mode::Warn);
        }
    }

    #[rstest]
    #[case("/api/v1/nodes/a", "/api/v1/nodes/a?fieldValidation=Warn")]
    #[case("/api/v1/nodes/a?force=true&", "/api/v1/nodes/a?force=true&fieldValidation=Warn")]
    #[case("/api/v1/nodes/a?fieldValidation=Ignore", "/api/v1/nodes/a?fieldValidation=Ignore")]
    fn a_write_asks_unless_it_asks_already(#[case] given: &str, #[case] sent: &str) {
        assert_eq!(asking(&given.parse().unwrap(), Mode::Warn).to_string(), sent);
    }

    #[rstest]
    #[case(Method::POST, "/api/v1/namespaces/a/pods", true)]
    #[case(Method::PATCH, "/apis/batch/v1/namespaces/a/jobs/b/status", true)]
    #[case(Method::GET, "/api/v1/nodes", false)]
    #[case(Method::DELETE, "/api/v1/nodes/a", false)]
    #[case(
        Method::PUT,
        "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachines/b/start",
        false
    )]
    #[case(Method::POST, "/api/v1/nodes/a/proxy/x", false)]
    fn only_writes_of_objects_ask(#[case] method: Method, #[case] path: &str, #[case] asks: bool) {
        assert_eq!(is_write(&method, path), asks);
    }

    #[rstest]
    #[case(r#"299 - "unknown field \"spec.a\"""#, &["unknown field \"spec.a\""])]
    #[case(r#"299 - "one", 299 - "two \\ three""#, &["one", r"two \ three"])]
    #[case("199", &[])]
    fn warnings_are_read_without_their_quotes(#[case] header: &str, #[case] expected: &[&str]) {
        assert_eq!(quoted(header), expected);
    }

    #[test]
    fn an_object_is_named_by_its_path_or_its_body() {
        let new = br#"{"metadata": {"generateName": "up-"}}"#;
        let path = "/apis/batch/v1/namespaces/a/jobs";
        assert_eq!(object_of(&kind_of(path), &Method::POST, path, new), "jobs.batch a/up-");
        let path = "/api/v1/nodes/b/status";
        assert_eq!(object_of(&kind_of(path), &Method::PATCH, path, b""), "nodes b");
    }
}
