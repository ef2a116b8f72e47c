//! Errors and backoff of each plan: an error of one plan is shown on that plan and blocks no other.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api::UpgradePlan;
use kube::ResourceExt;

use crate::act::ActError;

/// Pauses after decisions that could not be carried out: doubling from the first to the second.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// An error that happened this often in a row is shown to the user.
const SHOWN_AFTER: u32 = 3;

/// How long to pause after so many errors in a row.
pub(crate) fn pause(errors: u32) -> Duration {
    let doubling = 2u32.saturating_pow(errors.saturating_sub(1).min(10));
    MIN_PAUSE.saturating_mul(doubling).min(MAX_PAUSE)
}

/// Errors in a row.
#[derive(Debug, Default)]
pub(crate) struct ErrorStreak {
    errors: u32,
    last: String,
}

impl ErrorStreak {
    /// Another error. Returns the backoff.
    pub(crate) fn add(&mut self, error: String) -> Duration {
        self.errors = self.errors.saturating_add(1);
        self.last = error;
        pause(self.errors)
    }

    /// The last error, once there have been enough of them to report.
    pub(crate) fn trouble(&self) -> Option<&str> {
        (self.errors >= SHOWN_AFTER).then_some(self.last.as_str())
    }
}

/// Errors in a row, by the uid of their plan.
#[derive(Debug, Default)]
pub(crate) struct Backoff(BTreeMap<String, ErrorStreak>);

impl Backoff {
    /// A decision about a plan could not be carried out. Returns the backoff. A conflict is only a reason to reconcile again.
    pub(crate) fn note(&mut self, plan: &UpgradePlan, error: &ActError) -> Duration {
        let name = plan.name_any();
        if error.is_conflict() {
            tracing::debug!(plan = %name, %error, "another client wrote it first; reconciling again");
            return MIN_PAUSE;
        }
        let streak = self.0.entry(plan.uid().unwrap_or_default()).or_default();
        let pause = streak.add(error.to_string());
        tracing::warn!(plan = %name, %error, attempts = streak.errors, "failed; trying again");
        pause
    }

    /// A decision about a plan was carried out.
    pub(crate) fn clear(&mut self, plan: &UpgradePlan) {
        self.0.remove(&plan.uid().unwrap_or_default());
    }

    /// What keeps decisions about a plan from being carried out, when it happened more than once.
    pub(crate) fn trouble(&self, plan: &UpgradePlan) -> Option<&str> {
        self.0
            .get(&plan.uid().unwrap_or_default())
            .and_then(ErrorStreak::trouble)
    }

    /// Forgets plans that are gone.
    pub(crate) fn keep(&mut self, plans: &[Arc<UpgradePlan>]) {
        let known: BTreeSet<String> = plans.iter().filter_map(|plan| plan.uid()).collect();
        self.0.retain(|uid, _| known.contains(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(uid: &str) -> UpgradePlan {
        let mut plan = UpgradePlan::new(uid, api::UpgradePlanSpec::default());
        plan.metadata.uid = Some(uid.to_owned());
        plan
    }

    fn not_ours(object: &str) -> ActError {
        ActError::NotOurs {
            object: object.to_owned(),
        }
    }

    #[test]
    fn r28_errors_are_counted_and_shown_per_plan() {
        let (one, other) = (plan("one"), plan("other"));
        let mut backoff = Backoff::default();
        let pauses = [1, 2, 4, 8, 16, 30, 30].map(Duration::from_secs);
        for (number, wanted) in pauses.into_iter().enumerate() {
            assert_eq!(backoff.note(&one, &not_ours("Service a")), wanted);
            assert_eq!(backoff.trouble(&one).is_some(), number >= 2);
        }
        assert_eq!(backoff.trouble(&other), None);
        backoff.note(&other, &ActError::Outdated);
        backoff.clear(&one);
        assert_eq!(backoff.trouble(&one), None);
        assert_eq!(backoff.note(&one, &not_ours("Service a")), Duration::from_secs(1));
        backoff.keep(&[]);
        assert!(backoff.0.is_empty());
    }

    #[test]
    fn u07_an_error_of_one_plan_is_not_shown_on_another() {
        let (one, other) = (plan("one"), plan("other"));
        let mut backoff = Backoff::default();
        for _ in 0..5 {
            backoff.note(&one, &not_ours("Service a"));
        }
        assert!(backoff.trouble(&one).is_some());
        assert_eq!(backoff.trouble(&other), None);
    }
}
