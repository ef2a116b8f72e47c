//! S-07: which release it is, is decided before any node reads from the repository.

use api::{Phase, ReleaseDigests, annotations, reasons, release_digests::NEEDED_FILES};
use plan::{Need, observed::Fetched};
use rstest::rstest;

use crate::{
    model::Model,
    small::{in_phase, status},
    walk::until,
};

const GIVEN: &str = "ab";

fn with_checksum(checksum: &str) -> Model {
    let mut model = Model::new(3);
    if let Some(version) = &mut model.observed.version {
        version.iso_checksum = Some(checksum.to_owned());
    }
    until(&mut model, |model| {
        matches!(model.observed.facts.digests, Fetched::Got(_))
    });
    model
}

fn found(model: &mut Model, sha512: &str) {
    let Fetched::Got(digests) = &mut model.observed.facts.digests else {
        unreachable!()
    };
    sha512.clone_into(&mut digests.iso_sha512);
}

#[test]
fn s07_an_iso_with_another_checksum_than_the_versions_ends_the_upgrade_before_anything_is_changed() {
    let mut model = with_checksum(&GIVEN.repeat(64));
    found(&mut model, &"0".repeat(128));
    let decision = model.decide();
    assert_eq!(decision.status.current_phase.as_deref(), Some("Failed"));
    let why = decision
        .status
        .phase_transition_timestamps
        .last()
        .unwrap()
        .message
        .clone();
    let why = why.unwrap();
    for word in [
        GIVEN,
        "spec.isoChecksum of Version harvester-system/",
        &"0".repeat(128),
        "nothing has been changed",
    ] {
        assert!(why.contains(word), "{why}");
    }
    assert_eq!(decision.status.release_digests, None);
}

#[rstest]
#[case("harvester-release.yaml")]
#[case("bundle/metadata.yaml")]
#[case("rootfs.squashfs")]
fn s07_a_manifest_without_a_file_that_nodes_read_ends_the_upgrade_before_anything_is_changed(#[case] path: &str) {
    let mut model = with_checksum(&GIVEN.repeat(64));
    found(&mut model, &GIVEN.repeat(64));
    let Fetched::Got(digests) = &mut model.observed.facts.digests else {
        unreachable!()
    };
    digests.files.remove(path);
    let decision = model.decide();
    assert_eq!(decision.status.current_phase.as_deref(), Some("Failed"));
    let last = decision.status.phase_transition_timestamps.last().unwrap();
    let why = last.message.clone().unwrap();
    for word in [path, ".manifest", "nothing has been changed", "create another one"] {
        assert!(why.contains(word), "{word}: {why}");
    }
    assert_eq!(decision.status.release_digests, None);
    assert_eq!(decision.actions, []);
}

#[test]
fn s07_digests_are_recorded_before_the_release_is_read_and_before_any_job_is_created() {
    // As people copy it from a web page.
    let mut model = with_checksum(&format!(" {} ", GIVEN.repeat(64).to_uppercase()));
    found(&mut model, &GIVEN.repeat(64));
    let decision = model.decide();
    let recorded = decision.status.release_digests.clone().unwrap();
    assert!(recorded.iso_verified);
    assert!(decision.actions.is_empty() && !decision.needs.contains(&Need::Release));
    model.apply(&decision);
    assert!(model.decide().needs.contains(&Need::Release));
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
    assert_eq!(
        model.observed.plan.status.as_ref().unwrap().release_digests,
        Some(recorded)
    );
}

#[test]
fn s07_without_a_checksum_the_computed_one_is_shown_with_a_warning() {
    let mut model = with_checksum("");
    found(&mut model, &"cd".repeat(64));
    let decision = model.decide();
    assert!(!decision.status.release_digests.clone().unwrap().iso_verified);
    let warned = decision
        .events
        .iter()
        .find(|event| event.reason == reasons::RELEASE_NOT_VERIFIED);
    assert!(warned.unwrap().message.contains(&"cd".repeat(64)), "{warned:?}");
}

