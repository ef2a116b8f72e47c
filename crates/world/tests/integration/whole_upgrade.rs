//! A whole upgrade, carried by a naive operator, takes as long as a real one did.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::support::*;
use api::{Component, JobType, annotations, labels, names};
use cache::Cache;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::Notify;
use world::{Durations, Shape, Troubles};

const NAME: &str = "hvst-upgrade-1";

struct Walk {
    cluster: TestCluster,
    marks: Vec<(&'static str, Duration)>,
}

impl Walk {
    fn mark(&mut self, what: &'static str) {
        self.marks.push((what, self.cluster.clock.elapsed()));
    }

    /// How long it took from the mark before to this one.
    fn took(&self, what: &str) -> u64 {
        let at = self.marks.iter().position(|(mark, _)| *mark == what).unwrap();
        let before = at.checked_sub(1).map_or(Duration::ZERO, |before| self.marks[before].1);
        (self.marks[at].1 - before).as_secs()
    }

    async fn plan(&self, component: Component, concurrency: i64) {
        let plan = self.cluster.create(PLAN, suc_plan(NAME, component, concurrency)).await;
        let name = plan["metadata"]["name"].as_str().unwrap().to_owned();
        self.cluster
            .until(3000, PLAN, names::CATTLE_NAMESPACE, &name, |plan| is(plan, "Complete"))
            .await;
    }

    async fn cluster_job(&self) {
        self.complete(cluster_job(NAME)).await;
    }

    async fn node_job(&self, job_type: JobType, node: &str) {
        self.complete(node_job(NAME, job_type, node)).await;
    }

    /// Creates a Job, and waits for its end.
    async fn complete(&self, job: Value) {
        let job = self.cluster.create(JOB, job).await;
        let name = job["metadata"]["name"].as_str().unwrap().to_owned();
        self.cluster
            .until(3000, JOB, names::HARVESTER_NAMESPACE, &name, |job| is(job, "Complete"))
            .await;
    }
}

async fn prepare(walk: &mut Walk) {
    let plan = json!({
        "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan", "metadata": {"name": NAME},
        "spec": {"version": "v1.8.0", "restoreVM": true},
    });
    walk.cluster.create(UPGRADE_PLAN, plan).await;
    walk.cluster.note_previous_version(NAME).await;
    let image = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {"name": names::iso_image(NAME), "namespace": names::HARVESTER_NAMESPACE},
        "spec": {"backend": "cdi", "sourceType": "download", "url": "https://x/y.iso", "retry": 3, "displayName": "y"},
    });
    let kind = "harvesterhci.io/v1beta1/VirtualMachineImage";
    walk.cluster.create(kind, image).await;
    walk.cluster
        .until(10, kind, names::HARVESTER_NAMESPACE, &names::iso_image(NAME), |image| {
            is(image, "Imported")
        })
        .await;
    walk.mark("iso");
    let url = format!(
        "{}/harvester-release.yaml",
        names::repo_url(NAME, names::RepoScheme::Http)
    );
    assert!(walk.cluster.facts.repository(&url, None).is_err());
    let repo = json!({labels::UPGRADE_PLAN: NAME, labels::UPGRADE_COMPONENT: Component::Repo});
    let meta = json!({"name": names::repo(NAME), "namespace": names::HARVESTER_NAMESPACE, "labels": repo});
    let replicas = walk.cluster.shape.nodes.min(2);
    walk.cluster
        .create(
            "v1/Service",
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": meta,
                "spec": {"selector": repo, "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}]},
            }),
        )
        .await;
    walk.cluster.serve_repository(NAME, replicas).await;
    let slices = walk
        .cluster
        .list("discovery.k8s.io/v1/EndpointSlice", names::HARVESTER_NAMESPACE)
        .await;
    assert_eq!(slices[0]["metadata"]["labels"][labels::SERVICE_NAME], names::repo(NAME));
    assert!(
        slices[0]["endpoints"]
            .as_array()
            .unwrap()
            .iter()
            .all(|endpoint| endpoint["conditions"]["ready"] == true)
    );
    let service = walk
        .cluster
        .get("v1/Service", names::HARVESTER_NAMESPACE, &names::repo(NAME))
        .await
        .unwrap();
    assert!(
        service["spec"]["clusterIP"]
            .as_str()
            .is_some_and(|address| !address.is_empty())
    );
    let yaml = walk.cluster.facts.repository(&url, None).unwrap();
    assert!(String::from_utf8_lossy(&yaml).contains("os: Harvester v1.8.0"));
    walk.mark("repo");
    let nodes = i64::try_from(walk.cluster.shape.nodes).unwrap();
    walk.plan(Component::ImagePreload, nodes).await;
    walk.mark("preload");
    walk.cluster_job().await;
    walk.mark("cluster");
}

