//! All errors of a plan as one API status: 422, with a cause each.

use std::collections::BTreeSet;

use kube::core::{
    Status,
    response::{StatusCause, StatusDetails},
};

use crate::FieldError;

/// The status that refuses the plan of that name, or nothing when there are no errors.
#[must_use]
pub fn status(name: &str, errors: &[FieldError]) -> Option<Status> {
    if errors.is_empty() {
        return None;
    }
    let message = format!("UpgradePlan.{} {name:?} is invalid: {}", api::GROUP, merged(errors));
    let causes = errors.iter().map(|error| StatusCause {
        reason: error.type_.reason().to_owned(),
        message: error.body(),
        field: error.field.clone(),
    });
    let details = StatusDetails {
        name: name.to_owned(),
        group: api::GROUP.to_owned(),
        kind: "UpgradePlan".to_owned(),
        causes: causes.collect(),
        uid: String::new(),
        retry_after_seconds: 0,
    };
    Some(
        Status::failure(&message, "Invalid")
            .with_code(422)
            .with_details(details),
    )
}

/// One error as it is, several in brackets, identical texts once.
fn merged(errors: &[FieldError]) -> String {
    let mut seen = BTreeSet::new();
    let texts = errors.iter().map(ToString::to_string);
    let texts: Vec<String> = texts.filter(|text| seen.insert(text.clone())).collect();
    match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_error_stands_alone_and_several_stand_in_brackets() {
        let errors = [
            FieldError::forbidden("spec", "a"),
            FieldError::not_found("spec.version", "v1"),
        ];
        assert_eq!(
            status("up", &errors[..1]).unwrap().message,
            "UpgradePlan.management.harvesterhci.io \"up\" is invalid: spec: Forbidden: a"
        );
        assert_eq!(
            status("up", &errors).unwrap().message,
            "UpgradePlan.management.harvesterhci.io \"up\" is invalid: [spec: Forbidden: a, spec.version: Not found: \"v1\"]"
        );
        assert_eq!(status("up", &[]), None);
    }

    #[test]
    fn identical_texts_are_merged_in_the_message_and_kept_as_causes() {
        let twice = vec![FieldError::not_listed("nodes", "x"); 2];
        let status = status("", &twice).unwrap();
        assert_eq!(
            status.message,
            "UpgradePlan.management.harvesterhci.io \"\" is invalid: []: Internal error: failed to list nodes: x"
        );
        assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
        let causes = status.details.unwrap().causes;
        assert_eq!(causes.len(), 2);
        assert_eq!(causes[0].reason, "InternalError");
        assert_eq!(causes[0].field, "[]");
        assert_eq!(causes[0].message, "Internal error: failed to list nodes: x");
    }
}
