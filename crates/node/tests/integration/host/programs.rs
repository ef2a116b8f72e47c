//! A cluster around the fake node, and how programs are run in it: whole, in part, again.

use std::{future::Future, sync::OnceLock, time::Duration};

use api::{UpgradePlan, labels, names};
use apiserver::{Fault, FaultPlan};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use node::{
    host::HostRoot,
    limits::Limits,
    node_run::{CONTAINER, NodeRun, OwnPod},
};
use program::{
    Result,
    step::{self, Step},
};
use serde_json::{Value, json};

use crate::host::fake_node::{FakeNode, NEW_OS, RKE2};
use crate::vm::harness::{Harness, PLAN};

pub(crate) const NODE: &str = "node-1";

/// A table of steps.
pub(crate) type Program = fn(&Limits) -> Vec<Step<NodeRun>>;

pub(crate) struct Cluster {
    pub(crate) harness: Harness,
    pub(crate) node: FakeNode,
}

impl Cluster {
    /// So many nodes, a plan whose release is known, a repository that is served.
    pub(crate) async fn new(nodes: usize) -> Self {
        let harness = Harness::new(&[]).await;
        let mut objects = vec![json!({"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
            "metadata": {"name": "local", "namespace": "fleet-local"}, "spec": {"kubernetesVersion": "v1.34.1+rke2r1"}})];
        objects.extend((1..=nodes).map(|number| {
            json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("node-{number}"), "labels": {labels::MANAGED: "true"}},
            "spec": {"taints": [{"key": "users-own", "effect": "PreferNoSchedule"}]},
            "status": {"nodeInfo": {"kubeletVersion": "v1.34.1+rke2r1", "osImage": "Harvester v1.7.1",
                "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "systemUUID": ""}}})
        }));
        world::install(&harness.strict(), &objects).await.unwrap();
        let cluster = Self {
            harness,
            node: FakeNode::new(),
        };
        let release = json!({"status": {"releaseMetadata": {"harvester": "v1.9.0", "os": NEW_OS, "kubernetes": RKE2}}});
        let plans: Api<UpgradePlan> = cluster.all();
        plans
            .patch_status(PLAN, &PatchParams::default(), &Patch::Merge(&release))
            .await
            .unwrap();
        cluster.serve_repository().await;
        cluster
    }

    async fn serve_repository(&self) {
        let api: Api<Deployment> = Api::namespaced(self.harness.server.client(), names::HARVESTER_NAMESPACE);
        let deployment = json!({"metadata": {"name": "up-repo"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        let deployment = serde_json::from_value(deployment).unwrap();
        api.create(&PostParams::default(), &deployment).await.unwrap();
        let status = json!({"status": {"conditions": [{"type": "Available", "status": "True"}]}});
        api.patch_status("up-repo", &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
    }

    pub(crate) fn all<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        Api::all(self.harness.server.client())
    }

    pub(crate) async fn install(&self, objects: &[Value]) {
        world::install(&self.harness.strict(), objects).await.unwrap();
    }

    pub(crate) async fn patch_plan(&self, patch: Value) {
        let plans: Api<UpgradePlan> = self.all();
        plans
            .patch(PLAN, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    pub(crate) async fn kubelet_becomes(&self, version: &str) {
        let nodes: Api<Node> = self.all();
        let status = json!({"status": {"nodeInfo": {"kubeletVersion": version}}});
        nodes
            .patch_status(NODE, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
    }

    pub(crate) async fn taints(&self) -> Vec<String> {
        let nodes: Api<Node> = self.all();
        let node = nodes.get(NODE).await.unwrap();
        let taints = node.spec.unwrap().taints.unwrap_or_default();
        let shown = taints.iter().map(|taint| {
            format!(
                "{}={}:{}",
                taint.key,
                taint.value.as_deref().unwrap_or_default(),
                taint.effect
            )
        });
        shown.collect()
    }

    /// A program that begins: nothing is known but what the node and the cluster show.
    pub(crate) fn begin(&self) -> NodeRun {
        NodeRun {
            client: self.harness.client(),
            plan: PLAN.to_owned(),
            node: NODE.to_owned(),
            pod: OwnPod {
                namespace: names::HARVESTER_NAMESPACE.to_owned(),
                name: "up-node-upgrade-post-drain-node-1-x7k2p".to_owned(),
                container: CONTAINER.to_owned(),
            },
            root: HostRoot::new(self.node.root()),
            tools: self.node.tools.clone(),
            repository: self.node.repository.clone(),
            elemental: self.node.elemental(),
            release: OnceLock::new(),
        }
    }

    pub(crate) async fn run(&self, program: Program) -> Result<()> {
        step::run_all(&self.begin(), &program(&Limits::default()), &self.harness.reporter()).await
    }

    /// Runs the first steps of a program, as far as it came before it was killed.
    pub(crate) async fn run_part(&self, program: Program, steps: usize) -> Result<()> {
        let steps = &program(&Limits::default())[..steps];
        let ended = step::run_all(&self.begin(), steps, &self.harness.reporter()).await;
        self.node.forget_mounts();
        ended
    }

    /// Runs a program and kills it right after the n-th call of a tool. Returns whether it came so far.
    pub(crate) async fn run_until_call(&self, program: Program, number: usize) -> bool {
        self.node.tools.take_calls();
        let killed = self.node.tools.kill_after(number);
        let ended = tokio::select! {
            biased;
            ended = self.run(program) => { ended.unwrap(); false }
            () = killed.notified() => true,
        };
        self.node.tools.live_on();
        self.node.forget_mounts();
        ended
    }

    /// Runs a program and kills it right after its n-th write to the API. Returns whether it came so far.
    pub(crate) async fn run_until_write(&self, program: Program, number: usize) -> bool {
        let killed = std::sync::Arc::new(tokio::sync::Notify::new());
        let (done, count) = (killed.clone(), std::sync::atomic::AtomicUsize::new(0));
        self.harness.server.set_faults(FaultPlan::writes(move |_| {
            let so_far = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            if so_far == number {
                Fault::CrashAfter(done.clone())
            } else {
                Fault::None
            }
        }));
        let ended = tokio::select! {
            biased;
            ended = self.run(program) => { ended.unwrap(); false }
            () = killed.notified() => true,
        };
        self.harness.server.set_faults(FaultPlan::none());
        self.node.forget_mounts();
        ended
    }

    /// Everything that was waited for so far, as `what object: message`.
    pub(crate) fn waits(&self) -> Vec<String> {
        let waits = self.harness.board.waits.lock().unwrap();
        let shown = waits.iter().map(|wait| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("{} {}: {}", wait.what, text(&wait.object), text(&wait.message))
        });
        shown.collect()
    }

    /// Waits, in virtual time, until something is waited for.
    pub(crate) async fn until_waiting_for(&self, part: &str) {
        self.eventually(part, async || self.waits().iter().any(|wait| wait.contains(part)))
            .await;
    }

    pub(crate) async fn eventually(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        for _ in 0..3600 {
            if holds().await {
                return;
            }
            self.harness.clock.sleep(Duration::from_secs(1)).await;
        }
        panic!("an hour went by without {what}; waited for: {:#?}", self.waits());
    }

    /// Runs a program while the cluster does something.
    pub(crate) async fn run_while<T>(&self, program: Program, cluster: impl Future<Output = T>) -> (Result<()>, T) {
        tokio::join!(self.run(program), cluster)
    }
}
