//! Options of a plan that are annotations: a value that is not understood is refused by name, with those that are, instead of
//! being ignored in silence.

use api::{
    UpgradePlan,
    annotations::{
        ALLOW_DELETION, MIN_CERTS_EXPIRATION_IN_DAY, REPO_SERVER, SKIP_DATA_CHECKS, SKIP_GC_THRESHOLD_CHECK,
        SKIP_SINGLE_REPLICA_DETACHED_VOL, SKIP_VERSION_CHECK, SKIP_WEBHOOK,
    },
};

use crate::FieldError;

/// The longest value that is repeated in a message.
const SHOWN: usize = 64;

/// An annotation, whether a plan's value of it is understood, and what is.
type Rule = (&'static str, fn(&UpgradePlan, &str) -> bool, &'static str);

const RULES: [Rule; 8] = [
    (SKIP_WEBHOOK, is_bool, BOOL),
    (SKIP_DATA_CHECKS, is_bool, BOOL),
    (SKIP_SINGLE_REPLICA_DETACHED_VOL, is_bool, BOOL),
    (SKIP_VERSION_CHECK, is_bool, BOOL),
    (ALLOW_DELETION, is_bool, BOOL),
    (
        SKIP_GC_THRESHOLD_CHECK,
        |plan, _| plan.skips_disk_space().is_some(),
        BOOL,
    ),
    (
        MIN_CERTS_EXPIRATION_IN_DAY,
        |plan, _| plan.certificate_days().is_some_and(|days| days >= 0),
        "must be a number of days, 0 or more",
    ),
    (
        REPO_SERVER,
        |_, value| matches!(value, "toolkit" | "nginx"),
        "must be \"toolkit\" or \"nginx\"",
    ),
];

const BOOL: &str = "must be \"true\" or \"false\"";

fn is_bool(_: &UpgradePlan, value: &str) -> bool {
    matches!(value, "true" | "false")
}

/// Values that a user newly sets and that are not understood. A value that is there already never blocks another change.
#[must_use]
pub fn not_understood(old: Option<&UpgradePlan>, new: &UpgradePlan) -> Vec<FieldError> {
    let wrong = RULES.iter().filter_map(|(key, is_understood, allowed)| {
        let value = new.annotation(key)?;
        let is_new = Some(value) != old.and_then(|old| old.annotation(key));
        (is_new && !is_understood(new, value)).then(|| {
            let shown: String = value.chars().take(SHOWN).collect();
            FieldError::invalid(&format!("metadata.annotations[{key}]"), &shown, allowed)
        })
    });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn plan(key: &str, value: &str) -> UpgradePlan {
        let mut plan = UpgradePlan::new("up", Default::default());
        plan.metadata.annotations = Some([(key.to_owned(), value.to_owned())].into());
        plan
    }

    #[rstest]
    #[case(SKIP_WEBHOOK, "yes", "true")]
    #[case(SKIP_DATA_CHECKS, "True", "false")]
    #[case(SKIP_SINGLE_REPLICA_DETACHED_VOL, "1", "true")]
    #[case(SKIP_VERSION_CHECK, "", "true")]
    #[case(ALLOW_DELETION, "ja", "true")]
    #[case(SKIP_GC_THRESHOLD_CHECK, "notabool", "T")]
    #[case(MIN_CERTS_EXPIRATION_IN_DAY, "soon", "30")]
    #[case(MIN_CERTS_EXPIRATION_IN_DAY, "-3", "0")]
    #[case(REPO_SERVER, "apache", "nginx")]
    fn u10_a_value_that_is_not_understood_is_refused_by_name(
        #[case] key: &str,
        #[case] wrong: &str,
        #[case] right: &str,
    ) {
        let refused = not_understood(None, &plan(key, wrong));
        let text = refused.first().map(ToString::to_string).unwrap_or_default();
        assert!(text.contains(key) && text.contains("must be "), "{text}");
        assert_eq!(not_understood(None, &plan(key, right)), []);
        let without = UpgradePlan::new("up", Default::default());
        assert_eq!(not_understood(Some(&without), &plan(key, wrong)).len(), 1);
        assert_eq!(
            not_understood(Some(&plan(key, wrong)), &plan(key, wrong)),
            [],
            "it is there already"
        );
    }
}