#[test]
fn s07_a_plan_that_an_older_manager_began_continues_with_a_warning() {
    let mut model = Model::new(3);
    until(&mut model, |model| model.phase() == Some(Phase::RepoCreated));
    model.observed.repo.serves_manifest = false;
    model.observed.repo.secret = None;
    model.observed.plan.status.as_mut().unwrap().repository = None;
    let notes = model
        .observed
        .plan
        .status
        .as_mut()
        .unwrap()
        .notes
        .get_or_insert_default();
    notes.remove(annotations::SERVES_MANIFEST);
    until(&mut model, |model| model.phase() == Some(Phase::ClusterUpgrading));
    let decision = model.decide();
    assert_eq!(decision.status.release_digests, None);
    let warned = decision
        .events
        .iter()
        .find(|event| event.reason == reasons::RELEASE_NOT_VERIFIED);
    assert!(warned.unwrap().message.contains("older manager"), "{warned:?}");
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
}

#[test]
fn s07_a_client_that_changes_the_deployment_of_the_repository_does_not_turn_verification_off() {
    let mut model = Model::new(3);
    until(&mut model, |model| model.phase() == Some(Phase::RepoCreated));
    // An annotation of the Deployment is all that it takes.
    model.observed.repo.serves_manifest = false;
    until(&mut model, |model| model.phase() == Some(Phase::Failed));
    let status = model.observed.plan.status.as_ref().unwrap();
    let why = status.phase_transition_timestamps.last().unwrap().message.clone();
    assert!(why.as_ref().unwrap().contains("a client changed it"), "{why:?}");
    assert!(model.observed.jobs.is_empty(), "no node has read from it");
}

#[test]
fn s07_another_release_than_the_recorded_one_is_refused_by_every_try() {
    let mut model = with_checksum("");
    until(&mut model, |model| model.phase() == Some(Phase::MetadataPopulated));
    // The manager has forgotten what it knew of the previous attempt, and another server claims to serve the same ISO.
    model.observed.facts.digests = Fetched::Unknown;
    until(&mut model, |model| {
        matches!(model.observed.facts.digests, Fetched::Got(_))
    });
    let before = model.observed.plan.status.as_ref().unwrap().release_digests.clone();
    let Fetched::Got(digests) = &mut model.observed.facts.digests else {
        unreachable!()
    };
    "ef".repeat(32).clone_into(&mut digests.manifest);
    let decision = model.decide();
    assert_eq!(decision.status.current_phase.as_deref(), Some("Failed"));
    let history = &decision.status.phase_transition_timestamps;
    let why = history.last().unwrap().message.clone().unwrap();
    assert!(
        why.contains("status.releaseDigests") && why.contains(&"ef".repeat(32)),
        "{why}"
    );
    assert_eq!(decision.status.release_digests, before);
}

/// The word is that of RepoCreate, the deadline is not.
#[test]
fn a_repository_that_is_gone_while_the_release_is_read_is_waited_for_as_long_as_the_reading_may_take() {
    let mut model = Model::new(3);
    until(&mut model, |model| model.phase() == Some(Phase::MetadataPopulating));
    model.observed.settings.deadlines.metadata = std::time::Duration::from_mins(7);
    model.observed.repo.deployment_ready = None;
    let decision = model.decide();
    let mut waits = decision.status.waiting_for.iter();
    let wait = waits.find(|wait| wait.what == "Repository").unwrap();
    let deadline = wait.deadline.as_ref().unwrap().0;
    assert_eq!(deadline.duration_since(wait.since.0).as_mins(), 7);
}

#[test]
fn the_digest_of_the_manifest_stands_for_its_files() {
    let mut model = in_phase(Phase::MetadataPopulating);
    let found = ReleaseDigests {
        manifest: "ab".repeat(32),
        iso_sha512: "cd".repeat(64),
        iso_size: 7,
        files: NEEDED_FILES.map(|path| (path.to_owned(), "ef".repeat(32))).into(),
        ..ReleaseDigests::default()
    };
    model.observed.repo.serves_manifest = true;
    model.observed.facts.digests = Fetched::Got(found.clone());
    let recorded = |change: fn(&mut ReleaseDigests)| {
        let mut model = model.clone();
        let mut digests = found.clone();
        change(&mut digests);
        status(&mut model).release_digests = Some(digests);
        model.decide().status.current_phase
    };
    assert_eq!(recorded(|_| ()).as_deref(), Some("MetadataPopulating"));
    assert_eq!(
        recorded(|digests| digests.files.clear()).as_deref(),
        Some("MetadataPopulating"),
        "which of them are shown is another matter"
    );
    assert_eq!(recorded(|digests| digests.manifest.clear()).as_deref(), Some("Failed"));
    assert_eq!(recorded(|digests| digests.iso_size = 8).as_deref(), Some("Failed"));
}
