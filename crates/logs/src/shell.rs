//! The collector on a cluster: watches pods, reads their logs, keeps what is new. Decides nothing itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clock::Clock;
use futures::{AsyncReadExt as _, Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ListParams, LogParams},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    collector::{Collector, Observed, Request, Response},
    key::ContainerKey,
    line::{self, Nanos},
    metrics::Metrics,
    selection::Selection,
    store::{Append, Store, StoreError},
};

/// How often lines are written, and the longest time without a look.
const COMMIT: Duration = Duration::from_millis(250);
/// Bytes that are read at once.
const BLOCK: usize = 64 * 1024;

/// What a task that reads a log reports.
enum Message {
    Bytes(u64, Vec<u8>),
    End(u64),
    Away(u64),
    Refused(u64),
}

/// Pods by namespace and name, as their watches show them.
#[derive(Default)]
struct Pods {
    current: BTreeMap<(String, String), Pod>,
    /// Of a watch that begins again: what it has listed so far.
    listed: BTreeMap<String, BTreeMap<(String, String), Pod>>,
    synced: BTreeSet<String>,
}

impl Pods {
    fn apply(&mut self, namespace: &str, event: Event<Pod>) {
        let key = |pod: &Pod| (namespace.to_owned(), pod.metadata.name.clone().unwrap_or_default());
        match event {
            Event::Init => {
                self.listed.insert(namespace.to_owned(), BTreeMap::new());
            }
            Event::InitApply(pod) => {
                let key = key(&pod);
                self.listed
                    .entry(namespace.to_owned())
                    .or_default()
                    .insert(key, small(pod));
            }
            Event::InitDone => {
                self.current.retain(|(of, _), _| of != namespace);
                self.current.extend(self.listed.remove(namespace).unwrap_or_default());
                self.synced.insert(namespace.to_owned());
            }
            Event::Apply(pod) => {
                self.current.insert(key(&pod), small(pod));
            }
            Event::Delete(pod) => {
                self.current.remove(&key(&pod));
            }
        }
    }

    fn observed(&self, selection: &Selection) -> Observed {
        let pods = self.current.values().filter_map(|pod| selection.facts(pod));
        Observed { pods: pods.collect() }
    }
}

/// A pod without what no decision reads: hundreds of them are in memory.
fn small(mut pod: Pod) -> Pod {
    pod.metadata.managed_fields = None;
    if let Some(spec) = &mut pod.spec {
        let node_name = spec.node_name.take();
        *spec = k8s_openapi::api::core::v1::PodSpec {
            node_name,
            ..Default::default()
        };
    }
    if let Some(status) = &mut pod.status {
        status.conditions = None;
    }
    pod
}

/// What a collector does at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Counters.
    pub metrics: Metrics,
    /// Containers whose logs are not read to the end yet.
    pub reading: BTreeSet<ContainerKey>,
}

fn progress(collector: &Collector, store: &Store, open: usize) -> Progress {
    let (read, kept) = (collector.counters(), store.counters());
    Progress {
        metrics: Metrics {
            bytes: read.bytes,
            lines: read.lines,
            dropped_lines: kept.dropped_lines,
            dropped_bytes: kept.dropped_bytes,
            gaps: read.gaps,
            requests: read.requests,
            failed_requests: read.failed_requests,
            streams: open as u64,
            follows: collector.follows() as u64,
            stored_bytes: store.stored_bytes(),
            write_errors: kept.write_errors,
        },
        reading: collector.streaming().cloned().collect(),
    }
}

/// Where a collector reports what it does.
pub struct Outlets<'a> {
    /// What it does at the moment.
    pub progress: &'a watch::Sender<Progress>,
    /// Lines, as they are read.
    pub tap: Option<mpsc::UnboundedSender<Append>>,
}

impl Outlets<'_> {
    /// Keeps lines, and shows them.
    fn keep(&self, store: &mut Store, append: Append) {
        if let Some(tap) = self.tap.as_ref().filter(|_| !append.text.is_empty()) {
            // Without a receiver they are only kept.
            let _ = tap.send(append.clone());
        }
        store.append(append);
    }
}

/// Reads logs until `stop` is true. The selection grows while the upgrade creates objects. A store that cannot write stops
/// nothing: it says so in its health, and the lines wait.
///
/// # Errors
/// The store could not write what was left at the end.
pub async fn run(
    client: Client,
    clock: Clock,
    mut collector: Collector,
    store: &tokio::sync::Mutex<Store>,
    mut selection: watch::Receiver<Selection>,
    mut stop: watch::Receiver<bool>,
    outlets: &Outlets<'_>,
) -> Result<(), StoreError> {
    let namespaces: Vec<String> = selection.borrow().namespaces().into_iter().map(str::to_owned).collect();
    let mut events = stream::select_all(namespaces.iter().map(|namespace| pods(&client, namespace)));
    let (sender, mut messages) = mpsc::channel(16);
    let (mut tasks, mut handles) = (JoinSet::new(), BTreeMap::new());
    let mut pods = Pods::default();
    let mut observed = Observed::default();
    let mut is_changed = false;
    let mut ticks = tokio::time::interval(COMMIT);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !*stop.borrow() {
        tokio::select! {
            biased;
            changed = stop.changed() => if changed.is_err() { break },
            changed = selection.changed() => {
                if changed.is_err() {
                    break;
                }
                is_changed = true;
            }
            Some((namespace, event)) = events.next() => {
                match event {
                    Some(event) => pods.apply(&namespace, event),
                    None => {
                        pods.synced.insert(namespace);
                    }
                }
                is_changed = true;
                continue;
            }
            Some(message) = messages.recv() => {
                let (id, append) = take(&mut collector, line::nanos(clock.now()), &message);
                if !matches!(message, Message::Bytes(..)) {
                    handles.remove(&id);
                }
                if let Some(append) = append {
                    outlets.keep(&mut *store.lock().await, append);
                }
            }
            _ = ticks.tick() => {
                let mut store = store.lock().await;
                if let Err(error) = store.commit(line::nanos(clock.now())) {
                    tracing::warn!(%error, "failed to write logs; they are kept in memory");
                }
                outlets.progress.send_replace(progress(&collector, &store, handles.len()));
            }
        }
        while tasks.try_join_next().is_some() {}
        if pods.synced.len() < namespaces.len() {
            // What is not listed yet must not count as deleted.
            continue;
        }
        if std::mem::take(&mut is_changed) {
            observed = pods.observed(&selection.borrow());
        }
        let mut store = store.lock().await;
        let step = collector.next(line::nanos(clock.now()), &observed, store.has_room());
        step.appends
            .into_iter()
            .for_each(|append| outlets.keep(&mut store, append));
        drop(store);
        for id in step.stops {
            let handle: Option<tokio::task::AbortHandle> = handles.remove(&id);
            if let Some(handle) = handle {
                handle.abort();
            }
        }
        for request in step.requests {
            let id = request.id;
            let handle = tasks.spawn(read(client.clone(), request, sender.clone()));
            handles.insert(id, handle);
        }
    }
    store.lock().await.commit(line::nanos(clock.now()))
}

