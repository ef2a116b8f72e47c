//! kubevirt.io: VMs, their instances and migrations, and KubeVirt itself.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Affinity;
use serde_json::Value;

use super::{ForeignCondition, api_version_of, foreign_kind, foreign_part, kind_of};

foreign_kind! {
    /// KubeVirt itself.
    KubeVirt: "kubevirt.io" / "v1" / "kubevirts", NamespaceResourceScope, status: true, short: ["kv", "kvs"] {
        /// What is wanted.
        spec: KubeVirtSpec,
        /// What is.
        status: KubeVirtStatus,
    }
}

foreign_part! {
    /// What is wanted of KubeVirt.
    KubeVirtSpec {
        /// How running VMs follow an update of KubeVirt.
        workload_update_strategy: WorkloadUpdateStrategy,
    }
}

foreign_part! {
    /// How running VMs follow an update of KubeVirt.
    WorkloadUpdateStrategy {
        /// `LiveMigrate`, `Evict`, or none.
        workload_update_methods: Vec<String>,
    }
}

foreign_part! {
    /// What KubeVirt is.
    KubeVirtStatus {
        /// Deployed when all is well.
        phase: String,
        /// The version that runs.
        observed_kube_virt_version: String,
        /// Conditions.
        conditions: Vec<ForeignCondition>,
    }
}

foreign_kind! {
    /// A virtual machine, running or not.
    VirtualMachine: "kubevirt.io" / "v1" / "virtualmachines", NamespaceResourceScope, status: true, short: ["vm", "vms"] {
        /// What is wanted.
        spec: VirtualMachineSpec,
        /// What is.
        status: VirtualMachineStatus,
    }
}

foreign_part! {
    /// What is wanted of a virtual machine.
    VirtualMachineSpec {
        /// Always, Halted, RerunOnFailure, Manual.
        run_strategy: String,
        /// Older form of `runStrategy`.
        running: bool,
        /// The instance to run.
        template: InstanceTemplate,
    }
}

foreign_part! {
    /// The instance that a virtual machine runs.
    InstanceTemplate {
        /// Its specification.
        spec: VirtualMachineInstanceSpec,
    }
}

foreign_part! {
    /// What a virtual machine is.
    VirtualMachineStatus {
        /// Running, Stopped, Starting, Migrating, Paused, …
        printable_status: String,
        /// Running and ready.
        ready: bool,
        /// Has an instance.
        created: bool,
        /// Disks that were to be plugged in or out of the running VM, and have not been.
        volume_requests: Vec<Value>,
        /// Conditions, among them RestartRequired.
        conditions: Vec<ForeignCondition>,
    }
}

foreign_kind! {
    /// A running virtual machine.
    VirtualMachineInstance: "kubevirt.io" / "v1" / "virtualmachineinstances", NamespaceResourceScope, status: false,
    short: ["vmi", "vmis"] {
        /// What is wanted.
        spec: VirtualMachineInstanceSpec,
        /// What is.
        status: VirtualMachineInstanceStatus,
    }
}

foreign_part! {
    /// What is wanted of a running virtual machine.
    VirtualMachineInstanceSpec {
        /// Labels that its node must have.
        node_selector: BTreeMap<String, String>,
        /// Rules on its node.
        #[schemars(with = "Option<crate::foreign::Other>")]
        affinity: Affinity,
        /// Its hardware.
        domain: Domain,
        /// LiveMigrate, LiveMigrateIfPossible, None, External.
        eviction_strategy: String,
        /// Its disks.
        volumes: Vec<InstanceVolume>,
    }
}

foreign_part! {
    /// A disk of a virtual machine.
    InstanceVolume {
        /// Its name.
        name: String,
        /// The claim behind it.
        persistent_volume_claim: VolumeSource,
        /// The data volume behind it.
        data_volume: VolumeSource,
    }
}

foreign_part! {
    /// What is behind a disk.
    VolumeSource {
        /// It was plugged into the running VM, and can be unplugged.
        hotpluggable: bool,
    }
}

foreign_part! {
    /// The hardware of a virtual machine.
    Domain {
        /// Its devices.
        devices: Devices,
        /// Its processors.
        cpu: Cpu,
    }
}

foreign_part! {
    /// The processors of a virtual machine.
    Cpu {
        /// The name of a model, `host-model` or `host-passthrough`; KubeVirt's own default when there is none.
        model: String,
        /// Threads of each core.
        threads: i64,
    }
}

foreign_part! {
    /// The devices of a virtual machine.
    Devices {
        /// Devices of the node, passed through.
        host_devices: Vec<Value>,
        /// Graphics processors of the node, passed through.
        gpus: Vec<Value>,
    }
}

foreign_part! {
    /// What a running virtual machine is.
    VirtualMachineInstanceStatus {
        /// Running, Scheduling, Succeeded, Failed, …
        phase: String,
        /// Its node.
        node_name: String,
        /// The node it is to leave.
        evacuation_node_name: String,
        /// LiveMigratable, Paused, Ready and others.
        conditions: Vec<ForeignCondition>,
        /// The migration under way or done last.
        migration_state: MigrationState,
    }
}

foreign_part! {
    /// The migration of a virtual machine that is under way or was done last.
    MigrationState {
        /// From.
        source_node: String,
        /// To.
        target_node: String,
        /// Ended.
        completed: bool,
        /// Ended badly.
        failed: bool,
        /// Why it ended badly.
        failure_reason: String,
        /// Which migration it is.
        migration_uid: String,
        /// When it began, as RFC 3339.
        start_timestamp: String,
        /// When it ended, as RFC 3339.
        end_timestamp: String,
    }
}

foreign_kind! {
    /// A request to move a running virtual machine to another node.
    VirtualMachineInstanceMigration: "kubevirt.io" / "v1" / "virtualmachineinstancemigrations", NamespaceResourceScope,
    status: true, short: ["vmim", "vmims"] {
        /// What is wanted.
        spec: MigrationSpec,
        /// What is.
        status: MigrationStatus,
    }
}

foreign_part! {
    /// Which virtual machine is to move.
    MigrationSpec {
        /// Its name.
        vmi_name: String,
    }
}

foreign_part! {
    /// How far a migration is.
    MigrationStatus {
        /// Pending, Scheduling, Running, Succeeded, Failed, …
        phase: String,
        /// The migration itself, once it has begun.
        migration_state: MigrationState,
        /// Conditions.
        conditions: Vec<ForeignCondition>,
    }
}
