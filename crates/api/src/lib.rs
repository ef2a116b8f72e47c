//! The nouns of an upgrade: our own kinds, the foreign kinds an upgrade reads or writes, and every name, label,
//! annotation and reason that is part of the wire contract.
//!
//! No logic but names and conversions; no I/O.

pub mod accounts;
pub mod annotations;
mod check_summary;
pub mod component;
pub mod crd;
pub mod foreign;
pub mod image;
pub mod job_kind;
pub mod labels;
pub mod names;
pub mod node;
pub mod node_progress;
pub mod node_state;
pub mod overrides;
pub mod owner;
pub mod phase;
mod plan_reads;
pub mod pod;
pub mod quoted;
pub mod reasons;
pub mod release_digests;
pub mod repository_access;
#[allow(clippy::duplicated_attributes)]
pub mod upgrade_log;
// The lint takes the printer columns of the derive for one attribute written several times.
#[allow(clippy::duplicated_attributes)]
pub mod upgrade_plan;
mod upgrade_progress;
pub mod wait;
mod wire_enum;

pub use check_summary::CheckSummary;
pub use component::{Component, JobType, NodePlan};
pub use job_kind::JobKind;
pub use node_progress::{NodeUpgradeStatus, NodeUpgradeStatuses};
pub use node_state::NodeState;
pub use phase::Phase;
pub use plan_reads::CERTIFICATE_DAYS;
pub use release_digests::ReleaseDigests;
pub use repository_access::RepositoryAccess;
pub use upgrade_log::{TrackedPod, TrackedPodState, UpgradeLog, UpgradeLogPhase, UpgradeLogSpec, UpgradeLogStatus};
pub use upgrade_plan::{
    ImagePreloadOption, Insight, NodeUpgradeOption, OnMigrationFailure, PhaseTransition, ReleaseMetadata, UpgradePlan,
    UpgradePlanSpec, UpgradePlanStatus, VersionSnapshot, WaitingFor,
};
pub use upgrade_progress::UpgradeProgress;
pub use wait::{ProgramWait, Wait};

/// The API group of everything that is ours; also the prefix of our labels and annotations.
pub const GROUP: &str = "management.harvesterhci.io";
