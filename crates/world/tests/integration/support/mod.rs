//! A cluster that lives in virtual time, and an operator that walks through an upgrade as naively as can be.

use std::{sync::Arc, time::Duration};

use api::{Component, JobType};
use apiserver::{ApiServer, Config};
use clock::Clock;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use manager::{client::for_product, field_validation::Mode};
use serde_json::{Value, json};
use world::{Definitions, Durations, Facts, Shape, Troubles, World};

pub(crate) struct TestCluster {
    pub(crate) server: ApiServer,
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) facts: Facts,
    pub(crate) shape: Shape,
    pub(crate) world: tokio::task::JoinHandle<()>,
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        self.world.abort();
    }
}

pub(crate) async fn test_cluster(shape: Shape, durations: Durations, troubles: Troubles) -> TestCluster {
    let clock = Clock::simulated("2026-03-13T03:57:09Z".parse().unwrap(), 1.0);
    let now = clock.clone();
    let server = ApiServer::new(Config::new(Arc::new(move || now.now())));
    let (definitions, mode) = match testbed::real_definitions() {
        Some(real) => (Definitions::Given(real), Mode::Strict),
        None => (Definitions::Ours, Mode::Warn),
    };
    let (client, _) = for_product(server.client(), mode);
    world::install_by(&client, definitions, &shape.objects()).await.unwrap();
    let logs = server.logs();
    let world = World::new(client.clone(), clock.clone(), shape.clone(), durations, troubles)
        .with_logs_to(move |line| print(&logs, line));
    let facts = world.facts();
    let proxied = facts.clone();
    server.set_node_proxy(Arc::new(move |node, path| proxied.kubelet(node, path)));
    let world = tokio::spawn(world.run());
    TestCluster {
        server,
        client,
        clock,
        facts,
        shape,
        world,
    }
}

/// Does what a container runtime does with what a container prints.
fn print(logs: &apiserver::Logs, line: &world::PrintedLine<'_>) {
    let of = apiserver::ContainerInstance {
        namespace: line.namespace,
        pod: line.pod,
        uid: line.uid,
        container: line.container,
        restart: line.restart,
    };
    logs.append(&of, line.at, line.text);
}

/// `group/version/Kind`.
pub(crate) fn resource(kind: &str) -> ApiResource {
    let parts: Vec<&str> = kind.split('/').collect();
    match parts.as_slice() {
        [version, kind] => ApiResource::from_gvk(&GroupVersionKind::gvk("", version, kind)),
        [group, version, kind] => ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)),
        _ => panic!("{kind}"),
    }
}

impl TestCluster {
    pub(crate) fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource(kind))
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource(kind))
        }
    }

    pub(crate) async fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = self.api(kind, namespace).get_opt(name).await.unwrap();
        found.map(|found| serde_json::to_value(found).unwrap())
    }

    pub(crate) async fn list(&self, kind: &str, namespace: &str) -> Vec<Value> {
        let list = self.api(kind, namespace).list(&ListParams::default()).await.unwrap();
        list.items
            .into_iter()
            .map(|item| serde_json::to_value(item).unwrap())
            .collect()
    }

    pub(crate) async fn create(&self, kind: &str, object: Value) -> Value {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let created = self
            .api(kind, &namespace)
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        serde_json::to_value(created).unwrap()
    }

    pub(crate) async fn patch(&self, kind: &str, namespace: &str, name: &str, patch: Value) {
        self.api(kind, namespace)
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    pub(crate) async fn delete(&self, kind: &str, namespace: &str, name: &str) {
        self.api(kind, namespace)
            .delete(name, &Default::default())
            .await
            .unwrap();
    }

    /// Waits until an object is as wanted, or fails after so many virtual minutes.
    pub(crate) async fn until(
        &self,
        minutes: u64,
        kind: &str,
        namespace: &str,
        name: &str,
        test: impl Fn(&Value) -> bool,
    ) -> Value {
        let as_value = |object: &DynamicObject| serde_json::to_value(object).unwrap();
        let wanted = |object: Option<&DynamicObject>| object.is_some_and(|object| test(&as_value(object)));
        let found = tokio::time::timeout(
            Duration::from_secs(minutes * 60),
            await_condition(self.api(kind, namespace), name, wanted),
        );
        match found.await {
            Ok(found) => as_value(&found.unwrap().unwrap()),
            Err(_) => panic!(
                "{kind} {name} did not become as wanted: {:#?}",
                self.get(kind, namespace, name).await
            ),
        }
    }

    pub(crate) async fn until_gone(&self, minutes: u64, kind: &str, namespace: &str, name: &str) {
        let gone = |object: Option<&DynamicObject>| object.is_none();
        let waiting = await_condition(self.api(kind, namespace), name, gone);
        let ended = tokio::time::timeout(Duration::from_secs(minutes * 60), waiting).await;
        assert!(ended.is_ok(), "{kind} {name} is still there");
    }

    /// Creates a plan as far as programs read it.
    pub(crate) async fn plan(&self, name: &str) {
        let plan = json!({
            "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan", "metadata": {"name": name},
            "spec": {"version": self.shape.to},
        });
        self.create(UPGRADE_PLAN, plan).await;
        self.note_previous_version(name).await;
    }

    /// The manager has noted which version runs.
    pub(crate) async fn note_previous_version(&self, plan: &str) {
        let patch = Patch::Merge(json!({"status": {"previousVersion": self.shape.from}}));
        let api = self.api(UPGRADE_PLAN, "");
        api.patch_status(plan, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Creates a plan and its repository, and waits until that serves.
    pub(crate) async fn serve_release(&self, name: &str) {
        self.plan(name).await;
        self.serve_repository(name, 1).await;
    }

    /// Creates the repository of a plan, and waits until it serves.
    pub(crate) async fn serve_repository(&self, plan: &str, replicas: usize) {
        let repo = json!({api::labels::UPGRADE_PLAN: plan, api::labels::UPGRADE_COMPONENT: Component::Repo});
        let (name, namespace) = (api::names::repo(plan), api::names::HARVESTER_NAMESPACE);
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace, "labels": repo},
            "spec": {"replicas": replicas, "selector": {"matchLabels": repo}, "template": {
                "metadata": {"labels": repo}, "spec": {"containers": [{"name": "nginx-iso-server", "image": "toolkit:1"}]}}},
        });
        self.create("apps/v1/Deployment", deployment).await;
        self.until(5, "apps/v1/Deployment", namespace, &name, |repo| {
            repo["status"]["availableReplicas"] == replicas
        })
        .await;
    }

    pub(crate) async fn minutes(&self, minutes: u64) {
        self.clock.sleep(Duration::from_secs(minutes * 60)).await;
    }
}

