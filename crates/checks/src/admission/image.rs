//! The image that the plan's workloads are to run. Ours: what is no image would show only when the first pod cannot start.

use api::{UpgradePlan, annotations, image};

use crate::{Cluster, FieldError};

const ANNOTATION: &str = "metadata.annotations[management.harvesterhci.io/upgrade-toolkit-image]";

pub(super) fn is_one(plan: &UpgradePlan, _: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    Ok(faults(plan))
}

/// What is wrong with what the plan says now and did not say before: what is there already stands in nobody's way.
pub(super) fn newly_wrong(old: &UpgradePlan, new: &UpgradePlan) -> Vec<FieldError> {
    let of = |plan: &UpgradePlan| plan.annotation(annotations::UPGRADE_TOOLKIT_IMAGE).map(str::to_owned);
    if of(old) == of(new) {
        return Vec::new();
    }
    repository(new).into_iter().collect()
}

fn faults(plan: &UpgradePlan) -> Vec<FieldError> {
    let tag = plan
        .spec
        .upgrade
        .as_deref()
        .filter(|tag| !tag.is_empty() && !image::is_tag(tag));
    let tag = tag.map(|tag| FieldError::invalid("spec.upgrade", tag, image::TAG_RULE));
    repository(plan).into_iter().chain(tag).collect()
}

fn repository(plan: &UpgradePlan) -> Option<FieldError> {
    let given = plan.annotation(annotations::UPGRADE_TOOLKIT_IMAGE)?;
    let is_fine = given.is_empty() || image::is_repository(given);
    (!is_fine).then(|| FieldError::invalid(ANNOTATION, given, image::REPOSITORY_RULE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(repository: &str) -> UpgradePlan {
        let mut plan = UpgradePlan::new("up", Default::default());
        let key = annotations::UPGRADE_TOOLKIT_IMAGE.to_owned();
        plan.metadata.annotations = Some([(key, repository.to_owned())].into());
        plan
    }

    #[test]
    fn r37_an_image_with_a_tag_or_nonsense_is_refused_by_the_name_of_its_annotation() {
        for fine in ["", "me/mine", "registry.test:5000/me/mine"] {
            assert!(faults(&plan(fine)).is_empty(), "{fine}");
        }
        for wrong in [
            "me/mine:v3",
            "me/mine@sha256:00",
            "https://registry.test/me",
            "Me/Mine",
            "a b",
        ] {
            let body = faults(&plan(wrong))[0].to_string();
            assert!(body.contains(annotations::UPGRADE_TOOLKIT_IMAGE), "{body}");
            assert!(
                body.contains(wrong) && body.contains("spec.upgrade holds the tag"),
                "{body}"
            );
        }
    }

    #[test]
    fn r37_a_change_to_nonsense_is_refused_and_a_change_of_anything_else_is_not() {
        assert_eq!(newly_wrong(&plan("me/mine"), &plan("me/mine:v3")).len(), 1);
        assert!(newly_wrong(&plan("me/mine:v3"), &plan("me/mine:v3")).is_empty());
        assert!(newly_wrong(&plan("me/mine:v3"), &plan("me/mine")).is_empty());
    }
}
