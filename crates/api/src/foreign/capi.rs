//! cluster.x-k8s.io: machines.

use super::{api_version_of, foreign_kind, foreign_part, kind_of};

foreign_kind! {
    /// The machine of a node.
    Machine: "cluster.x-k8s.io" / "v1beta1" / "machines", NamespaceResourceScope, status: true {
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
