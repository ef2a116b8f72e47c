//! All errors of a plan as one API status: 422, with a cause each.

use std::collections::BTreeSet;

use kube::core::{
    Status,
    response::{StatusCause, StatusDetails},
};

use crate::FieldError;

/// Errors that are listed; more are not useful, and the client chooses how many there are.
const MAX_REPORTED: usize = 100;

/// The status that refuses the plan of that name, or nothing when there are no errors.
#[must_use]
pub fn status(name: &str, errors: &[FieldError]) -> Option<Status> {
    if errors.is_empty() {
        return None;
    }
    let message = format!("UpgradePlan.{} {name:?} is invalid: {}", api::GROUP, merged(errors));
    let causes = errors.iter().take(MAX_REPORTED).map(|error| StatusCause {
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
    let mut texts: Vec<String> = texts.filter(|text| seen.insert(text.clone())).collect();
    let more = texts.len().saturating_sub(MAX_REPORTED);
    if more > 0 {
        texts.truncate(MAX_REPORTED);
        texts.push(format!("and {more} more"));
    }
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

    #[test]
    fn s05_of_very_many_errors_the_first_are_reported_and_the_others_counted() {
        let error = |number: usize| FieldError::not_found(&format!("spec.nodeUpgradeOption.pauseNodes[{number}]"), "n");
        let status = status("up", &(0..32_000).map(error).collect::<Vec<_>>()).unwrap();
        assert!(status.message.len() < 20_000 && status.message.contains("pauseNodes[99]"));
        assert!(status.message.ends_with("and 31900 more]"), "{}", status.message);
        assert_eq!(status.details.unwrap().causes.len(), MAX_REPORTED);
    }
}
