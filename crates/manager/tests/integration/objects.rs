//! Objects as the manager creates them.

use api::{JobType, NodePlan, UpgradePlan, annotations, labels};
use manager::objects::{job, repo, suc_plan};
use plan::observed::Settings;
use proptest::prelude::*;
use serde_json::Value;

const ISO: repo::Iso<'_> = repo::Iso {
    claim: "claim",
    checksum: None,
};

fn plan() -> UpgradePlan {
    UpgradePlan::new("up", Default::default())
}

/// The system-upgrade-controller Plan with which something runs on all nodes.
fn plan_of(runs: NodePlan) -> Value {
    let images = ["a:1".to_owned()];
    let built = suc_plan::build(&plan(), &Settings::default(), runs, 1, &images).unwrap();
    serde_json::to_value(built).unwrap()
}

#[test]
fn w33_no_plan_has_a_deadline_that_old_and_new_controllers_read_differently() {
    for runs in NodePlan::ALL {
        let seconds = plan_of(runs)["spec"]["jobActiveDeadlineSecs"].as_u64();
        // Zero is "for ever" to some and "a quarter of an hour" to others.
        let expected = if runs == NodePlan::ImagePreload { 3600 } else { 600 };
        assert_eq!(seconds, Some(expected), "{runs:?}");
    }
}

#[test]
fn every_plan_is_named_after_its_component_and_neither_cordons_nor_drains() {
    for runs in NodePlan::ALL {
        let (built, component) = (plan_of(runs), runs.component().as_str());
        assert_eq!(built["metadata"]["name"], format!("up-{component}"));
        assert_eq!(built["metadata"]["labels"][labels::UPGRADE_COMPONENT], component);
        let spec = built["spec"].as_object().unwrap();
        let disturbing = ["drain", "cordon"].map(|field| spec.get(field).is_some_and(|value| !value.is_null()));
        assert_eq!(disturbing, [false, false], "{component}");
    }
}

#[test]
fn r29_every_workload_runs_the_managers_image_whole() {
    let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    for own in [
        "localhost:5000/mine/toolkit:dev".to_owned(),
        format!("mine/toolkit@{digest}"),
    ] {
        let settings = Settings {
            own_image: api::image::Image::parse(&own).unwrap(),
            ..Settings::default()
        };
        let plan = plan();
        let of_template = |object: Value| object["spec"]["template"]["spec"]["containers"][0]["image"].clone();
        let node_job = job::node(&plan, &settings, JobType::PreDrain, "node-1", false).unwrap();
        let templates = [
            serde_json::to_value(repo::deployment(&plan, &settings, 2, ISO, "up-repo-x").unwrap()).unwrap(),
            serde_json::to_value(job::cluster(&plan, &settings).unwrap()).unwrap(),
            serde_json::to_value(node_job).unwrap(),
            serde_json::to_value(job::restore_vm(&plan, &settings, "node-1").unwrap()).unwrap(),
        ];
        for template in templates {
            assert_eq!(of_template(template), own);
        }
        for runs in NodePlan::ALL {
            let built = suc_plan::build(&plan, &settings, runs, 1, &[]).unwrap();
            assert_eq!(built.spec.upgrade.unwrap().image, Some(own.clone()), "{runs:?}");
        }
    }
}

#[test]
fn r21_jobs_of_a_node_share_its_network_and_are_neither_rejected_nor_evicted() {
    for step in [JobType::PreDrain, JobType::PostDrain, JobType::SingleNodeUpgrade] {
        let built = job::node(&plan(), &Settings::default(), step, "node-1", false).unwrap();
        let built = serde_json::to_value(built).unwrap();
        let pod = &built["spec"]["template"]["spec"];
        assert_eq!(pod["hostNetwork"], true, "{step}");
        assert_eq!(pod["dnsPolicy"], "ClusterFirstWithHostNet", "{step}");
        assert!(
            pod.get("nodeName").is_none(),
            "{step}: the kubelet would have to refuse it"
        );
        let terms =
            &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let by_name = serde_json::json!([{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]);
        assert_eq!(terms, &by_name, "{step}");
        assert_eq!(
            pod["tolerations"],
            serde_json::json!([{"operator": "Exists"}]),
            "{step}"
        );
        let names = pod["containers"][0]["env"].as_array().unwrap().iter();
        let names: Vec<&str> = names.filter_map(|variable| variable["name"].as_str()).collect();
        assert!(
            names.contains(&"HARVESTER_UPGRADE_POD_NAME"),
            "{step}: its hostname is the node's"
        );
    }
}

#[test]
fn finished_jobs_are_kept_for_seven_days() {
    let (plan, settings) = (plan(), Settings::default());
    let steps = [JobType::PreDrain, JobType::PostDrain, JobType::SingleNodeUpgrade];
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
    fn whatever_users_annotate_every_object_can_be_built_and_runs_the_image_they_name_if_it_is_allowed(
        image in any::<String>(), server in any::<String>(), volumes in any::<String>(), skip in any::<String>(),
        allowed in any::<bool>()
    ) {
        let mut plan = plan();
        plan.metadata.annotations = Some([
            (annotations::UPGRADE_TOOLKIT_IMAGE.to_owned(), image.clone()),
            (annotations::REPO_SERVER.to_owned(), server),
            (annotations::SKIP_VOLUMES.to_owned(), volumes),
            (annotations::SKIP_VERSION_CHECK.to_owned(), skip),
        ].into());
        let settings = Settings {
            allowed_repositories: allowed.then(|| image.clone()).into_iter().collect(),
            ..Settings::default()
        };
        let wanted = if image.is_empty() || !allowed { api::names::TOOLKIT_IMAGE } else { &image };
        let wanted = format!("{wanted}:{}", settings.own_image.tag.clone().unwrap());
        let deployment = serde_json::to_value(repo::deployment(&plan, &settings, 2, ISO, "up-repo-x").unwrap()).unwrap();
        let runs = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
        prop_assert_eq!(runs, &wanted);
        prop_assert!(job::cluster(&plan, &settings).is_ok() && repo::service(&plan).is_ok());
        for runs in NodePlan::ALL {
            let built = suc_plan::build(&plan, &settings, runs, 1, &[]).unwrap();
            let built = serde_json::to_value(built).unwrap();
            prop_assert_eq!(&built["spec"]["upgrade"]["image"], &wanted);
        }
    }
}
