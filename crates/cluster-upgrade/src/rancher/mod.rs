//! Rancher: upgraded by Helm, then everything that it brings and Harvester needs.
//!
//! `upgrade` writes into its journal what it is about to do. The steps after it settle what the journal says was begun,
//! whether by this attempt or by one before it; a Rancher that was at its version all along has nothing to settle.

mod capi;
mod features;
mod fleet;
mod fleet_config;
mod journal;
mod settle;
mod upgrade;
mod values;

pub use fleet_config::restored as restored_fleet_config;
pub use journal::Journal;
pub use settle::aggregation_secret;
pub use values::{is_at, upgraded};

pub(super) use fleet::{redeploy_agent, settle as settle_fleet};
pub(super) use settle::{refresh_charts, wait_charts, wait_rollouts, wait_version};
pub(super) use upgrade::{prepare, upgrade};

/// Rancher's own release, in `cattle-system`.
const RELEASE: &str = "rancher";
/// Where Fleet's controller runs.
pub const FLEET_SYSTEM: &str = "cattle-fleet-system";
/// Where the agent of the local cluster runs.
pub const FLEET_AGENT_SYSTEM: &str = "cattle-fleet-local-system";
