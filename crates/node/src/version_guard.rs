//! `version-guard`: may the running Harvester be upgraded to the release of a plan?

use api::UpgradePlan;
use kube::{Api, Client};
use rules::{
    eligibility::{self, Refused, Verdict},
    version::Ineligible,
};

use program::error::{Error, Result};

/// The versions that were compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// The one that runs.
    pub current: String,
    /// The one to upgrade to.
    pub target: String,
    /// The oldest one that may be upgraded; empty when there is none.
    pub minimum: String,
}

/// Why an upgrade may continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The versions allow it.
    Eligible(Compared),
    /// The user skips the check.
    Unchecked,
}

/// Why an upgrade may not continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// What must be recorded is missing.
    #[error(transparent)]
    Unknown(Refused),
    /// The versions forbid it.
    #[error("{why} (from {} to {}, minimum {})", compared.current, compared.target, shown(&compared.minimum))]
    Ineligible {
        /// The rule.
        why: Ineligible,
        /// The versions.
        compared: Compared,
    },
}

fn shown(minimum: &str) -> &str {
    if minimum.is_empty() { "none" } else { minimum }
}

/// Judges a plan. `strict` forbids leaving development builds; `minimum` replaces the release's own, if it is given.
///
/// The user's choice is read as everywhere: `spec.force`, or the annotation `harvesterhci.io/skip-version-check`.
///
/// # Errors
/// The first rule that forbids the upgrade.
pub fn judge(plan: &UpgradePlan, strict: bool, minimum: Option<&str>) -> Result<Pass, Refusal> {
    let status = plan.status.clone().unwrap_or_default();
    let release = status.release_metadata.clone().unwrap_or_default();
    let given = minimum.filter(|given| !given.is_empty());
    let own = release.min_upgradable_version.unwrap_or_default();
    let compared = Compared {
        current: status.previous_version.clone().unwrap_or_default(),
        target: release.harvester.unwrap_or_default(),
        minimum: given.map_or(own, str::to_owned),
    };
    let verdict = eligibility::of_plan(&status, plan.skips_version_check(), strict, given);
    match verdict {
        Ok(Verdict::Unchecked) => Ok(Pass::Unchecked),
        Err(Refused::Ineligible(why)) => Err(Refusal::Ineligible { why, compared }),
        Err(unknown) => Err(Refusal::Unknown(unknown)),
        // "v" alone is no version, whatever it is compared with.
        Ok(Verdict::Eligible) if given == Some("v") => Err(Refusal::Ineligible {
            why: Ineligible::Invalid,
            compared,
        }),
        Ok(Verdict::Eligible) => Ok(Pass::Eligible(compared)),
    }
}

