//! Which try of a plan this is.

use api::{Phase, PhaseTransition, UpgradePlanStatus};

/// How many tries have failed before the one that runs. Restoring after a failure still belongs to the attempt that
/// failed.
#[must_use]
pub fn failed_before(status: Option<&UpgradePlanStatus>) -> usize {
    let history = status.map_or(&[][..], |status| &status.phase_transition_timestamps);
    failures(&history[..history.len().saturating_sub(1)])
}

/// How many tries had failed when the history was this.
#[must_use]
pub fn failures(history: &[PhaseTransition]) -> usize {
    history.iter().filter(|change| is_failure(change)).count()
}

/// With this change a try failed.
#[must_use]
pub fn is_failure(change: &PhaseTransition) -> bool {
    change.phase == Phase::Failed.as_str()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn a_failure_counts_once_a_retry_has_begun() {
        let of = |phases: &[Phase]| {
            let changes = phases.iter().map(|phase| PhaseTransition {
                phase: phase.to_string(),
                phase_transition_timestamp: Time(Timestamp::UNIX_EPOCH),
                message: None,
            });
            failed_before(Some(&UpgradePlanStatus {
                phase_transition_timestamps: changes.collect(),
                ..Default::default()
            }))
        };
        assert_eq!(failed_before(None), 0);
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[Phase::NodeUpgrading]), 0);
        assert_eq!(of(&[Phase::NodeUpgrading, Phase::Failed]), 0, "it is being restored");
        assert_eq!(of(&[Phase::NodeUpgrading, Phase::Failed, Phase::ClusterUpgraded]), 1);
        assert_eq!(of(&[Phase::Failed, Phase::ClusterUpgraded, Phase::Failed]), 1);
        assert_eq!(
            of(&[
                Phase::Failed,
                Phase::ClusterUpgraded,
                Phase::Failed,
                Phase::ClusterUpgraded
            ]),
            2
        );
    }
}
