//! A cluster before its upgrade, actors that make it live, and the program with a recording Helm.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use api::{accounts, crd, foreign, upgrade_plan::WaitingFor};
use apiserver::{ApiServer, Config};
use clock::Clock;
use futures::future::BoxFuture;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use manager::{client::for_product, field_validation::Mode};
use release::bundle::{Archive, Bundle};
use serde_json::{Value, json};

use crate::{Context, Found, installer::RancherInstaller, manifests::Folders, pauses::Pauses, run};
use program::release_files::ReleaseFiles;
use program::{
    board::{Board, StepStarted},
    error::{Error, Result},
    report::Reporter,
    step::StepContext,
};

use super::{harvester_world, objects, rancher_world, writes};
use testbed::rights;

pub(super) const PLAN: &str = "up";
/// Who the program is.
pub(super) const PROGRAM: &str = "system:serviceaccount:harvester-system:upgrade-toolkit-cluster-upgrade";
const TICK: Duration = Duration::from_secs(2);

pub(super) struct Harness {
    pub(super) server: ApiServer,
    pub(super) client: Client,
    mode: Mode,
    pub(super) clock: Clock,
    pub(super) calls: Arc<Mutex<Vec<String>>>,
    pub(super) shown: Arc<Mutex<BTreeSet<String>>>,
    pub(super) release: String,
    pub(super) folder: tempfile::TempDir,
    actors: tokio::task::JoinHandle<()>,
}

/// In every test: whatever the program and others wrote, the real definitions have all its fields.
impl Drop for Harness {
    fn drop(&mut self) {
        self.actors.abort();
        if !std::thread::panicking() {
            writes::check(self);
        }
    }
}

/// Another client may have deleted an object meanwhile. But no program here writes what its definition does not allow.
fn accepted(written: kube::Result<DynamicObject>) {
    if let Err(kube::Error::Api(status)) = written {
        assert!(![400, 422].contains(&status.code), "{}", status.message);
    }
}

/// How an object is addressed.
pub(super) fn address(client: &Client, version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    }
}

/// Creates an object with its status.
pub(super) async fn create(client: &Client, object: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let api = address(client, &version, &kind, &text(&object["metadata"]["namespace"]));
    let dynamic: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    if let Err(error) = api.create(&PostParams::default(), &dynamic).await {
        assert!(
            matches!(&error, kube::Error::Api(status) if status.code == 409),
            "{object}: {error}"
        );
        return;
    }
    // Who has no status subresource was created with its status.
    let has_status = foreign::ALL
        .iter()
        .filter(|foreign| format!("{}/{}", foreign.group, foreign.version) == version && foreign.kind == kind)
        .all(|foreign| foreign.has_status);
    if let Some(status) = object.get("status").filter(|_| has_status) {
        let name = text(&object["metadata"]["name"]);
        let patch = json!({ "status": status });
        let done = api
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        done.unwrap_or_else(|error| panic!("{object}: {error}"));
    }
}

impl Harness {
    pub(super) async fn new() -> Self {
        Self::of(objects::cluster(), "v1.7.1").await
    }

    pub(super) async fn of(objects: Vec<Value>, from: &str) -> Self {
        let clock = Clock::simulated("2026-03-13T03:57:09Z".parse().unwrap(), 1.0);
        let now = clock.clone();
        let server = ApiServer::new(Config {
            enforce_rbac: true,
            ..Config::new(Arc::new(move || now.now()))
        });
        let ours = crd::foreign();
        let (definitions, mode) = match testbed::real_definitions() {
            Some(real) => (real, Mode::Strict),
            None => (ours.as_slice(), Mode::Warn),
        };
        let (client, _) = for_product(server.client(), mode);
        create(&client, &crd::upgrade_plan()).await;
        for definition in definitions {
            create(&client, definition).await;
        }
        for namespace in objects::NAMESPACES {
            create(
                &client,
                &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            )
            .await;
        }
        for object in &objects {
            create(&client, object).await;
        }
        create(&client, &objects::upgrade_plan(from)).await;
        rights::install(&server).await;
        let folder = tempfile::tempdir().unwrap();
        objects::write_manifests(folder.path());
        let world = World {
            server: server.clone(),
            client: client.clone(),
            clock: clock.clone(),
        };
        let actors = tokio::spawn(async move {
            loop {
                world.clock.sleep(TICK).await;
                rancher_world::tick(&world).await;
                harvester_world::tick(&world).await;
            }
        });
        Self {
            server,
            client,
            mode,
            clock,
            calls: Arc::default(),
            shown: Arc::default(),
            release: objects::RELEASE.to_owned(),
            folder,
            actors,
        }
    }

    /// One attempt: a new pod runs the program from its beginning.
    pub(super) async fn attempt(&self) -> Result<Vec<String>> {
        let (context, report) = self.context();
        run(&context, &report).await?;
        Ok(context.notes())
    }

    pub(super) fn context(&self) -> (Context, Reporter) {
        let client = self.server.client_as(rights::identity(accounts::CLUSTER_UPGRADE));
        let context = Context {
            client: for_product(client, self.mode).0,
            clock: self.clock.clone(),
            plan: PLAN.to_owned(),
            image: "rancher/harvester-upgrade-toolkit:v1.8.0".to_owned(),
            plan_service_account: "system-upgrade-controller".to_owned(),
            repository: Arc::new(Files(self.release.clone())),
            installer: Arc::new(RecordingHelm {
                world: self.world(),
                calls: self.calls.clone(),
            }),
            manifests: Arc::new(Folders {
                addons: self.folder.path().join("addons"),
                cdi: self.folder.path().join("cdi"),
            }),
            pauses: Pauses::default(),
            found: Found::default(),
        };
        let board = Arc::new(Shown(self.shown.clone()));
        (context, Reporter::new(self.clock.clone(), board))
    }

