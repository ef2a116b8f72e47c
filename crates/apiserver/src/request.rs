//! From a path, a query and headers to what is asked of which object. Reads requests; answers none.

use std::{collections::BTreeMap, sync::Arc};

use http::{Method, request::Parts};
use hyper::body::Bytes;
use percent_encoding::percent_decode_str;

use crate::{
    history::Verb,
    kind::{Kind, Registry},
    status::{ApiError, ApiResult, FieldError},
};

/// Query parameters, decoded; the last of several wins.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " "))
        .decode_utf8_lossy()
        .into_owned()
}

impl Query {
    pub(crate) fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(key), decoded(value))
        });
        Self(pairs.collect())
    }

    /// A parameter that is there and not empty.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A parameter that is there, empty or not.
    pub(crate) fn raw(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    pub(crate) fn is_true(&self, key: &str) -> bool {
        self.get(key)
            .is_some_and(|value| matches!(value, "true" | "1" | "True" | "t"))
    }

    /// The version a watch begins at.
    pub(crate) fn version(&self) -> ApiResult<u64> {
        let text = self.get("resourceVersion").unwrap_or("0");
        text.parse().map_err(|_| {
            ApiError::untranslated(format!(
                "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
            ))
        })
    }

    pub(crate) fn number(&self, key: &str) -> ApiResult<Option<u64>> {
        let Some(text) = self.get(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!(
                "strconv.ParseInt: parsing \"{text}\": invalid syntax (parameter {key})"
            ))
        })
    }
}

/// In which form objects are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    Table,
    Metadata,
}

/// The first media type of `Accept` that can be served.
pub(crate) fn form(accept: &str) -> ApiResult<Form> {
    if accept.trim().is_empty() {
        return Ok(Form::Whole);
    }
    for range in accept.split(',') {
        let mut pieces = range.split(';').map(str::trim);
        let media = pieces.next().unwrap_or_default();
        if !matches!(media, "application/json" | "application/*" | "*/*" | "application/yaml") {
            continue;
        }
        let parameters: BTreeMap<&str, &str> = pieces.filter_map(|piece| piece.split_once('=')).collect();
        let meta = parameters.get("g").is_none_or(|group| *group == "meta.k8s.io");
        match parameters.get("as").copied() {
            None => return Ok(Form::Whole),
            Some("Table") if meta => return Ok(Form::Table),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") if meta => return Ok(Form::Metadata),
            Some(_) => {}
        }
    }
    Err(ApiError::not_acceptable())
}

/// What a path names.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) kind: Arc<Kind>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// What follows the subresource (node proxy).
    pub(crate) rest: String,
    /// `/api/v1/watch/…`, the old way to watch.
    pub(crate) old_watch: bool,
}

/// Finds the target of `/api/v1/…` and `/apis/g/v/…`; none when the path is not about objects.
pub(crate) fn target(registry: &Registry, path: &str) -> Option<ApiResult<Target>> {
    let parts: Vec<String> = path
        .split('/')
        .filter(|part| !part.is_empty())
        .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, version, mut rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return None,
    };
    let mut old_watch = false;
    if let ["watch", tail @ ..] = rest
        && !tail.is_empty()
    {
        old_watch = true;
        rest = tail;
    }
    let (namespace, rest) = match rest {
        // `/namespaces/x/status` and `/finalize` are about the namespace itself.
        ["namespaces", _, "status" | "finalize"] => (None, rest),
        ["namespaces", namespace, tail @ ..] if !tail.is_empty() => (Some((*namespace).to_owned()), tail),
        _ => (None, rest),
    };
    let plural = rest.first()?;
    let Some(kind) = registry.find(group, version, plural) else {
        return Some(Err(ApiError::no_such_path()));
    };
    if namespace.is_some() && !kind.namespaced {
        return Some(Err(ApiError::no_such_path()));
    }
    let owned = |index: usize| rest.get(index).map(|part| (*part).to_owned());
    Some(Ok(Target {
        kind,
        namespace,
        name: owned(1),
        subresource: owned(2),
        rest: rest.get(3..).unwrap_or_default().join("/"),
        old_watch,
    }))
}

