//! A Harvester on real nodes, with the manager as a pod.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use api::{Phase, UpgradePlan, UpgradePlanSpec, names};
use clock::Clock;
use futures::FutureExt;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Event, Node, Pod},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams, Patch, PatchParams, PostParams},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use manager::client::for_product;
use serde_json::{Value, json};
use testbed::Nodes;
use tokio::task::JoinSet;
use world::{Durations, Facts, Real, Rke2NotRestarted, Shape, Troubles, World};

use super::{
    recorder::{Recorder, is_ours},
    release, virt_api,
};
use crate::{
    chart::{self, Helm},
    harvester::{self, definitions},
};

/// Our image on the nodes.
const IMAGE: &str = "rancher/harvester-upgrade-toolkit:dev";
/// Where each node has the ISO: a volume of Longhorn's elsewhere.
const ISO_FOLDER: &str = "/var/lib/longhorn/iso";
/// Who CDI's importer leaves it to.
const IMPORTER: u32 = 107;
/// How long setting up may take.
const SETUP: Duration = Duration::from_secs(180);
/// How often something is looked at again.
const PAUSE: Duration = Duration::from_millis(500);
/// The manager's Deployment.
pub(crate) const MANAGER: &str = "harvester-upgrade-manager-controller-manager";
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A cluster of real nodes. Everything ends when it is dropped.
pub(crate) struct Cluster {
    pub(crate) nodes: Nodes,
    pub(crate) client: Client,
    pub(crate) recorder: Recorder,
    #[allow(dead_code, reason = "the world lives as long as it")]
    facts: Facts,
    /// Its tasks end with it.
    _tasks: JoinSet<()>,
    _files: tempfile::TempDir,
}

/// Runs a test on a cluster of its own, when its turn has come. On failure prints what the cluster looked like.
pub(crate) fn on_nodes(count: usize, test: impl AsyncFnOnce(&Cluster)) {
    if !Nodes::are_wanted() {
        return;
    }
    let Some(helm) = chart::helm() else {
        let required = std::env::var("NODE_TESTS").is_ok_and(|value| value == "required");
        assert!(!required, "there is no helm: hack/tool build helm");
        return;
    };
    let _turn = crate::turn();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let cluster = Cluster::start(count, &helm).await;
        test(&cluster).await;
    });
}

impl Cluster {
    async fn start(count: usize, helm: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let image = toolkit_image(files.path());
        let sources = release::sources(helm);
        let iso = sources.iso();
        let nodes = tokio::task::block_in_place(|| {
            let nodes = Nodes::start(count, &[]).unwrap();
            nodes.import(&image).unwrap();
            nodes.import(&release::write_old_images(files.path())).unwrap();
            for node in node_names(count) {
                let to = format!("{ISO_FOLDER}/disk.img");
                nodes.copy(&node, &iso, &to, IMPORTER).unwrap();
            }
            nodes
        });
        let client = nodes.control_plane.client("user").await.unwrap();
        let shape = Shape {
            nodes: count,
            vms: 2 * count,
            ..Shape::default()
        };
        let objects = with_checksum(shape.objects(), &iso);
        let setup = async {
            harvester::prepare(&client, &objects, ISO_FOLDER).await;
            let (definitions, mode) = definitions();
            let (strict, _) = for_product(client.clone(), mode);
            world::define_foreign(&strict, definitions).await.unwrap();
            install(&nodes, helm, files.path());
            let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
            await_condition(crds, chart::CRD, is_crd_established()).await.unwrap();
            describe_nodes(&client, &objects).await;
            world::install_by(&strict, definitions, &simulated(objects.clone()))
                .await
                .unwrap();
        };
        tokio::time::timeout(SETUP, setup).await.expect("the cluster is set up");
        let (facts, mut tasks) = play(&nodes, shape).await;
        virt_api::serve(&nodes, &client, &mut tasks).await;
        let recorder = Recorder::start(client.clone(), &mut tasks);
        let cluster = Self {
            nodes,
            client,
            recorder,
            facts,
            _tasks: tasks,
            _files: files,
        };
        cluster.manager_runs().await;
        cluster
    }

