//! The garbage collector: an object whose owners are all gone goes too, after a while. An owner that is being deleted
//! in the foreground goes once nothing that blocks it is left; one deleted with `orphan` leaves its objects behind.
//!
//! As the real one (`pkg/controller/garbagecollector`): only what says `blockOwnerDeletion` is deleted first and waited for,
//! and in the foreground if it owns something itself; the rest goes afterwards, as orphans.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde_json::json;

use crate::{
    context::{Context, after},
    error::Result,
    inbox::{Inbox, Item, Key, Kind},
    watched::{Object, Watched},
};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// Who owns what, by uid.
#[derive(Default)]
struct Graph {
    /// Owners of an object, and whether it blocks their deletion.
    owners: BTreeMap<Item, BTreeMap<String, bool>>,
    /// Objects of an owner.
    owned: BTreeMap<String, BTreeSet<Item>>,
    /// The uid under which an object was last seen.
    uids: BTreeMap<Item, String>,
    /// Every object that is there.
    alive: BTreeMap<String, Item>,
}

/// Calls the same expression for the watch of a kind.
macro_rules! with_watch {
    ($world:expr, $kind:expr, $watched:ident => $then:expr) => {
        match $kind {
            Kind::UpgradePlan => {
                let $watched = &$world.upgrade_plans;
                $then
            }
            Kind::Pod => {
                let $watched = &$world.pods;
                $then
            }
            Kind::Job => {
                let $watched = &$world.jobs;
                $then
            }
            Kind::Plan => {
                let $watched = &$world.plans;
                $then
            }
            Kind::Deployment => {
                let $watched = &$world.deployments;
                $then
            }
            Kind::ReplicaSet => {
                let $watched = &$world.replica_sets;
                $then
            }
            Kind::Service => {
                let $watched = &$world.services;
                $then
            }
            Kind::EndpointSlice => {
                let $watched = &$world.endpoint_slices;
                $then
            }
            Kind::PodDisruptionBudget => {
                let $watched = &$world.budgets;
                $then
            }
            Kind::Secret => {
                let $watched = &$world.repo_secrets;
                $then
            }
            Kind::ConfigMap => {
                let $watched = &$world.config_maps;
                $then
            }
            Kind::PersistentVolumeClaim => {
                let $watched = &$world.claims;
                $then
            }
            Kind::VirtualMachineImage => {
                let $watched = &$world.images;
                $then
            }
            Kind::VirtualMachine => {
                let $watched = &$world.vms;
                $then
            }
            Kind::VirtualMachineInstance => {
                let $watched = &$world.vmis;
                $then
            }
            _ => {
                let $watched = &$world.migrations;
                $then
            }
        }
    };
}

const KINDS: [Kind; 16] = [
    Kind::UpgradePlan,
    Kind::Pod,
    Kind::Job,
    Kind::Plan,
    Kind::Deployment,
    Kind::ReplicaSet,
    Kind::Service,
    Kind::EndpointSlice,
    Kind::PodDisruptionBudget,
    Kind::Secret,
    Kind::ConfigMap,
    Kind::PersistentVolumeClaim,
    Kind::VirtualMachineImage,
    Kind::VirtualMachine,
    Kind::VirtualMachineInstance,
    Kind::VirtualMachineInstanceMigration,
];

/// Kinds of owners that this collector can judge; what others own is left alone. So does the real one with an apiVersion
/// that it cannot map: it tries again for ever (`restMappingError`).
fn judged(world: &Context, owner: &OwnerReference) -> Option<Kind> {
    let kind = KINDS.into_iter().find(|known| format!("{known:?}") == owner.kind)?;
    let group = |version: &str| version.rsplit_once('/').map(|(group, _)| group.to_owned());
    let known = with_watch!(world, kind, watched => api_version(watched));
    (group(&known) == group(&owner.api_version)).then_some(kind)
}

fn api_version<K: Object>(_: &Watched<K>) -> String {
    K::api_version(&()).into_owned()
}

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    for kind in KINDS {
        with_watch!(world, kind, watched => watched.subscribe(&inbox));
    }
    let mut graph = Graph::default();
    let mut due = BTreeMap::new();
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = sync(&world, &inbox, &mut graph, &mut due, kind, &key).await;
        inbox.settle("garbage-collector", (kind, key), outcome);
    }
}

fn meta<K: Object>(watched: &Watched<K>, key: &Key) -> Option<ObjectMeta> {
    watched.at(key).map(|object| Resource::meta(object.as_ref()).clone())
}

async fn sync(
    world: &Context,
    inbox: &Inbox,
    graph: &mut Graph,
    due: &mut BTreeMap<Item, jiff::Timestamp>,
    kind: Kind,
    key: &Key,
) -> Result<()> {
    let item = (kind, key.clone());
    let found = with_watch!(world, kind, watched => meta(watched, key));
    for orphan in graph.update(&item, found.as_ref()) {
        inbox.now(orphan.0, orphan.1);
    }
    let Some(meta) = found else {
        due.remove(&item);
        return Ok(());
    };
    if meta.deletion_timestamp.is_some() {
        return finish_deletion(world, graph, &item, &meta).await;
    }
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let alive = owners
        .iter()
        .any(|owner| judged(world, owner).is_none() || graph.alive.contains_key(&owner.uid));
    if owners.is_empty() || alive {
        due.remove(&item);
        return Ok(());
    }
    let now = world.clock.now();
    let at = *due
        .entry(item.clone())
        .or_insert_with(|| after(now, world.durations.garbage_collection));
    if now < at {
        inbox.later(kind, key.clone(), at);
        return Ok(());
    }
    due.remove(&item);
    if has_owner(world, key, owners).await? {
        return Ok(());
    }
    with_watch!(world, kind, watched => watched.delete(key, false).await)
}

