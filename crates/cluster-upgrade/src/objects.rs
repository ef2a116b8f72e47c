//! The thin shell around the Kubernetes API: read, patch, apply, delete, and watch until something is so.
//!
//! Foreign objects are only ever merge-patched, so that fields we do not know stay; what is ours is applied by the
//! server. Nothing is decided here.

use std::{fmt::Debug, sync::Arc, time::Duration};

use cache::Cache;
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    runtime::watcher,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Notify;

use program::{
    error::{Error, Result},
    report::Look,
    step::StepContext,
    watches::{unlisted, unserved},
};

/// Our field manager in `managedFields`.
pub const FIELD_MANAGER: &str = "upgrade-toolkit";

/// A kind that this program reads or writes.
pub(crate) trait Kind:
    Resource<DynamicType = ()> + Clone + Debug + PartialEq + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = ()> + Clone + Debug + PartialEq + DeserializeOwned + Send + Sync + 'static
{
}

/// The objects of one kind in one namespace, or in none.
pub(crate) struct Objects<K> {
    api: Api<K>,
    namespace: String,
}

impl<K: Kind> Objects<K> {
    pub(crate) fn new(api: Api<K>, namespace: &str) -> Self {
        Self {
            api,
            namespace: namespace.to_owned(),
        }
    }

    /// An object as users see it: `Kind namespace/name`.
    pub(crate) fn called(&self, name: &str) -> String {
        called::<K>(&self.namespace, name)
    }

    /// The object of that name, if there is one.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<K>> {
        let found = self.api.get_opt(name).await;
        found.map_err(|error| Error::api(format!("read {}", self.called(name)), error))
    }

    /// The object of that name. It may be on its way: its absence is a transient error.
    pub(crate) async fn need(&self, name: &str) -> Result<K> {
        let found = self.get(name).await?;
        found.ok_or_else(|| Error::Transient(format!("{} does not exist", self.called(name))))
    }

    /// All objects that carry the labels, by name.
    pub(crate) async fn list(&self, labels: &str) -> Result<Vec<K>> {
        let listed = self.api.list(&ListParams::default().labels(labels)).await;
        let listed = listed.map_err(|error| Error::api(format!("list {}", K::plural(&())), error))?;
        let mut items = listed.items;
        items.sort_by_key(ResourceExt::name_any);
        Ok(items)
    }

    /// Changes some fields of an object that exists.
    pub(crate) async fn merge(&self, name: &str, patch: &Value) -> Result<K> {
        let patched = self.api.patch(name, &ours(), &Patch::Merge(patch)).await;
        patched.map_err(|error| Error::api(format!("patch {}", self.called(name)), error))
    }

    /// Changes some fields of the status of an object that exists.
    pub(crate) async fn merge_status(&self, name: &str, patch: &Value) -> Result<K> {
        let patched = self.api.patch_status(name, &ours(), &Patch::Merge(patch)).await;
        patched.map_err(|error| Error::api(format!("patch the status of {}", self.called(name)), error))
    }

    /// Changes an object by the rules of its kind: lists of named elements are merged by name.
    pub(crate) async fn merge_by_name(&self, name: &str, patch: &Value) -> Result<K> {
        let patched = self.api.patch(name, &ours(), &Patch::Strategic(patch)).await;
        patched.map_err(|error| Error::api(format!("patch {}", self.called(name)), error))
    }

    /// Applies one of our objects, whether it exists or not.
    pub(crate) async fn apply(&self, name: &str, object: &Value) -> Result<K> {
        let applied = self
            .api
            .patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object))
            .await;
        applied.map_err(|error| Error::api(format!("apply {}", self.called(name)), error))
    }

    /// Removes an object; one that is gone is removed, without a write.
    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        let Some(found) = self.get(name).await? else {
            return Ok(());
        };
        // By its UID: another one that has taken its name since stays.
        let uid = Preconditions {
            uid: found.meta().uid.clone(),
            resource_version: None,
        };
        let how = DeleteParams {
            preconditions: Some(uid),
            ..DeleteParams::default()
        };
        match self.api.delete(name, &how).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(Error::api(format!("delete {}", self.called(name)), error)),
        }
    }

    /// Watches one object until it is as wanted. Its absence is shown to `look` as `None`.
    pub(crate) async fn until(
        &self,
        ctx: StepContext<'_>,
        name: &str,
        mut look: impl FnMut(Option<&K>) -> Look,
    ) -> Result<()> {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        self.watch(ctx, config, None, |all| {
            let found = all.iter().find(|object| object.name_any() == name);
            look(found.map(AsRef::as_ref))
        })
        .await
    }

    /// Watches the objects of a selection until they are as wanted, and looks again after every `tick` even when
    /// nothing has changed, for what depends on time.
    pub(crate) async fn watch(
        &self,
        ctx: StepContext<'_>,
        config: watcher::Config,
        tick: Option<Duration>,
        mut look: impl FnMut(&[Arc<K>]) -> Look,
    ) -> Result<()> {
        let (cache, bell) = (Cache::<K>::default(), Arc::new(Notify::new()));
        let looked = ctx.until(&bell, || {
            if !cache.is_synced() {
                Look::wait(unlisted::<K>())
            } else if !cache.is_served() {
                Look::wait(unserved::<K>())
            } else {
                look(&cache.list())
            }
        });
        let ticking = async {
            match tick {
                None => std::future::pending::<()>().await,
                Some(tick) => loop {
                    ctx.report.clock.sleep(tick).await;
                    bell.notify_one();
                },
            }
        };
        tokio::select! {
            biased;
            done = looked => done,
            () = cache.clone().run(self.api.clone(), config, |_| (), bell.clone()) => {
                Err(Error::Transient(format!("the watch of {} ended", K::plural(&()))))
            }
            () = ticking => Ok(()),
        }
    }
}

/// An object as users see it: `Kind namespace/name`, or `Kind name` when it is in no namespace.
#[must_use]
pub fn called<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> String {
    let kind = K::kind(&());
    if namespace.is_empty() {
        format!("{kind} {name}")
    } else {
        format!("{kind} {namespace}/{name}")
    }
}

fn ours() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}
