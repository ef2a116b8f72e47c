//! fleet.cattle.io: bundles.

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
        /// Ready and others.
        conditions: Vec<ForeignCondition>,
        /// Counts.
        summary: Other,
    }
}
