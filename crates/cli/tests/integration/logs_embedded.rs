//! A collection on the embedded API: restarts of containers and of the collector, an API server that goes away, a pod that is
//! deleted, and namespaces that may not be read. Time is paused.

use std::{io::Read, sync::Arc, time::Duration};

use api::{Phase, UpgradePlan};
use apiserver::{ApiServer, Config, ContainerInstance, FaultPlan, Identity, ReadFault};
use clock::Clock;
use k8s_openapi::{
    api::core::v1::{Namespace, Node, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use logs::{
    Class, Collection, Memory, Store,
    program::Options,
    store::{self, View},
};
use serde_json::{Value, json};
use tokio::sync::watch;

const NAMESPACE: &str = "harvester-system";

struct Cluster {
    server: ApiServer,
    clock: Clock,
    plan: UpgradePlan,
    disk: Memory,
}

impl Cluster {
    async fn start() -> Self {
        let clock = Clock::simulated("2026-03-13T03:57:09Z".parse().unwrap(), 1.0);
        let now = {
            let clock = clock.clone();
            Arc::new(move || clock.now())
        };
        let server = ApiServer::new(Config {
            enforce_rbac: true,
            ..Config::new(now)
        });
        let client = server.client();
        let definition: CustomResourceDefinition = serde_json::from_value(api::crd::upgrade_plan()).unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        definitions.create(&PostParams::default(), &definition).await.unwrap();
        let node: Node = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        Api::<Node>::all(client.clone())
            .create(&PostParams::default(), &node)
            .await
            .unwrap();
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let mut plan = UpgradePlan::new("up", Default::default());
        plan.spec.version = Some("v1.8.0".to_owned());
        let plans: Api<UpgradePlan> = Api::all(client);
        let plan = plans.create(&PostParams::default(), &plan).await.unwrap();
        Self {
            server,
            clock,
            plan,
            disk: Memory::default(),
        }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.server.client(), NAMESPACE)
    }

    /// Creates a pod that an object owns and that runs; returns its UID.
    async fn create(&self, name: &str, owner: &str) -> String {
        let pod: Pod = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": owner},
            ]},
            "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]},
        }))
        .unwrap();
        let pod = self.pods().create(&PostParams::default(), &pod).await.unwrap();
        self.status(name, 0, json!({"running": {}})).await;
        pod.uid().unwrap()
    }

    async fn status(&self, pod: &str, restarts: u32, state: Value) {
        let mut container = json!({"name": "c", "restartCount": restarts, "state": state});
        if restarts > 0 {
            container["lastState"] = json!({"terminated": {"exitCode": 1}});
        }
        let patch = json!({"status": {"phase": "Running", "containerStatuses": [container]}});
        let (pods, params) = (self.pods(), PatchParams::default());
        pods.patch_status(pod, &params, &Patch::Merge(&patch)).await.unwrap();
    }

    fn print(&self, pod: &str, uid: &str, restart: u32, text: &str) {
        let of = ContainerInstance {
            namespace: NAMESPACE,
            pod,
            uid,
            container: "c",
            restart,
        };
        self.server.logs().append(&of, self.clock.now(), text);
    }

    async fn end_upgrade(&self) {
        let plans: Api<UpgradePlan> = Api::all(self.server.client());
        let patch = json!({"status": {"currentPhase": Phase::Succeeded.to_string()}});
        let params = PatchParams::default();
        plans.patch_status("up", &params, &Patch::Merge(&patch)).await.unwrap();
    }

    fn collection(&self, client: Client) -> Collection {
        let disk = Arc::new(self.disk.clone());
        Collection::open(client, self.clock.clone(), self.plan.clone(), disk, Options::default()).unwrap()
    }

    fn start_collector(&self, client: Client) -> tokio::task::JoinHandle<Store> {
        let collection = self.collection(client);
        tokio::spawn(async move {
            let (progress, _) = watch::channel(Default::default());
            collection.run(&progress, None).await.unwrap()
        })
    }

    fn uid(&self) -> String {
        self.plan.uid().unwrap()
    }

    fn kept(&self) -> View {
        store::read_only(Arc::new(self.disk.clone())).unwrap()
    }
}

/// The texts of all lines of a pod, in the order of its starts.
fn lines(view: &View, pod: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for stream in view.streams().into_iter().filter(|one| one.key.container.pod == pod) {
        let mut text = String::new();
        view.read(stream).read_to_string(&mut text).unwrap();
        lines.extend(text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()));
    }
    lines
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Every request for a log and every list is refused.
fn away() -> FaultPlan {
    FaultPlan::none().with_reads(|_| ReadFault::Reject(503))
}

