//! Every kind the manager watches, in one table: one watch each, narrowed to what decisions read.
//!
//! From a row follow the cache, its watch, whether the caches are synced, the version marks of a kind that the manager
//! writes, and the rules of the roles that ship ([`crate::rbac`]).

mod place;
mod prune;

use std::sync::Arc;

use api::{
    UpgradePlan, annotations,
    foreign::{capi, harvester, kubevirt, longhorn, rancher, suc},
    labels, names,
};
use cache::Cache;
use futures::future::BoxFuture;
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    batch::v1::Job,
    core::v1::{ConfigMap, Node, Pod, Secret, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client, Resource};
use tokio::sync::Notify;

pub(crate) use self::place::{Place, Rights, WatchedKind};
use self::{
    place::{Placed, Selection},
    prune::nothing,
};
use crate::instance::{self, Instance};

#[cfg(test)]
pub(crate) use self::prune::prune_pod;

/// What is read of a kind: another form of it, of which less is taken in, where a row names one.
macro_rules! form {
    ($kind:ty) => {
        $kind
    };
    ($kind:ty, $form:ty) => {
        $form
    };
}

/// What may be done with a kind besides reading it.
macro_rules! rights {
    () => {
        Rights::Read
    };
    ($rights:expr) => {
        $rights
    };
}

/// A kind is deleted only by rights that include it, and rights that include it are there because it is deleted.
macro_rules! deletable {
    (deletes $kind:ty, $rights:expr) => {
        impl Deletable for $kind {}

        const _: () = assert!(
            $rights.include_delete(),
            "the rights of the row do not include delete"
        );
    };
}

