//! How far a node is: a state that can only grow.

use api::{NodeState, NodeUpgradeStatus, reasons};

/// The group of a state. A node moves to a higher group or stays; it never goes back.
#[must_use]
pub const fn ordinal(state: NodeState) -> u8 {
    match state {
        NodeState::ImagePreloading => 0,
        NodeState::ImagePreloaded | NodeState::ImagePreloadFailed => 1,
        NodeState::UpgradePaused => 2,
        NodeState::PreDraining | NodeState::SingleNodeUpgrading => 3,
        NodeState::PreDrained | NodeState::PreDrainFailed => 4,
        NodeState::PostDraining => 5,
        NodeState::WaitingReboot => 6,
        NodeState::PostDrained
        | NodeState::PostDrainFailed
        | NodeState::SingleNodeUpgraded
        | NodeState::SingleNodeUpgradeFailed => 7,
        NodeState::ImageCleaning => 8,
        NodeState::ImageCleaned | NodeState::ImageCleanFailed => 9,
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
    ordinal(state) >= 7 && !is_upgrade_failure(state)
}

/// The upgrade of a node has failed, and nobody tries it again.
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

/// Joins a state that is seen into what is recorded of a node, and tells whether it is the node's state now. The only
/// place where a state is written.
pub fn advance(entry: &mut NodeUpgradeStatus, seen: NodeState) -> bool {
    let joined = Progress::recorded(entry.state.as_deref()).join(seen);
    entry.state = joined.state().map(|state| state.to_string());
    joined.state() == Some(seen)
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
    pub const fn ordinal(self) -> u8 {
        match self.0 {
            Some(state) => ordinal(state),
            None => 0,
        }
    }

    /// What was known joined with what is seen: a stale sight never moves a node back. Within a group the newer sight
    /// wins, so that a Job that is tried again can turn a failure into a success.
    #[must_use]
    pub const fn join(self, seen: NodeState) -> Self {
        if self.ordinal() > ordinal(seen) {
            self
        } else {
            Self(Some(seen))
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
    #[case(0, &[ImagePreloading])]
    #[case(1, &[ImagePreloaded, ImagePreloadFailed])]
    #[case(2, &[UpgradePaused])]
    #[case(3, &[PreDraining, SingleNodeUpgrading])]
    #[case(4, &[PreDrained, PreDrainFailed])]
    #[case(5, &[PostDraining])]
    #[case(6, &[WaitingReboot])]
    #[case(7, &[PostDrained, PostDrainFailed, SingleNodeUpgraded, SingleNodeUpgradeFailed])]
    #[case(8, &[ImageCleaning])]
    #[case(9, &[ImageCleaned, ImageCleanFailed])]
    fn each_group_holds_its_states_and_no_others(#[case] group: u8, #[case] states: &[NodeState]) {
        let all = NodeState::ALL.into_iter().filter(|state| ordinal(*state) == group);
        assert_eq!(all.collect::<Vec<_>>(), states);
    }

    #[test]
    fn a_text_that_is_no_state_blocks_nothing() {
        assert_eq!(Progress::recorded(Some("KubernetesUpgraded")).ordinal(), 0);
        assert_eq!(Progress::recorded(None).join(PreDraining), at(PreDraining));
    }

    #[test]
    fn only_two_states_end_the_upgrade_of_a_node_well() {
        let upgraded: Vec<_> = NodeState::ALL
            .into_iter()
            .filter(|s| is_upgraded(*s) && ordinal(*s) == 7)
            .collect();
        assert_eq!(upgraded, [PostDrained, SingleNodeUpgraded]);
        assert!(!is_upgrade_failure(ImageCleanFailed));
    }

    fn states() -> impl Strategy<Value = NodeState> {
        proptest::sample::select(NodeState::ALL.to_vec())
    }

    proptest! {
        #[test]
        fn a_node_never_goes_back(seen in proptest::collection::vec(states(), 0..20)) {
            let mut progress = Progress::recorded(None);
            for state in seen {
                let next = progress.join(state);
                prop_assert!(next.ordinal() >= progress.ordinal());
                prop_assert_eq!(next.join(state), next, "joining twice is joining once");
                progress = next;
            }
        }
    }
}
