//! upgrade.cattle.io: system-upgrade-controller.

use k8s_openapi::{
    api::core::v1::{EnvVar, SecurityContext, Toleration},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::{ForeignCondition, api_version_of, foreign_kind, foreign_part, kind_of};

foreign_kind! {
    /// A container that is to run once on every node of a selection.
    Plan: "upgrade.cattle.io" / "v1" / "plans", NamespaceResourceScope, status: true {
        /// What is wanted.
        spec: PlanSpec,
        /// How far it is.
        status: PlanStatus,
    }
}

foreign_part! {
    /// What is to run, and where.
    PlanSpec {
        /// How many nodes at once.
        concurrency: i64,
        /// Deadline of each Job; 0 = none.
        job_active_deadline_secs: i64,
        /// Which nodes.
        #[schemars(with = "Option<crate::foreign::Other>")]
        node_selector: LabelSelector,
        /// Account of the Jobs, in the Plan's namespace.
        service_account_name: String,
        /// Tolerations of the Jobs.
        #[schemars(with = "Option<Vec<crate::foreign::Other>>")]
        tolerations: Vec<Toleration>,
        /// What runs.
        upgrade: ContainerSpec,
        /// Tag of the image; a new one makes the Plan run again.
        version: String,
    }
}

foreign_part! {
    /// What runs on a node.
    ContainerSpec {
        /// Image; gets the Plan's version as its tag.
        image: String,
        /// Command.
        command: Vec<String>,
        /// Arguments.
        args: Vec<String>,
        /// Environment; `envs` in JSON, and the API server drops an `env`.
        #[serde(rename = "envs")]
        #[schemars(with = "Option<Vec<crate::foreign::Other>>")]
        env: Vec<EnvVar>,
        /// Replaces the controller's own choice, which is privileged.
        #[schemars(with = "Option<crate::foreign::Other>")]
        security_context: SecurityContext,
    }
}

foreign_part! {
    /// How far a Plan is.
    PlanStatus {
        /// Complete and others.
        conditions: Vec<ForeignCondition>,
        /// The version that is being applied.
        latest_version: String,
        /// Identifies what is being applied; nodes that had it carry it in a label.
        latest_hash: String,
        /// Nodes it is being applied to now.
        applying: Vec<String>,
    }
}