/// The table: the name of the cache, the kind (and the form that is read of it), where it is, which objects are watched,
/// what is dropped of each; then, if the manager writes it, the name of its version mark and what it must be allowed for that,
/// and `deletes` if it deletes it.
macro_rules! watched_kinds {
    ($(
        $(#[$doc:meta])*
        $cache:ident: $kind:ty $(as $form:ty)?, $place:ident, $selection:expr, $prune:expr
        $(, writes $written:ident by $rights:expr $(, $deletes:ident)?)?;
    )*) => {
        /// All caches, and the bell that rings when any of them changes.
        #[derive(Clone, Default)]
        #[allow(missing_docs, reason = "each is the cache of the kind it is named after")]
        pub struct Watched {
            $($(#[$doc])* pub $cache: Cache<$kind>,)*
            /// Rings when any cache changes.
            pub changed: Arc<Notify>,
        }

        /// Kinds that the manager writes, for [`Watched::observed`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "each is the kind it is named after")]
        pub enum Written {
            $($($written,)?)*
        }

        $($(
            impl Writable for $kind {
                const WRITTEN: Written = Written::$written;

                fn cache(watched: &Watched) -> &Cache<Self> {
                    &watched.$cache
                }

                fn api(client: &Client) -> Api<Self> {
                    <$kind as Resource>::Scope::api::<$kind>(client, Place::$place)
                }
            }

            $(deletable!($deletes $kind, $rights);)?
        )?)*

        impl Watched {
            /// The watches that keep the caches up to date; each runs for ever.
            #[must_use]
            pub fn watches(&self, client: &Client) -> Vec<BoxFuture<'static, ()>> {
                vec![$(
                    Box::pin(self.$cache.clone().run_as(
                        <form!($kind $(, $form)?) as Resource>::Scope::api::<form!($kind $(, $form)?)>(client, Place::$place),
                        $selection.config(),
                        $prune,
                        self.changed.clone(),
                    )),
                )*]
            }

            /// Every first list has come in.
            #[must_use]
            pub fn is_synced(&self) -> bool {
                $(self.$cache.is_synced())&&*
            }

            /// The newest version of a kind that came in.
            #[must_use]
            pub fn observed(&self, kind: Written) -> u64 {
                match kind {
                    $($(Written::$written => self.$cache.observed(),)?)*
                }
            }

            /// What must be allowed to keep the caches up to date, and to write what the manager writes.
            pub(crate) fn kinds() -> Vec<WatchedKind> {
                vec![$(
                    WatchedKind::of::<$kind>(Place::$place, $selection, rights!($($rights)?)),
                )*]
            }
        }
    };
}

/// A kind that the manager writes. One that is not in the table, or that a row does not say is written, cannot be.
pub trait Writable: Resource<DynamicType = ()> + Sized {
    /// Its version mark.
    const WRITTEN: Written;

    /// The cache in which a write shows.
    fn cache(watched: &Watched) -> &Cache<Self>;

    /// Where it is written: only there does a write show in the cache. A kind may be watched elsewhere too, as the Jobs of
    /// system-upgrade-controller are.
    fn api(client: &Client) -> Api<Self>;
}

/// A kind that the manager deletes. One whose row does not say so cannot be:
///
/// ```compile_fail,E0277
/// fn delete<K: manager::watched::Deletable>() {}
/// delete::<k8s_openapi::api::core::v1::Node>();
/// ```
///
/// ```
/// fn delete<K: manager::watched::Deletable>() {}
/// delete::<k8s_openapi::api::batch::v1::Job>();
/// ```
pub trait Deletable: Writable {}

watched_kinds! {
    plans: UpgradePlan, Cluster, Selection::All, nothing, writes Plan by Rights::Patch;
    nodes: Node, Cluster, Selection::All, prune::prune_node, writes Node by Rights::Patch;
    versions: harvester::Version, Harvester, Selection::All, nothing;
    settings: harvester::Setting, Cluster, Selection::Named(names::SERVER_VERSION_SETTING), nothing;
    images: harvester::VirtualMachineImage, Harvester, Selection::All, nothing, writes Image by Rights::Own, deletes;
    addons: harvester::Addon, KubeSystem, Selection::Named(names::DESCHEDULER_ADDON), nothing,
        writes Addon by Rights::Patch;
    deployments: Deployment, Harvester, Selection::OURS, nothing, writes Deployment by Rights::Own, deletes;
    /// Whose pods the pods of the repository are.
    replica_sets: ReplicaSet, Harvester, Selection::OURS, prune::prune_replica_set;
    services: Service, Harvester, Selection::OURS, nothing, writes Service by Rights::Own, deletes;
    endpoint_slices: EndpointSlice, Harvester, Selection::Labelled(labels::SERVICE_NAME), nothing;
    suc_plans: suc::Plan, Cattle, Selection::OURS, nothing, writes SucPlan by Rights::Own, deletes;
    jobs: Job, Harvester, Selection::OURS, prune::prune_job, writes Job by Rights::OwnAndPatch, deletes;
    /// The Jobs of system-upgrade-controller.
    suc_jobs: Job, Cattle, Selection::OURS, prune::prune_job;
    secrets: Secret, MachinePlans, Selection::OfType(annotations::MACHINE_PLAN_SECRET_TYPE), prune::prune_secret,
        writes Secret by Rights::Patch;
    machines: capi::Machine, Fleet, Selection::All, prune::prune_machine;
    clusters: rancher::Cluster, Fleet, Selection::Named(names::LOCAL_CLUSTER), nothing, writes Cluster by Rights::Patch;
    managed_charts: rancher::ManagedChart, Fleet, Selection::All, nothing,
        writes ManagedChart by Rights::PatchNamed(&names::MANAGED_CHARTS);
    longhorn_settings: longhorn::Setting, Longhorn, Selection::Named(names::REPLENISHMENT_SETTING), nothing,
        writes LonghornSetting by Rights::Patch;
    kubevirts: kubevirt::KubeVirt, Harvester, Selection::Named(names::KUBEVIRT), nothing,
        writes KubeVirt by Rights::Patch;
    config_maps: ConfigMap, Harvester, Selection::OURS, nothing, writes ConfigMap by Rights::Create;
    pods: Pod, Harvester, Selection::OURS, prune::prune_pod;
    /// The pods of the Jobs of system-upgrade-controller.
    suc_pods: Pod, Cattle, Selection::OURS, prune::prune_pod;
    volumes: longhorn::Volume, Longhorn, Selection::All, prune::prune_volume;
    instances: kubevirt::VirtualMachineInstance as Instance, Cluster, Selection::Paged(instance::PAGE), prune::prune_instance;
}
