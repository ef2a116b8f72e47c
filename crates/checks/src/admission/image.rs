//! The image that the plan's workloads are to run. Ours: what is no image would show only when the first pod cannot start.

use api::{
    UpgradePlan, annotations,
    image::{self, Fault, Place, Sources},
};

use crate::{Cluster, FieldError};

const ANNOTATION: &str = "metadata.annotations[management.harvesterhci.io/upgrade-toolkit-image]";

pub(super) fn is_one(plan: &UpgradePlan, _: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    Ok(faults(plan))
}

/// Whether the repository of the plan's image is allowed: a manager allows its own repository and those of its flag.
#[must_use]
pub fn not_allowed(old: Option<&UpgradePlan>, new: &UpgradePlan, sources: &Sources) -> Vec<FieldError> {
    let chosen = image::forbidden_repository(new, &sources.own, &sources.others);
    let is_new = |chosen: &&str| old.and_then(image::chosen_repository) != Some(*chosen);
    let error = |chosen| {
        FieldError::invalid(
            ANNOTATION,
            chosen,
            &image::forbidden_text(&sources.own, &sources.others),
        )
    };
    chosen.filter(is_new).map(error).into_iter().collect()
}

/// Errors in values that the plan sets now and did not set before: existing values are not checked again.
pub(super) fn newly_wrong(old: &UpgradePlan, new: &UpgradePlan) -> Vec<FieldError> {
    let of = |plan: &UpgradePlan| plan.annotation(annotations::UPGRADE_TOOLKIT_IMAGE).map(str::to_owned);
    if of(old) == of(new) {
        return Vec::new();
    }
    let faults = image::faults(new).into_iter();
    faults
        .filter(|fault| fault.place == Place::Repository)
        .map(to_field_error)
        .collect()
}

fn faults(plan: &UpgradePlan) -> Vec<FieldError> {
    image::faults(plan).into_iter().map(to_field_error).collect()
}

/// An error of a field.
fn to_field_error(Fault { place, given, rule }: Fault<'_>) -> FieldError {
    let field = match place {
        Place::Repository => ANNOTATION,
        Place::Tag => "spec.upgrade",
    };
    FieldError::invalid(field, given, rule)
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
