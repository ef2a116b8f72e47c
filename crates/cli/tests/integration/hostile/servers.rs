//! The servers under attack: processes as they ship.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use api::names;
use cli::rehearsal::{Rehearsal, Scenario, beginning};
use clock::Clock;
use manager::webhook::configurations::VALIDATING_PATH;
use release::testing::Sources;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::timeout};
use world::{Definitions, Durations};

use crate::hostile::client::{Door, GOOD, PATIENCE, status};

/// A process that ends with the test.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// The most memory that it had so far, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        let kibibytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kibibytes * 1024
    }
}

/// One server, and the request of a well-behaved client.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) door: Door,
    pub(crate) good_request: String,
    pub(crate) good_status: u16,
    /// Where bodies are taken, if anywhere.
    pub(crate) path: &'static str,
}

impl Server {
    /// Whether a well-behaved client is served, from an address.
    pub(crate) async fn serves(&self, from: std::net::Ipv4Addr) -> bool {
        let answer = self.door.ask(from, self.good_request.as_bytes()).await;
        answer.is_some_and(|answer| status(&answer) == self.good_status)
    }

    async fn until_it_serves(&self) {
        let up = async { while !self.serves(GOOD).await {} };
        let up = timeout(PATIENCE, up).await;
        assert!(up.is_ok(), "{} does not come up", self.name);
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
}

/// A review that needs nothing of the cluster.
pub(crate) fn review() -> Value {
    review_of(
        "DELETE",
        &json!(null),
        &json!({"metadata": {"name": "up"}, "spec": {"version": "v1.8.0"}}),
    )
}

/// A review that every client of the webhook can send.
pub(crate) fn review_of(operation: &str, object: &Value, old: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5", "operation": operation, "name": "up",
        "kind": {"group": api::GROUP, "version": "v1beta1", "kind": "UpgradePlan"},
        "resource": {"group": api::GROUP, "version": "v1beta1", "resource": "upgradeplans"},
        "userInfo": {"username": "jane"},
        "object": object, "oldObject": old,
    }})
}

pub(crate) fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A manager with all its servers, and the cluster it works for.
pub(crate) struct Manager {
    pub(crate) process: Process,
    pub(crate) webhook: Server,
    pub(crate) metrics: Server,
    pub(crate) health: Server,
    _rehearsal: Rehearsal,
    _home: tempfile::TempDir,
}

/// An address on loopback that is not used.
async fn free_address() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// Foreign kinds as they really are, where their definitions are at hand.
fn definitions() -> Definitions {
    testbed::real_definitions().map_or(Definitions::Ours, Definitions::Given)
}

