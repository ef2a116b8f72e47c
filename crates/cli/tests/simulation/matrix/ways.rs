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
    CreatesAnew,
    /// Creates another plan beside the failed one, or while the deleted one is still there.
    CreatesBeside,
    /// Starts the VMs that stand still.
    StartsVms,
}

impl Way {
    /// The ways on from a plan that failed.
    pub(super) const FAILED: &[Self] = &[Self::Retries, Self::CreatesAnew, Self::CreatesBeside];
    /// The ways on from a plan that waits for something beyond its deadline: it has not failed, so there is nothing to
    /// try again, and another plan waits behind it.
    pub(super) const STALLED: &[Self] = &[Self::Waits, Self::CreatesAnew, Self::CreatesBeside];
    /// The ways on from a plan that was deleted: there is no plan left to try again.
    pub(super) const DELETED: &[Self] = &[Self::CreatesAnew, Self::CreatesBeside];
    /// What does not stop a plan needs nobody.
    pub(super) const WARNED: &[Self] = &[Self::Waits];
    /// A Job that could not start VMs again does not stop a plan, and is not tried again: an event names the VMs.
    pub(super) const STOPPED_VMS: &[Self] = &[Self::StartsVms];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waits => "nothing",
            Self::Retries => "retry",
            Self::CreatesAnew => "delete and create anew",
            Self::CreatesBeside => "new plan beside it",
            Self::StartsVms => "start the VMs",
        })
    }
}

/// Cases that do not end well yet: parts of their names, the ways, and what blocks them. A case on this list that ends well
/// fails the test.
pub(super) const PENDING: &[(&[&str], &[Way], &str)] = &[];