pub(crate) const JOB: &str = "batch/v1/Job";
pub(crate) const POD: &str = "v1/Pod";
pub(crate) const NODE: &str = "v1/Node";
pub(crate) const SECRET: &str = "v1/Secret";
pub(crate) const PLAN: &str = "upgrade.cattle.io/v1/Plan";
pub(crate) const CLUSTER: &str = "provisioning.cattle.io/v1/Cluster";
pub(crate) const VM: &str = "kubevirt.io/v1/VirtualMachine";
pub(crate) const VMI: &str = "kubevirt.io/v1/VirtualMachineInstance";
pub(crate) const UPGRADE_PLAN: &str = "management.harvesterhci.io/v1beta1/UpgradePlan";

pub(crate) fn condition<'a>(object: &'a Value, type_: &str) -> &'a Value {
    let conditions = object["status"]["conditions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    conditions
        .iter()
        .find(|condition| condition["type"] == type_)
        .unwrap_or(&Value::Null)
}

pub(crate) fn is(object: &Value, type_: &str) -> bool {
    condition(object, type_)["status"] == "True"
}

pub(crate) fn tolerations() -> Value {
    json!([
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "kubevirt.io/drain", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "node-role.kubernetes.io/etcd", "operator": "Exists", "effect": "NoExecute"},
    ])
}

/// The Job of the cluster, as the manager makes it.
pub(crate) fn cluster_job(plan: &str) -> Value {
    let labels = json!({api::labels::UPGRADE_PLAN: plan, api::labels::UPGRADE_COMPONENT: Component::ClusterUpgrade});
    job(&api::names::cluster_job(plan), &labels, &program())
}

/// A Job of a node, as the manager makes it.
pub(crate) fn node_job(plan: &str, job_type: JobType, node: &str) -> Value {
    let labels = json!({
        api::labels::UPGRADE_PLAN: plan, api::labels::UPGRADE_COMPONENT: Component::NodeUpgrade,
        api::labels::JOB_TYPE: job_type, api::labels::NODE: node,
    });
    let mut spec = program();
    spec["nodeName"] = json!(node);
    job(&api::names::node_job(plan, job_type, node), &labels, &spec)
}

/// The pod of a Job.
fn program() -> Value {
    json!({"restartPolicy": "Never", "tolerations": tolerations(), "containers": [{"name": "apply", "image": "toolkit:1"}]})
}

fn job(name: &str, labels: &Value, spec: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": api::names::HARVESTER_NAMESPACE, "labels": labels},
        "spec": {"ttlSecondsAfterFinished": 604800, "template": {"metadata": {"labels": labels}, "spec": spec}},
    })
}

pub(crate) fn suc_plan(plan: &str, component: Component, concurrency: i64) -> Value {
    json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
        "metadata": {
            "name": api::names::suc_plan(plan, component), "namespace": api::names::CATTLE_NAMESPACE,
            "labels": {api::labels::UPGRADE_PLAN: plan, api::labels::UPGRADE_COMPONENT: component},
        },
        "spec": {
            "concurrency": concurrency, "jobActiveDeadlineSecs": 0, "serviceAccountName": "system-upgrade-controller",
            "nodeSelector": {"matchLabels": {api::labels::MANAGED: "true"}}, "tolerations": tolerations(),
            "upgrade": {
                "image": "toolkit", "command": ["upgrade_node.sh"],
                "envs": [{"name": "HARVESTER_UPGRADEPLAN_NAME", "value": plan}, {"name": "MANIFESTS", "value": "rke2-multus.yaml"}],
            },
            "version": "v1.8.0",
        },
    })
}

pub(crate) fn strategy(concurrency: &str) -> Value {
    let options = json!({
        "enabled": true, "force": true, "ignoreDaemonSets": true, "deleteEmptyDirData": true,
        "preDrainHooks": [{"annotation": api::annotations::PRE_HOOK}],
        "postDrainHooks": [{"annotation": api::annotations::POST_HOOK}],
    });
    json!({
        "controlPlaneConcurrency": "1", "workerConcurrency": concurrency,
        "controlPlaneDrainOptions": options, "workerDrainOptions": options,
    })
}

/// Three nodes on which nothing goes wrong.
pub(crate) async fn calm() -> TestCluster {
    test_cluster(Shape::default(), Durations::default(), Troubles::default()).await
}

/// The instances on a node.
pub(crate) async fn vms_on(cluster: &TestCluster, node: &str) -> Vec<String> {
    let vmis = cluster.list(VMI, "").await;
    let there = vmis.iter().filter(|vmi| vmi["status"]["nodeName"] == node);
    there
        .map(|vmi| vmi["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}
