//! Nonsense from users and files never ends in a panic, and says what is wrong.

use std::collections::BTreeMap;

use api::{Phase, annotations};
use plan::preflight;
use proptest::prelude::*;
use rules::{stale_images, version};

use crate::{cases, follow, model::Model};

/// Every annotation of a plan, of users and of ours.
const KEYS: [&str; 17] = [
    annotations::SKIP_WEBHOOK,
    annotations::SKIP_SINGLE_REPLICA_DETACHED_VOL,
    annotations::ALLOW_DELETION,
    annotations::SKIP_GC_THRESHOLD_CHECK,
    annotations::MIN_CERTS_EXPIRATION_IN_DAY,
    annotations::SKIP_VERSION_CHECK,
    annotations::UPGRADE_TOOLKIT_IMAGE,
    annotations::REPO_SERVER,
    annotations::SKIP_VOLUMES,
    annotations::RETRY,
    annotations::RETRIED,
    annotations::TAKEN_OVER,
    annotations::SAVED_REPLENISHMENT_INTERVAL,
    annotations::DESCHEDULER_WAS_ENABLED,
    annotations::SAVED_UPGRADE_STRATEGY,
    annotations::SAVED_WORKLOAD_UPDATE_METHODS,
    annotations::SKIP_MANIFESTS_APPLIED,
];

fn values() -> impl Strategy<Value = BTreeMap<String, String>> {
    let value = prop_oneof![
        any::<String>(),
        "true|false|-?[0-9]{1,20}|null|\\{\\}|\\[\\]|[0-9]+[dhms]|toolkit|nginx|[a-z]{1,5}/[a-z]{1,5}(:[a-z]{1,3})?"
    ];
    proptest::collection::btree_map(
        proptest::sample::select(KEYS.to_vec()).prop_map(str::to_owned),
        value,
        0..6,
    )
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn an_upgrade_ends_whatever_its_annotations_say(values in values(), choices in proptest::collection::vec(any::<u8>(), 1..60)) {
        let mut model = Model::new(2);
        model.observed.plan.metadata.annotations = Some(values.clone());
        let ended = follow(model, &choices, |_, _| ());
        if ended.phase() == Some(Phase::Failed) {
            let status = ended.observed.plan.status.clone().unwrap_or_default();
            let said = status.conditions.iter().map(|condition| condition.message.as_str()).collect::<Vec<_>>().join(" ");
            let overrides = [
                annotations::SKIP_GC_THRESHOLD_CHECK,
                annotations::MIN_CERTS_EXPIRATION_IN_DAY,
                annotations::REPO_SERVER,
                annotations::UPGRADE_TOOLKIT_IMAGE,
            ];
            let named = overrides.iter().any(|key| said.contains(key)) || said.contains("certificates");
            prop_assert!(named, "{values:?}: {said}");
        }
    }

    #[test]
    fn a_bad_override_names_its_annotation(value in any::<String>()) {
        let mut plan = api::UpgradePlan::new("up", Default::default());
        let key = annotations::SKIP_GC_THRESHOLD_CHECK;
        plan.metadata.annotations = Some([(key.to_owned(), value)].into());
        if let Err(error) = preflight::skips_disk_space(&plan) {
            let message = error.to_string();
            prop_assert!(message.contains(key), "{message}");
        }
    }

    #[test]
    fn any_three_versions_are_eligible_or_not_with_a_reason(
        current in any::<String>(), target in any::<String>(), minimum in any::<String>(), strict in any::<bool>()
    ) {
        if let Err(why) = version::check(&current, &target, &minimum, strict) {
            prop_assert!(!why.to_string().is_empty());
        }
    }

    #[test]
    fn only_images_that_were_listed_before_and_are_no_more_go(
        previous in proptest::collection::vec("[a-z/:]{0,4}", 0..20), current in proptest::collection::vec("[a-z/:]{0,4}", 0..20)
    ) {
        for image in stale_images::stale(&previous, &current) {
            prop_assert!(previous.contains(&image) && !current.contains(&image));
        }
    }
}
