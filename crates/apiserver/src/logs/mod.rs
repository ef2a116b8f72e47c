//! The logs of all containers, as the kubelets of a cluster keep them. The simulation of kubelets adds lines through a
//! [`Logs`]; `verb::log` reads them. Lines are not objects: they have no versions, and no watch shows them.
//!
//! What becomes of a log follows from the objects. A pod that is deleted takes its logs with it. A container that was
//! started again has two: of the present instance and of the one before. A node whose kubelet has stopped to report cuts
//! off those who follow.

mod file;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use serde_json::Value;

pub(crate) use file::{Reader, Wanted};

use crate::{
    history::{Change, ChangeKind},
    store::Store,
};
use file::File;

/// An instance of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerInstance<'a> {
    /// Namespace of its pod.
    pub namespace: &'a str,
    /// Name of its pod.
    pub pod: &'a str,
    /// UID of its pod: another pod of the same name has other logs.
    pub uid: &'a str,
    /// Its name.
    pub container: &'a str,
    /// How often the container was started before.
    pub restart: u32,
}

/// Where kubelets write what containers print. Cheap to clone.
#[derive(Clone)]
pub struct Logs {
    book: Arc<Book>,
    store: Store,
}

impl std::fmt::Debug for Logs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logs").field("bytes", &self.bytes()).finish()
    }
}

impl Logs {
    /// Adds what a container printed at a time, as lines. Nothing is kept of a pod that does not exist.
    pub fn append(&self, of: &ContainerInstance<'_>, at: Timestamp, text: &str) {
        let mut state = self.book.lock();
        if !state.pods.contains_key(of.uid) && !self.exists(of) {
            return;
        }
        let Some(file) = state.file(of.uid, of.container, of.restart) else {
            return;
        };
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            let (before, after) = file.append(at, line);
            state.bytes = (state.bytes + after).saturating_sub(before);
        }
        state.make_room(self.book.limit, &file);
    }

    fn exists(&self, of: &ContainerInstance<'_>) -> bool {
        let pod = self.store.get("", "pods", of.namespace, of.pod);
        pod.is_some_and(|pod| pod["metadata"]["uid"] == of.uid)
    }

    /// How many bytes are kept in all.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.book.lock().bytes
    }

    /// How many clients follow logs now.
    #[must_use]
    pub fn followers(&self) -> usize {
        Arc::strong_count(&self.book.followers) - 1
    }
}

/// A log that a client follows.
pub(crate) struct Followed {
    pub(crate) file: Arc<File>,
    _counted: Arc<()>,
}

/// The logs of all pods.
pub(crate) struct Book {
    state: Mutex<State>,
    /// How many bytes are kept in all.
    limit: usize,
    /// Every client that follows a log has one of these.
    followers: Arc<()>,
}

#[derive(Default)]
struct State {
    /// By uid.
    pods: BTreeMap<String, Pod>,
    /// The pods that have ended, in the order in which they did.
    ended: BTreeMap<u64, String>,
    /// How many have ended so far.
    ends: u64,
    bytes: usize,
}

#[derive(Default)]
struct Pod {
    containers: BTreeMap<String, Container>,
    /// Its place among those that have ended.
    ended: Option<u64>,
}

#[derive(Default)]
struct Container {
    current: Instance,
    previous: Option<Instance>,
}

#[derive(Default)]
struct Instance {
    restart: u32,
    file: Arc<File>,
}

impl Container {
    /// Every instance but the newest has ended, and only the one before the newest is kept. Returns what is dropped.
    fn is_at(&mut self, restart: u32) -> Option<Arc<File>> {
        if restart <= self.current.restart {
            return None;
        }
        let next = Instance {
            restart,
            ..Instance::default()
        };
        let before = std::mem::replace(&mut self.current, next);
        before.file.end();
        self.previous.replace(before).map(|dropped| dropped.file)
    }

    fn instance(&self, restart: u32) -> Option<&Arc<File>> {
        let mut kept = [Some(&self.current), self.previous.as_ref()].into_iter().flatten();
        kept.find(|instance| instance.restart == restart)
            .map(|instance| &instance.file)
    }

    fn files(&self) -> impl Iterator<Item = &Arc<File>> {
        let previous = self.previous.as_ref().map(|instance| &instance.file);
        std::iter::once(&self.current.file).chain(previous)
    }
}

impl Pod {
    fn files(&self) -> impl Iterator<Item = &Arc<File>> {
        self.containers.values().flat_map(Container::files)
    }

    /// What the status of the pod means for its logs. Returns files that are dropped.
    fn sync(&mut self, object: &Value) -> Vec<Arc<File>> {
        let mut dropped = Vec::new();
        for (name, container) in &mut self.containers {
            let Some(status) = container_status(object, name) else {
                continue;
            };
            let restarts = restarts(status);
            dropped.extend(container.is_at(restarts));
            let has_stopped = status["state"]["terminated"].is_object()
                || (status["state"]["waiting"].is_object() && status["lastState"]["terminated"].is_object());
            if has_stopped && restarts == container.current.restart {
                container.current.file.end();
            }
        }
        dropped
    }
}

