//! The server: its configuration, its state, and the interface for verbs. Requests pass through `route`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::{
    admission::WebhookHandler,
    builtin, crd,
    faults::FaultPlan,
    history::{Origin, Verb},
    identity::{Identity, Tokens},
    kind::{Kind, Registry, ResourceId},
    logs::{self, Logs},
    managed::Writer,
    metadata,
    request::Call,
    status::{ApiError, ApiResult},
    store::{Commit, Store},
};

/// The clock of the server.
pub type Now = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// Answers `GET /api/v1/nodes/{name}/proxy/{path}`: node and path in; status, content type and body out.
pub type NodeProxy = Arc<dyn Fn(&str, &str) -> Option<(u16, String, Bytes)> + Send + Sync>;

/// What a server needs to know from the start.
#[derive(Clone)]
pub struct Config {
    /// The clock.
    pub now: Now,
    /// Seed of uids and `generateName` suffixes.
    pub seed: u64,
    /// Whether RBAC is enforced for all users but `system:masters`.
    pub enforce_rbac: bool,
    /// The identity of HTTP clients without a token. `None`: an administrator, or none where RBAC is enforced.
    pub without_token: Option<Identity>,
    /// Events kept per resource; a watch from before them gets 410.
    pub watch_log: usize,
    /// Events kept per object of a resource, where that is more: what is done to all objects at once is a burst that grows with
    /// them, and a watch that misses its beginning lists everything again.
    pub watch_log_per_object: usize,
    /// How often a watch sends bookmarks, in addition to its end.
    pub bookmark_every: Duration,
    /// Watches last at least this long, whatever their `timeoutSeconds`. In process no connection goes stale, and
    /// restarting every few minutes is work for nothing.
    pub shortest_watch: Duration,
    /// Whether writes other than an apply are kept account of in `managedFields`: half of the work of a large write,
    /// and for nothing where no client applies.
    pub track_owners: bool,
    /// How many bytes of logs of containers are kept in all.
    pub log_bytes: usize,
}

impl Config {
    /// RBAC off, seed 0, a log of 10 000 events, a bookmark every minute, 64 MiB of logs of containers.
    pub fn new(now: Now) -> Self {
        Self {
            now,
            seed: 0,
            enforce_rbac: false,
            without_token: None,
            watch_log: 10_000,
            watch_log_per_object: 0,
            bookmark_every: Duration::from_secs(60),
            shortest_watch: Duration::ZERO,
            track_owners: true,
            log_bytes: 64 * 1024 * 1024,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("seed", &self.seed)
            .field("enforce_rbac", &self.enforce_rbac)
            .field("watch_log", &self.watch_log)
            .finish_non_exhaustive()
    }
}

/// An embedded Kubernetes API server. Cheap to clone; all clones are the same server.
#[derive(Clone)]
pub struct ApiServer(pub(crate) Arc<Server>);

/// An [`ApiServer`] that ends when all other clones are dropped: for what the server itself owns.
#[derive(Clone)]
pub struct WeakApiServer(std::sync::Weak<Server>);

impl ApiServer {
    /// The same server, without keeping it.
    #[must_use]
    pub fn downgrade(&self) -> WeakApiServer {
        WeakApiServer(Arc::downgrade(&self.0))
    }
}

impl WeakApiServer {
    /// The server, unless it has ended.
    #[must_use]
    pub fn upgrade(&self) -> Option<ApiServer> {
        self.0.upgrade().map(ApiServer)
    }
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer")
            .field("config", &self.0.config)
            .field("store", &self.0.store)
            .finish()
    }
}

/// What all clones of an [`ApiServer`] share.
pub(crate) struct Server {
    pub(crate) config: Config,
    pub(crate) store: Store,
    pub(crate) logs: Arc<logs::Book>,
    registry: RwLock<Registry>,
    faults: RwLock<FaultPlan>,
    node_proxy: RwLock<Option<NodeProxy>>,
    webhooks: RwLock<BTreeMap<String, WebhookHandler>>,
    tokens: Mutex<Tokens>,
    git_version: RwLock<String>,
    pub(crate) documents: Mutex<crate::openapi::Documents>,
}

// A panic while one of these locks is held leaves whole values behind: they are replaced, never edited in steps.
fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

impl ApiServer {
    /// A server with the built-in kinds and the namespaces every cluster has.
    pub fn new(config: Config) -> Self {
        let mut registry = Registry::default();
        for kind in builtin::kinds() {
            registry.add(kind);
        }
        let store = Store::new(config.seed, config.watch_log, config.watch_log_per_object);
        let logs = logs::Book::new(config.log_bytes);
        let book = Arc::clone(&logs);
        store.observe(move |change| book.observe(change));
        let server = Server {
            config,
            store,
            logs,
            registry: RwLock::new(registry),
            faults: RwLock::default(),
            node_proxy: RwLock::default(),
            webhooks: RwLock::default(),
            tokens: Mutex::default(),
            git_version: RwLock::new("v1.35.2+embedded".into()),
            documents: Mutex::default(),
        };
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            server.add_namespace(name);
        }
        Self(Arc::new(server))
    }

    /// Direct reads, history, counters, observers.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// The logs of containers, for the simulation of kubelets.
    pub fn logs(&self) -> Logs {
        self.0.logs.writer(&self.0.store)
    }

    /// Replaces the fault plan.
    pub fn set_faults(&self, plan: FaultPlan) {
        *write(&self.0.faults) = plan;
    }

    /// Who answers for kubelets behind the node proxy.
    pub fn set_node_proxy(&self, proxy: NodeProxy) {
        *write(&self.0.node_proxy) = Some(proxy);
    }

    /// Registers an admission target: the `url` of a webhook's clientConfig, or `namespace/name/path` of its service.
    pub fn set_webhook_handler(&self, address: &str, handler: WebhookHandler) {
        write(&self.0.webhooks).insert(address.to_owned(), handler);
    }

    /// Takes an admission target down.
    pub fn remove_webhook_handler(&self, address: &str) {
        write(&self.0.webhooks).remove(address);
    }

    /// A bearer token of `who` over HTTP.
    pub fn token_for(&self, who: &Identity) -> String {
        self.0.tokens().issue(who)
    }

    /// From now on HTTP clients need a token; this one is the administrator's.
    pub fn require_token(&self, token: &str) {
        self.0.tokens().require(token, Identity::admin());
    }

    /// What `/version` says (default `v1.35.2+embedded`).
    pub fn set_version(&self, git_version: &str) {
        git_version.clone_into(&mut write(&self.0.git_version));
    }

    /// Stops (`true`) or resumes the delivery of watch events of a resource to a user.
    pub fn delay_watches(&self, user: &str, resource: &ResourceId, hold: bool) {
        self.0.store.delay_watches(user, resource, hold);
    }
}

