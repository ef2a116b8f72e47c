//! What the state of a node means. That it only grows is in [`api::node_progress`].

pub use api::node_progress::{Progress, Stage};
use api::{NodeState, NodeUpgradeStatus, reasons};

/// The upgrade of the node has failed, and with it the plan.
#[must_use]
pub const fn is_upgrade_failure(state: NodeState) -> bool {
    matches!(
        state,
        NodeState::PreDrainFailed | NodeState::PostDrainFailed | NodeState::SingleNodeUpgradeFailed
    )
}

/// Something failed on the node.
#[must_use]
pub const fn is_failure(state: NodeState) -> bool {
    is_upgrade_failure(state) || matches!(state, NodeState::ImagePreloadFailed | NodeState::ImageCleanFailed)
}

/// The node runs the new operating system.
#[must_use]
pub const fn is_upgraded(state: NodeState) -> bool {
    Stage::of(state).index() >= Stage::Ended.index() && !is_upgrade_failure(state)
}

/// The upgrade of a node has failed, and is not being retried.
#[must_use]
pub fn has_failed(entry: &NodeUpgradeStatus) -> bool {
    entry.progress().state().is_some_and(is_upgrade_failure) && !is_tried_again(entry)
}

/// What the state says failed is being tried again. A state never goes back, so it stays until the try has its end.
#[must_use]
pub fn is_tried_again(entry: &NodeUpgradeStatus) -> bool {
    entry.reason.as_deref() == Some(reasons::RETRYING)
}

#[cfg(test)]
mod tests {
    use NodeState::*;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn at(state: NodeState) -> Progress {
        Progress::recorded(Some(state.as_str()))
    }

    #[rstest]
    #[case(WaitingReboot, SingleNodeUpgrading)]
    #[case(SingleNodeUpgraded, WaitingReboot)]
    #[case(SingleNodeUpgradeFailed, SingleNodeUpgrading)]
    #[case(ImageCleaning, PostDrained)]
    #[case(UpgradePaused, ImagePreloaded)]
    #[case(PreDraining, UpgradePaused)]
    #[case(PostDraining, PreDrained)]
    fn a_later_state_is_kept_when_an_earlier_one_is_seen(#[case] later: NodeState, #[case] earlier: NodeState) {
        assert_eq!(at(later).join(earlier), at(later));
        assert_eq!(at(earlier).join(later), at(later));
    }

    #[rstest]
    #[case(SingleNodeUpgraded, PostDrained)]
    #[case(PreDrainFailed, PreDrained)]
    #[case(ImageCleaned, ImageCleanFailed)]
    fn within_a_group_the_newer_observation_wins(#[case] old: NodeState, #[case] new: NodeState) {
        assert_eq!(at(old).join(new), at(new));
    }

    #[rstest]
    #[case(Stage::Preloading, &[ImagePreloading])]
    #[case(Stage::Preloaded, &[ImagePreloaded, ImagePreloadFailed])]
    #[case(Stage::Paused, &[UpgradePaused])]
    #[case(Stage::Emptying, &[PreDraining, SingleNodeUpgrading])]
    #[case(Stage::Emptied, &[PreDrained, PreDrainFailed])]
    #[case(Stage::Installing, &[PostDraining])]
    #[case(Stage::Rebooting, &[WaitingReboot])]
    #[case(Stage::Ended, &[PostDrained, PostDrainFailed, SingleNodeUpgraded, SingleNodeUpgradeFailed])]
    #[case(Stage::Cleaning, &[ImageCleaning])]
    #[case(Stage::Cleaned, &[ImageCleaned, ImageCleanFailed])]
    fn each_group_holds_its_states_and_no_others(#[case] group: Stage, #[case] states: &[NodeState]) {
        let all = NodeState::ALL.into_iter().filter(|state| Stage::of(*state) == group);
        assert_eq!(all.collect::<Vec<_>>(), states);
    }

    #[test]
    fn a_node_is_in_flight_from_its_first_job_to_its_end() {
        let states = |is: fn(Stage) -> bool| -> Vec<NodeState> {
            NodeState::ALL
                .into_iter()
                .filter(|state| is(Stage::of(*state)))
                .collect()
        };
        let flying = states(Stage::is_in_flight);
        let expected = [
            PreDraining,
            PreDrained,
            PreDrainFailed,
            PostDraining,
            WaitingReboot,
            SingleNodeUpgrading,
        ];
        assert_eq!(flying.len(), expected.len(), "{flying:?}");
        assert!(expected.iter().all(|state| flying.contains(state)), "{flying:?}");
        let before = [ImagePreloading, ImagePreloaded, ImagePreloadFailed, UpgradePaused];
        assert_eq!(states(|stage| !stage.has_started()), before);
        let first_job = states(|stage| stage.has_started() && !stage.has_ended_first_job());
        assert_eq!(first_job, [PreDraining, SingleNodeUpgrading]);
    }

    #[test]
    fn a_text_that_is_no_state_stays_and_is_neither_never_started_nor_ended() {
        let unknown = Progress::recorded(Some("KubernetesUpgraded"));
        assert_eq!((unknown.state(), unknown.is_unknown()), (None, true));
        assert!(unknown.stage().has_started() && !unknown.stage().has_ended_first_job());
        for state in NodeState::ALL {
            assert_eq!(unknown.join(state), unknown, "{state}");
            let mut entry: NodeUpgradeStatus = serde_json::from_str(r#"{"state": "KubernetesUpgraded"}"#).unwrap();
            assert!(!entry.advance(state));
            assert_eq!(entry.state(), Some("KubernetesUpgraded"), "{state}");
        }
        assert_eq!(Progress::recorded(None).join(PreDraining), at(PreDraining));
        assert_eq!(Progress::recorded(None).stage(), Stage::Preloading);
    }

    #[test]
    fn only_two_states_end_the_upgrade_of_a_node_well() {
        let upgraded: Vec<_> = NodeState::ALL
            .into_iter()
            .filter(|s| is_upgraded(*s) && Stage::of(*s) == Stage::Ended)
            .collect();
        assert_eq!(upgraded, [PostDrained, SingleNodeUpgraded]);
        assert!(!is_upgrade_failure(ImageCleanFailed));
    }

    fn states() -> impl Strategy<Value = NodeState> {
        proptest::sample::select(NodeState::ALL.to_vec())
    }

    proptest! {
        #[test]
        fn a_node_never_goes_back(observed in proptest::collection::vec(states(), 0..20)) {
            let mut progress = Progress::recorded(None);
            for state in observed {
                let next = progress.join(state);
                prop_assert!(next.stage() >= progress.stage());
                prop_assert_eq!(next.join(state), next, "joining twice is joining once");
                progress = next;
            }
        }
    }
}
