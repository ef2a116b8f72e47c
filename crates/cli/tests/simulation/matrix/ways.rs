//! The ways on from a failure, and the cases that do not lead to the end.

use std::fmt;

/// What a person does, once the cause is out of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Nothing: the plan has not failed.
    Waits,
    /// Asks for another try with the annotation.
    Retries,
    /// Deletes the plan, and creates another one when it is gone.
    Recreates,
    /// Creates another plan in addition to the failed one, or while the deleted one is still there.
    CreatesSecond,
    /// Starts the VMs that stand still.
    StartsVms,
    /// Creates another plan in addition to the failed one, and retries the first when that has succeeded.
    RetriesAfterAnother,
    /// The same, but the other one fails too, at another node.
    RetriesAfterAFailure,
    /// Creates a plan for another release; it refuses, since nodes are being upgraded to the first. Then the first one again.
    IsRefusedThenRetries,
    /// Creates a plan for another release, which upgrades the cluster. The first one, asked for again, refuses.
    UpgradesToAnother,
    /// Retries, which refuses an ISO that is not the recorded one. Then deletes the plan and creates
    /// another one.
    IsRefusedThenRecreates,
}

impl Way {
    /// The ways on from a plan that failed.
    pub(super) const FAILED: &[Self] = &[Self::Retries, Self::Recreates, Self::CreatesSecond];
    /// The ways on from a plan that waits for something beyond its deadline: it has not failed, so there is nothing to
    /// try again, and another plan waits behind it.
    pub(super) const STALLED: &[Self] = &[Self::Waits, Self::Recreates, Self::CreatesSecond];
    /// The ways on from a plan that was deleted: there is no plan left to try again.
    pub(super) const DELETED: &[Self] = &[Self::Recreates, Self::CreatesSecond];
    /// Two plans, the first of which had not found out what its release is.
    pub(super) const UNBEGUN: &[Self] = &[Self::Retries, Self::RetriesAfterAnother];
    /// Two plans, the first of which had begun with nodes.
    pub(super) const BEGUN: &[Self] = &[
        Self::RetriesAfterAnother,
        Self::RetriesAfterAFailure,
        Self::IsRefusedThenRetries,
    ];
    /// Two plans, the first of which was about to start Rancher's upgrade.
    pub(super) const ABOUT_TO_BEGIN: &[Self] = &[
        Self::RetriesAfterAnother,
        Self::RetriesAfterAFailure,
        Self::UpgradesToAnother,
    ];
    /// Two plans, the first of which had not come to the nodes.
    pub(super) const NOT_BEGUN: &[Self] = &[Self::RetriesAfterAnother, Self::UpgradesToAnother];
    /// The ways on from an ISO that is not whole. A plan stays with the ISO that is on record, so that another try refuses the
    /// one that was repaired and says to create another plan.
    pub(super) const ANOTHER_ISO: &[Self] = &[Self::IsRefusedThenRecreates, Self::Recreates, Self::CreatesSecond];
    /// What does not stop a plan needs no action.
    pub(super) const WARNED: &[Self] = &[Self::Waits];
    /// A Job that could not start VMs again does not stop a plan, and is not tried again: an event names the VMs.
    pub(super) const STOPPED_VMS: &[Self] = &[Self::StartsVms];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waits => "nothing",
            Self::Retries => "retry",
            Self::Recreates => "delete and create again",
            Self::CreatesSecond => "second plan",
            Self::StartsVms => "start the VMs",
            Self::RetriesAfterAnother => "second plan, then retry of the first",
            Self::RetriesAfterAFailure => "second plan fails too, then retry of the first",
            Self::IsRefusedThenRetries => "new plan for another release is refused, then retry of the first",
            Self::UpgradesToAnother => "new plan for another release, then retry of the first is refused",
            Self::IsRefusedThenRecreates => "retry is refused, then delete and create again",
        })
    }
}

impl Way {
    /// Some plan is tried again.
    pub(super) const fn tries_again(self) -> bool {
        matches!(
            self,
            Self::Retries
                | Self::RetriesAfterAnother
                | Self::RetriesAfterAFailure
                | Self::IsRefusedThenRetries
                | Self::UpgradesToAnother
                | Self::IsRefusedThenRecreates
        )
    }
}

/// Cases that do not end well yet: parts of their names, the ways, and what blocks them. A case on this list that ends well
/// fails the test.
pub(super) const PENDING: &[(&[&str], &[Way], &str)] = &[];
