//! May the release in the repository be brought onto this cluster? Pure.

use api::UpgradePlan;
use release::release_file::ReleaseFile;
use rules::{
    eligibility::{self, Question, Refused},
    version::Ineligible,
};

/// Why a release may not be brought onto a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFor {
    /// The repository has another release than the plan.
    #[error("the repository has Harvester {offered}, but the plan is about {planned}")]
    AnotherRelease {
        /// That of the repository.
        offered: String,
        /// That of the plan.
        planned: String,
    },
    /// Nothing is known about what runs.
    #[error("the plan does not say which version runs: status.previousVersion is missing")]
    NoPreviousVersion,
    /// The versions forbid it.
    #[error("Harvester {current} cannot be upgraded to {offered}: {why}")]
    Ineligible {
        /// What runs.
        current: String,
        /// The release.
        offered: String,
        /// The rule.
        why: Ineligible,
    },
}

/// What the plan says that matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanFacts {
    /// The version that runs.
    pub previous_version: Option<String>,
    /// The version that the plan upgrades to, as far as it knows.
    pub target: Option<String>,
    /// Whether any version may be upgraded to any other.
    pub force: bool,
}

impl PlanFacts {
    /// What a plan says.
    #[must_use]
    pub fn of(plan: &UpgradePlan) -> Self {
        let status = plan.status.as_ref();
        Self {
            previous_version: status.and_then(|status| status.previous_version.clone()),
            target: status
                .and_then(|status| status.release_metadata.as_ref())
                .and_then(|release| release.harvester.clone())
                .filter(|version| !version.is_empty()),
            force: plan.skips_version_check(),
        }
    }
}

/// Checks that the repository has what the plan is about, and that it may follow the version that runs.
///
/// # Errors
/// Why it may not.
pub fn check(plan: &PlanFacts, release: &ReleaseFile) -> Result<(), NotFor> {
    let offered = &release.harvester;
    if let Some(target) = plan.target.as_ref().filter(|target| *target != offered) {
        return Err(NotFor::AnotherRelease {
            offered: offered.clone(),
            planned: target.clone(),
        });
    }
    let question = Question {
        current: plan.previous_version.as_deref(),
        target: offered,
        minimum: &release.min_upgradable_version,
        strict: true,
        skipped: plan.force,
    };
    match eligibility::check(question) {
        Ok(_) => Ok(()),
        Err(Refused::Ineligible(why)) => Err(NotFor::Ineligible {
            current: plan.previous_version.clone().unwrap_or_default(),
            offered: offered.clone(),
            why,
        }),
        Err(Refused::NoPreviousVersion | Refused::NoRelease) => Err(NotFor::NoPreviousVersion),
    }
}

#[cfg(test)]
mod tests {
    use api::annotations::SKIP_VERSION_CHECK;

    use super::*;

    fn release() -> ReleaseFile {
        ReleaseFile {
            harvester: "v1.8.0".to_owned(),
            min_upgradable_version: "v1.7.0".to_owned(),
            ..ReleaseFile::default()
        }
    }

    fn plan(previous: &str) -> PlanFacts {
        PlanFacts {
            previous_version: Some(previous.to_owned()),
            target: Some("v1.8.0".to_owned()),
            force: false,
        }
    }

    #[test]
    fn a_version_below_the_minimum_is_refused_unless_forced() {
        assert_eq!(check(&plan("v1.7.1"), &release()), Ok(()));
        let why = check(&plan("v1.6.0"), &release()).unwrap_err().to_string();
        assert!(
            why.contains("current version does not meet minimum upgrade requirement"),
            "{why}"
        );
        let forced = PlanFacts {
            force: true,
            ..plan("v1.6.0")
        };
        assert_eq!(check(&forced, &release()), Ok(()));
    }

    #[test]
    fn another_release_than_the_plans_is_refused_even_when_forced() {
        let other = PlanFacts {
            target: Some("v1.9.0".to_owned()),
            force: true,
            ..plan("v1.8.0")
        };
        assert!(
            check(&other, &release())
                .unwrap_err()
                .to_string()
                .contains("the plan is about v1.9.0")
        );
    }

    #[test]
    fn a_plan_without_the_running_version_is_refused() {
        assert!(
            check(&PlanFacts::default(), &release())
                .unwrap_err()
                .to_string()
                .contains("previousVersion")
        );
    }

    #[test]
    fn f15_prepare_lets_pass_whom_the_manager_lets_pass() {
        let mut plan = UpgradePlan::new("up", Default::default());
        assert!(!PlanFacts::of(&plan).force);
        plan.spec.force = Some(true);
        assert!(PlanFacts::of(&plan).force);
        plan.spec.force = None;
        plan.metadata.annotations = Some([(SKIP_VERSION_CHECK.to_owned(), "true".to_owned())].into());
        assert!(PlanFacts::of(&plan).force);
    }
}
