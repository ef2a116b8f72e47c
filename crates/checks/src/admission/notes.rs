//! The manager's notes: annotations that managers before this one believed. Nobody else writes them.

use api::{UpgradePlan, annotations::NOTES};

use crate::FieldError;

/// Notes that somebody writes on a plan. Removing one is allowed: that is how the manager moves its own.
#[must_use]
pub fn refused(old: Option<&UpgradePlan>, new: &UpgradePlan) -> Vec<FieldError> {
    let written = NOTES.into_iter().filter(|key| {
        let now = new.annotation(key);
        now.is_some() && now != old.and_then(|old| old.annotation(key))
    });
    let why = "only the manager takes notes, and keeps them in status.notes; leave the annotation out";
    written
        .map(|key| FieldError::forbidden(&format!("metadata.annotations[{key}]"), why))
        .collect()
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
    fn s03_a_note_of_the_managers_is_refused_from_anybody_and_may_be_removed() {
        let forged = plan(&[(annotations::SAVED_REPLENISHMENT_INTERVAL, "999999")]);
        let text = refused(None, &forged)[0].to_string();
        assert!(text.contains(annotations::SAVED_REPLENISHMENT_INTERVAL), "{text}");
        assert_eq!(refused(Some(&plan(&[])), &forged).len(), 1);
        assert!(refused(Some(&forged), &forged).is_empty());
        assert!(refused(Some(&forged), &plan(&[])).is_empty());
        assert!(refused(None, &plan(&[(annotations::RETRY, "1")])).is_empty());
    }
}
