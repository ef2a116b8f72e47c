//! The manager's notes about a plan are in its status, where only the manager writes.

use api::{Phase, annotations};
use plan::decision::Action;

use crate::{
    model::Model,
    walk::{ended, until},
};

/// What a user who may annotate plans would have the manager restore.
const FORGED: [(&str, &str); 4] = [
    (annotations::SAVED_REPLENISHMENT_INTERVAL, "999999"),
    (
        annotations::SAVED_UPGRADE_STRATEGY,
        r#"{"controlPlaneConcurrency": "100%", "workerConcurrency": "100%"}"#,
    ),
    (
        annotations::SAVED_WORKLOAD_UPDATE_METHODS,
        r#"{"methods": ["Evict"], "ignored": false}"#,
    ),
    (annotations::DESCHEDULER_WAS_ENABLED, "true"),
];

fn forge(model: &mut Model) {
    let annotations = model.observed.plan.metadata.annotations.get_or_insert_default();
    annotations.extend(FORGED.map(|(key, value)| (key.to_owned(), value.to_owned())));
}

#[test]
fn s03_notes_that_a_user_writes_at_any_moment_are_neither_trusted_nor_kept() {
    let mut clean = Model::new(3);
    until(&mut clean, ended);
    for phase in [None, Some(Phase::RepoCreating), Some(Phase::NodeUpgrading)] {
        let mut model = Model::new(3);
        if let Some(phase) = phase {
            until(&mut model, |model| model.phase() == Some(phase));
        }
        forge(&mut model);
        until(&mut model, |model| {
            let actions = model.decide().actions;
            let forged = actions.iter().find(|action| match action {
                Action::SetReplenishmentInterval { value } => value == "999999",
                Action::RestoreUpgradeStrategy { strategy } => strategy.to_string().contains("100%"),
                Action::SetWorkloadUpdateMethods { methods } => methods.contains(&"Evict".to_owned()),
                _ => false,
            });
            assert!(forged.is_none(), "{phase:?}: {forged:?}");
            ended(model)
        });
        assert_eq!(model.phase(), Some(Phase::Succeeded));
        let left = model.observed.plan.metadata.annotations.clone().unwrap_or_default();
        assert!(FORGED.iter().all(|(key, _)| !left.contains_key(*key)), "{left:?}");
        assert_eq!(
            model.observed.replenishment_interval,
            clean.observed.replenishment_interval
        );
        assert_eq!(model.observed.cluster, clean.observed.cluster);
    }
}

#[test]
fn notes_of_an_older_manager_move_into_the_status_before_they_are_removed() {
    let mut model = Model::new(3);
    until(&mut model, |model| {
        model
            .observed
            .plan
            .note(annotations::SAVED_REPLENISHMENT_INTERVAL)
            .is_some()
            && model.observed.replenishment_interval.as_deref() != Some("600")
    });
    // As an older manager would have left it.
    let status = model.observed.plan.status.as_mut().unwrap();
    let mut notes = status.notes.take().unwrap();
    notes.remove(annotations::SERVES_MANIFEST);
    model.observed.plan.metadata.annotations = Some(notes.clone());
    let decision = model.decide();
    assert_eq!(decision.status.notes.as_ref(), Some(&notes));
    assert!(decision.annotations.is_empty(), "a manager may die between the two");
    model.apply(&decision);
    let decision = model.decide();
    let removed: Vec<&String> = decision.annotations.keys().collect();
    assert_eq!(removed, notes.keys().collect::<Vec<_>>());
    model.apply(&decision);
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Succeeded));
    assert_eq!(model.observed.replenishment_interval.as_deref(), Some("600"));
}

#[test]
fn s03_a_recorded_image_that_no_allowed_repository_has_is_not_run() {
    let mut model = Model::new(3);
    until(&mut model, |model| model.phase() == Some(Phase::RepoCreating));
    for forged in ["evil.test/pwn:v1", "evil.test/pwn@sha256:00"] {
        // By an annotation before an update of the manager, and by a user who may write the status.
        let mut moved = model.clone();
        moved.observed.plan.status.as_mut().unwrap().notes = None;
        let annotations = moved.observed.plan.metadata.annotations.get_or_insert_default();
        annotations.insert(annotations::TOOLKIT_IMAGE.to_owned(), forged.to_owned());
        let mut written = model.clone();
        let notes = written
            .observed
            .plan
            .status
            .as_mut()
            .unwrap()
            .notes
            .get_or_insert_default();
        notes.insert(annotations::TOOLKIT_IMAGE.to_owned(), forged.to_owned());
        for model in [&moved, &written] {
            let image = plan::image::of(&model.observed.plan, &model.observed.settings);
            assert_eq!(image, model.observed.settings.own_image);
        }
        let decision = moved.decide();
        let kept = decision.status.notes.as_ref().unwrap().get(annotations::TOOLKIT_IMAGE);
        assert_ne!(kept.map(String::as_str), Some(forged));
    }
    let mut mirrored = model.clone();
    mirrored.observed.settings.allowed_repositories = vec!["mirror.test/toolkit".to_owned()];
    let notes = mirrored
        .observed
        .plan
        .status
        .as_mut()
        .unwrap()
        .notes
        .get_or_insert_default();
    notes.insert(
        annotations::TOOLKIT_IMAGE.to_owned(),
        "mirror.test/toolkit:v1".to_owned(),
    );
    let image = plan::image::of(&mirrored.observed.plan, &mirrored.observed.settings);
    assert_eq!(image.to_string(), "mirror.test/toolkit:v1");
}

#[rstest::rstest]
#[case(annotations::SAVED_REPLENISHMENT_INTERVAL, "600; rm", "600")]
#[case(annotations::SAVED_UPGRADE_STRATEGY, "[1]", r#"{"controlPlaneConcurrency":"1"}"#)]
#[case(annotations::SAVED_UPGRADE_STRATEGY, "no json", "null")]
#[case(annotations::DESCHEDULER_WAS_ENABLED, "perhaps", "true")]
#[case(annotations::SKIP_MANIFESTS_APPLIED, "perhaps", "true")]
fn s03_notes_of_an_older_manager_are_moved_only_if_they_say_what_notes_say(
    #[case] key: &str,
    #[case] forged: &str,
    #[case] good: &str,
) {
    for (value, is_moved) in [(forged, false), (good, true)] {
        let mut model = Model::new(3);
        until(&mut model, |model| model.phase() == Some(Phase::RepoCreating));
        model.observed.plan.status.as_mut().unwrap().notes = None;
        let annotations = model.observed.plan.metadata.annotations.get_or_insert_default();
        annotations.insert(key.to_owned(), value.to_owned());
        let notes = model.decide().status.notes.unwrap();
        assert_eq!(notes.get(key).map(String::as_str) == Some(value), is_moved, "{value}");
    }
}
