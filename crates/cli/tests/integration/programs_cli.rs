//! The commands of Jobs as processes: their names, flags and exit codes.

use std::{
    path::Path,
    process::{Command, Output},
};

use api::names;
use cli::rehearsal::{Rehearsal, Scenario, beginning};
use clock::Clock;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use tokio::net::TcpListener;
use world::Definitions;

fn binary() -> std::path::PathBuf {
    assert_cmd::cargo::cargo_bin("upgrade-toolkit")
}

fn call(program: &Path, arguments: &[&str]) -> Output {
    // No cluster but the one that is named, and no pod.
    let unset = [
        "KUBECONFIG",
        "KUBERNETES_SERVICE_HOST",
        "HARVESTER_UPGRADE_POD_NAME",
        "HARVESTER_UPGRADEPLAN_NAME",
    ];
    let mut command = Command::new(program);
    command.args(arguments).env("HOME", "/nonexistent");
    command.env("UPGRADE_TOOLKIT_FIELD_VALIDATION", "Strict");
    for name in unset {
        command.env_remove(name);
    }
    command.output().unwrap()
}

fn toolkit(arguments: &[&str]) -> Output {
    call(&binary(), arguments)
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn exit_codes_are_those_that_callers_know() {
    let cases: &[(&[&str], i32, &str)] = &[
        (&[], 1, "Usage: upgrade-toolkit"),
        (&["nonsense"], 1, "'nonsense'"),
        (&["vm-live-migrate-detector"], 1, "Error: NODENAME is missing"),
        (&["restore-vm", "--node", "n"], 1, "Error: --upgrade is missing"),
        (&["restore-vm", "-upgrade=u"], 1, "Error: --node is missing"),
        (
            &["version-guard", "--strict=false"],
            1,
            "Error: UPGRADEPLANNAME is missing",
        ),
        (&["version-guard", "up", "--strict=maybe"], 2, "neither true nor false"),
        (&["restore-vm", "-nope"], 2, "unexpected argument '--nope'"),
        (&["version-guard", "up"], 1, "Error: failed to find a cluster"),
    ];
    for (arguments, code, message) in cases {
        let output = toolkit(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
    }
    let unknown = toolkit(&["nonsense"]);
    assert!(
        text(&unknown.stderr).contains("Commands: preflight, upgrade, status, doctor, logs, wait"),
        "{}",
        text(&unknown.stderr)
    );
    for command in ["vm-live-migrate-detector", "restore-vm", "version-guard"] {
        let help = toolkit(&[command, "-h"]);
        assert_eq!(help.status.code(), Some(0), "{command}");
        assert!(text(&help.stdout).contains("Exit code: 0"), "{command}");
    }
}

#[test]
fn r30_the_manager_takes_the_flags_of_the_go_manager_and_says_which_do_nothing() {
    let known = [
        "manager",
        "-leader-elect=true",
        "--leader-elect",
        "-metrics-bind-address=0",
        "--metrics-secure=T",
        "--health-probe-bind-address=0",
        "-webhook-cert-name=tls.crt",
        "-enable-http2",
        "--zap-devel=false",
        "-zap-encoder=console",
        "--zap-log-level",
        "info",
        "-zap-stacktrace-level=error",
        "--zap-time-encoding=rfc3339",
    ];
    let output = toolkit(&known);
    let said = text(&output.stderr);
    // It gets as far as any manager does that has no cluster.
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("failed to find a cluster"), "{said}");
    for flag in ["enable-http2", "zap-devel", "zap-stacktrace-level", "zap-time-encoding"] {
        let warning = format!("flag --{flag} of the Go manager does nothing here");
        assert!(said.contains(&warning), "{warning} is not in {said}");
    }
    assert!(!said.contains("{\"timestamp\""), "the log is for people: {said}");
    let unknown = toolkit(&["manager", "-zap-nonsense"]);
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn the_names_of_the_old_scripts_are_names_of_this_binary() {
    let directory = tempfile::tempdir().unwrap();
    let link = |name: &str| {
        let link = directory.path().join(name);
        std::os::unix::fs::symlink(binary(), &link).unwrap();
        link
    };
    let (node, manifests) = (link("upgrade_node.sh"), link("upgrade_manifests.sh"));
    for verb in [
        "prepare",
        "pre-drain",
        "post-drain",
        "single-node-upgrade",
        "skip-manifests",
        "clean-images",
    ] {
        let help = call(&node, &[verb, "--help"]);
        assert_eq!(help.status.code(), Some(0), "{verb}");
        let shown = text(&help.stdout);
        assert!(
            shown.contains(&format!("Usage: upgrade-toolkit node {verb}")),
            "{shown}"
        );
    }
    for (arguments, code) in [(&[] as &[&str], 1), (&["nonsense"], 1), (&["pre-drain", "--nope"], 2)] {
        let output = call(&node, arguments);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
    }
    let help = call(&manifests, &["--help"]);
    assert!(text(&help.stdout).contains("Usage: upgrade-toolkit cluster-upgrade"));
    // Without a plan there is nothing to do, and that is wrong usage.
    assert_eq!(call(&manifests, &[]).status.code(), Some(2));
}

/// Calls it as a pod does, and returns what it leaves as its termination message.
fn termination_message(arguments: &[&str]) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("termination-log");
    std::fs::write(&log, "").unwrap();
    let mut command = Command::new(binary());
    command.args(arguments).env("HOME", "/nonexistent");
    command.env("UPGRADE_TOOLKIT_FIELD_VALIDATION", "Strict");
    for name in ["KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HARVESTER_UPGRADEPLAN_NAME"] {
        command.env_remove(name);
    }
    command
        .env("SYSTEM_UPGRADE_POD_NAME", "a-pod")
        .env("TERMINATION_LOG", &log);
    let output = command.output().unwrap();
    (output.status.code(), std::fs::read_to_string(&log).unwrap())
}

#[test]
fn what_fails_before_the_first_step_leaves_a_termination_message_too() {
    let host = tempfile::tempdir().unwrap();
    let root = host.path().to_str().unwrap();
    for (arguments, why) in [
        (vec!["node", "prepare", "--plan", "up"], "failed to find a cluster"),
        (
            vec!["node", "pre-drain", "--plan", "up", "--node", "n"],
            "failed to find a cluster",
        ),
        (vec!["cluster-upgrade", "--plan", "up"], "failed to find a cluster"),
        (
            vec!["node", "skip-manifests", "toggle", "a.yaml", "--host-root", root],
            "\"toggle\" is not an action",
        ),
        (
            vec!["node", "skip-manifests", "apply", "../a.yaml", "--host-root", root],
            "\"../a.yaml\" is not the name of a manifest",
        ),
        // An empty root has no systemd: tried again until the deadline, and then named.
        (
            vec![
                "cluster-upgrade",
                "suspend-agent",
                "--host-root",
                root,
                "--deadline",
                "suspend-agent=200ms",
            ],
            "step suspend-agent did not end within 200ms: systemctl daemon-reload ended with code",
        ),
    ] {
        let (code, word) = termination_message(&arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {word}");
        assert!(word.contains(why), "{arguments:?}: {word:?}");
    }
}

#[test]
fn every_verb_with_a_deadline_knows_its_own_names() {
    for (arguments, known) in [
        (
            &["node", "prepare", "--plan", "up"][..],
            "known are wait-for-repository, ",
        ),
        (&["node", "clean-images"], "known are clean-images"),
        (&["node", "skip-manifests", "apply"], "known are skip-manifests"),
        (&["cluster-upgrade", "suspend-agent"], "known are suspend-agent"),
        (
            &["node", "pre-drain", "--plan", "up", "--node", "n"],
            "known are host, ",
        ),
    ] {
        let output = toolkit(&[arguments, &["--deadline", "lunch=1h"]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains(known), "{said}");
    }
}

#[test]
fn the_version_is_three_lines_also_by_the_old_name() {
    let directory = tempfile::tempdir().unwrap();
    let helper = directory.path().join("upgrade-helper");
    std::os::unix::fs::symlink(binary(), &helper).unwrap();
    for output in [toolkit(&["version"]), call(&helper, &["version"])] {
        assert_eq!(output.status.code(), Some(0));
        let shown = text(&output.stdout);
        let names: Vec<&str> = shown.lines().filter_map(|line| line.split(": ").next()).collect();
        assert_eq!(names, ["Version", "GitCommit", "GitTreeState"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flags_count_wherever_they_stand() {
    let scenario = Scenario {
        definitions: testbed::real_definitions().map_or(Definitions::Ours, Definitions::Given),
        ..Scenario::default()
    };
    let rehearsal = Rehearsal::start(scenario, Clock::simulated(beginning(), 1.0))
        .await
        .unwrap();
    let plan = rehearsal.create(&rehearsal.plan(true, &[])).await.unwrap();
    let plan = plan.metadata.name.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(rehearsal.server.clone().serve(listener, std::future::pending()));
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("config");
    let content = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}], "users": [{"name": "c", "user": {}}]});
    std::fs::write(&kubeconfig, content.to_string()).unwrap();
    let flags = format!("--kubeconfig={}", kubeconfig.display());
    // As the existing scripts call it, with the node first; and all the other ways.
    let ways: [Vec<&str>; 3] = [
        vec!["node-1", "--upgrade", &plan, "--log-format", "console", &flags],
        vec!["-upgrade", &plan, "-log-level=1", &flags, "node-2"],
        vec![&flags, "--shutdown=false", "node-3", "-upgrade", &plan],
    ];
    for (number, way) in ways.iter().enumerate() {
        let mut arguments = vec!["vm-live-migrate-detector"];
        arguments.extend(way);
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let output =
            tokio::task::spawn_blocking(move || toolkit(&arguments.iter().map(String::as_str).collect::<Vec<_>>()));
        let output = output.await.unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let maps: Api<ConfigMap> = Api::namespaced(rehearsal.server.client(), names::HARVESTER_NAMESPACE);
        let list = maps.get(&names::restore_config_map(&plan)).await.unwrap();
        let node = format!("node-{}", number + 1);
        assert!(
            list.data.unwrap().contains_key(&node),
            "{way:?}: --upgrade was not heard"
        );
    }
}