fn toolkit() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("upgrade-toolkit"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

impl Manager {
    pub(crate) async fn start() -> Self {
        Self::start_among(&[]).await
    }

    /// A manager in a cluster where others have put objects before it starts.
    pub(crate) async fn start_among(others: &[Value]) -> Self {
        let scenario = Scenario {
            durations: Durations::instant(),
            definitions: definitions(),
            ..Scenario::default()
        };
        let rehearsal = Rehearsal::start(scenario, Clock::simulated(beginning(), 1.0))
            .await
            .unwrap();
        world::install_by(&rehearsal.server.client(), definitions(), others)
            .await
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = listener.local_addr().unwrap();
        tokio::spawn(rehearsal.server.clone().serve(listener, std::future::pending()));
        let home = tempfile::tempdir().unwrap();
        let kubeconfig = home.path().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{api}")}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let [webhook, metrics, health] = [free_address().await, free_address().await, free_address().await];
        let child = toolkit()
            .args(["manager", "--leader-election-namespace", names::HARVESTER_NAMESPACE])
            .args(["--health-probe-bind-address", &health.to_string()])
            .args(["--metrics-bind-address", &metrics.to_string()])
            .args(["--webhook-bind-address", &webhook.to_string()])
            .env("KUBECONFIG", &kubeconfig)
            .env("UPGRADE_TOOLKIT_FIELD_VALIDATION", "Strict")
            .spawn()
            .unwrap();
        let server = |name, address, tls, good_request, good_status, path| Server {
            name,
            door: Door { address, tls },
            good_request,
            good_status,
            path,
        };
        let review = post(VALIDATING_PATH, &review().to_string());
        let manager = Self {
            process: Process(child),
            webhook: server("webhook", webhook, true, review, 200, VALIDATING_PATH),
            // Without a token the answer says that one is needed: that counts as served.
            metrics: server("metrics", metrics, true, get("/metrics"), 401, "/metrics"),
            health: server("health", health, false, get("/healthz"), 200, "/healthz"),
            _rehearsal: rehearsal,
            _home: home,
        };
        for server in manager.servers() {
            server.until_it_serves().await;
        }
        manager
    }

    pub(crate) fn servers(&self) -> [&Server; 3] {
        [&self.webhook, &self.metrics, &self.health]
    }
}

/// A process with one server.
pub(crate) struct One {
    pub(crate) process: Process,
    pub(crate) server: Server,
    _sources: Option<Sources>,
    _home: tempfile::TempDir,
}

impl One {
    /// A repository as a pod of it runs: without TLS and with it. What is attacked is one of the two doors.
    pub(crate) async fn repository(tls: bool) -> Self {
        let (sources, plain, secure) = (Sources::sample(), free_address().await, free_address().await);
        let home = tempfile::tempdir().unwrap();
        let identity = release::tls::mint(&["repository".to_owned()], Clock::system().now()).unwrap();
        let (certificate, key) = (home.path().join("tls.crt"), home.path().join("tls.key"));
        std::fs::write(&certificate, identity.certificate).unwrap();
        std::fs::write(&key, identity.key).unwrap();
        let child = toolkit()
            .args([
                "repo",
                "--listen",
                &plain.to_string(),
                "--tls-listen",
                &secure.to_string(),
            ])
            .arg("--tls-cert")
            .arg(certificate)
            .arg("--tls-key")
            .arg(key)
            .arg("--iso")
            .arg(sources.iso())
            .spawn()
            .unwrap();
        let server = Server {
            name: "repository",
            door: Door {
                address: if tls { secure } else { plain },
                tls,
            },
            good_request: get("/harvester-iso/harvester-release.yaml"),
            good_status: 200,
            path: "/healthz",
        };
        Self::of(Process(child), server, Some(sources), home).await
    }

    pub(crate) async fn rehearsal() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut child = toolkit()
            .args(["rehearse", "--serve", "127.0.0.1:0", "--no-plan"])
            .env("TMPDIR", home.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let process = Process(child);
        let said = |line: std::io::Result<String>| Some(line.ok()?.split("serving on http://").nth(1)?.to_owned());
        let found = tokio::task::spawn_blocking(move || lines.into_iter().find_map(said)).await;
        let found = found.unwrap().expect("it says where it serves");
        let address = found.split(';').next().unwrap().parse().unwrap();
        let server = Server {
            name: "rehearsal",
            door: Door { address, tls: false },
            good_request: get("/version"),
            good_status: 200,
            path: "/api/v1/namespaces/default/configmaps",
        };
        Self::of(process, server, None, home).await
    }

    async fn of(process: Process, server: Server, sources: Option<Sources>, home: tempfile::TempDir) -> Self {
        server.until_it_serves().await;
        Self {
            process,
            server,
            _sources: sources,
            _home: home,
        }
    }
}

/// What the chart lets a manager have.
pub(crate) fn chart_limit() -> u64 {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/harvester-upgrade-manager/values.yaml");
    let values: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let limit = values["manager"]["resources"]["limits"]["memory"].as_str().unwrap();
    let mebibytes: u64 = limit.strip_suffix("Mi").expect("a limit in Mi").parse().unwrap();
    mebibytes * 1024 * 1024
}
