//! management.cattle.io: Rancher's own settings and clusters.

use super::{api_version_of, foreign_kind, kind_of};

foreign_kind! {
    /// A setting of Rancher.
    Setting: "management.cattle.io" / "v3" / "settings", ClusterResourceScope, status: false {
        /// The value in force, when one was set.
        #[schemars(with = "Option<String>")]
        value: String,
        /// The value otherwise.
        #[schemars(with = "Option<String>")]
        default: String,
    }
}

foreign_kind! {
    /// A cluster that Rancher manages; Harvester's own is `local`.
    Cluster: "management.cattle.io" / "v3" / "clusters", ClusterResourceScope, status: false {}
}
