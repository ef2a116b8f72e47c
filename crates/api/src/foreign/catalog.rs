//! catalog.cattle.io: repositories of charts.

use super::{ForeignCondition, api_version_of, foreign_kind, foreign_part, kind_of};

foreign_kind! {
    /// A repository of charts that Rancher reads.
    ClusterRepo: "catalog.cattle.io" / "v1" / "clusterrepos", ClusterResourceScope, status: true {
        /// What is wanted.
        spec: ClusterRepoSpec,
        /// What is.
        status: ClusterRepoStatus,
    }
}

foreign_part! {
    /// What is wanted of a repository.
    ClusterRepoSpec {
        /// Refresh what was read before this time.
        force_update: String,
    }
}

foreign_part! {
    /// What is known of a repository.
    ClusterRepoStatus {
        /// When it was read last.
        download_time: String,
        /// Conditions.
        conditions: Vec<ForeignCondition>,
    }
}
