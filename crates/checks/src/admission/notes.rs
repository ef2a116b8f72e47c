//! The manager's notes: its status, and annotations that older managers trusted. No other client writes them. And what of
//! a plan is copied into them.

use api::{
    UpgradePlan,
    annotations::{NOTES, RETRY},
};

use crate::FieldError;

/// Records that a user writes on a plan. Removing one is allowed: that is how the manager moves its own.
#[must_use]
pub fn refused(old: Option<&UpgradePlan>, new: &UpgradePlan) -> Vec<FieldError> {
    let written = NOTES.into_iter().filter(|key| {
        let now = new.annotation(key);
        now.is_some() && now != old.and_then(|old| old.annotation(key))
    });
    let why = "only the manager writes these records, and keeps them in status.notes; remove the annotation";
    written
        .map(|key| FieldError::forbidden(&format!("metadata.annotations[{key}]"), why))
        .collect()
}

/// Status changes of other users than the manager: the manager trusts the status.
#[must_use]
pub fn status_refused(old: &UpgradePlan, new: &UpgradePlan) -> Vec<FieldError> {
    let why = "only the manager writes the status of an UpgradePlan; to start over, set the annotation \
               management.harvesterhci.io/retry or create another plan";
    let is_changed = old.status != new.status;
    is_changed
        .then(|| FieldError::forbidden("status", why))
        .into_iter()
        .collect()
}

/// The most characters that a value of [`RETRY`] may have: it goes into the status.
const LONGEST_RETRY: usize = 253;

/// A value of [`RETRY`] that is new and too long to be copied into the status.
#[must_use]
pub fn too_long(old: Option<&UpgradePlan>, new: &UpgradePlan) -> Option<FieldError> {
    let value = new.annotation(RETRY)?;
    let is_new = Some(value) != old.and_then(|old| old.annotation(RETRY));
    let why = format!("must be no more than {LONGEST_RETRY} characters: use any value that differs from the last one");
    let given = || value.chars().take(LONGEST_RETRY).collect::<String>();
    (is_new && value.chars().count() > LONGEST_RETRY)
        .then(|| FieldError::invalid(&format!("metadata.annotations[{RETRY}]"), &given(), &why))
}

#[cfg(test)]
mod tests {
    use api::annotations;

    use super::*;

    fn plan(notes: &[(&str, &str)]) -> UpgradePlan {
        let mut plan = UpgradePlan::new("up", Default::default());
        plan.metadata.annotations = Some(
            notes
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()))
                .collect(),
        );
        plan
    }

    #[test]
    fn s03_a_note_of_the_managers_is_refused_from_any_user_and_may_be_removed() {
        let forged = plan(&[(annotations::SAVED_REPLENISHMENT_INTERVAL, "999999")]);
        let text = refused(None, &forged)[0].to_string();
        assert!(text.contains(annotations::SAVED_REPLENISHMENT_INTERVAL), "{text}");
        assert_eq!(refused(Some(&plan(&[])), &forged).len(), 1);
        assert!(refused(Some(&forged), &forged).is_empty());
        assert!(refused(Some(&forged), &plan(&[])).is_empty());
        assert!(refused(None, &plan(&[(annotations::RETRY, "1")])).is_empty());
    }

    #[test]
    fn s03_a_retry_is_requested_in_a_few_words() {
        let long = plan(&[(annotations::RETRY, &"x".repeat(254))]);
        let text = too_long(None, &long).unwrap().to_string();
        assert!(text.contains(annotations::RETRY) && text.contains("253"), "{text}");
        assert!(text.len() < 1_000, "{text}");
        assert!(too_long(Some(&plan(&[])), &long).is_some());
        assert!(
            too_long(Some(&long), &long).is_none(),
            "existing values block no update"
        );
        assert!(too_long(None, &plan(&[(annotations::RETRY, &"ü".repeat(253))])).is_none());
    }

    #[test]
    fn s03_a_status_is_refused_where_it_changes_anything() {
        let mut forged = plan(&[]);
        forged.status = Some(api::UpgradePlanStatus {
            current_phase: Some("Succeeded".into()),
            ..Default::default()
        });
        let text = status_refused(&plan(&[]), &forged)[0].to_string();
        assert!(text.contains("only the manager") && text.contains("retry"), "{text}");
        assert!(status_refused(&forged, &forged).is_empty());
        assert_eq!(status_refused(&forged, &plan(&[])).len(), 1);
    }
}
