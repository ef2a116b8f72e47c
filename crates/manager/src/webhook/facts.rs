//! What admission reads of the cluster: from the manager's caches where it watches a kind anyway, else listed at once.

use std::{fmt::Debug, future::Future, sync::Arc, time::Duration};

use api::{image::Sources, names};
use cache::Cache;
use checks::{
    Cluster, Listed, ListedOnce, NoAnswer, Shared,
    admission::{Reads, matters, powers::Asker},
};
use clock::Clock;
use jiff::Timestamp;
use kube::{Api, Client, Resource, api::ListParams};
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use plan::observed::Settings;

use super::{access_reviews, kept, review::Review};
use crate::{
    lists::{Keep, Reader},
    watched::Watched,
};

/// How long a list may take. All run at once, and the API server waits 10 seconds for the whole answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// For how long requests share one list.
const SHARED: Duration = Duration::from_secs(1);

/// What can be listed.
trait Object: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug {}
impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug> Object for K {}

/// What was listed last, and when that was on the manager's clock.
type LastListed = Arc<Mutex<Option<(Duration, Arc<Cluster>)>>>;

/// Reads the cluster.
#[derive(Clone)]
pub struct Facts {
    client: Client,
    watched: Watched,
    clock: Clock,
    sources: Sources,
    listed: LastListed,
}

impl Facts {
    /// Reads through a client and the caches of a manager.
    #[must_use]
    pub fn new(client: Client, watched: Watched, clock: Clock) -> Self {
        let Settings {
            own_image,
            allowed_repositories,
            ..
        } = Settings::default();
        let sources = Sources {
            own: own_image,
            others: allowed_repositories,
        };
        Self {
            client,
            watched,
            clock,
            sources,
            listed: LastListed::default(),
        }
    }

    /// Plans may choose images from there.
    #[must_use]
    pub fn with_images_from(self, sources: Sources) -> Self {
        Self { sources, ..self }
    }

