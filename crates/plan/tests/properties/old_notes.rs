//! Which notes of an older manager are believed: those that say what it would have said.

use api::annotations;
use plan::draft::Draft;
use rstest::rstest;

use crate::model::Model;

#[rstest]
#[case(annotations::TOOLKIT_IMAGE, "rancher/harvester-upgrade-toolkit:v0", true)]
#[case(annotations::TOOLKIT_IMAGE, "evil.test/pwn:v0", false)]
#[case(annotations::TOOLKIT_IMAGE, "no image", false)]
#[case(annotations::SAVED_REPLENISHMENT_INTERVAL, "600", true)]
#[case(annotations::SAVED_REPLENISHMENT_INTERVAL, "-1", false)]
#[case(annotations::SAVED_REPLENISHMENT_INTERVAL, "soon", false)]
#[case(annotations::SAVED_UPGRADE_STRATEGY, "null", true)]
#[case(annotations::SAVED_UPGRADE_STRATEGY, r#"{"workerConcurrency": "10%"}"#, true)]
#[case(annotations::SAVED_UPGRADE_STRATEGY, "[]", false)]
#[case(annotations::SAVED_UPGRADE_STRATEGY, "{", false)]
#[case(
    annotations::SAVED_CHART_METHODS,
    r#"{"methods": ["LiveMigrate"], "observedGeneration": 7}"#,
    true
)]
#[case(
    annotations::SAVED_CHART_METHODS,
    r#"{"methods": null, "observedGeneration": 7}"#,
    true
)]
#[case(
    annotations::SAVED_CHART_METHODS,
    r#"{"methods": ["Kill"], "observedGeneration": 7}"#,
    false
)]
#[case(
    annotations::SAVED_CHART_METHODS,
    r#"{"methods": "Evict", "observedGeneration": 7}"#,
    false
)]
#[case(annotations::SAVED_CHART_METHODS, "true", false)]
#[case(
    annotations::SAVED_WORKLOAD_UPDATE_METHODS,
    r#"{"methods": ["Evict"], "ignored": false}"#,
    true
)]
#[case(
    annotations::SAVED_WORKLOAD_UPDATE_METHODS,
    r#"{"methods": ["Kill"], "ignored": false}"#,
    false
)]
#[case(annotations::SAVED_WORKLOAD_UPDATE_METHODS, "Evict", false)]
#[case(annotations::TAKEN_OVER, "true", true)]
#[case(annotations::TAKEN_OVER, "yes", false)]
#[case(annotations::DESCHEDULER_WAS_ENABLED, "false", true)]
#[case(annotations::DESCHEDULER_WAS_ENABLED, "1", false)]
#[case(annotations::SKIP_MANIFESTS_APPLIED, "true", true)]
#[case(annotations::SKIP_MANIFESTS_APPLIED, "", false)]
#[case(annotations::RETRIED, "again, please", true)]
#[case(annotations::RETRIED, &"x".repeat(100_000), false)]
fn a_note_is_moved_into_the_status_if_its_manager_could_have_written_it(
    #[case] key: &str,
    #[case] value: &str,
    #[case] believed: bool,
) {
    let mut model = Model::new(1);
    model.observed.settings.own_image.repository = "rancher/harvester-upgrade-toolkit".to_owned();
    model.observed.plan.metadata.annotations = Some([(key.to_owned(), value.to_owned())].into());
    model.observed.plan.status = Some(api::UpgradePlanStatus {
        current_phase: Some("NodeUpgrading".to_owned()),
        ..Default::default()
    });
    let draft = Draft::new(model.now, &model.observed);
    assert_eq!(draft.noted(key), believed.then_some(value));
    assert_eq!(draft.annotation(key), Some(value));
    assert!(
        draft.unchanged().annotations.is_empty(),
        "it stays until the status has it"
    );
}

#[test]
fn what_is_in_the_status_counts_and_the_annotation_goes() {
    let key = annotations::SAVED_REPLENISHMENT_INTERVAL;
    let mut model = Model::new(1);
    model.observed.plan.metadata.annotations = Some([(key.to_owned(), "1".to_owned())].into());
    model.observed.plan.status = Some(api::UpgradePlanStatus {
        notes: Some([(key.to_owned(), "600".to_owned())].into()),
        ..Default::default()
    });
    let draft = Draft::new(model.now, &model.observed);
    assert_eq!(draft.noted(key), Some("600"));
    assert_eq!(draft.unchanged().annotations, [(key.to_owned(), None)].into());
}

#[test]
fn a_note_is_taken_and_forgotten() {
    let model = Model::new(1);
    let mut draft = Draft::new(model.now, &model.observed);
    draft.note("k", Some("v".to_owned()));
    assert_eq!(draft.noted("k"), Some("v"));
    draft.note("k", None);
    assert_eq!(draft.noted("k"), None);
}
