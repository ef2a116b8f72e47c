//! fleet.cattle.io: bundles, and the cluster they are for.

use super::{ForeignCondition, Other, api_version_of, foreign_kind, foreign_part, kind_of};

foreign_kind! {
    /// A set of manifests that Fleet applies.
    Bundle: "fleet.cattle.io" / "v1alpha1" / "bundles", NamespaceResourceScope, status: true {
        /// What is.
        status: BundleStatus,
    }
}

foreign_part! {
    /// How far a bundle is.
    BundleStatus {
        /// The generation of the status.
        observed_generation: i64,
        /// Ready and others.
        conditions: Vec<ForeignCondition>,
        /// Counts.
        summary: Other,
    }
}

foreign_kind! {
    /// A cluster that Fleet deploys to; Harvester's own is `fleet-local/local`.
    Cluster: "fleet.cattle.io" / "v1alpha1" / "clusters", NamespaceResourceScope, status: true {
        /// What is wanted.
        spec: ClusterSpec,
        /// What is.
        status: ClusterStatus,
    }
}

foreign_part! {
    /// What is wanted of a cluster.
    ClusterSpec {
        /// Every increment makes Fleet redeploy its agent.
        redeploy_agent_generation: i64,
    }
}

foreign_part! {
    /// What a cluster is to Fleet.
    ClusterStatus {
        /// Imported, Ready and others.
        conditions: Vec<ForeignCondition>,
        /// The `redeployAgentGeneration` of the agent that was deployed last.
        agent_deployed_generation: i64,
    }
}

foreign_kind! {
    /// A bundle as it is on one cluster.
    BundleDeployment: "fleet.cattle.io" / "v1alpha1" / "bundledeployments", NamespaceResourceScope, status: true {
        /// What is.
        status: BundleDeploymentStatus,
    }
}

foreign_part! {
    /// How a bundle is on one cluster.
    BundleDeploymentStatus {
        /// Conditions.
        conditions: Vec<ForeignCondition>,
        /// Objects that differ from the chart.
        modified_status: Vec<Other>,
        /// Objects that are not ready.
        non_ready_status: Vec<Other>,
    }
}
