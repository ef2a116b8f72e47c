//! Objects as the manager creates them.

#![allow(clippy::unwrap_used, reason = "what panics in a test fails it")]

use api::{
    UpgradePlan, annotations, labels,
    labels::{component, job_type},
};
use manager::objects::{job, repo, suc_plan};
use plan::observed::Settings;
use proptest::prelude::*;
use serde_json::Value;

const COMPONENTS: [&str; 4] = [
    component::IMAGE_PRELOAD,
    component::IMAGE_CLEANUP,
    component::SKIP_MANIFESTS_APPLY,
    component::SKIP_MANIFESTS_REMOVE,
];

fn plan() -> UpgradePlan {
    UpgradePlan::new("up", Default::default())
}

/// The system-upgrade-controller Plan of a component.
fn plan_of(component: &str) -> Value {
    let images = ["a:1".to_owned()];
    let built = suc_plan::build(&plan(), &Settings::default(), component, 1, &images).unwrap();
    serde_json::to_value(built).unwrap()
}

#[test]
fn w33_no_plan_has_a_deadline_that_old_and_new_controllers_read_differently() {
    for component in COMPONENTS {
        let seconds = plan_of(component)["spec"]["jobActiveDeadlineSecs"].as_u64();
        // Zero is "for ever" to some and "a quarter of an hour" to others.
        assert_eq!(seconds, Some(24 * 60 * 60), "{component}");
    }
}

#[test]
fn every_plan_is_named_after_its_component_and_neither_cordons_nor_drains() {
    for component in COMPONENTS {
        let built = plan_of(component);
        assert_eq!(built["metadata"]["name"], format!("up-{component}"));
        assert_eq!(built["metadata"]["labels"][labels::UPGRADE_COMPONENT], component);
        let spec = built["spec"].as_object().unwrap();
        let disturbing = ["drain", "cordon"].map(|field| spec.get(field).is_some_and(|value| !value.is_null()));
        assert_eq!(disturbing, [false, false], "{component}");
    }
}

#[test]
fn finished_jobs_are_kept_for_seven_days() {
    let (plan, settings) = (plan(), Settings::default());
    let steps = [job_type::PRE_DRAIN, job_type::POST_DRAIN, job_type::SINGLE_NODE_UPGRADE];
    let mut jobs = vec![
        job::cluster(&plan, &settings).unwrap(),
        job::restore_vm(&plan, &settings, "node-1").unwrap(),
    ];
    jobs.extend(steps.map(|step| job::node(&plan, &settings, step, "node-1", false).unwrap()));
    assert_eq!(jobs.len(), 5);
    for job in jobs {
        let kept = job.spec.unwrap().ttl_seconds_after_finished;
        assert_eq!(kept, Some(604_800), "{:?}", job.metadata.name);
    }
}

proptest! {
    #[test]
    fn whatever_users_annotate_every_object_can_be_built_and_runs_the_image_they_name(
        image in any::<String>(), server in any::<String>(), volumes in any::<String>(), skip in any::<String>()
    ) {
        let mut plan = plan();
        plan.metadata.annotations = Some([
            (annotations::UPGRADE_TOOLKIT_IMAGE.to_owned(), image.clone()),
            (annotations::REPO_SERVER.to_owned(), server),
            (annotations::SKIP_VOLUMES.to_owned(), volumes),
            (annotations::SKIP_VERSION_CHECK.to_owned(), skip),
        ].into());
        let settings = Settings::default();
        let wanted = if image.is_empty() { api::names::TOOLKIT_IMAGE } else { &image };
        let deployment = serde_json::to_value(repo::deployment(&plan, &settings, 2, "claim").unwrap()).unwrap();
        let runs = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
        prop_assert_eq!(runs, &format!("{wanted}:{}", settings.own_tag));
        prop_assert!(job::cluster(&plan, &settings).is_ok() && repo::service(&plan).is_ok());
        for component in COMPONENTS {
            let built = suc_plan::build(&plan, &settings, component, 1, &[]).unwrap();
            let built = serde_json::to_value(built).unwrap();
            prop_assert_eq!(&built["spec"]["upgrade"]["image"], wanted);
        }
    }
}
