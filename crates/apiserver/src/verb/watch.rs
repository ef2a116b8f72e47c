//! GET of a collection as it changes: what is, then what happens, line by line.

use std::{collections::VecDeque, pin::pin, sync::Arc, time::Duration};

use futures::stream;
use http::Response;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    history::ChangeKind,
    kind::View,
    request::{Call, Form},
    response::{self, Body},
    selector::Selection,
    server::{ApiServer, Server},
    status::{ApiError, ApiResult},
    store::LogEntry,
    table,
};

/// How long a watch lasts when the client does not say.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);

struct Watch {
    server: ApiServer,
    call: Call,
    selection: Selection,
    /// Everything up to this version has been sent.
    seen: u64,
    /// The version last sent to the client.
    sent: u64,
    pending: VecDeque<Bytes>,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    /// Columns are sent once per watch.
    columns_sent: bool,
    ended: bool,
    /// The newest version when the watch began.
    opened: u64,
}

pub(crate) fn watch(api: &ApiServer, call: &Call) -> ApiResult<Response<Body>> {
    let server = &*api.0;
    let kind = call.kind();
    let selection = Selection::parse(
        kind,
        call.target.namespace.as_deref(),
        call.target.name.as_deref(),
        &call.query,
    )?;
    let initial = call.query.is_true("sendInitialEvents");
    if call.query.has("sendInitialEvents") && call.query.get("resourceVersionMatch") != Some("NotOlderThan") {
        let message = "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires \
                       setting resourceVersionMatch to NotOlderThan";
        return Err(ApiError::new(422, "Invalid", message));
    }
    let from = call.query.version()?;
    let timeout = call.query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
    let timeout = timeout.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    let timeout = timeout.max(server.config.shortest_watch);
    let now = Instant::now();
    let bookmarks = call.query.is_true("allowWatchBookmarks");
    let mut watch = Watch {
        server: api.clone(),
        call: Call {
            verb: call.verb,
            target: call.target.clone(),
            query: call.query.clone(),
            form: call.form,
            content_type: String::new(),
            user: call.user.clone(),
            groups: Vec::new(),
            user_agent: String::new(),
            body: Bytes::new(),
            sequence: 0,
        },
        selection,
        seen: from,
        sent: from,
        pending: VecDeque::new(),
        deadline: now + timeout,
        next_bookmark: bookmarks.then(|| now + server.config.bookmark_every),
        columns_sent: false,
        ended: false,
        opened: server.store.resource_version(),
    };
    watch.begin(server, from, initial);
    let lines = stream::unfold(watch, |mut watch| async move {
        watch.next().await.map(|line| (line, watch))
    });
    Ok(response::stream(lines))
}

impl Watch {
    /// What there is at the start, if the client wants to see it.
    fn begin(&mut self, server: &Server, from: u64, initial: bool) {
        let (newest, compacted, objects) = {
            // The partition must exist, or there would be nothing to wait on.
            let mut state = server.store.lock();
            let newest = state.version;
            let partition = state.partitions.entry(self.call.kind().resource.clone()).or_default();
            let all = from == 0 || initial;
            let objects: Vec<Arc<Value>> = if all {
                partition.objects.values().cloned().collect()
            } else {
                Vec::new()
            };
            (newest, partition.compacted, objects)
        };
        if from == 0 || initial {
            for object in &objects {
                if self.selection.matches(object) {
                    let line = self.line(ChangeKind::Added.name(), object);
                    self.pending.push_back(line);
                }
            }
            self.seen = newest;
            self.sent = newest;
            // Without bookmarks the client gets no notification.
            if initial && self.next_bookmark.is_some() {
                let line = self.bookmark(newest, true);
                self.pending.push_back(line);
            }
        } else if from < compacted {
            // As the real server: once a version is understood, errors are events. Clients list again after such an event; after
            // a response of 410 some try the same version for ever.
            self.expire(compacted);
        }
    }

