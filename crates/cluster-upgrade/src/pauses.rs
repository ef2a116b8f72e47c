//! How long a cluster upgrade waits before it trusts what it observes.

use std::time::Duration;

/// Pauses of a cluster upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// How long the cluster must have been provisioned without a break: right after a change it says so still.
    pub provisioned: Duration,
    /// How long an addon must have been deployed without a break.
    pub addon: Duration,
    /// What RKE2 takes to see a changed HelmChartConfig.
    pub helm_config: Duration,
    /// What Fleet takes to see a changed configuration.
    pub fleet_config: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            provisioned: Duration::from_secs(30),
            addon: Duration::from_secs(10),
            helm_config: Duration::from_secs(10),
            fleet_config: Duration::from_secs(20),
        }
    }
}

impl Pauses {
    /// The same, none longer than that: for clusters where others take less time.
    #[must_use]
    pub fn at_most(self, longest: Duration) -> Self {
        Self {
            provisioned: self.provisioned.min(longest),
            addon: self.addon.min(longest),
            helm_config: self.helm_config.min(longest),
            fleet_config: self.fleet_config.min(longest),
        }
    }
}
