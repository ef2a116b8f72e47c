//! cdi.kubevirt.io: imports of disks.

use super::{ForeignCondition, api_version_of, foreign_kind, foreign_part, kind_of};

foreign_kind! {
    /// A claim that is filled from elsewhere.
    DataVolume: "cdi.kubevirt.io" / "v1beta1" / "datavolumes", NamespaceResourceScope, status: true, short: ["dv", "dvs"] {
        /// What is.
        status: DataVolumeStatus,
    }
}

foreign_part! {
    /// How an import is.
    DataVolumeStatus {
        /// ImportInProgress, Succeeded, …
        phase: String,
        /// How far it is, such as `43.21%`.
        progress: String,
        /// How often its pod was restarted.
        restart_count: i64,
        /// The claim that it fills.
        claim_name: String,
        /// Conditions.
        conditions: Vec<ForeignCondition>,
    }
}
