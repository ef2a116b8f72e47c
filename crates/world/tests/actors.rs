//! Single actors, each by what others see of it.

mod support;

use std::time::Duration;

use api::{annotations, labels, labels::component, labels::job_type, names};
use serde_json::{Value, json};
use support::*;
use world::{
    Durations, Shape, Troubles,
    troubles::{JobFailure, JobTrouble, MigrationTrouble, RebootTrouble, RepositoryTrouble},
};

const HARVESTER: &str = names::HARVESTER_NAMESPACE;
const IMAGE: &str = "harvesterhci.io/v1beta1/VirtualMachineImage";

async fn calm() -> Lab {
    lab(Shape::default(), Durations::default(), Troubles::default()).await
}

fn failing(component: &str, job_type: Option<&str>, failure: JobFailure) -> Troubles {
    Troubles {
        jobs: vec![JobTrouble {
            component: component.to_owned(),
            job_type: job_type.map(str::to_owned),
            node: None,
            failure,
        }],
        ..Default::default()
    }
}

fn active(jobs: &[Value]) -> usize {
    jobs.iter().filter(|job| job["status"]["active"] == 1).count()
}

#[tokio::test(start_paused = true)]
async fn a_plan_with_concurrency_two_never_runs_three_jobs() {
    let shape = Shape {
        nodes: 5,
        ..Default::default()
    };
    let lab = lab(shape, Durations::default(), Troubles::default()).await;
    lab.create(PLAN, suc_plan("up", component::IMAGE_PRELOAD, 2)).await;
    let mut most = 0;
    for _ in 0..40 {
        lab.minutes(1).await;
        let jobs = lab.list(JOB, names::CATTLE_NAMESPACE).await;
        most = most.max(active(&jobs));
        let plan = lab
            .get(PLAN, names::CATTLE_NAMESPACE, "up-image-preload")
            .await
            .unwrap();
        assert!(plan["status"]["applying"].as_array().map_or(0, Vec::len) <= 2);
    }
    assert_eq!(most, 2);
    let plan = lab
        .get(PLAN, names::CATTLE_NAMESPACE, "up-image-preload")
        .await
        .unwrap();
    assert!(is(&plan, "Complete"), "{plan:#}");
    assert_eq!(condition(&plan, "Complete")["reason"], "Complete");
    let hash = plan["status"]["latestHash"].clone();
    for node in lab.list(NODE, "").await {
        assert_eq!(
            node["metadata"]["labels"]["plan.upgrade.cattle.io/up-image-preload"],
            hash
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_plan_carry_its_labels_and_go_with_it() {
    let lab = calm().await;
    lab.create(PLAN, suc_plan("up", component::IMAGE_PRELOAD, 3)).await;
    lab.minutes(1).await;
    let jobs = lab.list(JOB, names::CATTLE_NAMESPACE).await;
    assert_eq!(jobs.len(), 3);
    let meta = &jobs[0]["metadata"];
    assert!(
        meta["name"]
            .as_str()
            .unwrap()
            .starts_with("apply-up-image-preload-on-node-1-with-")
    );
    assert_eq!(meta["labels"][labels::UPGRADE_PLAN], "up");
    assert_eq!(meta["labels"][labels::SUC_NODE], "node-1");
    assert_eq!(meta["labels"]["upgrade.cattle.io/plan"], "up-image-preload");
    let pods = lab.list(POD, names::CATTLE_NAMESPACE).await;
    assert_eq!(
        pods[0]["metadata"]["labels"][labels::UPGRADE_COMPONENT],
        component::IMAGE_PRELOAD
    );
    assert_eq!(pods[0]["spec"]["nodeName"], "node-1");
    lab.delete(PLAN, names::CATTLE_NAMESPACE, "up-image-preload").await;
    lab.minutes(1).await;
    assert!(lab.list(JOB, names::CATTLE_NAMESPACE).await.is_empty());
    assert!(lab.list(POD, names::CATTLE_NAMESPACE).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failed_job_fails_its_plan() {
    let troubles = failing(component::IMAGE_PRELOAD, None, JobFailure::Fails(9));
    let lab = lab(Shape::default(), Durations::default(), troubles).await;
    lab.create(PLAN, suc_plan("up", component::IMAGE_PRELOAD, 3)).await;
    let plan = lab
        .until(60, PLAN, names::CATTLE_NAMESPACE, "up-image-preload", |plan| {
            condition(plan, "Complete")["reason"] == "JobFailed"
        })
        .await;
    assert_eq!(condition(&plan, "Complete")["status"], "False");
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_has_no_pod_until_it_is_resumed() {
    let lab = calm().await;
    let mut suspended = job("up", component::NODE_UPGRADE, job_type::PRE_DRAIN, "node-1");
    suspended["spec"]["suspend"] = json!(true);
    let name = suspended["metadata"]["name"].as_str().unwrap().to_owned();
    lab.create(JOB, suspended).await;
    lab.minutes(10).await;
    let job = lab.get(JOB, HARVESTER, &name).await.unwrap();
    assert!(is(&job, "Suspended"));
    assert!(lab.list(POD, HARVESTER).await.is_empty());
    lab.patch(JOB, HARVESTER, &name, json!({"spec": {"suspend": false}}))
        .await;
    let job = lab.until(10, JOB, HARVESTER, &name, |job| is(job, "Complete")).await;
    assert_eq!(job["status"]["succeeded"], 1);
    assert!(!is(&job, "Suspended"));
}

#[tokio::test(start_paused = true)]
async fn a_job_replaces_failed_pods_up_to_its_limit() {
    let troubles = failing(component::CLUSTER_UPGRADE, None, JobFailure::Fails(2));
    let twice = lab(Shape::default(), Durations::default(), troubles).await;
    twice.create(JOB, job("up", component::CLUSTER_UPGRADE, "", "")).await;
    let done = twice
        .until(30, JOB, HARVESTER, "up-cluster-upgrade", |job| is(job, "Complete"))
        .await;
    assert_eq!(done["status"]["failed"], 2);

    let troubles = failing(component::CLUSTER_UPGRADE, None, JobFailure::Fails(99));
    let always = lab(Shape::default(), Durations::default(), troubles).await;
    always.create(JOB, job("up", component::CLUSTER_UPGRADE, "", "")).await;
    let failed = always
        .until(60, JOB, HARVESTER, "up-cluster-upgrade", |job| is(job, "Failed"))
        .await;
    assert_eq!(condition(&failed, "Failed")["reason"], "BackoffLimitExceeded");
    assert_eq!(failed["status"]["failed"], 7);
}

#[tokio::test(start_paused = true)]
async fn a_job_ends_at_its_deadline_and_goes_after_its_time_to_live() {
    let troubles = failing(component::CLUSTER_UPGRADE, None, JobFailure::Hangs);
    let lab = lab(Shape::default(), Durations::default(), troubles).await;
    let mut hanging = job("up", component::CLUSTER_UPGRADE, "", "");
    hanging["spec"]["activeDeadlineSeconds"] = json!(600);
    hanging["spec"]["ttlSecondsAfterFinished"] = json!(300);
    lab.create(JOB, hanging).await;
    let failed = lab
        .until(11, JOB, HARVESTER, "up-cluster-upgrade", |job| is(job, "Failed"))
        .await;
    assert_eq!(condition(&failed, "Failed")["reason"], "DeadlineExceeded");
    lab.until_gone(6, JOB, HARVESTER, "up-cluster-upgrade").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_its_image_waits_and_says_so() {
    let troubles = failing(component::CLUSTER_UPGRADE, None, JobFailure::ImagePullBackOff);
    let lab = lab(Shape::default(), Durations::default(), troubles).await;
    lab.create(JOB, job("up", component::CLUSTER_UPGRADE, "", "")).await;
    lab.minutes(60).await;
    let pods = lab.list(POD, HARVESTER).await;
    assert_eq!(pods[0]["status"]["phase"], "Pending");
    let waiting = &pods[0]["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "ImagePullBackOff");
    let job = lab.get(JOB, HARVESTER, "up-cluster-upgrade").await.unwrap();
    assert!(!is(&job, "Failed") && !is(&job, "Complete"));
}

#[tokio::test(start_paused = true)]
async fn what_an_owner_owned_goes_with_it() {
    let lab = calm().await;
    let owner = lab
        .create(
            UPGRADE_PLAN,
            json!({
                "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
                "metadata": {"name": "up"}, "spec": {"version": "v1.8.0"},
            }),
        )
        .await;
    let mut owned = job("up", component::CLUSTER_UPGRADE, "", "");
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan", "name": "up",
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]);
    lab.create(JOB, owned).await;
    lab.create(JOB, job("other", component::CLUSTER_UPGRADE, "", "")).await;
    lab.minutes(1).await;
    assert_eq!(lab.list(POD, HARVESTER).await.len(), 2);
    lab.delete(UPGRADE_PLAN, "", "up").await;
    lab.until_gone(1, JOB, HARVESTER, "up-cluster-upgrade").await;
    lab.until_gone(1, POD, HARVESTER, "up-cluster-upgrade-0").await;
    assert!(lab.get(JOB, HARVESTER, "other-cluster-upgrade").await.is_some());
}

fn image(retry: i64) -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {"name": "iso", "namespace": HARVESTER},
        "spec": {"backend": "cdi", "sourceType": "download", "url": "https://x/y.iso", "retry": retry},
    })
}

#[tokio::test(start_paused = true)]
async fn an_image_is_imported_with_progress_after_failures_that_its_retries_cover() {
    let troubles = Troubles {
        iso_failures: 2,
        ..Default::default()
    };
    let lab = lab(Shape::default(), Durations::default(), troubles).await;
    lab.create(IMAGE, image(3)).await;
    lab.until(10, IMAGE, HARVESTER, "iso", |image| image["status"]["progress"] == 50)
        .await;
    let done = lab
        .until(20, IMAGE, HARVESTER, "iso", |image| is(image, "Imported"))
        .await;
    assert_eq!(done["status"]["failed"], 2);
    assert!(lab.get("v1/PersistentVolumeClaim", HARVESTER, "iso").await.is_some());
    lab.delete(IMAGE, HARVESTER, "iso").await;
    lab.until_gone(1, "v1/PersistentVolumeClaim", HARVESTER, "iso").await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_fails_too_often_says_so() {
    let troubles = Troubles {
        iso_failures: 9,
        ..Default::default()
    };
    let lab = lab(Shape::default(), Durations::default(), troubles).await;
    lab.create(IMAGE, image(3)).await;
    let failed = lab
        .until(60, IMAGE, HARVESTER, "iso", |image| is(image, "RetryLimitExceeded"))
        .await;
    assert_eq!(condition(&failed, "Imported")["status"], "False");
}

async fn vms_on(lab: &Lab, node: &str) -> Vec<String> {
    let vmis = lab.list(VMI, "").await;
    let there = vmis.iter().filter(|vmi| vmi["status"]["nodeName"] == node);
    there
        .map(|vmi| vmi["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_drained_nodes_vms_end_on_other_nodes() {
    let lab = calm().await;
    let there = vms_on(&lab, "node-1").await;
    assert_eq!(there.len(), 2);
    lab.create(JOB, job("up", component::NODE_UPGRADE, job_type::PRE_DRAIN, "node-1"))
        .await;
    lab.until(10, JOB, HARVESTER, "up-node-upgrade-pre-drain-node-1", |job| {
        is(job, "Complete")
    })
    .await;
    assert!(vms_on(&lab, "node-1").await.is_empty());
    for vm in there {
        let vmi = lab
            .list(VMI, "")
            .await
            .into_iter()
            .find(|vmi| vmi["metadata"]["name"] == vm)
            .unwrap();
        assert_eq!(
            vmi["metadata"]["labels"]["kubevirt.io/nodeName"],
            vmi["status"]["nodeName"]
        );
        assert_eq!(vmi["status"]["migrationState"]["completed"], true);
        let pods = lab.list(POD, vmi["metadata"]["namespace"].as_str().unwrap()).await;
        let own: Vec<&Value> = pods
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["vm.kubevirt.io/name"] == vm)
            .collect();
        assert_eq!(own.len(), 1);
        assert_eq!(own[0]["spec"]["nodeName"], vmi["status"]["nodeName"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_migration_holds_the_pre_drain_job() {
    let troubles = Troubles {
        migrations: [("default/web-1".to_owned(), MigrationTrouble::Stuck)].into(),
        ..Default::default()
    };
    let lab = lab(Shape::default(), Durations::default(), troubles).await;
    lab.create(JOB, job("up", component::NODE_UPGRADE, job_type::PRE_DRAIN, "node-1"))
        .await;
    lab.minutes(120).await;
    assert_eq!(vms_on(&lab, "node-1").await, ["web-1"]);
    let job = lab
        .get(JOB, HARVESTER, "up-node-upgrade-pre-drain-node-1")
        .await
        .unwrap();
    assert_eq!(job["status"]["active"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_migration_is_tried_again() {
    let troubles = Troubles {
        migrations: [("default/web-1".to_owned(), MigrationTrouble::Fails(2))].into(),
        ..Default::default()
    };
    let lab = lab(Shape::default(), Durations::default(), troubles).await;
    lab.create(JOB, job("up", component::NODE_UPGRADE, job_type::PRE_DRAIN, "node-1"))
        .await;
    lab.until(20, JOB, HARVESTER, "up-node-upgrade-pre-drain-node-1", |job| {
        is(job, "Complete")
    })
    .await;
    assert!(vms_on(&lab, "node-1").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_vm_stops_and_starts_as_it_is_told() {
    let lab = calm().await;
    lab.patch(VM, "default", "web-1", json!({"spec": {"runStrategy": "Halted"}}))
        .await;
    lab.until_gone(5, VMI, "default", "web-1").await;
    lab.until(5, VM, "default", "web-1", |vm| {
        vm["status"]["printableStatus"] == "Stopped"
    })
    .await;
    let volumes = lab.list("longhorn.io/v1beta2/Volume", names::LONGHORN_NAMESPACE).await;
    assert_eq!(
        volumes
            .iter()
            .filter(|volume| volume["status"]["state"] == "detached")
            .count(),
        2
    );
    lab.patch(VM, "default", "web-1", json!({"spec": {"runStrategy": "Always"}}))
        .await;
    lab.until(5, VMI, "default", "web-1", |vmi| vmi["status"]["phase"] == "Running")
        .await;
    lab.until(5, VM, "default", "web-1", |vm| {
        vm["status"]["printableStatus"] == "Running"
    })
    .await;
    lab.until(5, POD, "default", "virt-launcher-web-1-0", |pod| {
        pod["status"]["phase"] == "Running"
    })
    .await;
}

async fn order_upgrade(lab: &Lab) {
    let config = json!({"provisionGeneration": 1, "upgradeStrategy": strategy("1")});
    let patch = json!({"spec": {"kubernetesVersion": "v1.35.2+rke2r1", "rkeConfig": config}});
    lab.patch(CLUSTER, names::FLEET_NAMESPACE, names::LOCAL_CLUSTER, patch)
        .await;
}

async fn tokens(lab: &Lab) -> Vec<(String, String)> {
    let secrets = lab.list(SECRET, names::FLEET_NAMESPACE).await;
    let token = |secret: &Value| {
        secret["metadata"]["annotations"][annotations::RKE_PRE_DRAIN]
            .as_str()
            .map(str::to_owned)
    };
    let name = |secret: &Value| secret["metadata"]["name"].as_str().unwrap().to_owned();
    secrets
        .iter()
        .filter_map(|secret| Some((name(secret), token(secret)?)))
        .collect()
}

fn kubelet(node: &Value) -> &str {
    node["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn rancher_waits_for_the_hook_before_it_drains() {
    let lab = calm().await;
    order_upgrade(&lab).await;
    lab.minutes(11).await;
    assert!(tokens(&lab).await.is_empty(), "the dead time is not over");
    lab.minutes(60).await;
    let open = tokens(&lab).await;
    assert_eq!(open.len(), 1, "one node at a time");
    let node = lab.get(NODE, "", "node-1").await.unwrap();
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_eq!(kubelet(&node), "v1.34.3+rke2r1");
    assert_eq!(vms_on(&lab, "node-1").await.len(), 2, "nothing was drained");
    let cluster = lab
        .get(CLUSTER, names::FLEET_NAMESPACE, names::LOCAL_CLUSTER)
        .await
        .unwrap();
    assert_eq!(cluster["status"]["ready"], false);
}

#[tokio::test(start_paused = true)]
async fn without_a_strategy_rancher_goes_on_without_gates() {
    let lab = calm().await;
    order_upgrade(&lab).await;
    lab.minutes(60).await;
    let patch = json!({"spec": {"rkeConfig": {"upgradeStrategy": null}}});
    lab.patch(CLUSTER, names::FLEET_NAMESPACE, names::LOCAL_CLUSTER, patch)
        .await;
    lab.until(300, NODE, "", "node-3", |node| kubelet(node) == "v1.35.2+rke2r1")
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_without_hooks_makes_vms_migrate() {
    let lab = calm().await;
    let mut strategy = strategy("1");
    for tier in ["controlPlaneDrainOptions", "workerDrainOptions"] {
        for hooks in ["preDrainHooks", "postDrainHooks"] {
            strategy[tier][hooks] = json!([]);
        }
    }
    let patch = json!({"spec": {"rkeConfig": {"provisionGeneration": 1, "upgradeStrategy": strategy}}});
    lab.patch(CLUSTER, names::FLEET_NAMESPACE, names::LOCAL_CLUSTER, patch)
        .await;
    lab.until(30, NODE, "", "node-1", |node| node["spec"]["unschedulable"] == true)
        .await;
    lab.until(30, NODE, "", "node-1", |node| node["spec"]["unschedulable"].is_null())
        .await;
    assert!(vms_on(&lab, "node-1").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_allows_nothing_blocks_the_drain() {
    let troubles = Troubles {
        blocked_drains: ["node-1".to_owned()].into(),
        ..Default::default()
    };
    let lab = lab(Shape::default(), Durations::default(), troubles).await;
    order_upgrade(&lab).await;
    lab.minutes(20).await;
    let (secret, token) = tokens(&lab).await.remove(0);
    lab.create(JOB, job("up", component::NODE_UPGRADE, job_type::PRE_DRAIN, "node-1"))
        .await;
    lab.until(10, JOB, HARVESTER, "up-node-upgrade-pre-drain-node-1", |job| {
        is(job, "Complete")
    })
    .await;
    let ack = json!({"metadata": {"annotations": {annotations::PRE_HOOK: token}}});
    lab.patch(SECRET, names::FLEET_NAMESPACE, &secret, ack).await;
    lab.minutes(120).await;
    assert_eq!(kubelet(&lab.get(NODE, "", "node-1").await.unwrap()), "v1.34.3+rke2r1");
    lab.delete("policy/v1/PodDisruptionBudget", "default", "stubborn-node-1")
        .await;
    lab.until(60, NODE, "", "node-1", |node| kubelet(node) == "v1.35.2+rke2r1")
        .await;
}

async fn reboot(lab: &Lab) -> Value {
    let patch = json!({"status": {"nodeInfo": {"kubeletVersion": "v1.35.2+rke2r1"}}});
    let api = lab.api(NODE, "");
    api.patch_status("node-1", &Default::default(), &kube::api::Patch::Merge(patch))
        .await
        .unwrap();
    let before = lab.get(NODE, "", "node-1").await.unwrap();
    lab.create(JOB, job("up", component::NODE_UPGRADE, job_type::POST_DRAIN, "node-1"))
        .await;
    lab.until(10, JOB, HARVESTER, "up-node-upgrade-post-drain-node-1", |job| {
        is(job, "Complete")
    })
    .await;
    lab.until(10, NODE, "", "node-1", |node| !is(node, "Ready")).await;
    before
}

#[tokio::test(start_paused = true)]
async fn a_node_comes_back_with_another_boot_id_and_system() {
    let lab = calm().await;
    let before = reboot(&lab).await;
    let back = lab.until(10, NODE, "", "node-1", |node| is(node, "Ready")).await;
    assert_eq!(back["status"]["nodeInfo"]["osImage"], "Harvester v1.8.0");
    assert_ne!(
        back["status"]["nodeInfo"]["bootID"],
        before["status"]["nodeInfo"]["bootID"]
    );
    lab.minutes(60).await;
    let later = lab.get(NODE, "", "node-1").await.unwrap();
    assert_eq!(
        later["metadata"]["resourceVersion"], back["metadata"]["resourceVersion"],
        "one reboot, then silence"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_may_come_back_with_the_old_system_or_not_at_all() {
    let with = |trouble| Troubles {
        reboots: [("node-1".to_owned(), trouble)].into(),
        ..Default::default()
    };
    let old = lab(Shape::default(), Durations::default(), with(RebootTrouble::OldSystem)).await;
    let before = reboot(&old).await;
    let back = old.until(10, NODE, "", "node-1", |node| is(node, "Ready")).await;
    assert_eq!(back["status"]["nodeInfo"]["osImage"], "Harvester v1.7.1");
    assert_ne!(
        back["status"]["nodeInfo"]["bootID"],
        before["status"]["nodeInfo"]["bootID"]
    );

    let gone = lab(
        Shape::default(),
        Durations::default(),
        with(RebootTrouble::NeverReturns),
    )
    .await;
    reboot(&gone).await;
    gone.minutes(300).await;
    assert!(!is(&gone.get(NODE, "", "node-1").await.unwrap(), "Ready"));
    let volumes = gone.list("longhorn.io/v1beta2/Volume", names::LONGHORN_NAMESPACE).await;
    assert!(
        volumes
            .iter()
            .any(|volume| volume["status"]["robustness"] == "degraded")
    );
}

#[tokio::test(start_paused = true)]
async fn an_addon_follows_its_switch() {
    let lab = calm().await;
    let kind = "harvesterhci.io/v1beta1/Addon";
    lab.patch(kind, "kube-system", "descheduler", json!({"spec": {"enabled": false}}))
        .await;
    lab.until(5, kind, "kube-system", "descheduler", |addon| {
        addon["status"]["status"] == "AddonDisabled"
    })
    .await;
    lab.patch(kind, "kube-system", "descheduler", json!({"spec": {"enabled": true}}))
        .await;
    lab.until(5, kind, "kube-system", "descheduler", |addon| {
        addon["status"]["status"] == "AddonDeploySuccessful"
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_written() {
    let lab = calm().await;
    lab.minutes(5).await;
    let before = lab.server.store().resource_version();
    lab.minutes(6 * 60).await;
    assert_eq!(lab.server.store().resource_version(), before);
}

#[tokio::test(start_paused = true)]
async fn facts_tell_of_troubles() {
    let troubles = Troubles {
        full_disks: ["node-2".to_owned()].into(),
        certificate_days: Some(3),
        repository: Some(RepositoryTrouble::Unreachable),
        ..Default::default()
    };
    let lab = lab(Shape::default(), Durations::default(), troubles).await;
    lab.minutes(1).await;
    let used = |node: &str| {
        let (code, _, body) = lab.facts.node_proxy(node, "/stats/summary").unwrap();
        assert_eq!(code, 200);
        serde_json::from_slice::<Value>(&body).unwrap()["node"]["fs"]["usedBytes"]
            .as_u64()
            .unwrap()
    };
    assert!(used("node-2") > 2 * used("node-1"));
    assert!(lab.facts.node_proxy("nobody", "configz").is_none());
    let certificates = lab.facts.api_certificates();
    assert_eq!(certificates.len(), 3);
    assert!(certificates[0].1.duration_since(lab.clock.now()) < jiff::SignedDuration::from_hours(73));
    let request = http::Request::get("/api/v1/nodes/node-1/proxy/configz")
        .body(Vec::new())
        .unwrap();
    let answer: Value = lab.client.request(request).await.unwrap();
    assert_eq!(answer["kubeletconfig"]["imageGCHighThresholdPercent"], 85);
}

#[tokio::test(start_paused = true)]
async fn another_world_goes_on_where_one_stopped() {
    let lab = calm().await;
    lab.create(JOB, job("up", component::CLUSTER_UPGRADE, "", "")).await;
    let before = lab
        .until(10, POD, HARVESTER, "up-cluster-upgrade-0", |pod| {
            pod["status"]["phase"] == "Running"
        })
        .await;
    reboot(&lab).await;
    lab.world.abort();
    lab.clock.sleep(Duration::from_secs(60)).await;
    let next = world::World::new(
        lab.server.client(),
        lab.clock.clone(),
        lab.shape.clone(),
        Durations::default(),
        Troubles::default(),
    );
    let next = tokio::spawn(next.run());
    lab.until(10, NODE, "", "node-1", |node| is(node, "Ready")).await;
    // The pod was on the node that rebooted, or its program went on; either way the Job ends well.
    let done = lab
        .until(60, JOB, HARVESTER, "up-cluster-upgrade", |job| is(job, "Complete"))
        .await;
    assert!(done["status"]["startTime"].is_string() && before["spec"]["nodeName"].is_string());
    next.abort();
}

#[test]
fn the_same_shape_gives_the_same_objects() {
    let shape = Shape {
        nodes: 7,
        witness: true,
        vms: 30,
        seed: 4,
        ..Default::default()
    };
    assert_eq!(shape.objects(), shape.objects());
    let other = Shape {
        seed: 5,
        ..shape.clone()
    };
    assert_ne!(shape.objects(), other.objects());
}
