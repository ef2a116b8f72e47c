//! The manager as it ships: a process that finds its cluster by KUBECONFIG, over real HTTP and in real time.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::Duration,
};

use api::{Phase, UpgradePlan, annotations, names, reasons};
use apiserver::Identity;
use cli::rehearsal::{Rehearsal, SERVICE_ACCOUNT, Scenario, beginning};
use clock::Clock;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::net::TcpListener;
use world::{Definitions, Durations};

/// Ends the process that this test started, and no other.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The answer to a GET request, or nothing when no server listens yet.
fn answer(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Its status line.
fn get(address: &str, path: &str) -> Option<String> {
    answer(address, path)?.lines().next().map(str::to_owned)
}

/// An address on loopback that is not used.
async fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_manager_process_is_healthy_leads_works_and_ends_on_sigterm() {
    // The API server's certificate cannot be read here, so the plan is to fail its pre-flight checks once their time is
    // up, by name.
    let scenario = Scenario {
        durations: Durations::instant(),
        definitions: testbed::real_definitions().map_or(Definitions::Ours, Definitions::Given),
        ..Scenario::default()
    };
    let rehearsal = Rehearsal::start(scenario, Clock::simulated(beginning(), 1.0))
        .await
        .unwrap();
    // Its addresses are those of a simulated network; nothing may connect to them.
    let slices: Api<EndpointSlice> = Api::namespaced(rehearsal.server.client(), names::DEFAULT_NAMESPACE);
    for slice in slices.list(&ListParams::default()).await.unwrap() {
        let loopback = json!({"endpoints": [{"addresses": ["127.0.0.1"]}]});
        slices
            .patch(&slice.name_any(), &PatchParams::default(), &Patch::Merge(loopback))
            .await
            .unwrap();
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(rehearsal.server.clone().serve(listener, std::future::pending()));
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join("kubeconfig");
    let manager = Identity::service_account(names::HARVESTER_NAMESPACE, SERVICE_ACCOUNT);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        // The webhooks of a rehearsal let no other client write the status of plans.
        "users": [{"name": "u", "user": {"token": rehearsal.server.token_for(&manager)}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let (health, metrics) = (free_address().await, free_address().await);
    let child = Command::new(assert_cmd::cargo::cargo_bin("upgrade-toolkit"))
        .args([
            "manager",
            "--leader-elect",
            "--leader-election-namespace",
            names::HARVESTER_NAMESPACE,
        ])
        .args(["--identity", "the-process", "--health-probe-bind-address", &health])
        .args(["--deadline", "preflight=1s"])
        .args(["--metrics-bind-address", &metrics, "--metrics-secure=false"])
        .env("KUBECONFIG", &kubeconfig)
        .env("ENABLE_WEBHOOKS", "false")
        .env("UPGRADE_TOOLKIT_FIELD_VALIDATION", "Strict")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut running = Running(child);
    // Nor do the kubelets of simulated nodes listen anywhere.
    let mut plan = rehearsal.plan(false, &[]);
    let skip = (annotations::SKIP_GC_THRESHOLD_CHECK.to_owned(), "true".to_owned());
    plan.annotations_mut().extend([skip]);
    let plan = rehearsal.create_unchecked(plan).await.unwrap();
    let ended = |plan: &UpgradePlan| plan.phase() == Some(Phase::Failed);
    let ended = rehearsal
        .follow(&plan.name_any(), Some(Duration::from_secs(180)), ended)
        .await;
    let plan = ended.expect("the manager carries the plan on");
    let why = &plan.condition(reasons::PROGRESSING).unwrap().message;
    assert!(
        why.starts_with("no certificates found for kubernetes API server: ") && why.contains("127.0.0.1:6443"),
        "{why}"
    );
    assert_eq!(get(&health, "/healthz").as_deref(), Some("HTTP/1.1 200 OK"));
    assert_eq!(get(&health, "/readyz").as_deref(), Some("HTTP/1.1 200 OK"));
    // The manager observes its own last write shortly after.
    let phase = format!(
        "upgrade_toolkit_plan_phase{{phase=\"Failed\",plan=\"{}\"}} 1",
        plan.name_any()
    );
    let shown = tokio::task::spawn_blocking(move || {
        loop {
            let shown = answer(&metrics, "/metrics").unwrap_or_default();
            if shown.contains(&phase) {
                return shown;
            }
        }
    });
    let shown = tokio::time::timeout(Duration::from_secs(60), shown).await;
    let shown = shown.expect("metrics show the phase").unwrap();
    assert!(shown.lines().any(|line| line == "upgrade_toolkit_leader 1"), "{shown}");
    for counted in [
        "upgrade_toolkit_api_requests_total{code=\"200\",verb=\"list\"}",
        "upgrade_toolkit_plan_writes_total",
    ] {
        assert!(
            shown.lines().any(|line| line.starts_with(counted)),
            "{counted} is not in\n{shown}"
        );
    }
    let leases = rehearsal.objects("coordination.k8s.io", "leases");
    let lease = leases
        .iter()
        .find(|lease| lease.name_any() == names::LEASE)
        .expect("the lease is taken");
    assert_eq!(lease.data["spec"]["holderIdentity"], "the-process");
    let id = running.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let exit = tokio::task::spawn_blocking(move || running.0.wait())
        .await
        .unwrap()
        .unwrap();
    assert!(exit.success(), "{exit}");
    serving.abort();
}