/// The RBAC verb of a request.
pub(crate) fn verb(method: &Method, target: &Target, query: &Query) -> ApiResult<Verb> {
    let watch = target.old_watch || query.is_true("watch");
    match (method.as_str(), &target.name) {
        ("GET" | "HEAD", None) if watch => Ok(Verb::Watch),
        ("GET" | "HEAD", None) => Ok(Verb::List),
        ("GET" | "HEAD", Some(_)) if watch && target.subresource.is_none() => Ok(Verb::Watch),
        ("GET" | "HEAD", Some(_)) => Ok(Verb::Get),
        ("POST", _) => Ok(Verb::Create),
        ("PUT", Some(_)) => Ok(Verb::Update),
        ("PATCH", Some(_)) => Ok(Verb::Patch),
        ("DELETE", Some(_)) => Ok(Verb::Delete),
        ("DELETE", None) => Ok(Verb::DeleteCollection),
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// One request, understood.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) target: Target,
    pub(crate) query: Query,
    pub(crate) form: Form,
    pub(crate) content_type: String,
    pub(crate) user: String,
    pub(crate) groups: Vec<String>,
    pub(crate) user_agent: String,
    pub(crate) body: Bytes,
    /// Number of this write; 0 for reads.
    pub(crate) sequence: u64,
}

pub(crate) fn header_text(parts: &Parts, name: http::HeaderName) -> String {
    parts
        .headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned()
}

impl Call {
    pub(crate) fn kind(&self) -> &Arc<Kind> {
        &self.target.kind
    }

    pub(crate) fn namespace(&self) -> &str {
        self.target.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or_default()
    }

    /// The name that permission is asked for: of lists, watches and deletions of many, the one that the field selector
    /// insists on.
    pub(crate) fn name_in_question(&self) -> &str {
        let of_many = matches!(self.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
        let (None, true) = (&self.target.name, of_many) else {
            return self.name();
        };
        let selector = self.query.get("fieldSelector").unwrap_or_default();
        let mut clauses = selector.split(',').map(str::trim);
        let name = clauses.find_map(|clause| {
            let (field, value) = clause.split_once('=')?;
            (field == "metadata.name").then(|| value.trim_start_matches('='))
        });
        // What cannot be a part of a path cannot be a name.
        let is_name = |name: &&str| !matches!(*name, "." | "..") && !name.contains(['/', '%']);
        name.filter(is_name).unwrap_or_default()
    }

    pub(crate) fn subresource(&self) -> Option<&str> {
        self.target.subresource.as_deref()
    }

    /// The kind as which the real server reads the parameters of a write.
    pub(crate) fn options_kind(&self) -> &'static str {
        match self.verb {
            Verb::Create => "CreateOptions",
            Verb::Patch => "PatchOptions",
            Verb::Delete | Verb::DeleteCollection => "DeleteOptions",
            _ => "UpdateOptions",
        }
    }

    /// Whether nothing may be kept (`dryRun=All`).
    pub(crate) fn dry_run(&self) -> ApiResult<bool> {
        match self.query.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => {
                let error = FieldError::unsupported("dryRun", &serde_json::json!([other]), &["All".into()]);
                Err(ApiError::invalid_option(self.options_kind(), &error))
            }
        }
    }

    pub(crate) fn origin(&self) -> crate::history::Origin {
        crate::history::Origin {
            sequence: self.sequence,
            verb: self.verb,
            user: self.user.clone(),
        }
    }

    /// Who is named in managedFields for this write.
    pub(crate) fn field_manager(&self) -> String {
        if let Some(manager) = self.query.get("fieldManager") {
            return manager.to_owned();
        }
        let agent = self.user_agent.split('/').next().unwrap_or_default();
        if agent.is_empty() {
            "unknown".into()
        } else {
            agent.to_owned()
        }
    }
}
