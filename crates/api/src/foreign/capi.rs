//! cluster.x-k8s.io: machines, and the cluster they make up.

use super::{api_version_of, foreign_kind, foreign_part, kind_of};

foreign_kind! {
    /// The machine of a node.
    Machine: "cluster.x-k8s.io" / "v1beta2" / "machines", NamespaceResourceScope, status: true, short: ["ma"] {
        /// What is.
        status: MachineStatus,
    }
}

foreign_part! {
    /// What a machine is.
    MachineStatus {
        /// `Running` when all is well.
        phase: String,
        /// Its node.
        node_ref: NodeRef,
    }
}

foreign_part! {
    /// The node of a machine.
    NodeRef {
        /// The node's name.
        name: String,
    }
}

foreign_kind! {
    /// The cluster that machines make up; Harvester's own is `fleet-local/local`.
    Cluster: "cluster.x-k8s.io" / "v1beta2" / "clusters", NamespaceResourceScope, status: true, short: ["cl"] {
        /// What is wanted.
        spec: ClusterSpec,
        /// What is.
        status: ClusterStatus,
    }
}

foreign_part! {
    /// What is wanted of a cluster.
    ClusterSpec {
        /// Its controllers leave it alone.
        paused: bool,
    }
}

foreign_part! {
    /// What a cluster of machines is.
    ClusterStatus {
        /// `Provisioned` when all is well.
        phase: String,
        /// The generation of the status.
        observed_generation: i64,
    }
}
