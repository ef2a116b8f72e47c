//! Words of the table of watched kinds: where objects are, which of them are watched, and what must be allowed for that.

use std::borrow::Cow;

use api::{labels, names};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Client, Resource, runtime::watcher};

/// The places: the namespace, where it is one, and the role that allows what is done there.
macro_rules! places {
    ($($(#[$doc:meta])* $place:ident: $namespace:expr, $role:literal;)*) => {
        /// Where watched objects are. Each place has a role of its own.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Place {
            $($(#[$doc])* $place,)*
        }

        impl Place {
            /// All of them, in the order of their roles.
            pub(crate) const ALL: &[Self] = &[$(Self::$place),*];

            /// The namespace, where it is one.
            pub(crate) fn namespace(self) -> Option<&'static str> {
                match self {
                    $(Self::$place => $namespace,)*
                }
            }

            /// The name of its role, behind the prefix of an installation.
            pub(crate) fn role(self) -> &'static str {
                match self {
                    $(Self::$place => $role,)*
                }
            }
        }
    };
}

places! {
    /// In no namespace, or in all of them.
    Cluster: None, "manager-role";
    /// The release, its ISO, the repository and the Jobs.
    Harvester: Some(names::HARVESTER_NAMESPACE), "manager-harvester-role";
    /// Plans of system-upgrade-controller, with their Jobs.
    Cattle: Some(names::CATTLE_NAMESPACE), "manager-cattle-role";
    /// Rancher's own cluster and Harvester's charts.
    Fleet: Some(names::FLEET_NAMESPACE), "manager-fleet-role";
    /// The Secrets in which Rancher asks and is answered. Nowhere else are Secrets read but for the webhook's own.
    MachinePlans: Some(names::FLEET_NAMESPACE), "machine-plan-role";
    /// Longhorn.
    Longhorn: Some(names::LONGHORN_NAMESPACE), "manager-longhorn-role";
    /// The descheduler.
    KubeSystem: Some(names::KUBE_SYSTEM_NAMESPACE), "manager-addon-role";
}

/// How objects of a scope are asked for in a place.
pub(super) trait Placed: Sized {
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: &Client, place: Place) -> Api<K>;
}

impl Placed for ClusterResourceScope {
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: &Client, _: Place) -> Api<K> {
        Api::all(client.clone())
    }
}

impl Placed for NamespaceResourceScope {
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: &Client, place: Place) -> Api<K> {
        match place.namespace() {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        }
    }
}

/// Which objects of a kind are watched.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Selection {
    /// All of them.
    All,
    /// All of them, in pages of so many: each may be large.
    Paged(u32),
    /// Those that have a label.
    Labelled(&'static str),
    /// The one of a name.
    Named(&'static str),
    /// Secrets of a type.
    OfType(&'static str),
}

impl Selection {
    /// What was made for a plan.
    pub(super) const OURS: Self = Self::Labelled(labels::UPGRADE_PLAN);

    pub(super) fn config(self) -> watcher::Config {
        let all = watcher::Config::default();
        match self {
            Self::All => all,
            Self::Paged(objects) => all.page_size(objects),
            Self::Labelled(label) => all.labels(label),
            Self::Named(name) => all.fields(&format!("metadata.name={name}")),
            Self::OfType(kind) => all.fields(&format!("type={kind}")),
        }
    }
}

/// What the manager must be allowed to do with the objects of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rights {
    /// What a cache needs: no single object of a watched kind is read.
    Read,
    /// Those that are watched are patched.
    Patch,
    /// Those of these names are patched.
    PatchNamed(&'static [&'static str]),
    /// Some are created, and never changed.
    Create,
    /// What we create is looked at when it is there already: it may be ours or that of another owner.
    Own,
    /// Likewise, and it is patched.
    OwnAndPatch,
}

impl Rights {
    /// They include deleting.
    pub(super) const fn include_delete(self) -> bool {
        matches!(self, Self::Own | Self::OwnAndPatch)
    }
}

/// A row of the table, as far as it matters to the roles.
pub(crate) struct WatchedKind {
    pub(crate) group: Cow<'static, str>,
    pub(crate) resource: Cow<'static, str>,
    pub(crate) place: Place,
    /// The only one that is watched.
    pub(crate) name: Option<&'static str>,
    pub(crate) rights: Rights,
}

impl WatchedKind {
    pub(super) fn of<K: Resource<DynamicType = ()>>(place: Place, selection: Selection, rights: Rights) -> Self {
        Self {
            group: K::group(&()),
            resource: K::plural(&()),
            place,
            name: match selection {
                Selection::Named(name) => Some(name),
                _ => None,
            },
            rights,
        }
    }
}
