//! A simulated cluster without a manager, served over HTTP: what a test writes stays as it is.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use api::{UpgradePlan, names};
use apiserver::{ApiServer, Identity};
use cli::rehearsal::{Rehearsal, SERVICE_ACCOUNT, Scenario, beginning};
use clock::Clock;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime::Runtime};
use world::{Definitions, Durations, Shape};

use super::{Ran, folder, toolkit};

pub(super) struct Cluster {
    runtime: Runtime,
    server: ApiServer,
    address: String,
    /// Where files of the test may be.
    pub(super) folder: PathBuf,
    /// The kubeconfig of an administrator.
    pub(super) kubeconfig: PathBuf,
}

impl Cluster {
    /// Three nodes and so many VMs.
    pub(super) fn start(name: &str, vms: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (server, address) = runtime.block_on(async {
            let scenario = Scenario {
                shape: Shape {
                    vms,
                    ..Shape::default()
                },
                durations: Durations::instant(),
                open: true,
                ..Scenario::default()
            };
            let rehearsal = Rehearsal::start(scenario, Clock::simulated(beginning(), 1.0))
                .await
                .unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let server = rehearsal.server.clone();
            settle(&server).await;
            tokio::spawn(server.clone().serve(listener, std::future::pending()));
            tokio::spawn(async move {
                let _world = rehearsal;
                std::future::pending::<()>().await;
            });
            (server, address)
        });
        let folder = folder(name);
        let mut cluster = Self {
            runtime,
            server,
            address,
            kubeconfig: folder.join("kubeconfig"),
            folder,
        };
        cluster.kubeconfig = cluster.kubeconfig_of("kubeconfig", None);
        cluster
    }

    /// A kubeconfig with a token, and a second context that leads nowhere.
    fn kubeconfig_of(&self, name: &str, token: Option<&str>) -> PathBuf {
        let user = token.map_or_else(|| json!({}), |token| json!({"token": token}));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [
                {"name": "c", "cluster": {"server": format!("http://{}", self.address)}},
                {"name": "nowhere", "cluster": {"server": "http://127.0.0.1:1"}},
            ],
            "users": [{"name": "u", "user": user}],
            "contexts": [
                {"name": "here", "context": {"cluster": "c", "user": "u"}},
                {"name": "there", "context": {"cluster": "nowhere", "user": "u"}},
            ],
        });
        let path = self.folder.join(name);
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// The kubeconfig of a user who may get and list these resources of these groups, and nothing else.
    pub(super) fn reader(&self, user: &str, rules: &Value) -> PathBuf {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules,
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        self.runtime.block_on(async {
            for object in [role, binding] {
                let object: DynamicObject = serde_json::from_value(object).unwrap();
                let kind = GroupVersionKind::try_from(&object.types.clone().unwrap()).unwrap();
                let api: Api<DynamicObject> = Api::all_with(self.server.client(), &ApiResource::from_gvk(&kind));
                api.create(&PostParams::default(), &object).await.unwrap();
            }
        });
        let token = self.server.token_for(&Identity::user(user));
        self.kubeconfig_of(user, Some(&token))
    }

    /// Creates objects, with their status.
    pub(super) fn put(&self, objects: &[Value]) {
        self.runtime.block_on(async {
            let client = self.server.client();
            world::install_by(&client, Definitions::Ours, objects).await.unwrap();
        });
    }

    /// What the API server says about a plan that it refuses.
    pub(super) fn refused(&self, plan: &Value) -> String {
        let plan: UpgradePlan = serde_json::from_value(plan.clone()).unwrap();
        self.runtime.block_on(async {
            let plans: Api<UpgradePlan> = Api::all(self.server.client());
            let refused = plans.create(&PostParams::default(), &plan).await;
            refused.unwrap_err().to_string()
        })
    }

    /// Creates a plan with a status, which only a manager may write.
    pub(super) fn put_plan(&self, name: &str, status: &Value) {
        self.put(&[json!({
            "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan", "metadata": {"name": name},
            "spec": {"version": "v1.8.0", "restoreVM": true},
        })]);
        self.set_status(name, status);
    }

    /// Changes the status of a plan as the manager does.
    pub(super) fn set_status(&self, plan: &str, status: &Value) {
        self.runtime.block_on(async {
            // Admission knows the manager by its name; its roles allow no patch.
            let mut manager = Identity::service_account(names::HARVESTER_NAMESPACE, SERVICE_ACCOUNT);
            manager.groups.push("system:masters".to_owned());
            let plans: Api<UpgradePlan> = Api::all(self.server.client_as(manager));
            let patch = Patch::Merge(json!({"status": status}));
            plans.patch_status(plan, &PatchParams::default(), &patch).await.unwrap();
        });
    }

    /// The plan as it is.
    pub(super) fn plan(&self, name: &str) -> UpgradePlan {
        let plans: Api<UpgradePlan> = self.runtime.block_on(async { Api::all(self.server.client()) });
        self.runtime.block_on(plans.get(name)).unwrap()
    }

    /// Removes a plan.
    pub(super) fn remove_plan(&self, name: &str) {
        let plans: Api<UpgradePlan> = self.runtime.block_on(async { Api::all(self.server.client()) });
        self.runtime
            .block_on(plans.delete(name, &DeleteParams::default()))
            .unwrap();
    }

    /// The binary with the administrator's kubeconfig, as a command to change.
    pub(super) fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = toolkit();
        command
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.folder);
        command
    }

    /// Runs the binary to its end.
    pub(super) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    /// The same with another kubeconfig.
    pub(super) fn run_as(&self, kubeconfig: &Path, arguments: &[&str]) -> Ran {
        let mut command = self.command(arguments);
        Ran::of(command.env("KUBECONFIG", kubeconfig).output().unwrap())
    }

    /// The path of a file of the test, which it may have written.
    pub(super) fn file(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file of the test; returns its path.
    pub(super) fn write(&self, name: &str, text: &str) -> String {
        let path = self.file(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// Waits until the workloads of a new cluster run.
async fn settle(server: &ApiServer) {
    let deployments: Api<Deployment> = Api::all(server.client());
    let settled = async {
        loop {
            let all = deployments.list(&ListParams::default()).await.unwrap();
            let runs = |one: &Deployment| {
                one.status
                    .as_ref()
                    .is_some_and(|status| status.available_replicas > Some(0))
            };
            if all.iter().all(runs) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), settled).await.unwrap();
}

/// The status of a plan at work, from its first moment on.
pub(super) fn at_work(phase: &str) -> Value {
    json!({
        "currentPhase": phase,
        "conditions": [condition("Progressing", "True", "Executing", "")],
        "phaseTransitionTimestamps": [{"phase": "Initializing", "phaseTransitionTimestamp": "2026-03-13T03:57:09Z"}],
    })
}

/// The status of a plan that has ended.
pub(super) fn ended(phase: &str, message: &str) -> Value {
    json!({
        "currentPhase": phase,
        "conditions": [condition("Progressing", "False", phase, message)],
        "phaseTransitionTimestamps": [
            {"phase": "Initializing", "phaseTransitionTimestamp": "2026-03-13T03:57:09Z"},
            {"phase": phase, "phaseTransitionTimestamp": "2026-03-13T04:57:09Z"},
        ],
    })
}

pub(super) fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-03-13T03:57:09Z",
    })
}
