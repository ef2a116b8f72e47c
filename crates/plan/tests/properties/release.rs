//! Loading, recording, serving and removing what a release brings.

use api::{Component, ImagePreloadOption, NodeState, Phase, ReleaseDigests, RepositoryAccess, annotations, reasons};
use plan::{
    Action, Child, Decision, Need,
    decision::ChildKind,
    observed::{Fetched, ImageLists, JobOutcome, ObservedJob, ObservedPod, ObservedSucPlan, TerminationMessage},
    phase::release_digests::{is_sha512, missing_file},
};
use rstest::rstest;

use crate::{
    model::Model,
    small::{failed, in_phase, progressing, reached, status, waits, waits_for, with_nodes},
};

fn phase(decision: &Decision) -> &str {
    decision.status.current_phase.as_deref().unwrap_or_default()
}

#[rstest]
#[case(&"ab".repeat(64), true)]
#[case(&"AB".repeat(64), true)]
#[case(&"ab".repeat(63), false)]
#[case(&"ab".repeat(65), false)]
#[case(&"zz".repeat(64), false)]
#[case("", false)]
fn a_sha512_has_128_hexadecimal_digits(#[case] text: &str, #[case] expected: bool) {
    assert_eq!(is_sha512(text), expected);
}

#[test]
fn a_manifest_without_a_file_that_nodes_read_is_none() {
    let mut digests = ReleaseDigests::default();
    assert!(missing_file(&digests).is_some());
    let needed = api::release_digests::NEEDED_FILES;
    digests.files = needed.map(|path| (path.to_owned(), String::new())).into();
    assert_eq!(missing_file(&digests), None);
    digests.files.remove(needed[0]);
    assert_eq!(missing_file(&digests), Some(needed[0]));
}

/// A plan whose preload Plan is there, with a Job on node-1.
fn preloading(plan: ObservedSucPlan, outcome: JobOutcome) -> Model {
    let mut model = in_phase(Phase::ImagePreloading);
    let uid = plan.uid.clone();
    model.observed.suc_plans.insert(Component::ImagePreload, plan);
    let job = ObservedJob {
        uid: Some("job".to_owned()),
        owner: uid,
        namespace: "cattle-system".to_owned(),
        component: Component::ImagePreload,
        node: Some("node-1".to_owned()),
        outcome,
        ..ObservedJob::of(Component::NodeUpgrade)
    };
    model.observed.jobs.insert("cattle-system/apply-1".to_owned(), job);
    model
}

fn suc(complete: bool, job_failed: bool) -> ObservedSucPlan {
    ObservedSucPlan {
        uid: Some("suc".to_owned()),
        complete,
        job_failed,
        deleting: false,
    }
}

#[rstest]
#[case(JobOutcome::Running, NodeState::ImagePreloading)]
#[case(JobOutcome::Complete, NodeState::ImagePreloaded)]
#[case(failed(), NodeState::ImagePreloadFailed)]
fn a_job_of_the_preload_says_how_far_its_node_is(#[case] outcome: JobOutcome, #[case] expected: NodeState) {
    let decision = preloading(suc(false, false), outcome).decide();
    assert_eq!(reached(&decision, "node-1").0, Some(expected));
    assert_eq!(reached(&decision, "node-2").0, None);
}

#[test]
fn a_complete_plan_has_served_every_node_and_a_running_one_has_not() {
    let done = preloading(suc(true, false), JobOutcome::Complete).decide();
    assert_eq!(phase(&done), "ImagePreloaded");
    assert_eq!(reached(&done, "node-3").0, Some(NodeState::ImagePreloaded));
    let running = preloading(suc(false, false), JobOutcome::Running).decide();
    assert_eq!(
        (phase(&running), waits_for(&running)),
        ("ImagePreloading", vec!["ImagePreload"])
    );
    assert_eq!(reached(&running, "node-3").0, None);
}