    /// Where plans may choose images from.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now_in_seconds()
    }

    /// The user, and which of the needed permissions the cluster's authorizer grants.
    pub async fn asker(&self, review: &Review) -> Asker {
        let (user, plan) = (&review.user, review.plan_name());
        access_reviews::ask(&self.client, &self.clock, user, plan, &review.powers()).await
    }

    /// As much of the cluster as is needed; what is not needed is unknown.
    pub async fn read(&self, reads: Reads) -> Cluster {
        match reads {
            Reads::Nothing => Cluster::unknown("not read"),
            Reads::Nodes => Cluster {
                nodes: self.cached(&self.watched.nodes, Api::all(self.client.clone())).await,
                ..Cluster::unknown("not read")
            },
            Reads::Everything => self.everything().await,
        }
    }

    async fn everything(&self) -> Cluster {
        let client = || self.client.clone();
        let watched = &self.watched;
        let (plans, nodes, versions, settings, rancher_clusters, machines, images, listed) = futures::join!(
            self.cached(&watched.plans, Api::all(client())),
            self.cached(&watched.nodes, Api::all(client())),
            self.cached(&watched.versions, Api::namespaced(client(), names::HARVESTER_NAMESPACE)),
            self.cached_of_name(&watched.settings, Api::all(client()), names::SERVER_VERSION_SETTING,),
            self.cached_of_name(
                &watched.clusters,
                Api::namespaced(client(), names::FLEET_NAMESPACE),
                names::LOCAL_CLUSTER,
            ),
            self.cached(&watched.machines, Api::namespaced(client(), names::FLEET_NAMESPACE)),
            self.cached(&watched.images, Api::namespaced(client(), names::HARVESTER_NAMESPACE)),
            self.shared(),
        );
        Cluster {
            plans,
            nodes,
            versions,
            settings,
            rancher_clusters,
            machines,
            images,
            ..Cluster::clone(&listed)
        }
    }

    /// Objects that are not watched, listed at most once in [`SHARED`] for all requests: every client that reaches the
    /// webhook may send some, and each list is as large as the cluster.
    async fn shared(&self) -> Arc<Cluster> {
        let mut known = self.listed.lock().await;
        if let Some((at, cluster)) = &*known
            && self.clock.elapsed().saturating_sub(*at) < SHARED
        {
            return cluster.clone();
        }
        // One of them goes before the other comes.
        *known = None;
        let cluster = Arc::new(self.all_listed().await);
        *known = Some((self.clock.elapsed(), cluster.clone()));
        cluster
    }

    async fn all_listed(&self) -> Cluster {
        let client = || self.client.clone();
        let reader = &Reader::new(client());
        let (volumes, vm_backups, backup_schedules, vms, vmis, managed_charts, addons, v1_upgrades) = futures::join!(
            self.listed_once(
                reader,
                Api::namespaced(client(), names::LONGHORN_NAMESPACE),
                kept::VOLUME,
                matters::volume
            ),
            self.listed_once(reader, Api::all(client()), kept::VM_BACKUP, matters::backup),
            self.listed_once(reader, Api::all(client()), kept::BACKUP_SCHEDULE, matters::schedule),
            self.listed_once(reader, Api::all(client()), kept::VM, |_| true),
            self.listed_once(reader, Api::all(client()), kept::VMI, |_| true),
            // The caches of charts and addons hold one object each: what decisions read.
            self.listed_once(
                reader,
                Api::namespaced(client(), names::FLEET_NAMESPACE),
                kept::MANAGED_CHART,
                |_| true
            ),
            self.listed_once(reader, Api::all(client()), kept::ADDON, |_| true),
            self.listed_if_served(
                reader,
                Api::namespaced(client(), names::HARVESTER_NAMESPACE),
                kept::V1_UPGRADE
            ),
        );
        Cluster {
            volumes,
            vm_backups,
            backup_schedules,
            vms,
            vmis,
            managed_charts,
            addons,
            v1_upgrades,
            ..Cluster::unknown("not read")
        }
    }

    async fn cached<K: Object>(&self, cache: &Cache<K>, api: Api<K>) -> Listed<K> {
        if cache.is_synced() {
            return Ok(cache.list().iter().map(|object| (**object).clone()).collect());
        }
        self.listed(api).await
    }

    /// Of a kind of which one object is watched, that one: listing all of them is not allowed.
    async fn cached_of_name<K: Object>(&self, cache: &Cache<K>, api: Api<K>, name: &str) -> Listed<K> {
        if cache.is_synced() {
            return self.cached(cache, api).await;
        }
        self.listed_by(api, &ListParams::default().fields(&format!("metadata.name={name}")))
            .await
    }

    async fn listed<K: Object>(&self, api: Api<K>) -> Listed<K> {
        self.listed_by(api, &ListParams::default()).await
    }

    async fn listed_by<K: Object>(&self, api: Api<K>, which: &ListParams) -> Listed<K> {
        let reader = Reader::new(self.client.clone());
        let list = reader.list(&api, which, Keep::All, |_| true);
        self.patiently(list).await?.map_err(|error| no_answer(&error))
    }

    /// What is kept of those objects of a kind that a check could name.
    async fn listed_once<K: Object>(
        &self,
        reader: &Reader,
        api: Api<K>,
        keep: Keep,
        matters: fn(&K) -> bool,
    ) -> ListedOnce<K> {
        let all = ListParams::default();
        let list = reader.list(&api, &all, keep, matters);
        let listed = self.patiently(list).await?;
        listed.map(Shared::from).map_err(|error| no_answer(&error))
    }

    /// A cluster that does not know the kind has no objects of it.
    async fn listed_if_served<K: Object>(&self, reader: &Reader, api: Api<K>, keep: Keep) -> ListedOnce<K> {
        let all = ListParams::default();
        let list = reader.list(&api, &all, keep, |_| true);
        match self.patiently(list).await? {
            Ok(items) => Ok(items.into()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new().into()),
            Err(error) => Err(no_answer(&error)),
        }
    }

    async fn patiently<T>(&self, list: impl Future<Output = kube::Result<T>>) -> Result<kube::Result<T>, NoAnswer> {
        tokio::select! {
            biased;
            listed = list => Ok(listed),
            () = self.clock.sleep(PATIENCE) => Err(format!("no answer within {} seconds", PATIENCE.as_secs()).into()),
        }
    }
}

/// The API server's own message, if there is one.
pub(crate) fn no_answer(error: &kube::Error) -> NoAnswer {
    match error {
        kube::Error::Api(status) => status.message.as_str().into(),
        kube::Error::SerdeError(why) => why.to_string().into(),
        error => error.to_string().into(),
    }
}
