//! How often a plan is written only to say anew what is waited for. What moves an upgrade on is written at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api::UpgradePlan;
use kube::ResourceExt;
use plan::Decision;

/// Words about what is waited for are not written sooner than this after the last write: hundreds of VMs that leave a
/// node would be as many writes, and nobody reads that fast.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(5);
/// Nor sooner than this after they are known: mostly something that moves the upgrade on follows at once, and one write says
/// both.
const MOMENT: Duration = Duration::from_secs(1);

/// What is known of the writes to a plan, on the manager's clock.
#[derive(Default)]
struct Writes {
    last: Option<Duration>,
    news_since: Option<Duration>,
}

impl Writes {
    /// When news may be written that are known now.
    fn due(&self, now: Duration) -> Duration {
        let known = self.news_since.unwrap_or(now) + MOMENT;
        self.last.map_or(known, |last| known.max(last + SHORTEST_INTERVAL))
    }
}

/// When each plan was written, by its uid.
#[derive(Default)]
pub(crate) struct News(BTreeMap<String, Writes>);

impl News {
    /// How long the status of a decision can wait, since it has nothing but news. One that is due is noted as written.
    pub(crate) fn rest(&mut self, plan: &UpgradePlan, decision: &Decision, now: Duration) -> Option<Duration> {
        let writes = self.0.entry(plan.uid().unwrap_or_default()).or_default();
        if plan.status.as_ref() == Some(&decision.status) {
            writes.news_since = None;
            return None;
        }
        let left = writes.due(now).checked_sub(now).filter(|left| !left.is_zero());
        let before = plan.status.as_ref();
        if left.is_some() && before.is_some_and(|before| decision.is_only_news(before)) {
            writes.news_since.get_or_insert(now);
            return left;
        }
        *writes = Writes {
            last: Some(now),
            news_since: None,
        };
        None
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

    #[test]
    fn vms_that_leave_one_after_the_other_are_told_together() {
        let mut news = News::default();
        assert_eq!(news.rest(&plan(9), &decision(waiting_for(8)), at(0)), Some(at(1000)));
        assert_eq!(news.rest(&plan(9), &decision(waiting_for(7)), at(600)), Some(at(400)));
        assert_eq!(news.rest(&plan(9), &decision(waiting_for(7)), at(1000)), None, "due");
        assert_eq!(news.rest(&plan(7), &decision(waiting_for(6)), at(1100)), Some(at(4900)));
        assert_eq!(news.rest(&plan(7), &decision(waiting_for(1)), at(5999)), Some(at(1)));
        assert_eq!(news.rest(&plan(7), &decision(waiting_for(1)), at(6000)), None, "due");
        assert_eq!(news.rest(&plan(1), &decision(waiting_for(0)), at(6001)), Some(at(4999)));
    }

    #[test]
    fn news_that_are_over_before_they_were_told_are_forgotten() {
        let mut news = News::default();
        assert!(news.rest(&plan(9), &decision(waiting_for(8)), at(0)).is_some());
        assert_eq!(
            news.rest(&plan(9), &decision(waiting_for(9)), at(10)),
            None,
            "nothing to write"
        );
        assert_eq!(news.rest(&plan(9), &decision(waiting_for(8)), at(5000)), Some(at(1000)));
    }

    #[test]
    fn what_moves_an_upgrade_on_does_not_rest() {
        let mut news = News::default();
        assert!(news.rest(&plan(9), &decision(waiting_for(8)), at(0)).is_some());
        let mut entered = waiting_for(7);
        entered.current_phase = Some("NodeUpgraded".to_owned());
        assert_eq!(news.rest(&plan(8), &decision(entered), at(1)), None);
        let mut new = plan(8);
        new.status = None;
        assert_eq!(news.rest(&new, &decision(waiting_for(7)), at(2)), None);
        assert_eq!(
            news.rest(&plan(8), &decision(waiting_for(8)), at(3)),
            None,
            "nothing to write"
        );
    }

    #[test]
    fn each_plan_has_its_own_time_and_takes_it_along() {
        let mut news = News::default();
        assert_eq!(news.rest(&plan(9), &decision(waiting_for(8)), at(0)), Some(at(1000)));
        let mut other = plan(9);
        other.metadata.uid = Some("v".to_owned());
        assert_eq!(news.rest(&other, &decision(waiting_for(8)), at(500)), Some(at(1000)));
        news.keep(&[Arc::new(other)]);
        assert_eq!(news.0.len(), 1);
    }
}
