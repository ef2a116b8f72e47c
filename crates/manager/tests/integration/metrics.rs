//! Metrics as Prometheus gets them: over HTTPS with a token, in the format that promtool checks.

use std::{
    collections::BTreeSet,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use api::names;
use apiserver::{ApiServer, Identity};
use manager::{
    metrics::{
        Metrics,
        server::{Access, MetricsConfig, run},
    },
    watched::Watched,
};
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{PREFIX, cluster, create, days_on, manager_client};

/// A metrics server, and where it is.
struct Served {
    url: String,
    // Serves until it is dropped.
    _server: JoinSet<()>,
}

fn serve(cluster: &ApiServer, access: Access) -> Served {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let scheme = if matches!(access, Access::Open) {
        "http"
    } else {
        "https"
    };
    let url = format!("{scheme}://{}/metrics", listener.local_addr().unwrap());
    let metrics = Metrics::new("v9.9.9").unwrap();
    metrics.requested("list", "200");
    metrics.plan_written(&Ok(()));
    let config = MetricsConfig {
        metrics,
        listener: Some(Arc::new(listener)),
        access,
    };
    let mut server = JoinSet::new();
    server.spawn(run(manager_client(cluster), days_on(0), Watched::default(), config));
    Served { url, _server: server }
}

fn authorised() -> Access {
    Access::Authorised {
        files: None,
        names: vec!["t-metrics-service.harvester-system.svc".to_owned()],
    }
}

/// What real curl gets: status code and body. It tries again while no server listens or presents a certificate yet, not
/// when it is refused.
async fn curl(url: &str, token: Option<&str>) -> (String, String) {
    let mut command = Command::new("curl");
    command.args(["-ks", "-w", "\n%{http_code}", url]);
    if let Some(token) = token {
        command.args(["-H", &format!("Authorization: Bearer {token}")]);
    }
    let asked = tokio::task::spawn_blocking(move || {
        loop {
            let output = command.output().unwrap();
            if output.status.success() {
                return output.stdout;
            }
        }
    });
    let answer = tokio::time::timeout(Duration::from_secs(60), asked).await;
    let text = String::from_utf8(answer.expect("an answer").unwrap()).unwrap();
    let (body, code) = text.rsplit_once('\n').unwrap();
    (code.to_owned(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_may_read_metrics_reads_them() {
    let cluster = cluster().await;
    create(&cluster.client(), manager::rbac::metrics_reader(PREFIX)).await;
    let reader = Identity::service_account("monitoring", "prometheus");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reads"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("{PREFIX}metrics-reader")},
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}],
    });
    create(&cluster.client(), binding).await;
    let served = serve(&cluster, authorised());
    let token = cluster.token_for(&reader);
    let stranger = cluster.token_for(&Identity::service_account(names::DEFAULT_NAMESPACE, "stranger"));

    let (code, body) = curl(&served.url, Some(&token)).await;
    assert_eq!(code, "200", "{body}");
    assert!(
        body.contains("upgrade_toolkit_build_info{version=\"v9.9.9\"} 1"),
        "{body}"
    );
    for (token, expected, word) in [
        (None, "401", "bearer token"),
        (Some("made-up"), "401", "not valid"),
        (Some(stranger.as_str()), "403", "metrics-reader"),
    ] {
        let (code, body) = curl(&served.url, token).await;
        assert_eq!(code, expected, "{body}");
        assert!(body.contains(word) && !body.contains("upgrade_toolkit"), "{body}");
    }
}

/// promtool, installed or unpacked by hack/prepare.
fn promtool() -> PathBuf {
    let unpacked = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .map(|cache| cache.join("upgrade-toolkit/prometheus/usr/bin/promtool"));
    unpacked
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("promtool"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promtool_has_nothing_to_say_about_plain_metrics() {
    let cluster = cluster().await;
    let served = serve(&cluster, Access::Open);
    let (code, body) = curl(&served.url, None).await;
    assert_eq!(code, "200");
    let mut child = Command::new(promtool())
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is there; `make prepare` unpacks it");
    child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success() && said.is_empty(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}

/// Names of metrics in a text, without the endings that histograms add.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
    let ours = words.filter(|word| word.starts_with("upgrade_toolkit_"));
    let endings = ["_sum", "_count", "_bucket"];
    ours.map(|word| {
        endings
            .iter()
            .find_map(|ending| word.strip_suffix(ending))
            .unwrap_or(word)
            .to_owned()
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_served_and_what_alerts_and_dashboard_ask_for_is_what_the_page_documents() {
    let read = |path: &str| {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let documented = metrics_in(&read("docs/metrics.md"));
    for file in ["config/prometheus/rules.yaml", "config/prometheus/dashboard.json"] {
        let asked = metrics_in(&read(file));
        assert!(!asked.is_empty() && asked.is_subset(&documented), "{file}: {asked:?}");
    }
    let served = serve(&cluster().await, Access::Open);
    let (_, body) = curl(&served.url, None).await;
    let served = metrics_in(&body);
    assert!(served.len() > 5 && served.is_subset(&documented), "{served:?}");
}

#[test]
fn promtool_accepts_the_alerts() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../config/prometheus/rules.yaml");
    let rule: serde_json::Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let groups = tempfile::NamedTempFile::with_suffix(".yml").unwrap();
    std::fs::write(groups.path(), rule["spec"].to_string()).unwrap();
    let output = Command::new(promtool())
        .args(["check", "rules"])
        .arg(groups.path())
        .output();
    let output = output.expect("promtool is there; `make prepare` unpacks it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