/// Whether one of the owners is there after all: watches of different kinds are not in step, so an owner may not be known
/// yet. Plans are in no namespace; all others are where their objects are.
async fn has_owner(world: &Context, child: &Key, owners: &[OwnerReference]) -> Result<bool> {
    for owner in owners {
        let Some(kind) = judged(world, owner) else {
            return Ok(true);
        };
        let namespace = if kind == Kind::UpgradePlan { "" } else { &child.0 };
        let key = (namespace.to_owned(), owner.name.clone());
        if with_watch!(world, kind, watched => watched.is_there(&key, &owner.uid).await)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Finishes a deletion that waits for the collector.
async fn finish_deletion(world: &Context, graph: &Graph, item: &Item, meta: &ObjectMeta) -> Result<()> {
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    let (kind, key) = item;
    let uid = meta.uid.clone().unwrap_or_default();
    let children = graph.owned.get(&uid).cloned().unwrap_or_default();
    let done = if finalizers.iter().any(|finalizer| finalizer == FOREGROUND) {
        let blocking = graph.blocking(&uid);
        for child in &blocking {
            delete_first(world, graph, &uid, child).await?;
        }
        blocking.is_empty().then_some(FOREGROUND)
    } else if finalizers.iter().any(|finalizer| finalizer == ORPHAN) {
        let patch = json!({"metadata": {"ownerReferences": null}});
        for (kind, key) in &children {
            with_watch!(world, *kind, watched => watched.patch(key, &patch).await.map(drop))?;
        }
        Some(ORPHAN)
    } else {
        None
    };
    if let Some(done) = done {
        let rest: Vec<&String> = finalizers.iter().filter(|finalizer| *finalizer != done).collect();
        let patch = json!({"metadata": {"finalizers": rest}});
        with_watch!(world, *kind, watched => watched.patch(key, &patch).await.map(drop))?;
    }
    Ok(())
}

/// Deletes what blocks the deletion of its owner; what another owner keeps only loses this one.
async fn delete_first(world: &Context, graph: &Graph, owner: &str, (kind, key): &Item) -> Result<()> {
    let Some(found) = with_watch!(world, *kind, watched => meta(watched, key)) else {
        return Ok(());
    };
    let references = found.owner_references.unwrap_or_default();
    let others: Vec<&OwnerReference> = references.iter().filter(|reference| reference.uid != owner).collect();
    if others.iter().any(|other| graph.alive.contains_key(&other.uid)) {
        let patch = json!({"metadata": {"ownerReferences": others}});
        return with_watch!(world, *kind, watched => watched.patch(key, &patch).await.map(drop));
    }
    if found.deletion_timestamp.is_some() {
        return Ok(());
    }
    let has_own = found.uid.is_some_and(|uid| graph.owned.contains_key(&uid));
    with_watch!(world, *kind, watched => match has_own {
        true => watched.delete_in_foreground(key).await,
        false => watched.delete(key, false).await,
    })
}

impl Graph {
    /// What must be gone before an owner is.
    fn blocking(&self, owner: &str) -> BTreeSet<Item> {
        let owned = self.owned.get(owner).into_iter().flatten();
        let blocks = |item: &&Item| self.owners.get(*item).and_then(|owners| owners.get(owner)) == Some(&true);
        owned.filter(blocks).cloned().collect()
    }

    /// Takes in what an object is now; returns the objects that may have become orphans, and owners that wait for them.
    fn update(&mut self, item: &Item, meta: Option<&ObjectMeta>) -> Vec<Item> {
        let uid = meta.and_then(|meta| meta.uid.clone());
        let before = self.uids.get(item).cloned();
        let mut look = Vec::new();
        if before != uid {
            if let Some(before) = &before {
                self.alive.remove(before);
                look.extend(self.owned.get(before).into_iter().flatten().cloned());
            }
            match &uid {
                Some(uid) => {
                    self.alive.insert(uid.clone(), item.clone());
                    self.uids.insert(item.clone(), uid.clone());
                }
                None => {
                    self.uids.remove(item);
                }
            }
        }
        let owners = meta
            .and_then(|meta| meta.owner_references.as_deref())
            .unwrap_or_default();
        let owners: BTreeMap<String, bool> = owners
            .iter()
            .map(|owner| (owner.uid.clone(), owner.block_owner_deletion == Some(true)))
            .collect();
        let old = self.owners.get(item).cloned().unwrap_or_default();
        for gone in old.keys().filter(|uid| !owners.contains_key(*uid)) {
            if let Some(children) = self.owned.get_mut(gone) {
                children.remove(item);
                if children.is_empty() {
                    self.owned.remove(gone);
                }
                // An owner that is deleted in the foreground waits for the last child that blocks it.
                look.extend(self.alive.get(gone).cloned());
            }
        }
        for new in owners.keys().filter(|uid| !old.contains_key(*uid)) {
            self.owned.entry(new.clone()).or_default().insert(item.clone());
        }
        if owners.is_empty() {
            self.owners.remove(item);
        } else {
            self.owners.insert(item.clone(), owners);
        }
        look
    }
}