#[test]
fn a_job_that_failed_ends_the_plan_with_what_its_last_pod_said() {
    let mut model = preloading(suc(false, true), failed());
    let known = "image-preload plan job(s) failed: node-1: it broke";
    assert_eq!(progressing(&model.decide()), known);
    let pod = |second: i64, text: &str, owner: &str| ObservedPod {
        owner: Some(owner.to_owned()),
        termination_message: Some(TerminationMessage {
            at: jiff::Timestamp::from_second(second).unwrap(),
            text: text.to_owned(),
        }),
        ..ObservedPod::of(Component::NodeUpgrade)
    };
    model.observed.pods.insert("c".to_owned(), pod(9, "not mine", "other"));
    assert_eq!(progressing(&model.decide()), known);
    model.observed.pods.insert("a".to_owned(), pod(2, "disk full", "job"));
    model.observed.pods.insert("b".to_owned(), pod(1, "before", "job"));
    let said = "image-preload plan job(s) failed: node-1: \"disk full\"";
    assert_eq!(progressing(&model.decide()), said);
    let job = model.observed.jobs.get_mut("cattle-system/apply-1").unwrap();
    job.owner = Some("another plan of its name".to_owned());
    assert_eq!(
        waits_for(&model.decide()),
        ["FailedJob"],
        "the Job that failed has not shown yet"
    );
    let job = model.observed.jobs.get_mut("cattle-system/apply-1").unwrap();
    (job.owner, job.left_over) = (Some("suc".to_owned()), true);
    assert_eq!(
        waits_for(&model.decide()),
        ["FailedJob"],
        "nor is it one that is left over"
    );
    let decision = model.decide();
    model.apply(&decision);
    model.now += model.observed.settings.deadlines.setting;
    assert_eq!(progressing(&model.decide()), "image-preload plan job(s) failed");
}

#[rstest]
#[case(2, "ImagePreloading")]
#[case(3, "Failed")]
#[case(4, "Failed")]
fn three_failed_pods_are_enough_to_know(#[case] pods: u32, #[case] expected: &str) {
    let mut model = preloading(suc(false, false), JobOutcome::Running);
    model
        .observed
        .jobs
        .get_mut("cattle-system/apply-1")
        .unwrap()
        .failed_pods = pods;
    let decision = model.decide();
    assert_eq!(phase(&decision), expected);
    let failed = format!("image-preload plan job(s) failed: node-1: {pods} pods of its Job have failed");
    assert_eq!(progressing(&decision) == failed, expected == "Failed");
}

#[rstest]
#[case(None, 3, 60)]
#[case(Some(0), 3, 60)]
#[case(Some(1), 1, 180)]
#[case(Some(2), 2, 120)]
#[case(Some(9), 3, 60)]
fn nodes_load_their_images_in_waves_and_each_wave_has_its_time(
    #[case] asked: Option<i64>,
    #[case] concurrency: i64,
    #[case] minutes: i64,
) {
    let mut model = in_phase(Phase::ImagePreloading);
    model.observed.plan.spec.image_preload_option = Some(ImagePreloadOption { concurrency: asked });
    let decision = model.decide();
    let created = decision.actions.iter().find_map(|action| match action {
        Action::Create(Child::SucPlan { concurrency, .. }) => Some(*concurrency),
        _ => None,
    });
    assert_eq!(created, Some(concurrency));
    let deadline = decision.status.waiting_for[0].deadline.clone().unwrap().0;
    assert_eq!(deadline.duration_since(model.now).as_mins(), minutes);
}

