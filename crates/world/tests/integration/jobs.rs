//! Jobs, Plans and what they leave behind.

use crate::support::*;
use api::{Component, JobType, labels, names};
use serde_json::{Value, json};
use world::{
    Durations, Shape, Troubles, World,
    troubles::{JobFailure, JobTrouble},
};

const HARVESTER: &str = api::names::HARVESTER_NAMESPACE;

fn failing(component: Component, job_type: Option<JobType>, failure: JobFailure) -> Troubles {
    Troubles {
        jobs: vec![JobTrouble {
            component,
            job_type,
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
    let cluster = test_cluster(shape, Durations::default(), Troubles::default()).await;
    cluster.serve_release("up").await;
    cluster.create(PLAN, suc_plan("up", Component::ImagePreload, 2)).await;
    let mut most = 0;
    for _ in 0..40 {
        cluster.minutes(1).await;
        let jobs = cluster.list(JOB, names::CATTLE_NAMESPACE).await;
        most = most.max(active(&jobs));
        let plan = cluster
            .get(PLAN, names::CATTLE_NAMESPACE, "up-image-preload")
            .await
            .unwrap();
        assert!(plan["status"]["applying"].as_array().map_or(0, Vec::len) <= 2);
    }
    assert_eq!(most, 2);
    let plan = cluster
        .get(PLAN, names::CATTLE_NAMESPACE, "up-image-preload")
        .await
        .unwrap();
    assert!(is(&plan, "Complete"), "{plan:#}");
    assert_eq!(condition(&plan, "Complete")["reason"], "Complete");
    let hash = plan["status"]["latestHash"].clone();
    for node in cluster.list(NODE, "").await {
        assert_eq!(
            node["metadata"]["labels"]["plan.upgrade.cattle.io/up-image-preload"],
            hash
        );
    }
}

#[tokio::test(start_paused = true)]
async fn r01_the_environment_of_a_plans_jobs_is_envs_and_an_env_is_ignored() {
    let cluster = calm().await;
    cluster.serve_release("up").await;
    let named = cluster.create(PLAN, suc_plan("up", Component::ImagePreload, 3)).await;
    let mut misnamed = suc_plan("up", Component::ImagePreload, 3);
    misnamed["metadata"]["name"] = json!("misnamed");
    misnamed["spec"]["upgrade"]["env"] = named["spec"]["upgrade"]["envs"].clone();
    misnamed["spec"]["upgrade"].as_object_mut().unwrap().remove("envs");
    // The API server drops it and warns, or keeps it where a definition is open: either way it is not read.
    let careless: kube::Api<kube::api::DynamicObject> =
        kube::Api::namespaced_with(cluster.server.client(), names::CATTLE_NAMESPACE, &resource(PLAN));
    let misnamed = serde_json::from_value(misnamed).unwrap();
    careless.create(&Default::default(), &misnamed).await.unwrap();
    let environment = |job: &Value| job["spec"]["template"]["spec"]["containers"][0]["env"].clone();
    let of = async |plan: &str| {
        let jobs = cluster.list(JOB, names::CATTLE_NAMESPACE).await;
        let mut found = jobs
            .into_iter()
            .filter(|job| job["metadata"]["labels"]["upgrade.cattle.io/plan"] == plan);
        found.next().unwrap()
    };
    cluster.minutes(1).await;
    let given = environment(&of("up-image-preload").await);
    let given = given.as_array().unwrap().iter();
    assert!(given.clone().any(|one| one["value"] == "up"), "{given:?}");
    let left = environment(&of("misnamed").await);
    let names: Vec<_> = left.as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    let own = |name: &Value| name.as_str().unwrap().starts_with("SYSTEM_UPGRADE_");
    assert!(names.iter().all(own), "only what the controller adds itself: {names:?}");
    cluster
        .until(60, PLAN, names::CATTLE_NAMESPACE, "up-image-preload", |plan| {
            is(plan, "Complete")
        })
        .await;
    let lost = cluster.get(PLAN, names::CATTLE_NAMESPACE, "misnamed").await.unwrap();
    assert!(
        !is(&lost, "Complete"),
        "a program without a plan prepares nothing: {lost:#}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_plan_carry_its_labels_and_go_with_it() {
    let cluster = calm().await;
    cluster.create(PLAN, suc_plan("up", Component::ImagePreload, 3)).await;
    cluster.minutes(1).await;
    let jobs = cluster.list(JOB, names::CATTLE_NAMESPACE).await;
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
    let pods = cluster.list(POD, names::CATTLE_NAMESPACE).await;
    assert_eq!(
        pods[0]["metadata"]["labels"][labels::UPGRADE_COMPONENT],
        Component::ImagePreload.as_str()
    );
    assert_eq!(pods[0]["spec"]["nodeName"], "node-1");
    cluster.delete(PLAN, names::CATTLE_NAMESPACE, "up-image-preload").await;
    cluster.minutes(1).await;
    assert!(cluster.list(JOB, names::CATTLE_NAMESPACE).await.is_empty());
    let pods = cluster.list(POD, names::CATTLE_NAMESPACE).await;
    let left = pods
        .iter()
        .filter(|pod| !pod["metadata"]["labels"][labels::UPGRADE_PLAN].is_null());
    assert_eq!(left.count(), 0, "{pods:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_job_fails_its_plan() {
    let troubles = failing(Component::ImagePreload, None, JobFailure::Fails(100));
    let cluster = test_cluster(Shape::default(), Durations::default(), troubles).await;
    cluster.create(PLAN, suc_plan("up", Component::ImagePreload, 3)).await;
    // A hundred pods, ten minutes apart.
    let plan = cluster
        .until(18 * 60, PLAN, names::CATTLE_NAMESPACE, "up-image-preload", |plan| {
            condition(plan, "Complete")["reason"] == "JobFailed"
        })
        .await;
    assert_eq!(condition(&plan, "Complete")["status"], "False");
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_has_no_pod_until_it_is_resumed() {
    let cluster = calm().await;
    cluster.plan("up").await;
    let mut suspended = node_job("up", JobType::PreDrain, "node-1");
    suspended["spec"]["suspend"] = json!(true);
    let name = suspended["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.create(JOB, suspended).await;
    cluster.minutes(10).await;
    let job = cluster.get(JOB, HARVESTER, &name).await.unwrap();
    assert!(is(&job, "Suspended"));
    assert!(cluster.list(POD, HARVESTER).await.is_empty());
    cluster
        .patch(JOB, HARVESTER, &name, json!({"spec": {"suspend": false}}))
        .await;
    let job = cluster
        .until(10, JOB, HARVESTER, &name, |job| is(job, "Complete"))
        .await;
    assert_eq!(job["status"]["succeeded"], 1);
    assert!(!is(&job, "Suspended"));
}

#[tokio::test(start_paused = true)]
async fn a_job_replaces_failed_pods_up_to_its_limit() {
    let troubles = failing(Component::ClusterUpgrade, None, JobFailure::Fails(2));
    let twice = test_cluster(Shape::default(), Durations::default(), troubles).await;
    twice.serve_release("up").await;
    twice.create(JOB, cluster_job("up")).await;
    let done = twice
        .until(30, JOB, HARVESTER, "up-cluster-upgrade", |job| is(job, "Complete"))
        .await;
    assert_eq!(done["status"]["failed"], 2);

    let troubles = failing(Component::ClusterUpgrade, None, JobFailure::Fails(99));
    let always = test_cluster(Shape::default(), Durations::default(), troubles).await;
    always.create(JOB, cluster_job("up")).await;
    let failed = always
        .until(60, JOB, HARVESTER, "up-cluster-upgrade", |job| is(job, "Failed"))
        .await;
    assert_eq!(condition(&failed, "Failed")["reason"], "BackoffLimitExceeded");
    assert_eq!(failed["status"]["failed"], 7);
}

#[tokio::test(start_paused = true)]
async fn a_job_ends_at_its_deadline_and_goes_after_its_time_to_live() {
    let troubles = failing(Component::ClusterUpgrade, None, JobFailure::Hangs);
    let cluster = test_cluster(Shape::default(), Durations::default(), troubles).await;
    let mut hanging = cluster_job("up");
    hanging["spec"]["activeDeadlineSeconds"] = json!(600);
    hanging["spec"]["ttlSecondsAfterFinished"] = json!(300);
    cluster.create(JOB, hanging).await;
    let failed = cluster
        .until(11, JOB, HARVESTER, "up-cluster-upgrade", |job| is(job, "Failed"))
        .await;
    assert_eq!(condition(&failed, "Failed")["reason"], "DeadlineExceeded");
    cluster.until_gone(6, JOB, HARVESTER, "up-cluster-upgrade").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_its_image_waits_and_says_so() {
    let troubles = failing(Component::ClusterUpgrade, None, JobFailure::ImagePullBackOff);
    let cluster = test_cluster(Shape::default(), Durations::default(), troubles).await;
    cluster.create(JOB, cluster_job("up")).await;
    cluster.minutes(60).await;
    let pods = cluster.list(POD, HARVESTER).await;
    assert_eq!(pods[0]["status"]["phase"], "Pending");
    let waiting = &pods[0]["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "ImagePullBackOff");
    let job = cluster.get(JOB, HARVESTER, "up-cluster-upgrade").await.unwrap();
    assert!(!is(&job, "Failed") && !is(&job, "Complete"));
}

#[tokio::test(start_paused = true)]
async fn what_an_owner_owned_goes_with_it() {
    let cluster = calm().await;
    let owner = cluster
        .create(
            UPGRADE_PLAN,
            json!({
                "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
                "metadata": {"name": "up"}, "spec": {"version": "v1.8.0"},
            }),
        )
        .await;
    let mut owned = cluster_job("up");
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan", "name": "up",
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]);
    cluster.create(JOB, owned).await;
    cluster.create(JOB, cluster_job("other")).await;
    cluster.minutes(1).await;
    assert_eq!(cluster.list(POD, HARVESTER).await.len(), 2);
    cluster.delete(UPGRADE_PLAN, "", "up").await;
    cluster.until_gone(1, JOB, HARVESTER, "up-cluster-upgrade").await;
    cluster.minutes(1).await;
    let pods = cluster.list(POD, HARVESTER).await;
    let owners: Vec<&Value> = pods
        .iter()
        .map(|pod| &pod["metadata"]["ownerReferences"][0]["name"])
        .collect();
    assert_eq!(owners, ["other-cluster-upgrade"]);
    assert!(cluster.get(JOB, HARVESTER, "other-cluster-upgrade").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn what_has_an_owner_stays_whichever_of_them_is_seen_first() {
    let cluster = calm().await;
    cluster.world.abort();
    let mut owner = cluster_job("up");
    owner["spec"]["suspend"] = json!(true);
    let owner = cluster.create(JOB, owner).await;
    let mut owned = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "owned", "namespace": HARVESTER},
        "spec": {"containers": [{"name": "any", "image": "toolkit:1"}]},
    });
    let reference =
        |uid: &Value| json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "up-cluster-upgrade", "uid": uid}]);
    owned["metadata"]["ownerReferences"] = reference(&owner["metadata"]["uid"]);
    cluster.create(POD, owned.clone()).await;
    owned["metadata"]["name"] = json!("left");
    owned["metadata"]["ownerReferences"] = reference(&json!("an-owner-that-is-gone"));
    cluster.create(POD, owned).await;
    // The collector restarts, sees the pods first, and waits for nothing.
    let durations = Durations {
        garbage_collection: std::time::Duration::ZERO,
        ..Durations::default()
    };
    let restarted = World::new(
        cluster.server.client(),
        cluster.clock.clone(),
        cluster.shape.clone(),
        durations,
        Troubles::default(),
    );
    let restarted = tokio::spawn(restarted.run());
    cluster.until_gone(1, POD, HARVESTER, "left").await;
    cluster.minutes(1).await;
    assert!(cluster.get(POD, HARVESTER, "owned").await.is_some());
    restarted.abort();
}

/// Deletes the Job of these tests after what it owns.
async fn delete_in_foreground(cluster: &TestCluster) {
    let how = kube::api::DeleteParams::foreground();
    let jobs = cluster.api(JOB, HARVESTER);
    jobs.delete("up-cluster-upgrade", &how).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_deleted_in_the_foreground_stays_until_its_pod_is_gone() {
    let mut troubles = failing(Component::ClusterUpgrade, None, JobFailure::Hangs);
    troubles.stuck_kubelets = (1..=3).map(|number| format!("node-{number}")).collect();
    let durations = Durations {
        pod_stop: std::time::Duration::from_secs(30),
        ..Durations::default()
    };
    let cluster = test_cluster(Shape::default(), durations, troubles).await;
    cluster.create(JOB, cluster_job("up")).await;
    cluster.minutes(1).await;
    delete_in_foreground(&cluster).await;
    cluster.minutes(20).await;
    // Its kubelet cannot end it, and nothing else removes it: both stay.
    let job = cluster.get(JOB, HARVESTER, "up-cluster-upgrade").await.unwrap();
    assert_eq!(job["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let pod = cluster.list(POD, HARVESTER).await.remove(0);
    assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{}", pod["metadata"]);
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(pod["status"]["phase"], "Running");
    cluster.facts.set_troubles(Troubles::default());
    cluster.until_gone(6, JOB, HARVESTER, "up-cluster-upgrade").await;
    assert!(cluster.list(POD, HARVESTER).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_does_not_block_its_owner_is_not_waited_for() {
    let cluster = calm().await;
    let mut owner = cluster_job("up");
    owner["spec"]["suspend"] = json!(true);
    let owner = cluster.create(JOB, owner).await;
    for (name, blocks) in [("blocks", true), ("does-not", false)] {
        let reference = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "up-cluster-upgrade",
            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks}]);
        let finalizers = json!(["example.com/mine"]);
        let owned = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": HARVESTER, "ownerReferences": reference, "finalizers": finalizers,
                "labels": {labels::UPGRADE_PLAN: "up"}},
        });
        cluster.create("v1/ConfigMap", owned).await;
    }
    delete_in_foreground(&cluster).await;
    cluster.minutes(2).await;
    let deleting = async |name: &str| {
        let found = cluster.get("v1/ConfigMap", HARVESTER, name).await.unwrap();
        found["metadata"]["deletionTimestamp"].is_string()
    };
    assert!(deleting("blocks").await, "it goes before its owner");
    assert!(!deleting("does-not").await, "it goes after its owner");
    let patch = json!({"metadata": {"finalizers": null}});
    cluster.patch("v1/ConfigMap", HARVESTER, "blocks", patch).await;
    cluster.until_gone(1, JOB, HARVESTER, "up-cluster-upgrade").await;
    cluster.minutes(1).await;
    assert!(deleting("does-not").await);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_user_deletes_is_replaced() {
    let troubles = failing(Component::ClusterUpgrade, None, JobFailure::Hangs);
    let cluster = test_cluster(Shape::default(), Durations::default(), troubles).await;
    cluster.create(JOB, cluster_job("up")).await;
    cluster.minutes(1).await;
    let first = cluster.list(POD, HARVESTER).await.remove(0);
    let name = first["metadata"]["name"].as_str().unwrap();
    cluster.delete(POD, HARVESTER, name).await;
    cluster
        .until(2, POD, HARVESTER, name, |pod| {
            pod["metadata"]["uid"] != first["metadata"]["uid"]
        })
        .await;
}