/// The pods of a namespace, as they change; nothing, where they may not be read. A watch that fails is begun again, later and
/// later.
fn pods(client: &Client, namespace: &str) -> impl Stream<Item = (String, Option<Event<Pod>>)> + Unpin + use<> {
    let name = namespace.to_owned();
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    Box::pin(events.filter_map(move |event| {
        let event = match event {
            Ok(event) => Some(Some(event)),
            Err(error) => {
                tracing::warn!(%error, namespace = name, "failed to watch pods");
                is_forbidden(&error).then_some(None)
            }
        };
        std::future::ready(event.map(|event| (name.clone(), event)))
    }))
}

/// This client may not read these pods: that does not pass, and others can be read.
fn is_forbidden(error: &watcher::Error) -> bool {
    let of = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 403);
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => of(error),
        watcher::Error::WatchError(status) => status.code == 403,
        watcher::Error::NoResourceVersion => false,
    }
}

/// What a message of a task means: which request it is of, and lines to keep.
fn take(collector: &mut Collector, now: Nanos, message: &Message) -> (u64, Option<Append>) {
    let (id, response) = match message {
        Message::Bytes(id, bytes) => (*id, Response::Bytes(bytes)),
        Message::End(id) => (*id, Response::End),
        Message::Away(id) => (*id, Response::Away),
        Message::Refused(id) => (*id, Response::Refused),
    };
    (id, collector.accept(now, id, response))
}

/// The pods of a selection as they are now, and the namespaces that could not be listed.
pub(crate) async fn pods_now(client: &Client, selection: &Selection) -> (Observed, Vec<(String, kube::Error)>) {
    let mut pods = Pods::default();
    let mut failures = Vec::new();
    for namespace in selection.namespaces() {
        let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
        match api.list(&ListParams::default()).await {
            Ok(found) => found
                .items
                .into_iter()
                .for_each(|pod| pods.apply(namespace, Event::Apply(pod))),
            Err(error) => failures.push((format!("pods of {namespace}"), error)),
        }
    }
    (pods.observed(selection), failures)
}

/// Reads every log once. Time stands still meanwhile, so nothing is read twice; what fails is left out.
///
/// # Errors
/// The store cannot write.
pub(crate) async fn sweep(
    client: &Client,
    now: Nanos,
    collector: &mut Collector,
    store: &mut Store,
    observed: &Observed,
) -> Result<(), StoreError> {
    let (sender, mut messages) = mpsc::channel(16);
    let mut tasks = JoinSet::new();
    let mut open = 0_usize;
    loop {
        let step = collector.next(now, observed, true);
        step.appends.into_iter().for_each(|append| store.append(append));
        for request in step.requests {
            open += 1;
            tasks.spawn(read(client.clone(), request, sender.clone()));
        }
        if open == 0 {
            break;
        }
        let Some(message) = messages.recv().await else { break };
        open -= usize::from(!matches!(message, Message::Bytes(..)));
        let (_, append) = take(collector, now, &message);
        append.into_iter().for_each(|append| store.append(append));
        if !store.has_room() {
            store.commit(now)?;
        }
    }
    store.commit(now)
}

/// Reads one log and reports its bytes. The channel is short: a collector that does not keep up slows the reading down.
async fn read(client: Client, request: Request, sender: mpsc::Sender<Message>) {
    let id = request.id;
    let api: Api<Pod> = Api::namespaced(client, &request.namespace);
    let params = LogParams {
        container: Some(request.container),
        follow: request.follow,
        limit_bytes: request.limit.and_then(|limit| i64::try_from(limit).ok()),
        previous: request.previous,
        since_time: request.since.map(line::timestamp),
        timestamps: true,
        ..LogParams::default()
    };
    let last = match api.log_stream(&request.pod, &params).await {
        Ok(log) => {
            let mut log = std::pin::pin!(log);
            loop {
                let mut block = vec![0; BLOCK];
                match log.read(&mut block).await {
                    Ok(0) => break Message::End(id),
                    Ok(read) => {
                        block.truncate(read);
                        if sender.send(Message::Bytes(id, block)).await.is_err() {
                            return;
                        }
                    }
                    Err(_) => break Message::Away(id),
                }
            }
        }
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 400 => Message::Refused(id),
        Err(_) => Message::Away(id),
    };
    // Without a receiver the collector has stopped.
    let _ = sender.send(last).await;
}
