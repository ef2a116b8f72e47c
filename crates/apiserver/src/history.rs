//! What oracles see: write requests, committed changes, counters. Records only.

use std::{collections::BTreeMap, sync::Arc};

use hyper::body::Bytes;
use serde_json::Value;

use crate::kind::ResourceId;

/// What a request does, in the words of RBAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// POST.
    Create,
    /// GET of one object.
    Get,
    /// GET of a collection.
    List,
    /// GET of a collection as it changes.
    Watch,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

impl Verb {
    /// As in RBAC rules.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether the request may change something.
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It is gone.
    Deleted,
}

impl ChangeKind {
    /// As in watch events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// Whose request causes a commit.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) sequence: u64,
    pub(crate) verb: Verb,
    pub(crate) user: String,
}

/// One write request and how it ended.
#[derive(Debug, Clone)]
pub struct Write {
    /// Number among all write requests, from 1; the one fault plans get.
    pub sequence: u64,
    /// When, by the server's clock.
    pub at: jiff::Timestamp,
    /// The request.
    pub verb: Verb,
    /// The user.
    pub user: String,
    /// Of which resource.
    pub resource: ResourceId,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: String,
    /// Name; empty for collections.
    pub name: String,
    /// `status`, `scale`, `eviction` …
    pub subresource: Option<String>,
    /// Status code of the answer (before any fault).
    pub code: u16,
    /// The message of a refusal.
    pub refusal: Option<String>,
    /// What was sent: an object or a patch.
    pub sent: Bytes,
    /// Whether anything was committed.
    pub changed: bool,
    /// The object after the write, when it succeeded and concerned one object.
    pub object: Option<Arc<Value>>,
}

/// One committed change of one object.
#[derive(Debug, Clone)]
pub struct Change {
    /// The write request it belongs to.
    pub sequence: u64,
    /// The request.
    pub verb: Verb,
    /// The user.
    pub user: String,
    /// Of which resource.
    pub resource: ResourceId,
    /// What became of the object.
    pub kind: ChangeKind,
    /// The object after the change (its last state when deleted), as stored.
    pub object: Arc<Value>,
    /// The object before the change.
    pub previous: Option<Arc<Value>>,
    /// The resourceVersion of the change.
    pub resource_version: u64,
}

/// Called after every committed change.
pub type Observer = Box<dyn Fn(&Change) + Send + Sync>;

/// Numbers of requests and commits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Get, list and watch requests.
    pub reads: u64,
    /// Write requests, refused and no-op ones included.
    pub writes: u64,
    /// Write requests by user.
    pub writes_by_user: BTreeMap<String, u64>,
    /// Write requests by status code of their answer.
    pub writes_by_code: BTreeMap<u16, u64>,
    /// Requests, reads and writes, that the roles of a user do not allow.
    pub forbidden_by_user: BTreeMap<String, u64>,
    /// Committed changes.
    pub commits: u64,
    /// Objects that lists went through, selected or not.
    pub listed: u64,
}
