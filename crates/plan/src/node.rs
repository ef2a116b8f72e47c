//! How far a node is: a state that can only grow.

use api::{NodeState, NodeUpgradeStatus, reasons};

/// The group of a state. A node moves to a later group or stays; it never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Its images are being loaded. A node that has reached nothing counts as here.
    #[default]
    Preloading,
    /// Its images are loaded, or could not be.
    Preloaded,
    /// It is paused.
    Paused,
    /// Its first Job empties it; on a cluster of one node, it does everything.
    Emptying,
    /// It is empty, or could not be emptied.
    Emptied,
    /// Its operating system is being installed.
    Installing,
    /// It reboots.
    Rebooting,
    /// Its upgrade has ended, well or not.
    Ended,
    /// Stale images are being removed from it.
    Cleaning,
    /// Stale images are removed, or could not be.
    Cleaned,
}

impl Stage {
    /// The group of a state.
    #[must_use]
    pub const fn of(state: NodeState) -> Self {
        match state {
            NodeState::ImagePreloading => Self::Preloading,
            NodeState::ImagePreloaded | NodeState::ImagePreloadFailed => Self::Preloaded,
            NodeState::UpgradePaused => Self::Paused,
            NodeState::PreDraining | NodeState::SingleNodeUpgrading => Self::Emptying,
            NodeState::PreDrained | NodeState::PreDrainFailed => Self::Emptied,
            NodeState::PostDraining => Self::Installing,
            NodeState::WaitingReboot => Self::Rebooting,
            NodeState::PostDrained
            | NodeState::PostDrainFailed
            | NodeState::SingleNodeUpgraded
            | NodeState::SingleNodeUpgradeFailed => Self::Ended,
            NodeState::ImageCleaning => Self::Cleaning,
            NodeState::ImageCleaned | NodeState::ImageCleanFailed => Self::Cleaned,
        }
    }

    /// How many groups are before it.
    #[must_use]
    pub const fn index(self) -> u8 {
        self as u8
    }

    /// The upgrade of the node has begun: a Job works on it, or has.
    #[must_use]
    pub fn has_started(self) -> bool {
        self >= Self::Emptying
    }

    /// The first Job of its upgrade has ended, well or not, or is behind it.
    #[must_use]
    pub fn has_ended_first_job(self) -> bool {
        self >= Self::Emptied
    }

    /// It is being emptied, upgraded or rebooted.
    #[must_use]
    pub fn is_in_flight(self) -> bool {
        self.has_started() && self < Self::Ended
    }
}

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
    let state = Progress::recorded(entry.state.as_deref()).state();
    state.is_some_and(is_upgrade_failure) && !is_tried_again(entry)
}

/// What the state says failed is being tried again. A state never goes back, so it stays until the try has its end.
#[must_use]
pub fn is_tried_again(entry: &NodeUpgradeStatus) -> bool {
    entry.reason.as_deref() == Some(reasons::RETRYING)
}

/// Merges an observed state into the recorded state of a node, and returns whether it is the node's state now. The only
/// place where a state is written.
pub fn advance(entry: &mut NodeUpgradeStatus, observed: NodeState) -> bool {
    let joined = Progress::recorded(entry.state.as_deref()).join(observed);
    entry.state = joined.state().map(|state| state.to_string());
    joined.state() == Some(observed)
}

/// What a node has reached. There is no setter: it grows by joining what is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress(Option<NodeState>);

impl Progress {
    /// From a recorded state; a text that is no state of ours counts as nothing reached.
    #[must_use]
    pub fn recorded(state: Option<&str>) -> Self {
        Self(state.and_then(NodeState::parse))
    }

    /// What has been reached.
    #[must_use]
    pub const fn state(self) -> Option<NodeState> {
        self.0
    }

    /// The group of what has been reached; nothing reached counts as the first.
    #[must_use]
    pub fn stage(self) -> Stage {
        self.0.map(Stage::of).unwrap_or_default()
    }

    /// What was known merged with what is observed: a stale observation never moves a node back. Within a group the newer one
    /// wins, so that a Job that is tried again can turn a failure into a success.
    #[must_use]
    pub fn join(self, observed: NodeState) -> Self {
        if self.stage() > Stage::of(observed) {
            self
        } else {
            Self(Some(observed))
        }
    }
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
    fn within_a_group_the_newer_sight_wins(#[case] old: NodeState, #[case] new: NodeState) {
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
    fn a_text_that_is_no_state_blocks_nothing() {
        assert_eq!(
            Progress::recorded(Some("KubernetesUpgraded")).stage(),
            Stage::Preloading
        );
        assert_eq!(Progress::recorded(None).join(PreDraining), at(PreDraining));
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