#[tokio::test(start_paused = true)]
async fn every_line_is_kept_once_whatever_restarts_or_goes_away() {
    let cluster = Cluster::start().await;
    let collector = cluster.start_collector(cluster.server.client());
    let uid = cluster.create("worker", &cluster.uid()).await;
    cluster.print("worker", &uid, 0, "one");
    seconds(5).await;
    // The API server is away; the pod is not.
    cluster.server.set_faults(away());
    cluster.print("worker", &uid, 0, "two");
    seconds(20).await;
    cluster.server.set_faults(FaultPlan::none());
    seconds(20).await;
    // The collector ends without a word, and another one continues.
    collector.abort();
    cluster.print("worker", &uid, 0, "three");
    cluster.status("worker", 1, json!({"running": {}})).await;
    cluster.print("worker", &uid, 1, "after the restart");
    seconds(20).await;
    let collector = cluster.start_collector(cluster.server.client());
    seconds(5).await;
    // A pod of two seconds.
    let short = cluster.create("short", &cluster.uid()).await;
    cluster.print("short", &short, 0, "here");
    seconds(1).await;
    cluster.print("short", &short, 0, "and gone");
    cluster.status("short", 0, json!({"terminated": {"exitCode": 0}})).await;
    seconds(1).await;
    cluster
        .pods()
        .delete("short", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    cluster.print("worker", &uid, 1, "Authorization: Bearer abcdefghijklmnop");
    seconds(5).await;
    cluster.end_upgrade().await;
    let store = collector.await.unwrap();
    let view = store.view();
    let worker = [
        "one",
        "two",
        "three",
        "after the restart",
        "Authorization: [masked: authorization]",
    ];
    assert_eq!(lines(&view, "worker"), worker);
    assert_eq!(lines(&view, "short"), ["here", "and gone"]);
    assert_eq!(
        lines(&cluster.kept(), "worker"),
        worker,
        "what is kept is what was read"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_only_says_that_it_is_ours_is_a_component_of_the_cluster() {
    let cluster = Cluster::start().await;
    let own = cluster.create("own", &cluster.uid()).await;
    let foreign = cluster.create("foreign", "another-uid").await;
    cluster.print("own", &own, 0, "one");
    cluster.print("foreign", &foreign, 0, "two");
    let mut collection = cluster.collection(cluster.server.client());
    let failures = collection.read_once().await.unwrap();
    let names: Vec<&str> = failures.iter().map(|(what, _)| what.as_str()).collect();
    assert_eq!(names, ["plans of cattle-system"], "this cluster has no Plans");
    let view = collection.store.get_mut().view();
    let classes: Vec<(&str, Class)> = view
        .streams()
        .iter()
        .map(|stream| (stream.key.container.pod.as_str(), stream.info.class))
        .collect();
    assert_eq!(classes, [("foreign", Class::System), ("own", Class::Own)]);
}

#[tokio::test(start_paused = true)]
async fn namespaces_that_may_not_be_read_keep_nothing_else_from_being_read() {
    let cluster = Cluster::start().await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "reader", "namespace": NAMESPACE},
        "rules": [{"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list", "watch"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "reader", "namespace": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}],
    });
    for (kind, object) in [("Role", role), ("RoleBinding", binding)] {
        let kind = kube::api::GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind);
        let resource = kube::api::ApiResource::from_gvk(&kind);
        let api: Api<kube::api::DynamicObject> = Api::namespaced_with(cluster.server.client(), NAMESPACE, &resource);
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    let uid = cluster.create("own", &cluster.uid()).await;
    cluster.print("own", &uid, 0, "one");
    let reader = cluster.server.client_as(Identity {
        user: "reader".to_owned(),
        groups: vec!["system:authenticated".to_owned()],
    });
    let mut once = cluster.collection(reader.clone());
    let failures = once.read_once().await.unwrap();
    assert!(
        failures.iter().any(|(what, _)| what == "pods of kube-system"),
        "{failures:?}"
    );
    assert_eq!(lines(&once.store.get_mut().view(), "own"), ["one"]);
    cluster.print("own", &uid, 0, "two");
    let collector = cluster.start_collector(reader);
    seconds(60).await;
    collector.abort();
    assert_eq!(lines(&cluster.kept(), "own"), ["one", "two"]);
}