    /// What the client has not seen is not in the log any more.
    fn expire(&mut self, compacted: u64) {
        let error = ApiError::expired(format!("too old resource version: {} ({compacted})", self.seen));
        self.pending
            .push_back(json_line(&json!({"type": "ERROR", "object": error.body()})));
        self.ended = true;
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.pending.pop_front() {
                return Some(line);
            }
            if self.ended {
                return None;
            }
            let (changed, closed) = {
                let state = self.server.0.store.lock();
                let partition = state.partitions.get(&self.call.kind().resource)?;
                (Arc::clone(&partition.changed), partition.closed)
            };
            let mut notified = pin!(changed.notified());
            // Subscribed before the log is read: what is committed from here on wakes us.
            notified.as_mut().enable();
            self.catch_up();
            // The resource is not served any more: what was left to say has been said.
            self.ended |= closed > self.opened;
            if !self.pending.is_empty() || self.ended {
                continue;
            }
            let until = self.next_bookmark.map_or(self.deadline, |at| at.min(self.deadline));
            if tokio::time::timeout_at(until, notified).await.is_err() {
                self.on_timer();
            }
        }
    }

    /// Time is up for a bookmark or for the watch itself.
    fn on_timer(&mut self) {
        let now = Instant::now();
        self.ended = now >= self.deadline;
        if let Some(at) = self.next_bookmark
            && (now >= at || self.ended)
        {
            self.next_bookmark = Some(now + self.server.0.config.bookmark_every);
            let version = if self.is_delayed() {
                self.seen
            } else {
                self.newest().max(self.seen)
            };
            if self.ended && version == self.sent {
                return;
            }
            self.sent = version;
            let line = self.bookmark(version, false);
            self.pending.push_back(line);
        }
    }

    fn newest(&self) -> u64 {
        self.server.0.store.resource_version()
    }

    fn is_delayed(&self) -> bool {
        let state = self.server.0.store.lock();
        if state.delayed.is_empty() {
            return false;
        }
        let watch = (self.call.user.clone(), self.call.kind().resource.clone());
        state.delayed.contains(&watch)
    }

    /// Turns what is new in the log into lines.
    fn catch_up(&mut self) {
        if self.is_delayed() {
            return;
        }
        let entries: Result<Vec<LogEntry>, u64> = {
            let state = self.server.0.store.lock();
            let Some(partition) = state.partitions.get(&self.call.kind().resource) else {
                return;
            };
            if self.seen < partition.compacted {
                Err(partition.compacted)
            } else {
                let start = partition.log.partition_point(|entry| entry.version <= self.seen);
                Ok(partition.log.range(start..).cloned().collect())
            }
        };
        match entries {
            Ok(entries) => {
                for entry in entries {
                    self.seen = entry.version;
                    self.sent = entry.version;
                    if let Some(line) = self.event(&entry) {
                        self.pending.push_back(line);
                    }
                }
            }
            Err(compacted) => self.expire(compacted),
        }
    }

    /// One entry as this watch sees it: objects come and go also by beginning or ceasing to match.
    fn event(&mut self, entry: &LogEntry) -> Option<Bytes> {
        let was = entry
            .previous
            .as_ref()
            .is_some_and(|previous| self.selection.matches(previous));
        let is = entry.kind != ChangeKind::Deleted && self.selection.matches(&entry.object);
        match (was, is) {
            (false, true) => Some(self.entry_line(ChangeKind::Added.name(), entry)),
            (true, true) => Some(self.entry_line(ChangeKind::Modified.name(), entry)),
            (true, false) if entry.kind == ChangeKind::Deleted => {
                Some(self.entry_line(ChangeKind::Deleted.name(), entry))
            }
            (true, false) => {
                // The client gets the object it knew, with the version at which it stopped matching.
                let mut last = entry.previous.as_deref()?.clone();
                last["metadata"]["resourceVersion"] = json!(entry.version.to_string());
                Some(self.line(ChangeKind::Deleted.name(), &Arc::new(last)))
            }
            (false, false) => None,
        }
    }

    fn entry_line(&mut self, kind: &str, entry: &LogEntry) -> Bytes {
        if self.call.form == Form::Whole && self.call.kind().view == View::Stored {
            let object = entry.text.get_or_init(|| entry.object.to_string());
            return Bytes::from(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"));
        }
        self.line(kind, &entry.object)
    }

    fn line(&mut self, kind: &str, stored: &Arc<Value>) -> Bytes {
        let object = self.call.kind().present(stored);
        match self.call.form {
            Form::Whole => Bytes::from(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")),
            Form::Metadata => json_line(&json!({"type": kind, "object": table::metadata_only(&object)})),
            Form::Table => {
                let version = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                let now = self.server.0.now();
                let mut columns = table::Columns::of(self.call.kind(), self.call.query.get("includeObject"), now);
                columns.headings = !std::mem::replace(&mut self.columns_sent, true);
                json_line(&json!({"type": kind, "object": columns.table(std::slice::from_ref(&object), &version)}))
            }
        }
    }

    fn bookmark(&mut self, version: u64, initial_end: bool) -> Bytes {
        let kind = self.call.kind();
        let mut metadata = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.call.form {
            Form::Whole => json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata}),
            Form::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Form::Table => {
                let row = Arc::new(json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata}));
                let now = self.server.0.now();
                let columns = table::Columns::of(kind, self.call.query.get("includeObject"), now);
                columns.table(&[row], &json!({"resourceVersion": version.to_string()}))
            }
        };
        json_line(&json!({"type": "BOOKMARK", "object": object}))
    }
}

fn json_line(value: &Value) -> Bytes {
    let mut text = value.to_string();
    text.push('\n');
    Bytes::from(text)
}