    pub(super) fn world(&self) -> World {
        World {
            server: self.server.clone(),
            client: self.client.clone(),
            clock: self.clock.clone(),
        }
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    pub(super) fn addons(&self) -> std::path::PathBuf {
        self.folder.path().join("addons")
    }

    pub(super) fn get(&self, version: &str, plural: &str, namespace: &str, name: &str) -> Value {
        self.world().get(version, plural, namespace, name)
    }
}

/// What actors work with.
pub(super) struct World {
    pub(super) server: ApiServer,
    pub(super) client: Client,
    pub(super) clock: Clock,
}

impl World {
    /// An object as it is; null when there is none.
    pub(super) fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Value {
        let found = self.server.store().get(group, plural, namespace, name);
        found.map_or(Value::Null, |found| found.as_ref().clone())
    }

    pub(super) fn list(&self, group: &str, plural: &str) -> Vec<Value> {
        let found = self.server.store().list(group, plural, None);
        found.iter().map(|object| object.as_ref().clone()).collect()
    }

    pub(super) fn now(&self) -> String {
        self.clock.now_in_seconds().to_string()
    }

    fn api_of(&self, object: &Value) -> (Api<DynamicObject>, String) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let namespace = text(&metadata["namespace"]);
        let api = address(
            &self.client,
            &text(&object["apiVersion"]),
            &text(&object["kind"]),
            &namespace,
        );
        (api, text(&metadata["name"]))
    }

    pub(super) async fn patch(&self, object: &Value, patch: Value) {
        let (api, name) = self.api_of(object);
        let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        accepted(patched);
    }

    /// Writes a status, if it differs.
    pub(super) async fn patch_status(&self, object: &Value, status: Value) {
        let mut wanted = object["status"].clone();
        json_merge(&mut wanted, &status);
        if wanted == object["status"] {
            return;
        }
        let (api, name) = self.api_of(object);
        let patched = api
            .patch_status(
                &name,
                &PatchParams::default(),
                &Patch::Merge(json!({ "status": status })),
            )
            .await;
        accepted(patched);
    }

    pub(super) async fn create(&self, object: &Value) {
        create(&self.client, object).await;
    }

    pub(super) async fn delete(&self, object: &Value) {
        let (api, name) = self.api_of(object);
        let _ = api.delete(&name, &DeleteParams::default().grace_period(0)).await;
    }
}

fn json_merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                json_merge(into.entry(key.as_str()).or_insert(Value::Null), value);
            }
        }
        (into, from) => into.clone_from(from),
    }
}

/// The files of the release, from memory.
struct Files(String);

impl ReleaseFiles for Files {
    fn text<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<String>> {
        let found = match path {
            "harvester-release.yaml" => Ok(self.0.clone()),
            "bundle/metadata.yaml" => Ok(objects::BUNDLE.to_owned()),
            other => Err(Error::Permanent(format!("{other}: 404"))),
        };
        Box::pin(std::future::ready(found))
    }

    fn save<'a>(&'a self, _: StepContext<'a>, archive: &'a Archive, _: &'a Path) -> BoxFuture<'a, Result<PathBuf>> {
        Box::pin(std::future::ready(Err(Error::Permanent(format!(
            "{} is not for saving",
            archive.archive
        )))))
    }
}

/// Records what it is asked for, and does to the cluster what Helm would.
struct RecordingHelm {
    world: World,
    calls: Arc<Mutex<Vec<String>>>,
}

impl RecordingHelm {
    fn record(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }
}

impl RancherInstaller for RecordingHelm {
    fn prepare<'a>(&'a self, _: StepContext<'a>, rancher: &'a str, _: &'a Bundle) -> BoxFuture<'a, Result<()>> {
        self.record(format!("prepare {rancher}"));
        Box::pin(std::future::ready(Ok(())))
    }

    fn upgrade_rancher<'a>(
        &'a self,
        namespace: &'a str,
        release: &'a str,
        values: &'a Value,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.record(format!("upgrade {namespace}/{release} to {}", values["image"]["tag"]));
            let tag = values["image"]["tag"].as_str().unwrap_or_default().to_owned();
            let metadata = json!({"name": "rancher", "version": tag.trim_start_matches('v'), "appVersion": tag});
            rancher_world::release(
                &self.world,
                namespace,
                release,
                &metadata,
                values,
                "deployed",
                "Upgrade complete",
            )
            .await;
            Ok(())
        })
    }

    fn roll_back<'a>(&'a self, namespace: &'a str, release: &'a str, revision: i64) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.record(format!("roll back {namespace}/{release} to {revision}"));
            rancher_world::roll_back(&self.world, namespace, release, revision).await;
            Ok(())
        })
    }
}

/// Remembers everything that was waited for, and the steps.
struct Shown(Arc<Mutex<BTreeSet<String>>>);

impl Board for Shown {
    fn show<'a>(&'a self, waiting: &'a [WaitingFor]) -> BoxFuture<'a, ()> {
        let mut shown = self.0.lock().unwrap();
        shown.extend(waiting.iter().map(|item| item.what.clone()));
        Box::pin(std::future::ready(()))
    }

    fn begins(&self, step: StepStarted) {
        self.0.lock().unwrap().insert(format!("step {}", step.name));
    }

    fn termination_message(&self, text: &str) {
        self.0.lock().unwrap().insert(format!("termination message: {text}"));
    }
}
