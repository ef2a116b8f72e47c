//! `rehearse --snapshot` as a user runs it: exit codes, streams, forms of output.

use std::{path::Path, process::Output, time::Duration};

use assert_cmd::Command;
use cli::rehearsal::{Rehearsal, Scenario, beginning};
use clock::Clock;
use serde_json::{Value, json};
use snapshot::Snapshot;

fn rehearse(arguments: &[&str]) -> Output {
    let mut command = Command::cargo_bin("upgrade-toolkit").unwrap();
    // No cluster of the user who runs the tests.
    command.env("KUBECONFIG", "/nonexistent/kubeconfig");
    command.arg("rehearse").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The usual cluster, as it is a minute after it was set up.
fn seen() -> Snapshot {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let clock = Clock::simulated(beginning(), 1.0);
        let rehearsal = Rehearsal::start(Scenario::default(), clock).await.unwrap();
        rehearsal.clock.sleep(Duration::from_secs(60)).await;
        snapshot::live::take(&rehearsal.server.client(), rehearsal.clock.now()).await
    })
}

fn saved(folder: &Path, snapshot: &Snapshot) -> String {
    let path = folder.join("cluster.zst");
    snapshot::file::save(snapshot, &path).unwrap();
    path.display().to_string()
}

#[test]
fn a_healthy_cluster_has_exit_code_0_and_the_forecast_alone_on_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), &seen());
    let output = rehearse(&["--snapshot", &path, "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let forecast: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(forecast["verdict"], "succeeds");
    assert_eq!(
        (&forecast["from"], &forecast["to"]),
        (&json!("v1.7.1"), &json!("v1.8.0"))
    );
    assert!(text(&output.stderr).contains("phase NodeUpgrading"));
}

#[test]
fn a_budget_that_blocks_a_node_is_in_the_text_and_in_the_report_for_a_change_request() {
    let folder = tempfile::tempdir().unwrap();
    let mut snapshot = seen();
    let pod = json!({
        "metadata": {"name": "shop-0", "namespace": "default", "labels": {"app": "shop"}},
        "spec": {"nodeName": "node-2", "containers": [{"name": "main"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let budget = json!({
        "metadata": {"name": "shop", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "shop"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    });
    snapshot.add("pods", pod).unwrap();
    snapshot.add("budgets", budget).unwrap();
    let path = saved(folder.path(), &snapshot);
    let output = rehearse(&["--snapshot", &path]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}{}", text(&output.stderr));
    for expected in [
        "node node-2: a disruption budget (D02)  PodDisruptionBudget default/shop",
        "In the rehearsal: the budget was deleted.",
        "What to change first",
        "The upgrade would be blocked: 1 blocker.",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let output = rehearse(&["--snapshot", &path, "-o", "markdown"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(shown.starts_with("# Upgrade forecast\n"), "{shown}");
    assert!(
        shown.contains("| node-2 | a disruption budget | PodDisruptionBudget default/shop, Node node-2 |"),
        "{shown}"
    );
}

#[test]
fn what_cannot_be_read_is_3_and_wrong_usage_is_2() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().display().to_string();
    let file = folder.path().join("text");
    std::fs::write(&file, "text").unwrap();
    let nodeless = saved(
        folder.path(),
        &Snapshot::unknown(jiff::Timestamp::default(), "forbidden"),
    );
    for arguments in [
        ["--snapshot", "/nonexistent/file"],
        ["--snapshot", &file.display().to_string()],
        ["--snapshot", &nodeless],
        ["--snapshot", "live"],
    ] {
        let output = rehearse(&arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).starts_with("Error: "), "{}", text(&output.stderr));
    }
    for arguments in [
        &["--snapshot", empty.as_str(), "--nodes", "3"] as &[&str],
        &["--snapshot", &empty, "--kubeconfig", "x"],
        &["--kubeconfig", "x"],
        &["-o", "markdown"],
    ] {
        let output = rehearse(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    }
}
