//! Whether this cluster may be upgraded to a release. Used by the manager, by the programs on nodes and by the cluster upgrade.

use api::UpgradePlanStatus;

use crate::version::{self, Ineligible};

/// The input.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The version that runs, as recorded in the plan.
    pub current: Option<&'a str>,
    /// The release.
    pub target: &'a str,
    /// The oldest version that the release may follow; empty when there is none.
    pub minimum: &'a str,
    /// Development builds may not be left.
    pub strict: bool,
    /// The user lets any version be upgraded to any other ([`api::UpgradePlan::skips_version_check`]).
    pub skipped: bool,
}

/// Why an upgrade may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The versions allow it.
    Eligible,
    /// The user skips the check.
    Unchecked,
}

/// Why an upgrade may not continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The plan does not know the release.
    #[error("release metadata is not available in UpgradePlan status")]
    NoRelease,
    /// The plan does not know the running version.
    #[error("previous version is not available in UpgradePlan status")]
    NoPreviousVersion,
    /// The versions forbid it.
    #[error(transparent)]
    Ineligible(#[from] Ineligible),
}

/// Answers.
///
/// # Errors
/// The first rule that forbids the upgrade.
pub fn check(question: Question<'_>) -> Result<Verdict, Refused> {
    if question.skipped {
        return Ok(Verdict::Unchecked);
    }
    let current = question.current.ok_or(Refused::NoPreviousVersion)?;
    version::check(current, question.target, question.minimum, question.strict)?;
    Ok(Verdict::Eligible)
}

/// Checks the release that is recorded in a plan. `minimum` replaces the release's own, if it is given.
///
/// # Errors
/// The first rule that forbids the upgrade.
pub fn of_plan(
    status: &UpgradePlanStatus,
    skipped: bool,
    strict: bool,
    minimum: Option<&str>,
) -> Result<Verdict, Refused> {
    if skipped {
        return Ok(Verdict::Unchecked);
    }
    let release = status.release_metadata.as_ref().ok_or(Refused::NoRelease)?;
    let own = release.min_upgradable_version.as_deref().unwrap_or_default();
    check(Question {
        current: status.previous_version.as_deref(),
        target: release.harvester.as_deref().unwrap_or_default(),
        minimum: minimum.filter(|given| !given.is_empty()).unwrap_or(own),
        strict,
        skipped,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_judged_by_its_record() {
        let mut status = UpgradePlanStatus::default();
        assert_eq!(of_plan(&status, false, true, None), Err(Refused::NoRelease));
        assert_eq!(of_plan(&status, true, true, None), Ok(Verdict::Unchecked));
        status.release_metadata = Some(api::ReleaseMetadata {
            harvester: Some("v1.8.0".to_owned()),
            min_upgradable_version: Some("v1.7.0".to_owned()),
            ..api::ReleaseMetadata::default()
        });
        assert_eq!(of_plan(&status, false, true, None), Err(Refused::NoPreviousVersion));
        status.previous_version = Some("v1.7.1".to_owned());
        assert_eq!(of_plan(&status, false, true, None), Ok(Verdict::Eligible));
        assert_eq!(of_plan(&status, false, true, Some("")), Ok(Verdict::Eligible));
        let refused = of_plan(&status, false, true, Some("v1.7.5"));
        assert_eq!(refused, Err(Refused::Ineligible(Ineligible::BelowMinimum)));
    }

    const QUESTION: Question<'_> = Question {
        current: Some("v1.7.1"),
        target: "v1.8.0",
        minimum: "v1.7.0",
        strict: true,
        skipped: false,
    };

    #[test]
    fn versions_decide_unless_the_user_says_not_to_look() {
        assert_eq!(check(QUESTION), Ok(Verdict::Eligible));
        let downgrade = Question {
            target: "v1.6.0",
            ..QUESTION
        };
        assert_eq!(check(downgrade), Err(Refused::Ineligible(Ineligible::Downgrade)));
        let skipped = Question {
            skipped: true,
            ..downgrade
        };
        assert_eq!(check(skipped), Ok(Verdict::Unchecked));
    }

    #[test]
    fn a_plan_that_does_not_know_what_runs_is_refused_with_a_known_message() {
        let unknown = Question {
            current: None,
            ..QUESTION
        };
        let refused = check(unknown).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "previous version is not available in UpgradePlan status"
        );
    }

    #[test]
    fn development_builds_may_be_left_only_without_strict_mode() {
        let dev = Question {
            current: Some("master-head"),
            ..QUESTION
        };
        assert_eq!(check(dev), Err(Refused::Ineligible(Ineligible::FromDev)));
        assert_eq!(check(Question { strict: false, ..dev }), Ok(Verdict::Eligible));
    }
}