#[test]
fn a_preload_that_is_skipped_is_removed_and_then_nodes_show_that_they_can_run_the_image() {
    let skip = |mut model: Model| {
        model.observed.plan.spec.image_preload_option = Some(ImagePreloadOption { concurrency: Some(-1) });
        model
    };
    let running = skip(preloading(suc(false, false), JobOutcome::Running)).decide();
    let delete = Action::Delete {
        kind: ChildKind::SucPlan,
        component: Component::ImagePreload,
        job_type: None,
    };
    assert_eq!(running.actions, [delete]);
    let mut model = skip(preloading(suc(false, false), JobOutcome::Running));
    model.observed.suc_plans.clear();
    let left = model.decide();
    assert!(
        left.actions.is_empty() && waits(&left)[0].contains("its Jobs are being removed"),
        "{:?}",
        waits(&left)
    );
    model.observed.jobs.get_mut("cattle-system/apply-1").unwrap().outcome = JobOutcome::Complete;
    let checked = model.decide();
    assert_eq!(waits_for(&checked), ["ToolkitImage"]);
    assert_eq!(reached(&checked, "node-1").0, None);
    let job = model.observed.jobs.get_mut("cattle-system/apply-1").unwrap();
    (job.outcome, job.component) = (JobOutcome::Running, Component::ClusterUpgrade);
    assert_eq!(
        waits_for(&model.decide()),
        ["ToolkitImage"],
        "a Job of another part is not in the way"
    );
    model.observed.suc_plans.insert(Component::ImageCheck, suc(true, false));
    let done = model.decide();
    assert_eq!(
        (phase(&done), reached(&done, "node-3").0),
        ("ImagePreloaded", Some(NodeState::ImagePreloaded))
    );
}

#[test]
fn stale_images_are_removed_where_there_are_any() {
    let mut model = in_phase(Phase::CleaningUp);
    let decision = model.decide();
    assert_eq!(
        (decision.needs.as_slice(), waits_for(&decision)),
        ([Need::ImageLists].as_slice(), vec!["ImageLists"])
    );
    assert!(waits(&decision)[0].contains("/bundle/harvester/images-lists-archive"));
    let lists = |previous: &[&str], current: Option<&[&str]>| {
        let list = |images: &[&str]| images.iter().map(|image| (*image).to_owned()).collect();
        let (previous, current) = (Some(list(previous)), current.map(list));
        Fetched::Got(ImageLists { previous, current })
    };
    model.observed.facts.image_lists = lists(&["a:1"], None);
    let skipped = model.decide();
    assert_eq!(
        (phase(&skipped), skipped.events[0].reason.as_str()),
        ("CleanedUp", reasons::IMAGE_CLEANUP_SKIPPED)
    );
    model.observed.facts.image_lists = lists(&["a:1"], Some(&["a:1"]));
    assert_eq!(phase(&model.decide()), "CleanedUp");
    model.observed.facts.image_lists = lists(&["a:1", "b:1"], Some(&["a:1"]));
    let decision = model.decide();
    let create = Action::Create(Child::SucPlan {
        plan: api::NodePlan::ImageCleanup,
        concurrency: 1,
        images: vec!["b:1".to_owned()],
    });
    assert_eq!(
        (phase(&decision), decision.actions.contains(&create)),
        ("CleaningUp", true)
    );
    model
        .observed
        .suc_plans
        .insert(Component::ImageCleanup, suc(false, false));
    let running = model.decide();
    assert_eq!((phase(&running), reached(&running, "node-1").0), ("CleaningUp", None));
    model
        .observed
        .suc_plans
        .insert(Component::ImageCleanup, suc(true, false));
    let done = model.decide();
    assert_eq!(
        (phase(&done), reached(&done, "node-1").0),
        ("CleanedUp", Some(NodeState::ImageCleaned))
    );
    let mut unknown = in_phase(Phase::CleaningUp);
    status(&mut unknown).previous_version = None;
    assert_eq!(
        phase(&unknown.decide()),
        "CleanedUp",
        "nobody knows what was there before"
    );
}