impl Server {
    pub(crate) fn now(&self) -> jiff::Timestamp {
        (self.config.now)()
    }

    pub(crate) fn registry(&self) -> RwLockReadGuard<'_, Registry> {
        read(&self.registry)
    }

    /// Serves these kinds and no others.
    pub(crate) fn serve_kinds(&self, kinds: Registry) {
        *write(&self.registry) = kinds;
    }

    pub(crate) fn faults(&self) -> FaultPlan {
        read(&self.faults).clone()
    }

    pub(crate) fn node_proxy(&self) -> Option<NodeProxy> {
        read(&self.node_proxy).clone()
    }

    pub(crate) fn webhook(&self, address: &str) -> Option<WebhookHandler> {
        read(&self.webhooks).get(address).cloned()
    }

    pub(crate) fn tokens(&self) -> MutexGuard<'_, Tokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn git_version(&self) -> String {
        read(&self.git_version).clone()
    }

    fn add_namespace(&self, name: &str) {
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {
                "name": name, "uid": self.store.next_uid(), "creationTimestamp": metadata::time_text(self.now()),
                "labels": {"kubernetes.io/metadata.name": name},
            },
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        });
        let origin = Origin {
            sequence: 0,
            verb: Verb::Create,
            user: "system:apiserver".into(),
        };
        let key = (String::new(), name.to_owned());
        // Cannot lose a race: no other task has the server yet.
        let _ = self.store.commit(
            &ResourceId::new("", "namespaces"),
            &key,
            None,
            Commit::Put(object),
            &origin,
        );
    }

    /// Objects go only into namespaces that exist and stay.
    pub(crate) fn check_namespace(&self, kind: &Kind, namespace: &str) -> ApiResult<()> {
        if !kind.namespaced {
            return Ok(());
        }
        let Some(found) = self.store.get("", "namespaces", "", namespace) else {
            return Err(ApiError::namespace_not_found(namespace));
        };
        if metadata::is_deleting(&found) {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            return Err(ApiError::forbidden(kind, "", &why));
        }
        Ok(())
    }

    /// Who is named in managedFields for a write.
    pub(crate) fn writer(&self, call: &Call) -> Writer {
        Writer {
            name: call.field_manager(),
            api_version: call.kind().api_version(),
            subresource: call.subresource().unwrap_or_default().to_owned(),
            time: metadata::time_text(self.now()),
        }
    }

    /// A namespace that is being deleted stays as long as something is in it.
    pub(crate) fn keeps_namespace(&self, kind: &Kind, object: &Value) -> bool {
        if kind.kind != "Namespace" || !kind.group.is_empty() {
            return false;
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        !self.contents(name).is_empty()
    }

    /// Everything in a namespace.
    pub(crate) fn contents(&self, namespace: &str) -> Vec<(ResourceId, Arc<Value>)> {
        let state = self.store.lock();
        let all = state.partitions.iter();
        all.flat_map(|(resource, partition)| {
            let inside = partition.objects.iter().filter(|(key, _)| key.0 == namespace);
            inside.map(|(_, object)| (resource.clone(), Arc::clone(object)))
        })
        .collect()
    }

    /// Consequences of a commit inside the server itself: definitions are served, namespaces are emptied.
    pub(crate) fn after_commit(&self, call: &Call, kind: &Kind, stored: &Arc<Value>, removed: bool) {
        match (kind.group.as_str(), kind.kind.as_str()) {
            ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                let resource = crd::resource(stored);
                let mut registry = write(&self.registry);
                registry.remove(&resource);
                if removed {
                    drop(registry);
                    self.store.forget(&resource, &call.origin());
                } else {
                    for kind in crd::kinds(stored) {
                        registry.add(kind);
                    }
                }
            }
            _ if removed && kind.namespaced => self.release_namespace(call),
            _ => {}
        }
    }

    /// The last object of a namespace that is being deleted takes the namespace with it.
    fn release_namespace(&self, call: &Call) {
        let name = call.namespace();
        let Some(namespace) = self.store.get("", "namespaces", "", name) else {
            return;
        };
        if metadata::is_deleting(&namespace)
            && metadata::has_no_finalizers(&namespace)
            && self.contents(name).is_empty()
        {
            let key = (String::new(), name.to_owned());
            let resource = ResourceId::new("", "namespaces");
            // Losing a race means another request finished it.
            let action = Commit::Remove((*namespace).clone());
            let _ = self
                .store
                .commit(&resource, &key, Some(&namespace), action, &call.origin());
        }
    }
}