impl State {
    /// The file of an instance, made if it is not there. Nothing when a much later one runs already.
    fn file(&mut self, uid: &str, container: &str, restart: u32) -> Option<Arc<File>> {
        if !self.pods.contains_key(uid) {
            self.pods.insert(uid.to_owned(), Pod::default());
        }
        let containers = &mut self.pods.get_mut(uid)?.containers;
        if !containers.contains_key(container) {
            containers.insert(container.to_owned(), Container::default());
        }
        let container = containers.get_mut(container)?;
        let dropped = container.is_at(restart);
        let file = container.instance(restart).cloned();
        self.forget(dropped.iter());
        file
    }

    fn forget<'a>(&mut self, files: impl Iterator<Item = &'a Arc<File>>) {
        for file in files {
            file.end();
            self.bytes = self.bytes.saturating_sub(file.size());
        }
    }

    fn remove(&mut self, uid: &str) {
        if let Some(pod) = self.pods.remove(uid) {
            self.forget(pod.files());
            pod.ended.map(|place| self.ended.remove(&place));
        }
    }

    /// The pods that ended first lose their logs first. Without any, the file that grows is rotated.
    fn make_room(&mut self, limit: usize, growing: &Arc<File>) {
        while self.bytes > limit {
            let Some((_, uid)) = self.ended.pop_first() else {
                self.bytes = self.bytes.saturating_sub(growing.rotate());
                return;
            };
            self.remove(&uid);
        }
    }
}

impl Book {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            limit,
            followers: Arc::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics between two changes of the state that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The interface for kubelets.
    pub(crate) fn writer(self: &Arc<Self>, store: &Store) -> Logs {
        Logs {
            book: Arc::clone(self),
            store: store.clone(),
        }
    }

    /// The log of an instance, if there is any.
    pub(crate) fn find(&self, of: &ContainerInstance<'_>) -> Option<Arc<File>> {
        let state = self.lock();
        let container = state.pods.get(of.uid)?.containers.get(of.container)?;
        container.instance(of.restart).cloned()
    }

    /// The log of an instance, for a client that follows it through a node. It ends at once if the pod says that the
    /// container has stopped, also if it said so in the meantime.
    pub(crate) fn follow(&self, store: &Store, of: &ContainerInstance<'_>, node: &str) -> Option<Followed> {
        let file = self.lock().file(of.uid, of.container, of.restart)?;
        file.is_on(node);
        let pod = store.get("", "pods", of.namespace, of.pod);
        match pod.filter(|pod| pod["metadata"]["uid"] == of.uid) {
            Some(pod) => self.sync(of.uid, &pod),
            None => self.lock().remove(of.uid),
        }
        Some(Followed {
            file,
            _counted: Arc::clone(&self.followers),
        })
    }

    fn sync(&self, uid: &str, object: &Value) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(pod) = state.pods.get_mut(uid) else { return };
        let dropped = pod.sync(object);
        let has_ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if has_ended && pod.ended.is_none() {
            // A phase says it for all containers, also where nothing says it for each.
            for container in pod.containers.values() {
                container.current.file.end();
            }
            state.ends += 1;
            pod.ended = Some(state.ends);
            state.ended.insert(state.ends, uid.to_owned());
        }
        state.forget(dropped.iter());
    }

    /// An object has changed: what that means for logs.
    pub(crate) fn observe(&self, change: &Change) {
        if !change.resource.group.is_empty() {
            return;
        }
        match change.resource.plural.as_str() {
            "pods" => {
                let uid = change.object["metadata"]["uid"].as_str().unwrap_or_default();
                match change.kind {
                    ChangeKind::Deleted => self.lock().remove(uid),
                    ChangeKind::Added | ChangeKind::Modified => self.sync(uid, &change.object),
                }
            }
            "nodes" => {
                let was_reached = change.previous.as_deref().is_none_or(is_reached);
                let is_lost = change.kind == ChangeKind::Deleted || !is_reached(&change.object);
                if was_reached && is_lost {
                    let name = change.object["metadata"]["name"].as_str().unwrap_or_default();
                    let state = self.lock();
                    state.pods.values().flat_map(Pod::files).for_each(|file| file.cut(name));
                }
            }
            _ => {}
        }
    }
}

/// Whether the kubelet of a node can be reached: its Ready condition is Unknown when it has stopped to report.
pub(crate) fn is_reached(node: &Value) -> bool {
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.find(|condition| condition["type"] == "Ready");
    ready.is_none_or(|ready| ready["status"] != "Unknown")
}

/// The status of a container of any sort.
pub(crate) fn container_status<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    let lists = [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ];
    let mut all = lists
        .into_iter()
        .flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
    all.find(|status| status["name"] == name)
}

/// How often a container was started before, by its status.
pub(crate) fn restarts(status: &Value) -> u32 {
    let count = status["restartCount"].as_u64().unwrap_or_default();
    u32::try_from(count).unwrap_or(u32::MAX)
}