/// Reads a plan and judges it.
///
/// # Errors
/// The plan could not be read, or its upgrade is forbidden.
pub async fn run(client: &Client, plan: &str, strict: bool, minimum: Option<&str>) -> Result<()> {
    let plans: Api<UpgradePlan> = Api::all(client.clone());
    let found = plans.get(plan).await;
    let found = found.map_err(|error| Error::api(format!("read UpgradePlan {plan}"), error))?;
    match judge(&found, strict, minimum) {
        Ok(Pass::Eligible(compared)) => {
            tracing::info!(
                name = plan,
                currentVersion = compared.current,
                upgradeVersion = compared.target,
                minUpgradableVersion = compared.minimum,
                "the upgrade is allowed"
            );
            Ok(())
        }
        Ok(Pass::Unchecked) => {
            tracing::warn!(name = plan, "versions are not checked: the plan says so");
            Ok(())
        }
        Err(why) => Err(Error::Permanent(why.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use api::annotations;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn plan(current: &str, target: &str, minimum: &str) -> Value {
        json!({
            "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
            "metadata": {"name": "up"}, "spec": {"version": target},
            "status": {"previousVersion": current, "releaseMetadata": {"harvester": target, "minUpgradableVersion": minimum}},
        })
    }

    fn judged(plan: Value, strict: bool, minimum: Option<&str>) -> Option<String> {
        let plan: UpgradePlan = serde_json::from_value(plan).unwrap();
        judge(&plan, strict, minimum).err().map(|why| why.to_string())
    }

    const MINIMUM: &str = "current version does not meet minimum upgrade requirement";
    const DOWN: &str = "downgrading is prohibited";
    const FROM_DEV: &str = "upgrading from dev versions to non-dev versions is prohibited";
    const ACROSS: &str = "cross-version upgrades from/to any prerelease version are prohibited";

    #[rstest]
    #[case("v1.2.1", "v1.2.2", "v1.2.1", true, None)]
    #[case("v1.2.0", "v1.2.2", "v1.2.1", true, Some(MINIMUM))]
    #[case("v1.2.1", "v1.2.0", "v1.1.2", true, Some(DOWN))]
    #[case("v1.2.1", "v1.2.2-rc1", "v1.2.1", true, None)]
    #[case("v1.2.2-rc1", "v1.2.2-rc2", "v1.2.1", true, None)]
    #[case("v1.2.2-rc2", "v1.2.2-rc1", "v1.2.1", true, Some(DOWN))]
    #[case("v1.2.1", "v1.2-head", "", true, None)]
    #[case("v1.2-head", "v1.3-head", "", true, None)]
    #[case("v1.2-head", "v1.3.1", "v1.2.2", true, Some(FROM_DEV))]
    #[case("v1.2-head", "v1.3.1", "v1.2.2", false, None)]
    #[case("v1.2.2-rc1", "v1.2.2", "v1.2.1", true, None)]
    #[case("v1.2.0-rc1", "v1.2.1", "v1.1.2", true, Some(ACROSS))]
    #[case("v1.1.2-rc1", "v1.2.1", "v1.1.2", true, Some(MINIMUM))]
    fn a_plan_is_judged_by_its_versions(
        #[case] current: &str,
        #[case] target: &str,
        #[case] minimum: &str,
        #[case] strict: bool,
        #[case] refusal: Option<&str>,
    ) {
        let found = judged(plan(current, target, minimum), strict, None);
        assert_eq!(found.is_some(), refusal.is_some(), "{found:?}");
        assert!(found.unwrap_or_default().starts_with(refusal.unwrap_or_default()));
    }

    #[test]
    fn a_minimum_that_is_given_replaces_the_releases_own() {
        let plan = || plan("v1.2.0", "v1.3.0", "v1.2.1");
        assert_eq!(judged(plan(), true, Some("v1.2.0")), None);
        assert_eq!(judged(plan(), true, Some("")), judged(plan(), true, None));
        let refused = judged(plan(), true, Some("v1.2.5")).unwrap();
        assert!(
            refused.ends_with("(from v1.2.0 to v1.3.0, minimum v1.2.5)"),
            "{refused}"
        );
        assert!(
            judged(plan(), true, Some("v"))
                .unwrap()
                .starts_with("invalid version string")
        );
        let dev = judged(plan(), true, Some("master-head")).unwrap();
        assert!(dev.starts_with("incomparable: dev version"), "{dev}");
    }

    #[test]
    fn both_switches_of_the_user_skip_the_check_and_only_when_they_say_true() {
        let down = || plan("v1.3.0", "v1.2.0", "");
        let mut forced = down();
        forced["spec"]["force"] = json!(true);
        assert_eq!(judged(forced, true, None), None);
        for (value, passes) in [("true", true), ("false", false), ("", false), ("True", false)] {
            let mut annotated = down();
            annotated["metadata"]["annotations"] = json!({annotations::SKIP_VERSION_CHECK: value});
            assert_eq!(judged(annotated, true, None).is_none(), passes, "{value}");
        }
    }

    #[test]
    fn a_plan_that_knows_too_little_is_refused_with_the_reason() {
        let mut unknown = plan("v1.2.0", "v1.3.0", "");
        unknown["status"]["releaseMetadata"] = Value::Null;
        assert_eq!(
            judged(unknown, true, None).unwrap(),
            "release metadata is not available in UpgradePlan status"
        );
        let mut unknown = plan("v1.2.0", "v1.3.0", "");
        unknown["status"]["previousVersion"] = Value::Null;
        assert_eq!(
            judged(unknown, true, None).unwrap(),
            "previous version is not available in UpgradePlan status"
        );
    }
}
