//! Watches for as long as one step needs them: they ring one bell, and end with the step.

use api::ProgramWait;
use std::{fmt::Debug, sync::Arc};

use cache::Cache;
use futures::future::{BoxFuture, join_all, pending};
use kube::{Api, Resource, runtime::watcher};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::{
    error::Result,
    report::{Look, Waiting},
    step::StepContext,
};

/// A watch without its kind.
trait Watched: Send + Sync {
    /// What there is has come, or cannot.
    fn is_known(&self) -> bool;
    /// The kind, when the API server does not serve it.
    fn unserved(&self) -> Option<Waiting>;
    /// The kind, when its first list has not come in.
    fn unlisted(&self) -> Option<Waiting>;
}

impl<K: Resource<DynamicType = ()> + Send + Sync> Watched for Cache<K> {
    fn is_known(&self) -> bool {
        self.is_synced()
    }

    fn unserved(&self) -> Option<Waiting> {
        (!self.is_served()).then(unserved::<K>)
    }

    fn unlisted(&self) -> Option<Waiting> {
        (!self.is_synced()).then(unlisted::<K>)
    }
}

/// Of a kind whose first list has not come in, nothing is known.
pub fn unlisted<K: Resource<DynamicType = ()>>() -> Waiting {
    let object = K::plural(&()).into_owned();
    Waiting {
        what: ProgramWait::List,
        message: format!("{object} have not been listed yet"),
        object,
    }
}

/// A kind that is not served is not an empty one: nothing is known about its objects. That is so while definitions are
/// replaced, and continuing then would drain a node whose volumes are unknown.
pub fn unserved<K: Resource<DynamicType = ()>>() -> Waiting {
    let (kind, group) = (K::kind(&()), K::group(&()));
    Waiting {
        what: ProgramWait::Kind,
        object: format!("CustomResourceDefinition {}.{group}", K::plural(&())),
        message: format!(
            "the API server does not serve the kind {kind} of {group}, so nothing is known about its objects"
        ),
    }
}

/// The watches of a step.
#[derive(Default)]
pub struct Watches {
    bell: Arc<Notify>,
    running: Vec<BoxFuture<'static, ()>>,
    watched: Vec<Box<dyn Watched>>,
}

/// What a step needs while its watches run.
pub struct Bell {
    /// Rings after every change.
    pub rings: Arc<Notify>,
    watched: Vec<Box<dyn Watched>>,
}

impl Bell {
    /// All watches have their first list, or know that there is none. Before that, nothing is known.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.watched.iter().all(|watched| watched.is_known())
    }

    /// Kinds whose first list has not come in.
    fn unlisted(&self) -> Vec<Waiting> {
        self.watched.iter().filter_map(|watched| watched.unlisted()).collect()
    }

    /// Kinds that the API server does not serve. While there are any, nothing is done.
    #[must_use]
    pub fn unserved(&self) -> Vec<Waiting> {
        self.watched.iter().filter_map(|watched| watched.unserved()).collect()
    }
}

impl Watches {
    /// Watches a kind. `prune` may drop unused fields.
    pub fn add<K>(&mut self, api: Api<K>, config: watcher::Config, prune: fn(&mut K)) -> Cache<K>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + PartialEq + Send + Sync + 'static,
    {
        let cache = Cache::default();
        self.running
            .push(Box::pin(cache.clone().run(api, config, prune, self.bell.clone())));
        self.watched.push(Box::new(cache.clone()));
        cache
    }

    /// Looks whenever something has changed until there is nothing to wait for; not before all watches have brought what
    /// there is, since until then nothing is known.
    pub async fn until(self, ctx: StepContext<'_>, mut look: impl FnMut() -> Look) -> Result<()> {
        self.while_doing(async |bell| {
            let look = || {
                // Kinds that are not served are named first: they may stay so.
                match (Look::of(bell.unserved()), Look::of(bell.unlisted())) {
                    (Look::Done, Look::Done) => look(),
                    (Look::Done, unlisted) => unlisted,
                    (unserved, _) => unserved,
                }
            };
            ctx.until(&bell.rings, look).await
        })
        .await
    }

    /// Runs the watches until the work is done.
    pub async fn while_doing<T>(self, work: impl AsyncFnOnce(&Bell) -> T) -> T {
        let bell = Bell {
            rings: self.bell,
            watched: self.watched,
        };
        let watching = async {
            join_all(self.running).await;
            pending::<()>().await;
        };
        tokio::select! {
            biased;
            done = work(&bell) => done,
            () = watching => pending().await,
        }
    }
}