/// Answers hooks by Jobs until all machines have reached the target.
async fn upgrade_nodes(walk: &mut Walk) -> BTreeMap<String, Duration> {
    let cluster = &walk.cluster;
    let spec = json!({"spec": {"kubernetesVersion": "v1.35.2+rke2r1", "rkeConfig": {"provisionGeneration": 1, "upgradeStrategy": strategy("1")}}});
    cluster
        .patch(CLUSTER, names::FLEET_NAMESPACE, names::LOCAL_CLUSTER, spec)
        .await;
    let mut asked = BTreeMap::new();
    let text = |object: &Value, key: &str| object["metadata"]["annotations"][key].as_str().map(str::to_owned);
    let bell = Arc::new(Notify::new());
    let secrets: Cache<Secret> = Cache::default();
    let watch = secrets.clone().run(
        Api::namespaced(cluster.client.clone(), names::FLEET_NAMESPACE),
        Default::default(),
        |_| (),
        bell.clone(),
    );
    let watch = tokio::spawn(watch);
    let open = |secret: &Secret| {
        let annotations = secret.metadata.annotations.clone().unwrap_or_default();
        let token = annotations.get(annotations::RKE_PRE_DRAIN)?.clone();
        (annotations.get(annotations::PRE_HOOK) != Some(&token)).then_some((secret.name_any(), token))
    };
    for _ in 0..cluster.shape.nodes {
        let (secret, token) = loop {
            if let Some(found) = secrets.list().iter().find_map(|secret| open(secret)) {
                break found;
            }
            bell.notified().await;
        };
        let machine = secret.trim_end_matches("-machine-plan");
        let machine = cluster
            .get("cluster.x-k8s.io/v1beta2/Machine", names::FLEET_NAMESPACE, machine)
            .await
            .unwrap();
        let node = machine["status"]["nodeRef"]["name"].as_str().unwrap().to_owned();
        asked.insert(node.clone(), cluster.clock.elapsed());
        let before = cluster.get(NODE, "", &node).await.unwrap();
        assert_eq!(before["spec"]["unschedulable"], true);
        walk.node_job(JobType::PreDrain, &node).await;
        let ack = |key: &str, token: &str| json!({"metadata": {"annotations": {key: token}}});
        cluster
            .patch(
                SECRET,
                names::FLEET_NAMESPACE,
                &secret,
                ack(annotations::PRE_HOOK, &token),
            )
            .await;
        let asks = cluster
            .until(60, SECRET, names::FLEET_NAMESPACE, &secret, |secret| {
                text(secret, annotations::RKE_POST_DRAIN).is_some()
            })
            .await;
        walk.node_job(JobType::PostDrain, &node).await;
        let back = cluster
            .until(20, NODE, "", &node, |node| {
                node["status"]["nodeInfo"]["osImage"] == "Harvester v1.8.0" && is(node, "Ready")
            })
            .await;
        assert_ne!(
            before["status"]["nodeInfo"]["bootID"],
            back["status"]["nodeInfo"]["bootID"]
        );
        assert_eq!(back["status"]["nodeInfo"]["kubeletVersion"], "v1.35.2+rke2r1");
        let token = text(&asks, annotations::RKE_POST_DRAIN).unwrap();
        cluster
            .patch(
                SECRET,
                names::FLEET_NAMESPACE,
                &secret,
                ack(annotations::POST_HOOK, &token),
            )
            .await;
        cluster
            .until(10, SECRET, names::FLEET_NAMESPACE, &secret, |secret| {
                text(secret, annotations::RKE_POST_DRAIN).is_none()
            })
            .await;
        let config = cluster
            .get(
                "v1/ConfigMap",
                names::HARVESTER_NAMESPACE,
                &names::restore_config_map(NAME),
            )
            .await
            .unwrap();
        if config["data"][&node].as_str().is_some_and(|list| !list.is_empty()) {
            cluster.create(JOB, node_job(NAME, JobType::RestoreVm, &node)).await;
        }
    }
    cluster
        .until(10, CLUSTER, names::FLEET_NAMESPACE, names::LOCAL_CLUSTER, |cluster| {
            let conditions = cluster["status"]["conditions"].as_array().into_iter().flatten();
            let mut updated = conditions.filter(|condition| condition["type"] == "Updated");
            updated.all(|condition| condition["status"] == "True")
        })
        .await;
    watch.abort();
    asked
}

