//! provisioning.cattle.io and management.cattle.io: the Rancher cluster and its charts.

use serde_json::Value;

use super::{ForeignCondition, api_version_of, foreign_kind, foreign_part, kind_of};

foreign_kind! {
    /// A cluster that Rancher provisions; Harvester's own is `fleet-local/local`.
    Cluster: "provisioning.cattle.io" / "v1" / "clusters", NamespaceResourceScope, status: true {
        /// What is wanted.
        spec: ClusterSpec,
        /// What is.
        status: ClusterStatus,
    }
}

foreign_part! {
    /// What is wanted of a cluster.
    ClusterSpec {
        /// The RKE2 version.
        kubernetes_version: String,
        /// How nodes are provisioned.
        rke_config: RkeConfig,
    }
}

foreign_part! {
    /// How nodes are provisioned.
    RkeConfig {
        /// Every increment makes Rancher provision all nodes again.
        provision_generation: i64,
        /// How nodes are drained on the way. Kept as it is, since it is saved and restored whole.
        upgrade_strategy: Value,
    }
}

foreign_part! {
    /// What a cluster is.
    ClusterStatus {
        /// All is as wanted.
        ready: bool,
        /// The namespace that Fleet looks for it in.
        fleet_workspace_name: String,
        /// Conditions.
        conditions: Vec<ForeignCondition>,
    }
}

foreign_kind! {
    /// A Helm chart that Rancher keeps installed through Fleet.
    ManagedChart: "management.cattle.io" / "v3" / "managedcharts", NamespaceResourceScope, status: true {
        /// What is wanted.
        spec: ManagedChartSpec,
        /// What is.
        status: ManagedChartStatus,
    }
}

foreign_part! {
    /// What is wanted of a chart.
    ManagedChartSpec {
        /// The chart's name.
        chart: String,
        /// The chart's version.
        version: String,
        /// Not applied for now.
        paused: bool,
        /// Which differences Fleet ignores.
        diff: Diff,
        /// The chart's values.
        values: Value,
        /// How long Helm may take.
        timeout_seconds: i64,
    }
}

foreign_part! {
    /// Which differences Fleet ignores.
    Diff {
        /// By object.
        compare_patches: Vec<ComparePatch>,
    }
}

foreign_part! {
    /// Which differences of one object Fleet ignores.
    ComparePatch {
        /// API version of the object.
        api_version: String,
        /// Kind of the object.
        kind: String,
        /// Namespace of the object.
        namespace: String,
        /// Name of the object.
        name: String,
        /// The paths that may differ.
        json_pointers: Vec<String>,
    }
}

foreign_part! {
    /// What a chart is.
    ManagedChartStatus {
        /// The generation of the status.
        observed_generation: i64,
        /// Counts of clusters by how far they are.
        summary: Summary,
        /// Clusters that are not as wanted.
        unavailable: i64,
        /// Ready and others.
        conditions: Vec<ForeignCondition>,
    }
}

foreign_part! {
    /// Clusters by how far a chart is on them.
    Summary {
        /// As wanted.
        ready: i64,
        /// All.
        desired_ready: i64,
    }
}

foreign_kind! {
    /// The control plane of a cluster, as Rancher's planner sees it.
    RKEControlPlane: "rke.cattle.io" / "v1" / "rkecontrolplanes", NamespaceResourceScope, status: true, short: ["rcp"] {
        /// What is.
        status: RkeControlPlaneStatus,
    }
}

foreign_part! {
    /// How a control plane is.
    RkeControlPlaneStatus {
        /// Conditions.
        conditions: Vec<ForeignCondition>,
    }
}
