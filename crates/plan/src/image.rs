//! Which container image the upgrade's own workloads run: the manager's own, repository and tag as it was deployed,
//! unless the plan says otherwise. Which image that was is on record with the first workload: a manager that is replaced in
//! the middle of an upgrade does not replace the programs of its other half.
//!
//! The image of the same name that a release's ISO brings is none of ours: it may be another program, or not be there.

use api::{
    UpgradePlan, annotations,
    image::{Fault, Image, chosen_repository, faults, forbidden_repository, forbidden_text},
};

use crate::{observed::Settings, preflight::PreflightError};

/// The image of the plan's workloads. A repository that is not allowed is ignored: otherwise a user who may change a plan could
/// run any program as root.
#[must_use]
pub fn of(plan: &UpgradePlan, settings: &Settings) -> Image {
    let recorded = plan.note(annotations::TOOLKIT_IMAGE).and_then(Image::parse);
    // A client that may write a status can also write the record.
    let recorded = recorded.filter(|image| is_allowed(image, settings));
    let own = recorded.as_ref().unwrap_or(&settings.own_image);
    let is_allowed = forbidden_repository(plan, &settings.own_image, &settings.allowed_repositories).is_none();
    let repository = chosen_repository(plan).filter(|_| is_allowed);
    let tag = plan.spec.upgrade.as_deref().filter(|tag| !tag.is_empty());
    match (repository, tag) {
        (None, None) => own.clone(),
        (repository, tag) => {
            let tag = tag.map(str::to_owned).or_else(|| own.tag.clone());
            Image {
                repository: repository.unwrap_or(&own.repository).to_owned(),
                // Another tag has another content. A mirror has the same, so there the digest stands for a missing tag.
                digest: own.digest.clone().filter(|_| tag.is_none()),
                tag,
            }
        }
    }
}

/// An image is the manager's own or of a repository that it allows.
#[must_use]
pub fn is_allowed(image: &Image, settings: &Settings) -> bool {
    let mut others = settings.allowed_repositories.iter();
    image.repository == settings.own_image.repository || others.any(|other| *other == image.repository)
}

/// Whether the plan names a repository and a tag that can be.
///
/// # Errors
/// What it says in their place, and what is wrong with it.
pub fn check(plan: &UpgradePlan) -> Result<(), PreflightError> {
    match faults(plan).first() {
        None => Ok(()),
        Some(Fault { place, given, rule }) => Err(PreflightError::Invalid {
            given: (*given).to_owned(),
            place: place.name(),
            rule: (*rule).to_owned(),
        }),
    }
}

/// Whether the plan names a repository that it may.
///
/// # Errors
/// Which one it names, and what it may name.
pub fn check_allowed(plan: &UpgradePlan, settings: &Settings) -> Result<(), PreflightError> {
    let (own, others) = (&settings.own_image, &settings.allowed_repositories);
    match forbidden_repository(plan, own, others) {
        None => Ok(()),
        Some(chosen) => Err(PreflightError::Invalid {
            given: chosen.to_owned(),
            place: format!("annotation {}", annotations::UPGRADE_TOOLKIT_IMAGE),
            rule: forbidden_text(own, others),
        }),
    }
}

#[cfg(test)]
mod tests {
    use api::UpgradePlanStatus;

    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn settings(own: &str) -> Settings {
        Settings {
            own_image: Image::parse(own).unwrap(),
            allowed_repositories: vec!["me/mine".to_owned()],
            ..Settings::default()
        }
    }

    #[test]
    fn s02_a_repository_that_is_not_allowed_is_refused_and_not_run() {
        let mut plan = UpgradePlan::new("up", Default::default());
        let choose =
            |repository: &str| Some([(annotations::UPGRADE_TOOLKIT_IMAGE.to_owned(), repository.to_owned())].into());
        let settings = settings("rancher/toolkit:v1");
        plan.metadata.annotations = choose("evil.test/pwn");
        let why = check_allowed(&plan, &settings).unwrap_err().to_string();
        assert!(
            why.contains("evil.test/pwn") && why.contains("rancher/toolkit, me/mine"),
            "{why}"
        );
        assert_eq!(of(&plan, &settings).to_string(), "rancher/toolkit:v1");
        for allowed in ["me/mine", "rancher/toolkit", ""] {
            plan.metadata.annotations = choose(allowed);
            assert_eq!(check_allowed(&plan, &settings), Ok(()), "{allowed}");
        }
    }

