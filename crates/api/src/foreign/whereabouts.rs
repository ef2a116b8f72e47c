//! whereabouts.cni.cncf.io: addresses of the storage network.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{api_version_of, foreign_kind, foreign_part, kind_of};

foreign_kind! {
    /// A range of addresses, and which of them are taken.
    IPPool: "whereabouts.cni.cncf.io" / "v1alpha1" / "ippools", NamespaceResourceScope, status: false {
        /// What is.
        spec: IpPoolSpec,
    }
}

foreign_part! {
    /// A range of addresses.
    IpPoolSpec {
        /// The range, such as `192.168.0.0/24`.
        range: String,
        /// The taken ones, by offset from its first address.
        allocations: BTreeMap<String, Value>,
    }
}
