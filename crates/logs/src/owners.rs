//! Which objects a plan owns, directly or through others, as their watches show them. A name or a label proves nothing: only
//! the UIDs of owners count. Changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use api::{foreign::suc, names};
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{Deployment, ReplicaSet},
        batch::v1::Job,
    },
};
use kube::{
    Api, Client, Resource,
    api::ListParams,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::selection::Selection;

/// An object, as far as it matters whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    name: String,
    uid: String,
    owners: Vec<String>,
}

impl Owned {
    fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        let owners = meta.owner_references.iter().flatten();
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            owners: owners.map(|owner| owner.uid.clone()).collect(),
        }
    }
}

/// What the watches show, by the number of the watch and the name of the object.
#[derive(Default)]
struct Objects {
    current: BTreeMap<(usize, String), Owned>,
    /// Of a watch that begins again: what it has listed so far.
    listed: BTreeMap<usize, Vec<Owned>>,
}

impl Objects {
    fn apply(&mut self, number: usize, event: Event<Owned>) {
        match event {
            Event::Init => {
                self.listed.insert(number, Vec::new());
            }
            Event::InitApply(object) => self.listed.entry(number).or_default().push(object),
            Event::InitDone => {
                self.current.retain(|(of, _), _| *of != number);
                for object in self.listed.remove(&number).unwrap_or_default() {
                    self.current.insert((number, object.name.clone()), object);
                }
            }
            Event::Apply(object) => {
                self.current.insert((number, object.name.clone()), object);
            }
            Event::Delete(object) => {
                self.current.remove(&(number, object.name));
            }
        }
    }

    /// The UIDs of a plan, and of all that it owns directly or through others. What was known stays: the pods of a Job that is
    /// gone are still the upgrade's own.
    fn extend(&self, owners: &mut BTreeSet<String>) {
        loop {
            let is_new = |object: &&Owned| {
                !object.uid.is_empty()
                    && !owners.contains(&object.uid)
                    && object.owners.iter().any(|owner| owners.contains(owner))
            };
            let more: Vec<String> = self
                .current
                .values()
                .filter(is_new)
                .map(|one| one.uid.clone())
                .collect();
            if more.is_empty() {
                return;
            }
            owners.extend(more);
        }
    }
}

/// Finds the owners of a selection as they are now. Returns what could not be listed.
pub(crate) async fn find(client: &Client, selection: &mut Selection) -> Vec<(String, kube::Error)> {
    let (harvester, cattle) = (names::HARVESTER_NAMESPACE, names::CATTLE_NAMESPACE);
    let mut known = Objects::default();
    let mut failures = Vec::new();
    let lists = [
        listed::<Job>(client, harvester).await,
        listed::<Job>(client, cattle).await,
        listed::<suc::Plan>(client, cattle).await,
        listed::<Deployment>(client, harvester).await,
        listed::<ReplicaSet>(client, harvester).await,
    ];
    for (number, list) in lists.into_iter().enumerate() {
        match list {
            Ok(found) => found
                .into_iter()
                .for_each(|object| known.apply(number, Event::Apply(object))),
            Err(failure) => failures.push(failure),
        }
    }
    known.extend(&mut selection.owners);
    failures
}

async fn listed<K>(client: &Client, namespace: &str) -> Result<Vec<Owned>, (String, kube::Error)>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let found = api.list_metadata(&ListParams::default()).await;
    match found {
        Ok(found) => Ok(found.items.iter().map(Owned::of).collect()),
        Err(error) => Err((format!("{} of {namespace}", K::plural(&())), error)),
    }
}

/// Keeps the owners of a selection up to date. It ends when the selection is not wanted any more.
pub(crate) async fn watch(client: &Client, selection: &watch::Sender<Selection>) {
    let (harvester, cattle) = (names::HARVESTER_NAMESPACE, names::CATTLE_NAMESPACE);
    let mut events = stream::select_all([
        objects::<Job>(client, harvester, 0),
        objects::<Job>(client, cattle, 1),
        objects::<suc::Plan>(client, cattle, 2),
        objects::<Deployment>(client, harvester, 3),
        objects::<ReplicaSet>(client, harvester, 4),
    ]);
    let mut known = Objects::default();
    while let Some((number, event)) = events.next().await {
        known.apply(number, event);
        let mut owners = selection.borrow().owners.clone();
        known.extend(&mut owners);
        selection.send_if_modified(|selection| {
            let is_changed = selection.owners != owners;
            selection.owners.clone_from(&owners);
            is_changed
        });
    }
}

/// The objects of a kind, as they change. A watch that fails is begun again, later and later.
fn objects<K>(client: &Client, namespace: &str, number: usize) -> BoxStream<'static, (usize, Event<Owned>)>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    let events = events.filter_map(move |event| {
        let event = event.map(|event| match event {
            Event::Init => Event::Init,
            Event::InitApply(object) => Event::InitApply(Owned::of(&object)),
            Event::InitDone => Event::InitDone,
            Event::Apply(object) => Event::Apply(Owned::of(&object)),
            Event::Delete(object) => Event::Delete(Owned::of(&object)),
        });
        if let Err(error) = &event {
            tracing::warn!(%error, kind = %K::kind(&()), "failed to watch what the upgrade owns");
        }
        std::future::ready(event.ok().map(|event| (number, event)))
    });
    events.boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(name: &str, uid: &str, owner: &str) -> Owned {
        Owned {
            name: name.to_owned(),
            uid: uid.to_owned(),
            owners: vec![owner.to_owned()],
        }
    }

    #[test]
    fn what_an_owned_object_owns_is_the_plans_and_what_is_gone_stays_known() {
        let mut objects = Objects::default();
        objects.apply(0, Event::Init);
        objects.apply(0, Event::InitApply(owned("set", "set-uid", "deployment-uid")));
        objects.apply(0, Event::InitApply(owned("stranger", "stranger-uid", "other")));
        objects.apply(0, Event::InitDone);
        objects.apply(1, Event::Apply(owned("deployment", "deployment-uid", "plan-uid")));
        let mut owners = BTreeSet::from(["plan-uid".to_owned()]);
        objects.extend(&mut owners);
        let all: Vec<&str> = owners.iter().map(String::as_str).collect();
        assert_eq!(all, ["deployment-uid", "plan-uid", "set-uid"]);
        objects.apply(0, Event::Delete(owned("set", "set-uid", "deployment-uid")));
        objects.extend(&mut owners);
        assert!(owners.contains("set-uid"));
    }

    #[test]
    fn a_watch_that_begins_again_replaces_what_it_knew() {
        let mut objects = Objects::default();
        objects.apply(0, Event::Apply(owned("old", "old-uid", "plan-uid")));
        objects.apply(0, Event::Init);
        objects.apply(0, Event::InitApply(owned("new", "new-uid", "plan-uid")));
        objects.apply(0, Event::InitDone);
        let mut owners = BTreeSet::from(["plan-uid".to_owned()]);
        objects.extend(&mut owners);
        assert!(owners.contains("new-uid") && !owners.contains("old-uid"));
    }
}
