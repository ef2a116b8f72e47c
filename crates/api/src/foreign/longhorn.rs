//! longhorn.io: volumes, their parts, settings.

use std::collections::BTreeMap;

use super::{ForeignCondition, api_version_of, foreign_kind, foreign_part, kind_of};

foreign_kind! {
    /// A replicated volume.
    Volume: "longhorn.io" / "v1beta2" / "volumes", NamespaceResourceScope, status: true, short: ["lhv"] {
        /// What is wanted.
        spec: VolumeSpec,
        /// What is.
        status: VolumeStatus,
    }
}

foreign_part! {
    /// What is wanted of a volume.
    VolumeSpec {
        /// How many copies.
        number_of_replicas: i64,
        /// The node it is attached to.
        #[serde(rename = "nodeID")]
        node_id: String,
        /// Bytes, as text.
        size: String,
    }
}

foreign_part! {
    /// What a volume is.
    VolumeStatus {
        /// creating, attached, attaching, detached, …
        state: String,
        /// healthy, degraded, faulted, unknown.
        robustness: String,
        /// The node it is attached to.
        #[serde(rename = "currentNodeID")]
        current_node_id: String,
        /// The claim it serves.
        kubernetes_status: KubernetesStatus,
        /// Conditions.
        conditions: Vec<ForeignCondition>,
    }
}

foreign_part! {
    /// The claim that a volume serves.
    KubernetesStatus {
        /// Namespace of the claim.
        namespace: String,
        /// Name of the claim.
        pvc_name: String,
    }
}

foreign_kind! {
    /// A setting of Longhorn.
    Setting: "longhorn.io" / "v1beta2" / "settings", NamespaceResourceScope, status: true, short: ["lhs"] {
        /// The value.
        value: String,
    }
}

foreign_kind! {
    /// One copy of a volume.
    Replica: "longhorn.io" / "v1beta2" / "replicas", NamespaceResourceScope, status: true, short: ["lhr"] {
        /// What is wanted.
        spec: InstanceSpec,
        /// What is.
        status: ReplicaStatus,
    }
}

foreign_kind! {
    /// What serves a volume's blocks on the node it is attached to.
    Engine: "longhorn.io" / "v1beta2" / "engines", NamespaceResourceScope, status: true, short: ["lhe"] {
        /// What is wanted.
        spec: InstanceSpec,
        /// What is.
        status: EngineStatus,
    }
}

foreign_part! {
    /// Where a replica or an engine runs.
    InstanceSpec {
        /// Its volume.
        volume_name: String,
        /// Its node.
        #[serde(rename = "nodeID")]
        node_id: String,
    }
}

foreign_part! {
    /// How a replica is.
    ReplicaStatus {
        /// running, stopped, error, …
        current_state: String,
    }
}

foreign_part! {
    /// How an engine is.
    EngineStatus {
        /// running, stopped, error, …
        current_state: String,
        /// Per replica: `RW` when its copy is whole, `WO` while it is rebuilt, `ERR` when it is lost.
        replica_mode_map: BTreeMap<String, String>,
        /// Per replica address: how far its rebuild is.
        rebuild_status: BTreeMap<String, RebuildStatus>,
    }
}

foreign_part! {
    /// How far the rebuild of a replica is.
    RebuildStatus {
        /// It is under way.
        is_rebuilding: bool,
        /// Percent.
        progress: i64,
        /// in_progress, complete, error.
        state: String,
        /// Why it failed.
        error: String,
    }
}

foreign_kind! {
    /// A node that holds replicas.
    Node: "longhorn.io" / "v1beta2" / "nodes", NamespaceResourceScope, status: true, short: ["lhn"] {}
}

foreign_kind! {
    /// What runs the engines and replicas of a node.
    InstanceManager: "longhorn.io" / "v1beta2" / "instancemanagers", NamespaceResourceScope, status: true,
    short: ["lhim"] {
        /// What is.
        status: InstanceManagerStatus,
    }
}

foreign_part! {
    /// What an instance manager is.
    InstanceManagerStatus {
        /// running, starting, error, …
        current_state: String,
    }
}