    async fn manager_runs(&self) {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), names::HARVESTER_NAMESPACE);
        let available = |found: Option<&Deployment>| {
            let status = found.and_then(|found| found.status.as_ref());
            status.is_some_and(|status| status.available_replicas.unwrap_or(0) > 0)
        };
        let waiting = await_condition(deployments, MANAGER, available);
        if tokio::time::timeout(SETUP, waiting).await.is_err() {
            panic!("the manager does not run\n{}", self.describe("").await);
        }
    }

    pub(crate) fn plans(&self) -> Api<UpgradePlan> {
        Api::all(self.client.clone())
    }

    /// Creates a plan as a user would. The webhooks of a manager that has only just started may not be reached yet.
    pub(crate) async fn create_plan(&self, name: &str, spec: UpgradePlanSpec) {
        let mut plan = UpgradePlan::new(name, spec);
        plan.spec.version.get_or_insert_with(|| "v1.8.0".to_owned());
        let creating = async {
            loop {
                match self.plans().create(&PostParams::default(), &plan).await {
                    Ok(_) => return,
                    Err(kube::Error::Api(status)) if status.code >= 500 => tokio::time::sleep(PAUSE).await,
                    Err(error) => panic!("{error}\n{}", self.describe(name).await),
                }
            }
        };
        if tokio::time::timeout(SETUP, creating).await.is_err() {
            panic!("the webhooks do not answer\n{}", self.describe(name).await);
        }
    }

    /// The plan once a test holds; fails with what the cluster looks like when that takes too long, or when the plan has failed
    /// and the test does not hold.
    pub(crate) async fn plan_when(
        &self,
        name: &str,
        limit: Duration,
        what: &str,
        test: impl Fn(&UpgradePlan) -> bool,
    ) -> UpgradePlan {
        let has_ended = |plan: &UpgradePlan| plan.phase().is_some_and(Phase::is_terminal);
        let condition = |plan: Option<&UpgradePlan>| plan.is_some_and(|plan| test(plan) || has_ended(plan));
        let found = tokio::time::timeout(limit, await_condition(self.plans(), name, condition)).await;
        let plan = found.ok().and_then(|found| found.unwrap());
        match plan {
            Some(plan) if test(&plan) => plan,
            _ => panic!(
                "plan {name} is not {what} after at most {} s\n{}",
                limit.as_secs(),
                self.describe(name).await
            ),
        }
    }

    /// All pods of the cluster.
    pub(crate) async fn pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        pods.list(&ListParams::default()).await.unwrap().items
    }

    /// What a pod has logged, of its last container if it has none any more.
    pub(crate) async fn log_of(&self, pod: &Pod) -> String {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let last = LogParams {
            tail_lines: Some(60),
            ..LogParams::default()
        };
        match pods.logs(&pod.name_any(), &last).await {
            Ok(text) => text,
            Err(error) => format!("({error})"),
        }
    }

    /// The names of the images on a node.
    pub(crate) fn images_of(&self, node: &str) -> Vec<String> {
        let list = [
            "ctr",
            "--address",
            "/run/k3s/containerd/containerd.sock",
            "--namespace",
            "k8s.io",
        ];
        let list = [list.as_slice(), &["images", "list", "--quiet"]].concat();
        let text = self.nodes.exec(node, &list).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// What a person would look at: the plan, the nodes, the pods that are not well, their logs, the last events.
    pub(crate) async fn describe(&self, plan: &str) -> String {
        let mut text = String::new();
        let plan = self.plans().get_opt(plan).await.ok().flatten();
        let status = plan.and_then(|plan| plan.status);
        text += &serde_json::to_string_pretty(&status).unwrap();
        for pod in self.pods().await {
            let status = pod.status.clone().unwrap_or_default();
            let phase = status.phase.unwrap_or_default();
            let node = pod
                .spec
                .as_ref()
                .and_then(|spec| spec.node_name.clone())
                .unwrap_or_default();
            let namespace = pod.namespace().unwrap_or_default();
            text += &format!("\npod {namespace}/{} on {node}: {phase}", pod.name_any());
            if is_ours(&pod) {
                let states = serde_json::to_string(&status.container_statuses).unwrap();
                text += &format!("\n{states}\n{}", self.log_of(&pod).await);
            }
        }
        let events: Api<Event> = Api::all(self.client.clone());
        if let Ok(found) = events.list(&ListParams::default()).await {
            let warnings = found
                .items
                .iter()
                .filter(|event| event.type_.as_deref() == Some("Warning"));
            for event in warnings.rev().take(40) {
                let (object, message) = (&event.involved_object, event.message.as_deref().unwrap_or_default());
                text += &format!("\nevent {:?} {:?}: {message}", object.kind, object.name);
            }
        }
        text
    }
}

pub(crate) fn node_names(count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("node-{number}")).collect()
}

