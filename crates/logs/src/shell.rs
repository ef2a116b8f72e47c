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
    api::LogParams,
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
    line,
    selection::Selection,
    store::{Store, StoreError},
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
                pods.apply(&namespace, event);
                is_changed = true;
                continue;
            }
            Some(message) = messages.recv() => take(&mut collector, store, &clock, &mut handles, &message).await,
            _ = ticks.tick() => {
                if let Err(error) = store.lock().await.commit(line::nanos(clock.now())) {
                    tracing::warn!(%error, "failed to write logs; they are kept in memory");
                }
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
        step.appends.into_iter().for_each(|append| store.append(append));
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

/// The pods of a namespace, as they change. A watch that fails is begun again, later and later.
fn pods(client: &Client, namespace: &str) -> impl Stream<Item = (String, Event<Pod>)> + Unpin + use<> {
    let name = namespace.to_owned();
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    Box::pin(events.filter_map(move |event| {
        let event = event.map(|event| (name.clone(), event));
        if let Err(error) = &event {
            tracing::warn!(%error, "failed to watch pods");
        }
        std::future::ready(event.ok())
    }))
}

async fn take(
    collector: &mut Collector,
    store: &tokio::sync::Mutex<Store>,
    clock: &Clock,
    handles: &mut BTreeMap<u64, tokio::task::AbortHandle>,
    message: &Message,
) {
    let (id, response) = match message {
        Message::Bytes(id, bytes) => (*id, Response::Bytes(bytes)),
        Message::End(id) => (*id, Response::End),
        Message::Away(id) => (*id, Response::Away),
        Message::Refused(id) => (*id, Response::Refused),
    };
    if !matches!(message, Message::Bytes(..)) {
        handles.remove(&id);
    }
    if let Some(append) = collector.accept(line::nanos(clock.now()), id, response) {
        store.lock().await.append(append);
    }
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
