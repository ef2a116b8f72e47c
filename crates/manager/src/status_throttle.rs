//! How often a plan is written only to update its waits. Progress is written at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api::UpgradePlan;
use kube::ResourceExt;
use plan::Decision;
use rules::throttle::Throttle;

const THROTTLE: Throttle = Throttle {
    // Mostly something that moves the upgrade on follows at once, and one write says both.
    debounce: Duration::from_secs(1),
    // Hundreds of VMs that leave a node would be as many writes, and no user reads that fast.
    interval: Duration::from_secs(5),
};

/// What becomes of the status of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusWrite {
    /// It is written.
    Now,
    /// It only updates waits, and can be delayed this long.
    Later(Duration),
    /// It is what the plan has already.
    Unchanged,
}

impl StatusWrite {
    /// How long until it is to be written, if it is not now.
    #[must_use]
    pub const fn later(self) -> Option<Duration> {
        match self {
            Self::Later(left) => Some(left),
            Self::Now | Self::Unchanged => None,
        }
    }
}

/// The writes to a plan, on the manager's clock.
#[derive(Default)]
struct Writes {
    last: Option<Duration>,
    pending_since: Option<Duration>,
}

impl Writes {
    /// When a status may be written that only updates waits.
    fn due(&self, now: Duration) -> Duration {
        let known = self.pending_since.unwrap_or(now);
        THROTTLE.due(Some(known), self.last).unwrap_or(now)
    }
}

/// When each plan was written, by its uid.
#[derive(Default)]
pub(crate) struct StatusThrottle(BTreeMap<String, Writes>);

impl StatusThrottle {
    /// Whether the status of a decision is written now. Nothing is recorded yet: see [`Self::record`].
    pub(crate) fn admit(&self, plan: &UpgradePlan, decision: &Decision, now: Duration) -> StatusWrite {
        let Some(before) = &plan.status else {
            return StatusWrite::Now;
        };
        if *before == decision.status {
            return StatusWrite::Unchanged;
        }
        if !decision.changes_only_waits(before) {
            return StatusWrite::Now;
        }
        let default = Writes::default();
        let writes = self.0.get(&plan.uid().unwrap_or_default()).unwrap_or(&default);
        match writes.due(now).checked_sub(now).filter(|left| !left.is_zero()) {
            Some(left) => StatusWrite::Later(left),
            None => StatusWrite::Now,
        }
    }

    /// Records what became of it.
    pub(crate) fn record(&mut self, plan: &UpgradePlan, write: StatusWrite, now: Duration) {
        let writes = self.0.entry(plan.uid().unwrap_or_default()).or_default();
        match write {
            StatusWrite::Now => {
                *writes = Writes {
                    last: Some(now),
                    pending_since: None,
                };
            }
            StatusWrite::Later(_) => {
                writes.pending_since.get_or_insert(now);
            }
            StatusWrite::Unchanged => writes.pending_since = None,
        }
    }

    /// Forgets plans that are gone.
    pub(crate) fn keep(&mut self, plans: &[Arc<UpgradePlan>]) {
        let known: BTreeSet<String> = plans.iter().filter_map(|plan| plan.uid()).collect();
        self.0.retain(|uid, _| known.contains(uid));
    }
}

#[cfg(test)]
mod tests {
    use api::{UpgradePlanStatus, WaitingFor};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn waiting_for(vms: usize) -> UpgradePlanStatus {
        let wait = WaitingFor {
            what: "VMEvacuation".to_owned(),
            object: None,
            message: Some(format!("{vms} VMs are left")),
            since: Time("2026-03-13T00:00:00Z".parse().unwrap()),
            deadline: None,
        };
        UpgradePlanStatus {
            waiting_for: vec![wait],
            ..UpgradePlanStatus::default()
        }
    }

    fn decision(status: UpgradePlanStatus) -> Decision {
        Decision {
            annotations: BTreeMap::new(),
            finalizer: false,
            status,
            events: Vec::new(),
            actions: Vec::new(),
            needs: Vec::new(),
            wake_at: None,
        }
    }