/// What the cluster has that no real component creates: neither nodes, nor what Helm installs.
fn simulated(objects: Vec<Value>) -> Vec<Value> {
    let is_real = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        match object["kind"].as_str().unwrap_or_default() {
            "Node" => object["apiVersion"] == "v1",
            "EndpointSlice" => name == names::KUBERNETES_SERVICE,
            "Deployment" => name == "rancher",
            "Secret" => name.starts_with("sh.helm.release.v1.rancher.v"),
            _ => false,
        }
    };
    objects.into_iter().filter(|object| !is_real(object)).collect()
}

/// The Version says which ISO is meant.
fn with_checksum(mut objects: Vec<Value>, iso: &Path) -> Vec<Value> {
    use sha2::Digest;
    let digest = sha2::Sha512::digest(fs::read(iso).unwrap());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    for object in objects.iter_mut().filter(|object| object["kind"] == "Version") {
        object["spec"]["isoChecksum"] = json!(digest);
    }
    objects
}

/// Gives the real nodes the labels and annotations that those of a Harvester have.
async fn describe_nodes(client: &Client, objects: &[Value]) {
    let nodes: Api<Node> = Api::all(client.clone());
    for object in objects {
        if object["kind"] != "Node" || object["apiVersion"] != "v1" {
            continue;
        }
        let metadata = &object["metadata"];
        let patch = json!({"metadata": {"labels": metadata["labels"], "annotations": metadata["annotations"]}});
        let name = metadata["name"].as_str().unwrap();
        nodes
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }
}

/// Rancher as it is before the upgrade, and our chart with our image.
fn install(nodes: &Nodes, helm: &str, folder: &Path) {
    let chart = release::rancher_chart(helm, folder, "2.13.1");
    let helm = Helm {
        program: helm.to_owned(),
        control_plane: &nodes.control_plane,
    };
    let chart = chart.to_string_lossy();
    let values = "hostname=rancher.local,rancherImageTag=v2.13.1,replicas=-1";
    let cattle = names::CATTLE_NAMESPACE;
    helm.demand(&["install", "rancher", &chart, "--namespace", cattle, "--set", values]);
    let (repository, tag) = IMAGE.split_once(':').unwrap();
    let image = format!("manager.image.repository={repository},manager.image.tag={tag}");
    helm.demand_chart("install", &["--set", &image]);
}

/// Has the world play what is not real.
async fn play(nodes: &Nodes, shape: Shape) -> (Facts, JoinSet<()>) {
    let actors = nodes.control_plane.client_without_retries("world").await.unwrap();
    let (actors, _) = for_product(actors, definitions().1);
    let setter = nodes.kubelet_setter();
    let world = World::new(
        actors,
        Clock::system(),
        shape,
        Durations::instant(),
        Troubles::default(),
    )
    .with_real(Real {
        controllers: true,
        kubelets: true,
        machines: true,
        system_upgrade: false,
    })
    .with_rke2_restarted_by(move |node, version| {
        let setter = setter.clone();
        async move {
            let (on, to) = (node.clone(), version.clone());
            let done = tokio::task::spawn_blocking(move || setter(&on, &to)).await;
            let done = done.map_err(|error| error.to_string());
            let done = done.and_then(|done| done.map_err(|error| error.to_string()));
            done.map_err(|why| Rke2NotRestarted { node, version, why })
        }
        .boxed()
    });
    let facts = world.facts();
    let mut tasks = JoinSet::new();
    tasks.spawn(world.run());
    (facts, tasks)
}

/// Our image, packed from the binary that was built with these tests.
fn toolkit_image(folder: &Path) -> PathBuf {
    if let Some(archive) = std::env::var_os("UPGRADE_TOOLKIT_IMAGE") {
        return archive.into();
    }
    let archive = folder.join("image.tar");
    let share = folder.join("share");
    fs::create_dir_all(share.join("addons")).unwrap();
    fs::create_dir_all(share.join("cdi")).unwrap();
    let binary = std::env::current_exe().unwrap();
    let binary = binary.parent().and_then(Path::parent).unwrap().join("upgrade-toolkit");
    assert!(
        binary.exists(),
        "{} is missing: `cargo build --workspace --bin upgrade-toolkit` builds it",
        binary.display()
    );
    let made = Command::new(Path::new(ROOT).join("package/image"))
        .arg(&archive)
        .env("IMG", IMAGE)
        .env("BINARY", &binary)
        .env("WITH_NGINX", "false")
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "failed to build the image: {}",
        String::from_utf8_lossy(&made.stderr)
    );
    archive
}