#[tokio::test(start_paused = true)]
async fn three_nodes_take_as_long_as_they_did_in_life() {
    let cluster = test_cluster(Shape::default(), Durations::default(), Troubles::default()).await;
    let mut walk = Walk {
        cluster,
        marks: Vec::new(),
    };
    prepare(&mut walk).await;
    let before: BTreeMap<String, Value> = running(&walk.cluster).await;
    walk.plan(Component::SkipManifestsApply, 3).await;
    let asked = upgrade_nodes(&mut walk).await;
    walk.mark("nodes");
    walk.plan(Component::ImageCleanup, 1).await;
    walk.mark("cleanup");
    let near = |what: &str, seconds: u64| {
        let took = walk.took(what);
        assert!(
            took.abs_diff(seconds) <= 10,
            "{what} took {took}, not {seconds}: {:?}",
            walk.marks
        );
    };
    near("iso", 284);
    near("repo", 5);
    near("preload", 601);
    // The other 20 of the seed's 915 seconds are the manager's: Fleet applies what it set in the chart's values first.
    near("cluster", 895);
    near("nodes", 63 * 60 + 27);
    near("cleanup", 133);
    let order: Vec<&String> = asked.keys().collect();
    assert_eq!(order, ["node-1", "node-2", "node-3"]);
    assert!(asked["node-1"] < asked["node-2"] && asked["node-2"] < asked["node-3"]);

    walk.cluster.clock.sleep(Duration::from_secs(120)).await;
    let after = running(&walk.cluster).await;
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        after.keys().collect::<Vec<_>>(),
        "every VM that ran runs again"
    );
    let events = walk.cluster.list("v1/Event", "default").await;
    let count = |reason: &str| events.iter().filter(|event| event["reason"] == reason).count();
    assert_eq!(count("RestoreVMConfigMapCreated"), 1);
    assert_eq!(count("VMShutdownCompleted"), 3);
    assert_eq!(count("RestoreVMCompleted"), 2);
    let setting = walk
        .cluster
        .get("harvesterhci.io/v1beta1/Setting", "", "server-version")
        .await
        .unwrap();
    assert_eq!(setting["value"], "v1.8.0");
    let volumes = walk
        .cluster
        .list("longhorn.io/v1beta2/Volume", names::LONGHORN_NAMESPACE)
        .await;
    assert!(
        volumes
            .iter()
            .all(|volume| volume["status"]["robustness"] != "degraded"),
        "{volumes:#?}"
    );
    let rancher_cluster = walk
        .cluster
        .get(CLUSTER, names::FLEET_NAMESPACE, names::LOCAL_CLUSTER)
        .await
        .unwrap();
    assert!(rancher_cluster["spec"]["rkeConfig"]["registries"]["mirrors"]["docker.io"].is_object());
}

async fn running(cluster: &TestCluster) -> BTreeMap<String, Value> {
    let vmis = cluster.list(VMI, "").await;
    vmis.iter()
        .map(|vmi| {
            (
                vmi["metadata"]["name"].as_str().unwrap().to_owned(),
                vmi["status"]["nodeName"].clone(),
            )
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_single_node_stops_its_vms_reboots_and_starts_them_again() {
    let shape = Shape {
        nodes: 1,
        vms: 3,
        ..Default::default()
    };
    let cluster = test_cluster(shape, Durations::default(), Troubles::default()).await;
    let mut walk = Walk {
        cluster,
        marks: Vec::new(),
    };
    prepare(&mut walk).await;
    assert_eq!(running(&walk.cluster).await.len(), 3);
    walk.node_job(JobType::SingleNodeUpgrade, "node-1").await;
    assert!(running(&walk.cluster).await.is_empty());
    let back = |node: &Value| node["status"]["nodeInfo"]["osImage"] == "Harvester v1.8.0" && is(node, "Ready");
    let node = walk.cluster.until(20, NODE, "", "node-1", back).await;
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1.35.2+rke2r1");
    walk.node_job(JobType::RestoreVm, "node-1").await;
    walk.cluster.minutes(2).await;
    assert_eq!(running(&walk.cluster).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn nothing_needs_time_and_witnesses_carry_no_vms() {
    let shape = Shape {
        nodes: 5,
        witness: true,
        vms: 8,
        ..Default::default()
    };
    let cluster = test_cluster(shape, Durations::instant(), Troubles::default()).await;
    let mut walk = Walk {
        cluster,
        marks: Vec::new(),
    };
    prepare(&mut walk).await;
    let before = running(&walk.cluster).await;
    upgrade_nodes(&mut walk).await;
    walk.plan(Component::ImageCleanup, 1).await;
    walk.cluster.minutes(1).await;
    let after = running(&walk.cluster).await;
    assert_eq!(before.len(), after.len());
    assert!(after.values().all(|node| node != "node-3"), "{after:?}");
    let pods = walk.cluster.list(POD, names::HARVESTER_NAMESPACE).await;
    let repo = |pod: &&Value| pod["metadata"]["labels"][labels::UPGRADE_COMPONENT] == Component::Repo.as_str();
    assert!(pods.iter().filter(repo).all(|pod| pod["spec"]["nodeName"] != "node-3"));
}

/// What was written, in order.
async fn writes() -> Vec<String> {
    let cluster = test_cluster(Shape::default(), Durations::default(), Troubles::default()).await;
    let mut walk = Walk {
        cluster,
        marks: Vec::new(),
    };
    prepare(&mut walk).await;
    upgrade_nodes(&mut walk).await;
    let history = walk.cluster.server.store().history();
    history.iter().map(|write| format!("{write:?}")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_run_is_the_same_each_time() {
    let (first, second) = (writes().await, writes().await);
    assert!(first.len() > 500, "{}", first.len());
    for (one, other) in first.iter().zip(&second) {
        assert_eq!(one, other);
    }
    assert_eq!(first.len(), second.len());
}
