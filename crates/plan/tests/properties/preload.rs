//! The preload, the Plans that run on all nodes, and the image that they run.

use api::{Component, ImagePreloadOption, Phase, annotations};
use jiff::SignedDuration;
use plan::observed::{Fetched, JobOutcome, KubeletFacts, NewImages, ObservedJob, ObservedPod, TerminationMessage};

use crate::{
    model::Model,
    walk::{at, ended, until},
};

fn skip_preload(model: &mut Model) {
    model.observed.plan.spec.image_preload_option = Some(ImagePreloadOption { concurrency: Some(-1) });
}

fn preloading() -> Model {
    let mut model = Model::new(3);
    until(&mut model, |model| {
        model.observed.suc_plans.contains_key(&Component::ImagePreload)
    });
    model.observed.suc_plans.get_mut(&Component::ImagePreload).unwrap().uid = Some("this-plan".to_owned());
    for job in model.observed.jobs.values_mut().filter(|job| is_preload(job)) {
        job.owner = Some("this-plan".to_owned());
    }
    model
}

fn is_preload(job: &ObservedJob) -> bool {
    job.component == Component::ImagePreload
}

/// The Job that loads images onto a node.
fn job<'a>(model: &'a mut Model, node: &str) -> &'a mut ObservedJob {
    let mut jobs = model.observed.jobs.values_mut();
    jobs.find(|job| is_preload(job) && job.node.as_deref() == Some(node))
        .unwrap()
}

fn states(model: &Model) -> Vec<String> {
    let status = model.observed.plan.status.clone().unwrap();
    let nodes = status.node_upgrade_statuses.values();
    nodes.filter_map(|node| node.state().map(str::to_owned)).collect()
}

#[test]
fn r25_a_user_who_skips_the_preload_skips_the_check_of_its_size_too() {
    let full = KubeletFacts {
        capacity_bytes: 1 << 30,
        used_bytes: 1 << 29,
        image_gc_high_threshold_percent: 85.0,
    };
    let too_much = Fetched::Got(NewImages {
        archive_bytes: Some(1 << 40),
        kubelets: [("node-1".to_owned(), full)].into(),
    });
    let mut model = Model::new(3);
    model.observed.facts.new_images = too_much.clone();
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed), "they do not fit");
    let mut model = Model::new(3);
    model.observed.facts.new_images = too_much;
    skip_preload(&mut model);
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Succeeded));
}

#[test]
fn r25_a_preload_that_is_skipped_while_it_runs_is_removed_and_its_nodes_continue() {
    let mut model = preloading();
    let decision = model.decide();
    model.apply(&decision);
    assert_eq!(states(&model), ["ImagePreloading"; 3]);
    skip_preload(&mut model);
    // The Jobs of a Plan go a while after it.
    let left = model.observed.jobs.clone();
    let decision = model.decide();
    model.apply(&decision);
    assert!(model.observed.suc_plans.is_empty(), "the Plan is removed first");
    model.observed.jobs = left;
    let decision = model.decide();
    assert_eq!(decision.status.current_phase.as_deref(), Some("ImagePreloading"));
    let said = decision.status.waiting_for[0].message.clone().unwrap();
    assert_eq!(said, "the preload is skipped: its Jobs are being removed");
    model.observed.jobs.retain(|_, job| !is_preload(job));
    until(&mut model, at(Phase::ImagePreloaded));
    assert_eq!(states(&model), ["ImagePreloaded"; 3]);
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Succeeded));
}

#[test]
fn r04_where_the_preload_is_skipped_every_node_still_shows_that_it_can_run_the_image() {
    let mut model = Model::new(3);
    skip_preload(&mut model);
    until(&mut model, |model| {
        model.observed.suc_plans.contains_key(&Component::ImageCheck)
    });
    assert_eq!(
        model.phase(),
        Some(Phase::ImagePreloading),
        "before anything is changed"
    );
    assert_eq!(model.observed.plan.note(annotations::SAVED_CHART_METHODS), None);
}

