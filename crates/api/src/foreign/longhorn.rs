//! longhorn.io: volumes, their parts, settings.

use std::collections::BTreeMap;

use serde_json::Value;

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
        /// When its last replica became unhealthy; empty while it is healthy.
        last_degraded_at: String,
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
        /// Who uses it.
        workloads_status: Vec<WorkloadStatus>,
    }
}

foreign_part! {
    /// One pod that uses a volume.
    WorkloadStatus {
        /// The pod.
        pod_name: String,
        /// Running, Pending, …
        pod_status: String,
        /// What the pod belongs to.
        workload_name: String,
        /// Its kind.
        workload_type: String,
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
        spec: ReplicaSpec,
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
    /// Where an engine runs.
    InstanceSpec {
        /// Its volume.
        volume_name: String,
        /// Its node.
        #[serde(rename = "nodeID")]
        node_id: String,
    }
}

foreign_part! {
    /// Where a replica runs, and how it is.
    ReplicaSpec {
        /// Its volume.
        volume_name: String,
        /// Its node.
        #[serde(rename = "nodeID")]
        node_id: String,
        /// When it failed; empty while it is well.
        failed_at: String,
        /// When it was healthy first; empty before that.
        healthy_at: String,
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
    Node: "longhorn.io" / "v1beta2" / "nodes", NamespaceResourceScope, status: true, short: ["lhn"] {
        /// What is wanted.
        spec: NodeSpec,
        /// What is.
        status: NodeStatus,
    }
}

foreign_part! {
    /// What is wanted of a node that holds replicas.
    NodeSpec {
        /// New replicas may be placed there.
        allow_scheduling: bool,
        /// All replicas are to leave.
        eviction_requested: bool,
        /// Its disks, by name.
        disks: BTreeMap<String, DiskSpec>,
    }
}

foreign_part! {
    /// What is wanted of a disk.
    DiskSpec {
        /// New replicas may be placed there.
        allow_scheduling: bool,
        /// All replicas are to leave.
        eviction_requested: bool,
        /// Bytes that are kept free.
        storage_reserved: i64,
    }
}

foreign_part! {
    /// How a node that holds replicas is.
    NodeStatus {
        /// Conditions.
        conditions: Vec<ForeignCondition>,
        /// Its disks, by name.
        disk_status: BTreeMap<String, DiskStatus>,
    }
}

foreign_part! {
    /// How a disk is.
    DiskStatus {
        /// Conditions.
        conditions: Vec<ForeignCondition>,
        /// Bytes that are free.
        storage_available: i64,
        /// Bytes in all.
        storage_maximum: i64,
        /// Bytes that replicas may take.
        storage_scheduled: i64,
    }
}

foreign_kind! {
    /// What runs the engines and replicas of a node.
    InstanceManager: "longhorn.io" / "v1beta2" / "instancemanagers", NamespaceResourceScope, status: true,
    short: ["lhim"] {
        /// What is wanted.
        spec: InstanceManagerSpec,
        /// What is.
        status: InstanceManagerStatus,
    }
}

foreign_part! {
    /// What is wanted of an instance manager.
    InstanceManagerSpec {
        /// Its node.
        #[serde(rename = "nodeID")]
        node_id: String,
    }
}

foreign_part! {
    /// What an instance manager is.
    InstanceManagerStatus {
        /// running, starting, error, …
        current_state: String,
        /// The engines that it runs, by name.
        instance_engines: BTreeMap<String, Value>,
        /// The replicas that it runs, by name.
        instance_replicas: BTreeMap<String, Value>,
    }
}

foreign_kind! {
    /// An image that volumes are made from.
    BackingImage: "longhorn.io" / "v1beta2" / "backingimages", NamespaceResourceScope, status: true, short: ["lhbi"] {
        /// What is wanted.
        spec: BackingImageSpec,
        /// What is.
        status: BackingImageStatus,
    }
}

foreign_part! {
    /// What is wanted of a backing image.
    BackingImageSpec {
        /// How many copies there must be at least.
        min_number_of_copies: i64,
    }
}

foreign_part! {
    /// How a backing image is.
    BackingImageStatus {
        /// Its copies, by disk.
        disk_file_status_map: BTreeMap<String, Value>,
    }
}

foreign_kind! {
    /// Who wants a volume to be attached, and where.
    VolumeAttachment: "longhorn.io" / "v1beta2" / "volumeattachments", NamespaceResourceScope, status: true,
    short: ["lhva"] {
        /// What is wanted.
        spec: VolumeAttachmentSpec,
    }
}

foreign_part! {
    /// Who wants a volume to be attached.
    VolumeAttachmentSpec {
        /// The volume.
        volume: String,
        /// The tickets, by identifier.
        attachment_tickets: BTreeMap<String, AttachmentTicket>,
    }
}

foreign_part! {
    /// One request for an attachment.
    AttachmentTicket {
        /// Where to.
        #[serde(rename = "nodeID")]
        node_id: String,
        /// Who: csi-attacher, longhorn-ui, …
        #[serde(rename = "type")]
        type_: String,
    }
}

foreign_kind! {
    /// What shares a volume that several pods write.
    ShareManager: "longhorn.io" / "v1beta2" / "sharemanagers", NamespaceResourceScope, status: true, short: ["lhsm"] {
        /// What is.
        status: ShareManagerStatus,
    }
}

foreign_part! {
    /// How a share manager is.
    ShareManagerStatus {
        /// running, starting, error, …
        state: String,
        /// Where it serves.
        endpoint: String,
        /// Its node.
        #[serde(rename = "ownerID")]
        owner_id: String,
    }
}

foreign_kind! {
    /// Snapshots or backups that are made by a schedule.
    RecurringJob: "longhorn.io" / "v1beta2" / "recurringjobs", NamespaceResourceScope, status: true, short: ["lhrj"] {
        /// What is wanted.
        spec: RecurringJobSpec,
    }
}

foreign_part! {
    /// What is wanted of a recurring job.
    RecurringJobSpec {
        /// When.
        cron: String,
        /// What: snapshot, backup, …
        task: String,
        /// Which volumes.
        groups: Vec<String>,
    }
}

foreign_kind! {
    /// Where backups go.
    BackupTarget: "longhorn.io" / "v1beta2" / "backuptargets", NamespaceResourceScope, status: true, short: ["lhbt"] {
        /// What is wanted.
        spec: BackupTargetSpec,
    }
}

foreign_part! {
    /// What is wanted of a backup target.
    BackupTargetSpec {
        /// Where to.
        #[serde(rename = "backupTargetURL")]
        backup_target_url: String,
        /// How often it is looked at.
        poll_interval: String,
    }
}