fn made(decision: &Decision) -> Vec<&str> {
    let made = decision.actions.iter().filter_map(|action| match action {
        Action::Create(Child::IsoImage { .. }) => Some("image"),
        Action::Create(Child::RepoSecret { .. }) => Some("secret"),
        Action::Create(Child::RepoDeployment { .. }) => Some("deployment"),
        Action::Create(Child::RepoService) => Some("service"),
        Action::Delete { .. } => Some("delete"),
        _ => None,
    });
    made.collect()
}

/// A world without a repository, in which a certificate is at hand.
fn without_repository(nodes: usize, phase: Phase) -> Model {
    let mut model = with_nodes(nodes, phase);
    model.observed.repo = Default::default();
    model.observed.facts.repo_certificate = Fetched::Got(RepositoryAccess {
        secret: "s".to_owned(),
        certificate: "c".to_owned(),
        in_use: false,
    });
    model
}

#[rstest]
#[case(Phase::RepoCreating)]
#[case(Phase::MetadataPopulating)]
#[case(Phase::ClusterUpgrading)]
fn what_is_missing_of_the_repository_is_made_once(#[case] phase: Phase) {
    let model = without_repository(3, phase);
    let decision = model.decide();
    assert_eq!(made(&decision), ["secret", "deployment", "service"]);
    let notes = decision.status.notes.unwrap_or_default();
    assert_eq!(
        notes.get(annotations::SERVES_MANIFEST).map(String::as_str),
        Some("true")
    );
    let mut waiting = model.clone();
    waiting.observed.facts.repo_certificate = Fetched::Unknown;
    assert_eq!(made(&waiting.decide()), [""; 0], "first the certificate");
    assert!(waits_for(&waiting.decide()).contains(&"RepositoryCertificate"));
    let mut no_hosts = model;
    no_hosts
        .observed
        .nodes
        .values_mut()
        .for_each(|node| node.witness = true);
    assert_eq!(made(&no_hosts.decide()), [""; 0]);
    no_hosts
        .observed
        .nodes
        .values_mut()
        .for_each(|node| (node.witness, node.managed) = (false, false));
    assert_eq!(made(&no_hosts.decide()), [""; 0]);
}

#[rstest]
#[case::no_image(None, None, true)]
#[case::of_the_user(None, Some("mine"), false)]
#[case::there(Some(()), None, false)]
fn the_iso_is_imported_again_where_it_is_gone(
    #[case] image: Option<()>,
    #[case] given: Option<&str>,
    #[case] expected: bool,
) {
    let mut model = in_phase(Phase::MetadataPopulating);
    model.observed.iso_image = model.observed.iso_image.filter(|_| image.is_some());
    model.observed.plan.spec.image = given.map(str::to_owned);
    assert_eq!(made(&model.decide()).contains(&"image"), expected);
}

#[rstest]
#[case(3, 0, 2)]
#[case(2, 1, 1)]
#[case(1, 0, 1)]
fn the_repository_has_two_pods_where_two_nodes_can_run_them(
    #[case] nodes: usize,
    #[case] witnesses: usize,
    #[case] pods: i32,
) {
    let mut model = without_repository(nodes, Phase::RepoCreating);
    model
        .observed
        .nodes
        .values_mut()
        .take(witnesses)
        .for_each(|node| node.witness = true);
    let replicas = model.decide().actions.iter().find_map(|action| match action {
        Action::Create(Child::RepoDeployment { replicas, .. }) => Some(*replicas),
        _ => None,
    });
    assert_eq!(replicas, Some(pods));
}

#[test]
fn a_service_is_made_for_a_repository_that_is_there() {
    let mut model = in_phase(Phase::RepoCreating);
    model.observed.repo.service_ready = None;
    assert_eq!(made(&model.decide()), ["service"]);
    model.observed.repo.service_ready = Some(false);
    let waiting = model.decide();
    assert!(made(&waiting).is_empty() && waits(&waiting)[0].contains("svc/ep not ready"));
    model.observed.repo.service_ready = Some(true);
    assert_eq!(phase(&model.decide()), "RepoCreated");
}