    fn plan(vms: usize) -> UpgradePlan {
        let mut plan = UpgradePlan::new("up", Default::default());
        plan.metadata.uid = Some("u".to_owned());
        plan.status = Some(waiting_for(vms));
        plan
    }

    const fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Admits a status and records what became of it.
    fn admit(
        throttle: &mut StatusThrottle,
        plan: &UpgradePlan,
        status: UpgradePlanStatus,
        now: Duration,
    ) -> StatusWrite {
        let write = throttle.admit(plan, &decision(status), now);
        throttle.record(plan, write, now);
        write
    }

    const fn later(milliseconds: u64) -> StatusWrite {
        StatusWrite::Later(at(milliseconds))
    }

    #[test]
    fn vms_that_leave_one_after_the_other_are_written_together() {
        let mut throttle = StatusThrottle::default();
        let t = &mut throttle;
        assert_eq!(admit(t, &plan(9), waiting_for(8), at(0)), later(1000));
        assert_eq!(admit(t, &plan(9), waiting_for(7), at(600)), later(400));
        assert_eq!(admit(t, &plan(9), waiting_for(7), at(1000)), StatusWrite::Now);
        assert_eq!(admit(t, &plan(7), waiting_for(6), at(1100)), later(4900));
        assert_eq!(admit(t, &plan(7), waiting_for(1), at(5999)), later(1));
        assert_eq!(admit(t, &plan(7), waiting_for(1), at(6000)), StatusWrite::Now);
        assert_eq!(admit(t, &plan(1), waiting_for(0), at(6001)), later(4999));
    }

    #[test]
    fn what_is_over_before_it_was_written_is_forgotten() {
        let mut throttle = StatusThrottle::default();
        let t = &mut throttle;
        assert_eq!(admit(t, &plan(9), waiting_for(8), at(0)), later(1000));
        assert_eq!(admit(t, &plan(9), waiting_for(9), at(10)), StatusWrite::Unchanged);
        assert_eq!(admit(t, &plan(9), waiting_for(8), at(5000)), later(1000));
    }

    #[test]
    fn a_write_that_failed_does_not_count_as_one() {
        let mut throttle = StatusThrottle::default();
        throttle.record(&plan(9), StatusWrite::Later(at(1000)), at(0));
        let due = throttle.admit(&plan(9), &decision(waiting_for(8)), at(1000));
        assert_eq!(due, StatusWrite::Now);
        // It fails, so nothing is recorded.
        let again = throttle.admit(&plan(9), &decision(waiting_for(8)), at(1001));
        assert_eq!(again, StatusWrite::Now);
    }

    #[test]
    fn what_moves_an_upgrade_on_does_not_wait() {
        let mut throttle = StatusThrottle::default();
        let t = &mut throttle;
        assert_eq!(admit(t, &plan(9), waiting_for(8), at(0)), later(1000));
        let mut entered = waiting_for(7);
        entered.current_phase = Some("NodeUpgraded".to_owned());
        assert_eq!(admit(t, &plan(8), entered, at(1)), StatusWrite::Now);
        let mut new = plan(8);
        new.status = None;
        assert_eq!(admit(t, &new, waiting_for(7), at(2)), StatusWrite::Now);
        assert_eq!(admit(t, &plan(8), waiting_for(8), at(3)), StatusWrite::Unchanged);
    }

    #[test]
    fn each_plan_has_its_own_time_and_takes_it_along() {
        let mut throttle = StatusThrottle::default();
        let t = &mut throttle;
        assert_eq!(admit(t, &plan(9), waiting_for(8), at(0)), later(1000));
        let mut other = plan(9);
        other.metadata.uid = Some("v".to_owned());
        assert_eq!(admit(t, &other, waiting_for(8), at(500)), later(1000));
        throttle.keep(&[Arc::new(other)]);
        assert_eq!(throttle.0.len(), 1);
    }
}
