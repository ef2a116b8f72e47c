//! Watches for as long as one step needs them: they ring one bell, and end with the step.

use std::{fmt::Debug, sync::Arc};

use cache::Cache;
use futures::future::{BoxFuture, join_all, pending};
use kube::{Api, Resource, runtime::watcher};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::{error::Result, report::Look, step::Pace};

/// The watches of a step.
#[derive(Default)]
pub(crate) struct Watches {
    bell: Arc<Notify>,
    running: Vec<BoxFuture<'static, ()>>,
    synced: Vec<Box<dyn Fn() -> bool + Send + Sync>>,
}

/// What a step needs while its watches run.
pub(crate) struct Bell {
    /// Rings after every change.
    pub(crate) rings: Arc<Notify>,
    synced: Vec<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Bell {
    /// All watches have brought what there is. Before that, nothing can be said.
    #[must_use]
    pub(crate) fn is_synced(&self) -> bool {
        self.synced.iter().all(|synced| synced())
    }
}

impl Watches {
    /// Watches a kind. `prune` may drop what nobody reads.
    pub(crate) fn add<K>(&mut self, api: Api<K>, config: watcher::Config, prune: fn(&mut K)) -> Cache<K>
    where
        K: Resource + Clone + DeserializeOwned + Debug + PartialEq + Send + Sync + 'static,
    {
        let cache = Cache::default();
        self.running
            .push(Box::pin(cache.clone().run(api, config, prune, self.bell.clone())));
        let seen = cache.clone();
        self.synced.push(Box::new(move || seen.is_synced()));
        cache
    }

    /// Looks whenever something has changed until there is nothing to wait for; not before all watches have brought what
    /// there is, since until then nothing can be said.
    pub(crate) async fn until(self, pace: Pace<'_>, mut look: impl FnMut() -> Look) -> Result<()> {
        self.while_doing(async |bell| {
            let look = || {
                if bell.is_synced() {
                    look()
                } else {
                    Look::Wait(Vec::new())
                }
            };
            pace.until(&bell.rings, look).await
        })
        .await
    }

    /// Runs the watches until the work is done.
    pub(crate) async fn while_doing<T>(self, work: impl AsyncFnOnce(&Bell) -> T) -> T {
        let bell = Bell {
            rings: self.bell,
            synced: self.synced,
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
