//! Which releases a plan may go to, and what `spec.force` and the annotation of the existing toolkit change about that.

use api::{Phase, annotations, reasons};
use plan::observed::Fetched;
use rstest::rstest;

use crate::{
    model::Model,
    walk::{at, ended, until},
};

/// An upgrade from one version to another, with a minimum.
fn model(from: &str, to: &str, minimum: &str, force: Option<bool>) -> Model {
    let mut model = Model::new(3);
    model.observed.plan.spec.force = force;
    model.observed.server_version = Some(from.into());
    until(&mut model, |model| {
        matches!(model.observed.facts.release, Fetched::Got(_))
    });
    if let Fetched::Got(release) = &mut model.observed.facts.release {
        release.harvester = Some(to.into());
        release.min_upgradable_version = Some(minimum.into());
    }
    model
}

fn progressing(model: &Model) -> String {
    let condition = model.observed.plan.condition(reasons::PROGRESSING);
    condition.map(|condition| condition.message.clone()).unwrap_or_default()
}

const MINIMUM: &str = "current version does not meet minimum upgrade requirement";
const DOWNGRADE: &str = "downgrading is prohibited";
const DEVELOPMENT: &str = "upgrading from dev versions to non-dev versions is prohibited";
const PRE_RELEASE: &str = "cross-version upgrades from/to any prerelease version are prohibited";

#[rstest]
#[case("v1.7.1", "v1.8.0", "v1.7.2", MINIMUM)]
#[case("v1.7.1", "v1.7.0", "", DOWNGRADE)]
#[case("v1.8-head", "v1.8.0", "", DEVELOPMENT)]
#[case("v1.7.2-rc1", "v1.8.0", "v1.7.1", PRE_RELEASE)]
fn a_release_that_may_not_be_gone_to_is_refused_before_anything_is_loaded_unless_that_is_forced(
    #[case] from: &str,
    #[case] to: &str,
    #[case] minimum: &str,
    #[case] why: &str,
    #[values(None, Some(false), Some(true))] force: Option<bool>,
) {
    let mut model = model(from, to, minimum, force);
    until(&mut model, ended);
    if force == Some(true) {
        assert_eq!(model.phase(), Some(Phase::Succeeded));
        return;
    }
    assert_eq!(
        (model.phase(), progressing(&model).as_str()),
        (Some(Phase::Failed), why)
    );
    let status = model.observed.plan.status.clone().unwrap();
    assert!(status.node_upgrade_statuses.is_empty(), "no node was touched");
    let entered = status.phase_transition_timestamps.iter();
    let entered: Vec<&str> = entered.map(|change| change.phase.as_str()).collect();
    assert_eq!(entered.last_chunk(), Some(&["MetadataPopulated", "Failed"]));
}

#[rstest]
#[case("v1.6.1")]
#[case("v1.6.0-rc2")]
#[case("v1.6-head")]
#[case("v1.6-0a1b2c3-head")]
#[case("v1.6.2-dev.20260101")]
#[case("v1.5.0")]
fn r11_a_running_version_that_no_upgrade_starts_from_fails_the_plan_by_name(
    #[case] running: &str,
    #[values(None, Some(true))] force: Option<bool>,
) {
    let mut model = Model::new(3);
    model.observed.plan.spec.force = force;
    model.observed.server_version = Some(running.into());
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed));
    let why = progressing(&model);
    for part in [running, "Setting server-version", "v1.7.0 or newer", annotations::RETRY] {
        assert!(why.contains(part), "{part} is not in: {why}");
    }
    // Once it is upgraded by its own means, the plan can be tried again.
    model.observed.server_version = Some("v1.7.0".into());
    let known = model.observed.plan.metadata.annotations.get_or_insert_default();
    known.insert(annotations::RETRY.to_owned(), "1".to_owned());
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
    assert_eq!(
        model.observed.plan.status.clone().unwrap().previous_version.as_deref(),
        Some("v1.7.0")
    );
}

#[rstest]
#[case("v1.7.0")]
#[case("v1.7.1")]
#[case("v1.7-head")]
#[case("v1.10.0")]
#[case("master-head")]
#[case("0a1b2c3")]
fn r11_upgrades_start_from_the_first_release_of_the_oldest_line_and_from_builds_of_none(#[case] running: &str) {
    let mut model = Model::new(3);
    model.observed.server_version = Some(running.into());
    until(&mut model, at(Phase::Initialized));
    assert_eq!(model.phase(), Some(Phase::Initialized));
}

#[test]
fn force_skips_nothing_else_the_disks_are_looked_at_all_the_same() {
    let mut model = Model::new(3);
    model.observed.plan.spec.force = Some(true);
    until(&mut model, |model| {
        matches!(model.observed.facts.preflight, Fetched::Got(_))
    });
    if let Fetched::Got(facts) = &mut model.observed.facts.preflight {
        for kubelet in facts.kubelets.values_mut() {
            kubelet.used_bytes = kubelet.capacity_bytes;
        }
    }
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed));
    assert!(progressing(&model).contains("storage space"), "{}", progressing(&model));
}

/// A cluster that is newer than the release of its plan.
fn downgrade() -> Model {
    let mut model = Model::new(1);
    model.observed.server_version = Some("v1.9.0".into());
    model
}

fn annotated(value: &str) -> Model {
    let mut model = downgrade();
    let annotations = model.observed.plan.metadata.annotations.get_or_insert_default();
    annotations.insert(annotations::SKIP_VERSION_CHECK.to_owned(), value.to_owned());
    model
}

#[test]
fn f15_the_manager_lets_pass_whom_the_nodes_let_pass() {
    let mut forced = downgrade();
    forced.observed.plan.spec.force = Some(true);
    for mut model in [forced, annotated("true")] {
        until(&mut model, at(Phase::ImagePreloaded));
        assert_eq!(model.phase(), Some(Phase::ImagePreloaded));
    }
    for mut model in [downgrade(), annotated("True")] {
        until(&mut model, ended);
        assert_eq!(model.phase(), Some(Phase::Failed));
    }
}
