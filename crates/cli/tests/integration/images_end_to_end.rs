//! A release on its way, with real programs throughout: an ISO, the repository, a containerd, and this binary as the Jobs
//! of the manager call it.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::Arc,
};

use apiserver::{ApiServer, Config};
use clock::Clock;
use node::images::{ImageStore, Patience, Repository};
use release::{image_list, testing::Sources};
use serde_json::json;
use testbed::archive::{COMMON_IMAGES, PREVIOUS_IMAGES, RKE2_IMAGES, release_files};
use testbed::containerd::Containerd;
use tokio::{net::TcpListener, task::spawn_blocking};
use world::Definitions;

/// A process that ends with the test.
struct Repo {
    process: Child,
    url: String,
}

impl Drop for Repo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn toolkit() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("upgrade-toolkit"));
    command.env("HOME", "/nonexistent");
    command.env("UPGRADE_TOOLKIT_FIELD_VALIDATION", "Strict");
    for name in ["KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HARVESTER_UPGRADE_POD_NAME"] {
        command.env_remove(name);
    }
    command
}

impl Repo {
    /// `upgrade-toolkit repo`, once it says where it listens.
    fn start(iso: &Path) -> Self {
        let mut process = toolkit()
            .args(["repo", "--listen", "127.0.0.1:0", "--iso"])
            .arg(iso)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        let mut lines = log.lines().map_while(Result::ok);
        let address = lines.find_map(|line| {
            let line: serde_json::Value = serde_json::from_str(&line).ok()?;
            let field = |name: &str| line["fields"][name].as_str().or(line[name].as_str()).map(str::to_owned);
            field("address")
        });
        let url = format!("http://{}/harvester-iso", address.expect("it says where it serves"));
        // A program that writes to a pipe without a reader stops at some point.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, url }
    }

    async fn list(&self, version: &str) -> Vec<String> {
        let path = image_list::path_of(version);
        let repository = Repository::new(&self.url, None, Clock::system(), Patience::default()).unwrap();
        let text = repository.text(&path, image_list::LARGEST_BYTES).await.unwrap();
        image_list::parse(&text).unwrap().into_iter().collect()
    }
}

/// A cluster that knows the plan, and how to reach it.
async fn cluster(folder: &Path) -> PathBuf {
    let server = ApiServer::new(Config::new(Arc::new(|| Clock::system().now())));
    let plan = json!({
        "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan", "metadata": {"name": "up"},
        "spec": {"version": "v1.8.0"},
        "status": {"previousVersion": "v1.7.1", "releaseMetadata": {"harvester": "v1.8.0"}},
    });
    let definitions = testbed::real_definitions().map_or(Definitions::Ours, Definitions::Given);
    world::install_by(&server.client(), definitions, &[plan]).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(server.serve(listener, std::future::pending()));
    let kubeconfig = folder.join("kubeconfig");
    let content = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}], "users": [{"name": "c", "user": {}}]});
    std::fs::write(&kubeconfig, content.to_string()).unwrap();
    kubeconfig
}

async fn output(mut command: Command) -> Output {
    let output = spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let (said, log) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{:?}: {said}{log}", output.status);
    output
}

#[tokio::test(flavor = "multi_thread")]
async fn from_the_iso_over_the_repository_onto_the_node_and_exactly_the_stale_ones_off_it() {
    let Some(containerd) = Containerd::start().await else {
        return;
    };
    let store = containerd.store();
    let mirrored = "registry.example:5000/mirror/old-component:v3";
    for images in [&PREVIOUS_IMAGES[..], &[mirrored]] {
        let tar = zstd::decode_all(testbed::archive::archive(images, 20_000).as_slice()).unwrap();
        store.import(Box::new(std::io::Cursor::new(tar))).await.unwrap();
    }

    // The ISO has both lists, as releases do.
    let sources = Sources::new();
    for (path, content) in release_files(300_000) {
        sources.add(&path, &content);
    }
    let new: Vec<&str> = COMMON_IMAGES.iter().chain(&RKE2_IMAGES).copied().collect();
    for (version, images) in [("current", new.as_slice()), ("v1.7.1", &PREVIOUS_IMAGES)] {
        sources.add(&image_list::path_of(version), (images.join("\n") + "\n").as_bytes());
    }
    let iso = sources.iso();
    let repo = spawn_blocking(move || Repo::start(&iso)).await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = cluster(folder.path()).await;
    let prepare = || {
        let mut command = toolkit();
        command
            .args(["node", "prepare", "--repo-url", &repo.url, "--kubeconfig"])
            .arg(&kubeconfig)
            .env("HARVESTER_UPGRADEPLAN_NAME", "up")
            .env("HOST_DIR", containerd.root());
        command
    };
    output(prepare()).await;
    let present = store.list().await.unwrap();
    assert!(new.iter().all(|image| present.contains(*image)), "{present:?}");
    // A second run brings nothing.
    let again = output(prepare()).await;
    let log = String::from_utf8_lossy(&again.stderr).into_owned() + &String::from_utf8_lossy(&again.stdout);
    assert!(!log.contains("importing it"), "{log}");

    // What the manager does between: both lists through the repository, and their difference.
    let stale = rules::stale_images::stale(&repo.list("v1.7.1").await, &repo.list("current").await);
    assert_eq!(
        stale,
        [
            "docker.io/rancher/harvester:v1.7.1",
            "docker.io/rancher/old-component:v3"
        ]
    );

    containerd.add_crictl();
    let clean = || {
        let mut command = toolkit();
        command
            .args(["node", "clean-images", "--deadline", "clean-images=10m"])
            .env("IMAGES", stale.join(" "))
            .env("HOST_DIR", containerd.root());
        command
    };
    output(clean()).await;
    let expected: BTreeSet<String> = new
        .iter()
        .chain(&["docker.io/rancher/harvester-upgrade-toolkit:v1.7.1"])
        .map(|image| (*image).to_owned())
        .collect();
    assert_eq!(store.list().await.unwrap(), expected);
    output(clean()).await;
    assert_eq!(
        store.list().await.unwrap(),
        expected,
        "a second time there is nothing left to remove"
    );
}
