//! All objects of one kind, as the API server last reported them, and the ways to change them.
//!
//! One watch per kind serves all actors. What an actor writes is visible here at once, from the answer to its write, so
//! that it never acts twice on what it has already done. Unlike `cache::Cache`, this reports *which* objects changed:
//! with hundreds of nodes, no actor may process all of them on every event.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::foreign;
use futures::{StreamExt, pin_mut};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, PropagationPolicy, Request},
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    error::{Error, Result},
    inbox::{Inbox, Key, Kind},
};

mod state;

pub(crate) use state::key_of;
use state::{State, notify, pruned};

/// How long to wait after a watch failed.
const PAUSE: Duration = Duration::from_millis(500);

/// All objects of one kind.
pub(crate) struct Watched<K> {
    client: Client,
    kind: Kind,
    /// Selects by label; empty for all objects.
    selector: &'static str,
    /// The kind has a status subresource.
    has_status: bool,
    state: Mutex<State<K>>,
    synced: watch::Sender<bool>,
}

/// What an object must be to be watched.
pub(crate) trait Object:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
}
impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static> Object for K {}

impl<K: Object> Watched<K> {
    pub(crate) fn new(client: &Client, kind: Kind, selector: &'static str, index: fn(&K) -> Vec<String>) -> Self {
        Self {
            client: client.clone(),
            kind,
            selector,
            has_status: foreign::of::<K>().is_none_or(|kind| kind.has_status),
            state: Mutex::new(State::indexed_by(index)),
            synced: watch::channel(false).0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        // No code panics with this lock; if it did, the data would still be valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object of that name.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.at(&(namespace.to_owned(), name.to_owned()))
    }

    /// The object of that key.
    pub(crate) fn at(&self, key: &Key) -> Option<Arc<K>> {
        self.lock().objects.get(key).cloned()
    }

    /// All objects, by namespace and name.
    pub(crate) fn list(&self) -> Vec<Arc<K>> {
        self.lock().objects.values().cloned().collect()
    }

    /// The objects that a test picks.
    pub(crate) fn select(&self, test: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let state = self.lock();
        state.objects.values().filter(|object| test(object)).cloned().collect()
    }

    /// The objects that [`crate::index`] finds by a text, by namespace and name.
    pub(crate) fn found(&self, by: &str) -> Vec<Arc<K>> {
        self.first_found(by, usize::MAX)
    }

    /// The first of them.
    pub(crate) fn first_found(&self, by: &str, most: usize) -> Vec<Arc<K>> {
        let state = self.lock();
        let keys = state.found.get(by).into_iter().flatten().take(most);
        keys.filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    /// How many there are.
    pub(crate) fn count_found(&self, by: &str) -> usize {
        self.lock().found.get(by).map_or(0, BTreeSet::len)
    }

    /// Delivers all objects to an inbox now, and every change from now on.
    pub(crate) fn subscribe(&self, inbox: &Inbox) {
        let mut state = self.lock();
        let subscriber = inbox.subscriber();
        subscriber.push(self.kind, state.objects.keys().cloned());
        state.subscribers.push(subscriber);
    }

    /// Waits for the first list.
    pub(crate) async fn wait_until_synced(&self) {
        // The sender lives as long as self, so waiting cannot fail.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Keeps up with the API for ever.
    pub(crate) async fn run(&self) {
        let mut config = watcher::Config::default();
        if !self.selector.is_empty() {
            config = config.labels(self.selector);
        }
        let stream = watcher(Api::<K>::all(self.client.clone()), config);
        pin_mut!(stream);
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => self.apply(event),
                Err(error) => {
                    tracing::debug!(kind = ?self.kind, %error, "watch failed; trying again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn apply(&self, event: Event<K>) {
        let is_whole = matches!(event, Event::InitDone);
        let mut state = self.lock();
        let changed = state.apply(event);
        notify(self.kind, &mut state, &changed);
        drop(state);
        if is_whole {
            self.synced.send_replace(true);
        }
    }

    fn request(namespace: &str) -> Request {
        Request::new(K::url_path(&(), (!namespace.is_empty()).then_some(namespace)))
    }

    fn what(verb: &str, key: &Key) -> String {
        format!("{verb} {} {}/{}", K::kind(&()), key.0, key.1)
    }

    /// Takes in an answer of the API.
    fn learn(&self, object: K) -> Arc<K> {
        let object = Arc::new(pruned(object));
        let mut state = self.lock();
        if let Some(key) = state.learn(&object) {
            notify(self.kind, &mut state, &[key]);
        }
        object
    }

    async fn send(
        &self,
        what: String,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Arc<K>> {
        self.send_as(&self.client, what, request).await
    }

    async fn send_as(
        &self,
        client: &Client,
        what: String,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Arc<K>> {
        let request = request.map_err(|error| Error::api(what.clone(), kube::Error::BuildRequest(error)))?;
        match client.request::<K>(request).await {
            Ok(object) => Ok(self.learn(object)),
            Err(error) => Err(Error::api(what, error)),
        }
    }

    /// Creates an object; one of that name that exists already is left as it is. Returns whether it was created.
    pub(crate) async fn create(&self, object: &Value) -> Result<bool> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = (text("namespace"), text("name"));
        let request = Self::request(&key.0).create(&PostParams::default(), serde_json::to_vec(object)?);
        match self.send(Self::what("create", &key), request).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(409) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Changes an object by a merge patch; nothing when it is gone.
    pub(crate) async fn patch(&self, key: &Key, patch: &Value) -> Result<Option<Arc<K>>> {
        let request = Self::request(&key.0).patch(&key.1, &PatchParams::default(), &Patch::Merge(patch));
        absent_is_none(self.send(Self::what("patch", key), request).await)
    }

    /// The same as another user.
    pub(crate) async fn patch_as(&self, client: &Client, key: &Key, patch: &Value) -> Result<Option<Arc<K>>> {
        let request = Self::request(&key.0).patch(&key.1, &PatchParams::default(), &Patch::Merge(patch));
        absent_is_none(self.send_as(client, Self::what("patch", key), request).await)
    }

    /// Gives an object another spec; nothing when it is gone.
    pub(crate) async fn replace_spec(&self, key: &Key, spec: &Value) -> Result<Option<Arc<K>>> {
        let patch = serde_json::from_value(serde_json::json!([{"op": "add", "path": "/spec", "value": spec}]))?;
        let request = Self::request(&key.0).patch(&key.1, &PatchParams::default(), &Patch::Json::<()>(patch));
        absent_is_none(self.send(Self::what("replace the spec of", key), request).await)
    }

    /// Changes an object's status by a merge patch; nothing when it is gone. Some kinds have no subresource for it, and
    /// their generation rises with it.
    pub(crate) async fn patch_status(&self, key: &Key, status: &Value) -> Result<Option<Arc<K>>> {
        let patch = serde_json::json!({ "status": status });
        if !self.has_status {
            return self.patch(key, &patch).await;
        }
        let params = PatchParams::default();
        let request = Self::request(&key.0).patch_subresource("status", &key.1, &params, &Patch::Merge(&patch));
        absent_is_none(self.send(Self::what("patch status of", key), request).await)
    }

    /// Whether an object is there, by the API itself: a watch may not have delivered it yet.
    pub(crate) async fn is_there(&self, key: &Key, uid: &str) -> Result<bool> {
        let request = Self::request(&key.0).get(&key.1, &GetParams::default());
        let found = absent_is_none(self.send(Self::what("get", key), request).await)?;
        Ok(found.is_some_and(|object| object.meta().uid.as_deref() == Some(uid)))
    }

    /// Deletes an object with everything it owns; at once when `now`, else with its grace period.
    pub(crate) async fn delete(&self, key: &Key, now: bool) -> Result<()> {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            grace_period_seconds: now.then_some(0),
            ..Default::default()
        };
        self.delete_with(&self.client, key, params).await
    }

    /// Deletes an object as another user.
    pub(crate) async fn delete_as(&self, client: &Client, key: &Key) -> Result<()> {
        self.delete_with(client, key, DeleteParams::default()).await
    }

    /// Deletes an object after what it owns.
    pub(crate) async fn delete_in_foreground(&self, key: &Key) -> Result<()> {
        self.delete_with(&self.client, key, DeleteParams::foreground()).await
    }

    async fn delete_with(&self, client: &Client, key: &Key, params: DeleteParams) -> Result<()> {
        let what = Self::what("delete", key);
        let request = Self::request(&key.0)
            .delete(&key.1, &params)
            .map_err(|error| Error::api(what.clone(), kube::Error::BuildRequest(error)))?;
        // The answer is the object or a Status; the watch delivers the result.
        match client.request::<Value>(request).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(Error::api(what, error)),
        }
    }
}

fn absent_is_none<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.code() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