#[test]
fn r04_a_node_that_cannot_get_the_image_is_named_with_it_and_has_a_deadline() {
    let mut model = preloading();
    let pod = ObservedPod {
        name: "cattle-system/apply-x".to_owned(),
        component: Component::ImagePreload,
        node: Some("node-2".to_owned()),
        problem: Some("ImagePullBackOff: no route to host".to_owned()),
        missing_image: Some("me/toolkit:v1".to_owned()),
        ..ObservedPod::of(Component::NodeUpgrade)
    };
    model.observed.pods.insert(pod.name.clone(), pod);
    let decision = model.decide();
    let waits = &decision.status.waiting_for;
    let wait = waits.iter().find(|wait| wait.what == "ToolkitImage").unwrap();
    assert_eq!(wait.object.as_deref(), Some("Node node-2"));
    let message = wait.message.clone().unwrap();
    assert!(
        message.starts_with("node node-2 does not have the image me/toolkit:v1"),
        "{message}"
    );
    let limit = wait.deadline.as_ref().unwrap().0.duration_since(wait.since.0);
    assert_eq!(limit, SignedDuration::from_mins(10));
}

#[test]
fn r15_a_job_whose_pods_fail_again_and_again_has_failed_with_what_the_last_one_said() {
    let mut model = preloading();
    let node_2 = job(&mut model, "node-2");
    node_2.uid = Some("job".to_owned());
    node_2.failed_pods = 2;
    for (name, owner, at, text) in [
        ("old", "job-before", "2026-03-13T09:00:00Z", "of another Job"),
        ("first", "job", "2026-03-13T04:00:00Z", "no space"),
        ("last", "job", "2026-03-13T04:01:00Z", "no space left on device"),
    ] {
        let pod = ObservedPod {
            name: name.to_owned(),
            component: Component::ImagePreload,
            node: Some("node-2".to_owned()),
            owner: Some(owner.to_owned()),
            termination_message: Some(TerminationMessage {
                at: at.parse().unwrap(),
                text: text.to_owned(),
            }),
            ..ObservedPod::of(Component::NodeUpgrade)
        };
        model.observed.pods.insert(name.to_owned(), pod);
    }
    let decision = model.decide();
    assert_eq!(decision.status.current_phase.as_deref(), Some("ImagePreloading"));
    job(&mut model, "node-2").failed_pods = 3;
    let decision = model.decide();
    assert_eq!(decision.status.current_phase.as_deref(), Some("Failed"));
    let node = &decision.status.node_upgrade_statuses["node-2"];
    assert_eq!(node.state(), Some("ImagePreloadFailed"));
    assert_eq!(node.message.as_deref(), Some("\"no space left on device\""));
    model.apply(&decision);
    let said = &model
        .observed
        .plan
        .condition(api::reasons::PROGRESSING)
        .unwrap()
        .message;
    assert_eq!(
        said,
        "image-preload plan job(s) failed: node-2: \"no space left on device\""
    );
}

#[test]
fn r61_a_job_of_another_plan_of_the_same_name_says_nothing_about_this_one() {
    let mut model = preloading();
    let stale = ObservedJob {
        owner: Some("plan-before".to_owned()),
        component: Component::ImagePreload,
        node: Some("node-3".to_owned()),
        outcome: JobOutcome::Failed {
            reason: "DeadlineExceeded".to_owned(),
            message: "of the try before".to_owned(),
        },
        ..ObservedJob::of(Component::NodeUpgrade)
    };
    model.observed.jobs.insert("apply-on-node-3-before".to_owned(), stale);
    let decision = model.decide();
    assert_eq!(decision.status.current_phase.as_deref(), Some("ImagePreloading"));
    job(&mut model, "node-3").outcome = JobOutcome::Failed {
        reason: "DeadlineExceeded".to_owned(),
        message: String::new(),
    };
    assert_eq!(model.decide().status.current_phase.as_deref(), Some("Failed"));
}