    fn runs(own: &str, annotation: Option<&str>, tag: Option<&str>) -> String {
        let mut plan = UpgradePlan::new("up", Default::default());
        plan.spec.upgrade = tag.map(str::to_owned);
        let key = annotations::UPGRADE_TOOLKIT_IMAGE.to_owned();
        plan.metadata.annotations = annotation.map(|value| [(key, value.to_owned())].into());
        of(&plan, &settings(own)).to_string()
    }

    #[test]
    fn r29_workloads_run_the_managers_own_image_whole() {
        for own in [
            "rancher/harvester-upgrade-toolkit:v0.1.0",
            "reg.test:5000/me/toolkit:dev",
        ] {
            assert_eq!(runs(own, None, None), own);
            assert_eq!(runs(own, Some(""), Some("")), own, "what is empty is no choice");
        }
        let pinned = format!("reg.test:5000/me/toolkit@{DIGEST}");
        assert_eq!(runs(&pinned, None, None), pinned);
    }

    #[test]
    fn what_the_first_workload_ran_the_others_run_whatever_the_manager_is_replaced_by() {
        let mut plan = UpgradePlan::new("up", Default::default());
        let own = settings("rancher/toolkit:v2");
        let record = |value: &str| {
            Some(UpgradePlanStatus {
                notes: Some([(annotations::TOOLKIT_IMAGE.to_owned(), value.to_owned())].into()),
                ..UpgradePlanStatus::default()
            })
        };
        plan.status = record("rancher/toolkit:v1");
        assert_eq!(of(&plan, &own).to_string(), "rancher/toolkit:v1");
        plan.spec.upgrade = Some("v1-fixed".to_owned());
        assert_eq!(
            of(&plan, &own).to_string(),
            "rancher/toolkit:v1-fixed",
            "who asks is heard"
        );
        plan.status = record("no image");
        assert_eq!(of(&plan, &own).to_string(), "rancher/toolkit:v1-fixed");
    }

    #[test]
    fn the_plan_chooses_another_tag_or_repository_and_what_it_does_not_choose_is_the_managers() {
        let own = format!("rancher/toolkit:v1@{DIGEST}");
        assert_eq!(runs(&own, None, Some("dev")), "rancher/toolkit:dev");
        assert_eq!(runs(&own, Some("me/mine"), None), "me/mine:v1");
        assert_eq!(runs(&own, Some("me/mine"), Some("v3")), "me/mine:v3");
        let pinned = format!("rancher/toolkit@{DIGEST}");
        assert_eq!(runs(&pinned, Some("me/mine"), None), format!("me/mine@{DIGEST}"));
    }

    #[test]
    fn r37_a_repository_with_a_tag_or_nonsense_is_refused_by_name() {
        let mut plan = UpgradePlan::new("up", Default::default());
        let key = annotations::UPGRADE_TOOLKIT_IMAGE;
        for (value, is_fine) in [
            ("me/mine", true),
            ("", true),
            ("me/mine:v3", false),
            ("no image", false),
        ] {
            plan.metadata.annotations = Some([(key.to_owned(), value.to_owned())].into());
            let checked = check(&plan);
            assert_eq!(checked.is_ok(), is_fine, "{value}");
            if let Err(error) = checked {
                let why = error.to_string();
                assert!(why.contains(key) && why.contains("spec.upgrade"), "{why}");
            }
        }
        plan.metadata.annotations = None;
        plan.spec.upgrade = Some("a tag".into());
        assert!(check(&plan).unwrap_err().to_string().contains("spec.upgrade"));
    }
}
