//! harvesterhci.io: versions, settings, images, addons, backups, and the older upgrade.

use super::{ForeignCondition, Other, api_version_of, foreign_kind, foreign_part, kind_of};

foreign_kind! {
    /// A release that can be upgraded to.
    Version: "harvesterhci.io" / "v1beta1" / "versions", NamespaceResourceScope, status: false {
        /// Where its ISO is.
        spec: VersionSpec,
    }
}

foreign_part! {
    /// Where the ISO of a release is.
    VersionSpec {
        /// Where the ISO is downloaded from.
        #[serde(rename = "isoURL")]
        iso_url: String,
        /// The SHA-512 of the ISO.
        iso_checksum: String,
        /// When it was released.
        release_date: String,
        /// The oldest version that may be upgraded to it.
        min_upgradable_version: String,
        /// Tags such as `dev`.
        tags: Vec<String>,
    }
}

foreign_kind! {
    /// A setting of Harvester.
    Setting: "harvesterhci.io" / "v1beta1" / "settings", ClusterResourceScope, status: false {
        /// The value in force, when one was set.
        value: String,
        /// The value otherwise.
        default: String,
    }
}

foreign_kind! {
    /// A disk image, among them upgrade ISOs.
    VirtualMachineImage: "harvesterhci.io" / "v1beta1" / "virtualmachineimages", NamespaceResourceScope, status: false,
    short: ["vmimage", "vmimages"] {
        /// Where it comes from.
        spec: VirtualMachineImageSpec,
        /// How far its import is.
        status: VirtualMachineImageStatus,
    }
}

foreign_part! {
    /// Where a disk image comes from.
    VirtualMachineImageSpec {
        /// `cdi` or `backingimage`.
        backend: String,
        /// The name that people see.
        display_name: String,
        /// `download` or `upload`.
        source_type: String,
        /// Where it is downloaded from.
        url: String,
        /// Its SHA-512.
        checksum: String,
        /// How often a failed import is tried again.
        retry: i64,
        /// The storage class of its volume.
        target_storage_class_name: String,
    }
}

foreign_part! {
    /// How far the import of a disk image is.
    VirtualMachineImageStatus {
        /// Imported, RetryLimitExceeded and others.
        conditions: Vec<ForeignCondition>,
        /// Percent.
        progress: i64,
        /// Bytes.
        size: i64,
    }
}

foreign_kind! {
    /// An optional component.
    Addon: "harvesterhci.io" / "v1beta1" / "addons", NamespaceResourceScope, status: true {
        /// What is wanted.
        spec: AddonSpec,
        /// What is.
        status: AddonStatus,
    }
}

foreign_part! {
    /// What is wanted of an addon.
    AddonSpec {
        /// Whether it should run.
        enabled: bool,
        /// The chart.
        chart: String,
        /// The chart's version.
        version: String,
        /// The chart's repository.
        repo: String,
        /// The chart's values, as YAML.
        values_content: String,
    }
}

foreign_part! {
    /// What an addon is.
    AddonStatus {
        /// AddonDeploySuccessful, AddonDisabled, AddonEnabling, …
        status: String,
        /// Conditions.
        conditions: Vec<ForeignCondition>,
    }
}

foreign_kind! {
    /// A backup or snapshot of a VM.
    VirtualMachineBackup: "harvesterhci.io" / "v1beta1" / "virtualmachinebackups", NamespaceResourceScope, status: false,
    short: ["vmbackup", "vmbackups"] {
        /// How far it is.
        status: VirtualMachineBackupStatus,
    }
}

foreign_part! {
    /// How far a backup is.
    VirtualMachineBackupStatus {
        /// Done.
        ready_to_use: bool,
        /// Why it failed.
        error: Other,
    }
}

foreign_kind! {
    /// A schedule of backups.
    ScheduleVMBackup: "harvesterhci.io" / "v1beta1" / "schedulevmbackups", NamespaceResourceScope, status: false,
    short: ["svmbackup", "svmbackups"] {
        /// What is wanted.
        spec: ScheduleVMBackupSpec,
        /// What is.
        status: ScheduleVMBackupStatus,
    }
}

foreign_part! {
    /// What is wanted of a schedule.
    ScheduleVMBackupSpec {
        /// Paused.
        suspend: bool,
    }
}

foreign_part! {
    /// What a schedule is.
    ScheduleVMBackupStatus {
        /// Paused.
        suspended: bool,
    }
}

foreign_kind! {
    /// An upgrade of the older kind (V1), run by Harvester itself.
    Upgrade: "harvesterhci.io" / "v1beta1" / "upgrades", NamespaceResourceScope, status: false {
        /// How far it is.
        status: UpgradeStatus,
    }
}

foreign_part! {
    /// How far an older upgrade is.
    UpgradeStatus {
        /// Completed and others.
        conditions: Vec<ForeignCondition>,
    }
}
