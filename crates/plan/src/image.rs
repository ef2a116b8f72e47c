//! Which container image the upgrade's own workloads run: the manager's own, repository and tag as it was deployed,
//! unless the plan says otherwise.
//!
//! The image of the same name that a release's ISO brings is none of ours: it may be another program, or not be there.

use api::{UpgradePlan, annotations, image, image::Image};

/// The image of the plan's workloads.
#[must_use]
pub fn of(plan: &UpgradePlan, own: &Image) -> Image {
    let repository = repository(plan);
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

/// The repository that the plan names, if it does.
fn repository(plan: &UpgradePlan) -> Option<&str> {
    plan.annotation(annotations::UPGRADE_TOOLKIT_IMAGE)
        .filter(|image| !image.is_empty())
}

/// Whether the plan names a repository and a tag that can be: what it says in their place, and what is wrong with it.
///
/// # Errors
/// One of them is nonsense.
pub fn check(plan: &UpgradePlan) -> Result<(), String> {
    let key = annotations::UPGRADE_TOOLKIT_IMAGE;
    if let Some(given) = repository(plan).filter(|given| !image::is_repository(given)) {
        return Err(format!(
            "invalid value {given:?} for annotation {key}: {}",
            image::REPOSITORY_RULE
        ));
    }
    if let Some(given) = plan
        .spec
        .upgrade
        .as_deref()
        .filter(|tag| !tag.is_empty() && !image::is_tag(tag))
    {
        return Err(format!("invalid value {given:?} for spec.upgrade: {}", image::TAG_RULE));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn runs(own: &str, annotation: Option<&str>, tag: Option<&str>) -> String {
        let mut plan = UpgradePlan::new("up", Default::default());
        plan.spec.upgrade = tag.map(str::to_owned);
        let key = annotations::UPGRADE_TOOLKIT_IMAGE.to_owned();
        plan.metadata.annotations = annotation.map(|value| [(key, value.to_owned())].into());
        of(&plan, &Image::parse(own).unwrap()).to_string()
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
            if let Err(why) = checked {
                assert!(why.contains(key) && why.contains("spec.upgrade"), "{why}");
            }
        }
        plan.metadata.annotations = None;
        plan.spec.upgrade = Some("a tag".into());
        assert!(check(&plan).unwrap_err().contains("spec.upgrade"));
    }
}
